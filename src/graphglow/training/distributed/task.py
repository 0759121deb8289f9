"""Algorithm 3 on one graph that is spread over ranks: what the training loop trains.

Random draws do not depend on how nodes are spread. Every rank has a generator with the same seed,
on the host. A draw takes one number from it, its key; what a node gets is a function of the key and
the node's own number: a hash. So a job on two ranks drops and picks what a job on one does.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.gnn import Dropout, backbone_class, backbones_that
from graphglow.graphs import Graph
from graphglow.ops.chunked import row_blocks
from graphglow.ops.embeddings import squared_change
from graphglow.ops.sparse import SparseMatrix
from graphglow.storage import prefixed, within
from graphglow.structure import StructureLearner
from graphglow.training.adam import Adam
from graphglow.training.config import PaperConfig, Runs
from graphglow.training.device import check_runnable
from graphglow.training.distributed.ranks import Ranks
from graphglow.training.distributed.shard import Shard
from graphglow.training.distributed.structure import Pivots, ShardedStructure, sharded_structure
from graphglow.training.refine import Refinement, refine
from graphglow.training.task import by_weight

BACKENDS = ("auto", "chunked", "dense", "linear")
BLOCK_ELEMENTS = 4_000_000
"""Entries of a mask that are hashed at a time."""
_BITS = 24
"""Of a hash that decide whether an entry is kept."""


class ShardTask:
    """The GNN of one run on one rank's nodes; weights are the same on every rank.

    Each rank computes the loss of its own training nodes; the sum over ranks is the mean over
    all of them. Gradients, scores and the stopping rule of refinements are summed over ranks, so
    all ranks do the same step. Dropout and pivots depend on the seed alone, not on R.

    The shard and the learner, which is frozen, are on the rank's device. ``pivots`` are those of
    evaluation, as numbers of nodes [P]; by default they are drawn.
    """

    count = 1
    capture = False

    def __init__(
        self,
        shard: Shard,
        learner: StructureLearner,
        config: PaperConfig,
        ranks: Ranks,
        *,
        pivots: Tensor | None = None,
    ) -> None:
        check_shardable(config, learner, ranks)
        self.shard, self.learner, self.config, self.ranks = shard, learner, config, ranks
        self.graph: Graph = shard.graph
        self.runs = Runs.of([config])
        hidden = learner.config.embedding_size
        start = torch.Generator().manual_seed(config.seed)
        self.gnn = config.build_gnn(self.graph, hidden, start).to(ranks.device)
        self.num_pivots = min(config.num_pivots, shard.num_nodes)
        if pivots is None:
            self.pivots = self._drawn_pivots(start)
        else:
            self.pivots = own_pivots(pivots.to(ranks.device), shard.nodes)
        self.generators = (torch.Generator().manual_seed(config.seed),)
        self.dropout = NodeDropout(
            (config.dropout,), self.generators, shard.nodes, _entries(self.graph.x, shard.nodes)
        )
        self.optimizer = Adam(self.gnn.parameters(), config.learning_rate, config.weight_decay)

    @property
    def weights(self) -> list[Tensor]:
        return [self.optimizer.flat]

    def state(self) -> dict[str, Tensor]:
        """All that training changes, the same on every rank; nothing is copied."""
        drawn = {"generator": self.generators[0].get_state()}
        return prefixed("gnn", self.optimizer.state()) | drawn

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state` gave, in place."""
        self.optimizer.load_state(within("gnn", state))
        self.generators[0].set_state(state["generator"])

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Update w once; return the loss of all ranks and the number of refinements."""
        fixed = not self.config.redraw_pivots or self.num_pivots == self.shard.num_nodes
        pivots = self.pivots if fixed else self._drawn_pivots(self.generators[0])
        self.optimizer.zero_grad()
        losses = [
            self._loss(step.logits, self.graph.train, self.shard.train_count)
            for step in self._refinements(pivots, self.dropout)
        ]
        loss = losses[0]
        if len(losses) > 1:
            loss = loss + torch.stack(losses[1:]).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        loss = self._sum_gradients(loss.detach())
        self.optimizer.step()
        return loss, torch.tensor(len(losses), device=loss.device)

    @torch.no_grad()
    def evaluate(self) -> Refinement[ShardedStructure]:
        """The last refinement as things stand, on fixed pivots."""
        *_, last = self._refinements(self.pivots, None)
        return last

    def logits(self) -> Tensor:
        """Evaluate the rank's own nodes: [N_r, C]."""
        return self.evaluate().logits

    @torch.no_grad()
    def validate(self) -> tuple[Tensor, Tensor]:
        """Loss and accuracy on the validation nodes of all ranks."""
        logits, nodes, count = self.logits(), self.graph.val, self.shard.val_count
        right = (logits[nodes].argmax(-1) == self.graph.y[nodes]).sum()
        loss = self._loss(logits, nodes, count)
        score = self.ranks.total(torch.stack([loss.double(), right.double()]))
        return score[0], score[1] / count

    def _refinements(
        self, pivots: Pivots, dropout: Dropout | None
    ) -> Iterator[Refinement[ShardedStructure]]:
        """The refinements of this rank's nodes; all ranks settle together."""
        config, ranks = self.config, self.ranks

        def infer(z: Tensor) -> ShardedStructure:
            return sharded_structure(
                self.learner, z, pivots, ranks, backend=config.backend, precision=config.precision
            )

        def change(z: Tensor, z_next: Tensor) -> Tensor:
            return ranks.total(squared_change(z, z_next))

        return refine(self.gnn, infer, self.graph, self.runs, dropout, wait=True, change=change)

    def _loss(self, logits: Tensor, nodes: Tensor, count: int) -> Tensor:
        """This rank's part of the mean cross-entropy over ``count`` nodes of all ranks."""
        log_p = logits.index_select(0, nodes).log_softmax(-1)
        return -log_p.gather(1, self.graph.y[nodes][:, None]).sum() / count

    def _sum_gradients(self, loss: Tensor) -> Tensor:
        """Sum the gradient of every weight, and the loss, over ranks: one flat vector."""
        parameters = self.optimizer.parameters
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = self.ranks.total(torch.cat([loss.reshape(1), *(g.flatten() for g in grads)]))
        parts = torch.split(flat[1:], [p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view(parameter.shape)
        return flat[0]

    def _drawn_pivots(self, generator: torch.Generator) -> Pivots:
        weight = self.graph.adj.crow.diff() if self.config.pivots_by_degree else None
        nodes, count = self.shard.nodes, self.num_pivots
        return draw_pivots(draw_key(generator), nodes, weight, count, self.ranks)


def check_shardable(config: PaperConfig, learner: StructureLearner, ranks: Ranks) -> None:
    """Raise unless this can be trained on shards."""
    check_runnable(config, learner, ranks.device)
    if not backbone_class(config.backbone).shardable:
        able = backbones_that(lambda kind: kind.shardable)
        raise InputError(f"backbone must be one of {able} across ranks; got {config.backbone!r}")
    if config.backend not in BACKENDS:
        raise InputError(
            f"backend must be one of {', '.join(BACKENDS)} across ranks; got {config.backend!r}"
        )
    if config.precision != "float32":
        raise InputError(f"precision must be float32 across ranks; got {config.precision!r}")
    if learner.config.neighbours is not None:
        raise InputError("a learner across ranks must have no neighbours setting; got one with it")


def _entries(x: SparseMatrix | Tensor, nodes: Tensor) -> tuple[Tensor, Tensor] | None:
    """Row, as a node's number, and column of each entry of sparse features."""
    if not isinstance(x, SparseMatrix):
        return None
    return nodes.repeat_interleave(x.crow.diff().long()), x.col.long()


@dataclass(frozen=True)
class NodeDropout(Dropout):
    """Dropout of one run whose masks depend on a node's number, not on the rank that has it.

    Shapes:
        nodes [N_r] numbers of the rank's nodes; entries [E], [E]: row, as a node's number, and
        column of each entry of sparse features
    """

    nodes: Tensor
    entries: tuple[Tensor, Tensor] | None = None

    def mask(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """0 (dropped) or 1 / (1 - rate) for each entry: [N_r, F], or [E] of sparse features."""
        (rate,) = self.rates
        key = draw_key(self.generators[0])
        if len(shape) == 1:
            assert self.entries is not None
            rows, columns = (_mixed(key, part) for part in self.entries)
        else:
            rows = _mixed(key, self.nodes)[:, None]
            columns = _mixed(key, torch.arange(shape[1], device=like.device))[None]
        mask = like.new_empty(shape)
        for block in row_blocks(shape[0], max(1, BLOCK_ELEMENTS // math.prod(shape[1:]))):
            own = columns[block] if len(shape) == 1 else columns
            # hashed with the rows' key, columns need another turn to differ from rows
            own = own * -1640531535 ^ 0x5BD1E995
            mask[block] = _kept(rows[block] ^ own, rate)
        return mask.div_(1 - rate)


def draw_key(generator: torch.Generator) -> int:
    """What one draw has of its own; the same on all ranks."""
    return int(torch.randint(2**62, (), generator=generator))


def uniform(key: int, nodes: Tensor) -> Tensor:
    """A number in (0, 1) for each node, in float64: [N_r] -> [N_r]."""
    return ((hashed(key, nodes) >> 11 & (2**52 - 1)).double() + 0.5) / 2**52


def draw_pivots(key: int, nodes: Tensor, weight: Tensor | None, count: int, ranks: Ranks) -> Pivots:
    """Draw ``count`` different nodes of the whole graph, alike or in proportion to ``weight``.

    Each rank offers those of its own with the largest keys; all ranks pick from what is offered.

    Shapes:
        nodes [N_r], weight [N_r] or None
    """
    score = uniform(key, nodes)
    if weight is not None:
        score = by_weight(score, weight.double())
    best, rows = score.topk(min(count, len(nodes)))
    offers = torch.full((count,), -torch.inf, dtype=torch.float64, device=nodes.device)
    names = torch.zeros(count, dtype=torch.int64, device=nodes.device)
    offers[: len(best)], names[: len(best)] = best, nodes[rows]
    offered, named = ranks.gather(offers).flatten(), ranks.gather(names).flatten()  # [R * P]
    chosen = offered.topk(count).indices  # [P]
    places = (chosen.div(count, rounding_mode="floor") == ranks.rank).nonzero()[:, 0]
    return Pivots(named[chosen], rows[chosen[places] % count], places)


def own_pivots(pivots: Tensor, nodes: Tensor) -> Pivots:
    """Given pivots, as numbers of the whole graph, seen by a rank with the sorted ``nodes``."""
    rows = torch.searchsorted(nodes, pivots).clamp_max(len(nodes) - 1)
    places = (nodes[rows] == pivots).nonzero()[:, 0]
    return Pivots(pivots, rows[places], places)


def hashed(key: int, numbers: Tensor) -> Tensor:
    """64 mixed bits of each number and the key (the finaliser of splitmix64): [..] -> [..]."""
    x: Tensor = numbers.long() * -7046029254386353131 + key  # products wrap around
    x = (x ^ _shifted(x, 30)) * -4658895280553007687
    x = (x ^ _shifted(x, 27)) * -7723592293110705685
    x ^= _shifted(x, 31)
    return x


def _shifted(x: Tensor, bits: int) -> Tensor:
    """``x >> bits`` with zeros from above, which PyTorch has for unsigned numbers only."""
    shifted: Tensor = (x >> bits) & (2 ** (64 - bits) - 1)
    return shifted


def _mixed(key: int, numbers: Tensor) -> Tensor:
    """32 bits of the hash: [..] int64 -> [..] int32."""
    return (hashed(key, numbers) >> 32).int()


def _kept(x: Tensor, rate: float) -> Tensor:
    """Mix 32 bits once more (the finaliser of murmur3) and compare with the share to keep."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * -2048144789
    x = (x ^ ((x >> 13) & 0x7FFFF)) * -1028477387
    x ^= (x >> 16) & 0xFFFF
    kept: Tensor = (x & (2**_BITS - 1)) < round((1 - rate) * 2**_BITS)
    return kept
