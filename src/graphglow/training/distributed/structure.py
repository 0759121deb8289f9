"""The latent graph of nodes that are spread over ranks (Eq. 9 and 11).

Each rank has the rows of Gamma that belong to its nodes; every rank has all pivots. Sums over
nodes, and nothing else, go over the wire: for each layer P x (F + 1) numbers,

    s_p = sum_u Gamma_up [v_u, 1]      a sum over ranks       c_p = s_p[:F] / s_p[F]
    o_u = sum_p Gamma_up c_p / sum_p Gamma_up                 local

or W x (F + 1) of them where nothing is cut: s = K (sum over ranks of Q^T [v, 1]).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphglow.ops import similarity
from graphglow.ops.chunked import BLOCK_ELEMENTS
from graphglow.ops.eager import EPS
from graphglow.ops.pivot_propagate import DENSE_LIMIT
from graphglow.structure import PivotStructure, StructureLearner
from graphglow.training.distributed.ranks import Ranks


class Pivots(NamedTuple):
    """The pivots as one rank sees them.

    Shapes:
        nodes [P] their numbers in the graph; rows [p] the own ones among the rank's nodes;
        places [p] where these stand in ``nodes``
    """

    nodes: Tensor
    rows: Tensor
    places: Tensor

    def embeddings(self, z: Tensor, ranks: Ranks) -> Tensor:
        """The embeddings of all pivots, from all ranks: z [N_r, D] -> [P, D]."""
        own = z.new_zeros(len(self.nodes), z.shape[1])
        return ranks.total(own.index_copy(0, self.places, z.index_select(0, self.rows)))


@dataclass(frozen=True, eq=False)
class ShardedStructure:
    """A rank's rows of the node-pivot graph, and the sums over all ranks that messages need.

    Args:
        local: q of the rank's nodes and k of all pivots. Its backend says how: ``linear``;
            ``dense``, which keeps Gamma; ``chunked``, which makes a block of rows at a time, and
            once more in the backward pass; ``auto`` takes the first of these that can be.
        ranks: Those that the sums go over.
    """

    local: PivotStructure
    ranks: Ranks

    def propagate(self, v: Tensor) -> Tensor:
        """Pass messages to the pivots of all ranks and back: v [N_r, F] -> [N_r, F]."""
        q, k = self.local.q, self.local.k
        if self.chosen_backend == "linear":
            sums = k @ self.ranks.total(_with_sum(q, v))  # [P, F + 1]
            to_pivots = sums[:, :-1] / sums[:, -1:].clamp_min(EPS)
            row_sum = q @ k.sum(0)[:, None]  # [N_r, 1]
            return q @ (k.mT @ to_pivots) / row_sum.clamp_min(EPS)
        blocks = zip(self._blocks(q), self._blocks(v), strict=True)
        parts = (self._with_gamma(_with_sum, rows, values) for rows, values in blocks)
        sums = self.ranks.total(reduce(torch.add, parts))  # [P, F + 1]
        to_pivots = sums[:, :-1] / sums[:, -1:].clamp_min(EPS)
        means = [self._with_gamma(_mean_over_pivots, rows, to_pivots) for rows in self._blocks(q)]
        return torch.cat(means)

    @cached_property
    def chosen_backend(self) -> str:
        local = self.local
        if local.backend != "auto":
            return local.backend
        if local.threshold is None and local.kernel == "identity":
            return "linear"
        entries = self._per_row * local.q.shape[0]
        return "dense" if entries <= DENSE_LIMIT else "chunked"

    def _blocks(self, x: Tensor) -> tuple[Tensor, ...]:
        """All rows, or as many at a time as :data:`BLOCK_ELEMENTS` allows."""
        dense = self.chosen_backend == "dense"
        return torch.split(x, len(x) if dense else max(1, BLOCK_ELEMENTS // self._per_row))

    def _with_gamma(
        self, use: Callable[[Tensor, Tensor], Tensor], q: Tensor, values: Tensor
    ) -> Tensor:
        """``use(Gamma, values)`` for the rows q; a block is made again where gradients need it."""
        if self.chosen_backend == "dense":
            return use(self._gamma, values)
        s = self.local

        def block(q: Tensor, k: Tensor, values: Tensor) -> Tensor:
            gamma = similarity(q, k, threshold=s.threshold, kernel=s.kernel, heads=s.heads)
            return use(gamma, values)

        if not torch.is_grad_enabled():
            return block(q, s.k, values)
        out: Tensor = checkpoint(
            block,
            q,
            s.k,
            values,
            use_reentrant=False,
            preserve_rng_state=False,
            determinism_check="none",
        )
        return out

    @property
    def _per_row(self) -> int:
        """Entries of Gamma, or of its heads, that one node has."""
        heads = 1 if self.local.kernel == "identity" else self.local.heads
        return self.local.k.shape[0] * heads

    @cached_property
    def _gamma(self) -> Tensor:
        return self.local.gamma()


def sharded_structure(
    learner: StructureLearner, z: Tensor, pivots: Pivots, ranks: Ranks, **settings: Any
) -> ShardedStructure:
    """Infer the latent graph from embeddings z [N_r, D] of this rank's nodes."""
    q, k = learner.factors(z, pivots.embeddings(z, ranks))
    return ShardedStructure(learner.pivot_structure(q, k, **settings), ranks)


def _with_sum(gamma: Tensor, v: Tensor) -> Tensor:
    """Gamma^T [v, 1]: [N_r, P], [N_r, F] -> [P, F + 1]."""
    return torch.cat([gamma.mT @ v, gamma.sum(0)[:, None]], dim=1)


def _mean_over_pivots(gamma: Tensor, to_pivots: Tensor) -> Tensor:
    return gamma @ to_pivots / gamma.sum(1, keepdim=True).clamp_min(EPS)
