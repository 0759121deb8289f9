"""IDGL: a graph and the embeddings on it refine each other; and IDGL-Anchor, linear in the nodes.

The learned graph is a dense matrix: between all nodes, or between the nodes and a few anchors.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphglow.baselines.learned_graph import (
    AnchorGraph,
    FeatureSimilarity,
    Latent,
    LearnedGraph,
    PenaltyRates,
    cut_similarity,
    squared,
)
from graphglow.baselines.method import SHARED_SPACE, WEIGHT_DECAY, Method, Model, Space, of_model
from graphglow.checks import at_least, in_unit_interval, number, rate
from graphglow.errors import InputError
from graphglow.gnn import Dropout
from graphglow.gnn.backbones.backbone import glorot
from graphglow.gnn.dropout import drop_features
from graphglow.graphs import Graph
from graphglow.ops.embeddings import unit_heads
from graphglow.training.config import RunConfig

Pair = tuple[Tensor, Tensor]

KEPT_ENTRIES = 200_000_000
"""The learned graphs of all refinements are kept for the backward pass up to this many entries
(800 MB in float32); beyond, each is made again there: a third more work, and T times less memory.
"""


@dataclass(frozen=True, kw_only=True)
class IDGLConfig(RunConfig):
    """IDGL; the defaults are its authors' settings for Cora."""

    hidden: int = 16
    """Width of the hidden layer."""
    num_heads: int = 4
    """m: weighted cosines that are averaged to compare two nodes."""
    threshold: float = 0.0
    """epsilon: similarities at or below this are no edge of the learned graph."""
    input_weight: float = 0.8
    """lambda: weight of the input graph in message passing; the learned graphs have the rest."""
    structure_momentum: float = 0.1
    """eta: weight of the graph learned from embeddings against the one learned from features."""
    smoothness: float = 0.2
    """alpha: penalty on learned edges between nodes with different features."""
    connectivity: float = 0.0
    """beta: penalty on nodes with a small degree in the learned graph (a logarithmic barrier)."""
    sparsity: float = 0.0
    """gamma: penalty on large weights in the learned graph (squared Frobenius norm)."""
    metric_dropout: float = 0.0
    """Share of the features dropped in training before nodes are compared by them; not in the
    paper, where it is 0."""
    refinements: int = 10
    """T: most learned graphs in one forward pass; 1 learns from features only."""
    tolerance: float = 4e-5
    """delta: stop refining when a graph differs from the last by less than this, relative to the
    first (both squared); 0 always makes all refinements."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("hidden", self.hidden, 1)
        at_least("num_heads", self.num_heads, 1)
        at_least("refinements", self.refinements, 1)
        in_unit_interval("input_weight", self.input_weight)
        in_unit_interval("structure_momentum", self.structure_momentum)
        if not 0 <= number("metric_dropout", self.metric_dropout) < 1:
            raise InputError(f"metric_dropout must lie in [0, 1); got {self.metric_dropout}")
        for name in ("threshold", "smoothness", "connectivity", "sparsity", "tolerance"):
            rate(name, getattr(self, name))

    @property
    def cut(self) -> float:
        """Epsilon; from 1 on, out of reach of a cosine that rounding made larger than 1."""
        return self.threshold if self.threshold < 1 else self.threshold + 1

    @property
    def rates(self) -> PenaltyRates:
        return PenaltyRates(self.smoothness, self.connectivity, self.sparsity)


@dataclass(frozen=True, kw_only=True)
class IDGLAnchorConfig(IDGLConfig):
    """IDGL-Anchor; the defaults are IDGL's for Cora."""

    num_anchors: int = 1000
    """s: nodes that all others are compared with; at most the number of nodes is used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("num_anchors", self.num_anchors, 1)


class Round(NamedTuple):
    """Step t of the refinement, as the loss sees it.

    Shapes:
        logits [N, C], penalty []; active: [] whether the step counts, None if it does for certain
    """

    logits: Tensor
    penalty: Tensor
    active: Tensor | None


class IDGL(Model):
    """Iterative Deep Graph Learning for Graph Neural Networks (Chen, Wu and Zaki, NeurIPS 2020).

    Two nodes are compared by ``s_ij = mean_p cos(w_p * v_i, w_p * v_j)``, and ``A_ij = s_ij`` where
    above epsilon, else 0. A^(1) compares features, A^(t) the embeddings of step t - 1, with other
    weights. Step t is a GCN of two layers, ``Z = relu(M X W_1)`` and ``M Z W_2``, on::

        M = lambda L_0 + (1 - lambda) (eta f(A^(t)) + (1 - eta) f(A^(1)))

    f normalises rows. It ends after T steps, or when |A^(t) - A^(t-1)|^2 <= delta |A^(1)|^2. The
    loss is L^(1) + sum_{i=2..t} L^(i) / t, each L^(i) the cross-entropy plus L_G of A^(i)
    (:meth:`LearnedGraph.penalty`); predictions are the last step's.

    Differs from the paper, or says what it does not: L_0 is D^-1/2 (A + I) D^-1/2, with the
    self-loops that all methods here have. A row without similarity receives zero, and its degree
    counts as EPS in the logarithm. Features are rows of unit length. Dropout is on the features
    and on Z, which the next graph is learned from. On a GPU all T steps are made and those that do
    not count are masked, so that an epoch can be recorded: under dropout two steps differ far more
    than delta allows, so that in training all T count anyway.

    Shapes:
        heads_x [m, D], heads_z [m, hidden]; A [N, N]
    """

    def __init__(self, graph: Graph, config: IDGLConfig) -> None:
        super().__init__(graph, config)
        self.config = config
        generator = torch.Generator().manual_seed(config.seed)
        self.weight_in = glorot(graph.num_features, config.hidden, generator)
        self.weight_out = glorot(config.hidden, graph.num_classes, generator)
        self.heads_x = glorot(config.num_heads, graph.num_features, generator)
        self.heads_z = glorot(config.num_heads, config.hidden, generator)
        self.anchors = self.draw_anchors(generator)
        self.features = FeatureSimilarity(graph.x, self.anchors)
        self.distances = self.features.distances() if config.smoothness > 0 else None
        columns = graph.num_nodes if self.anchors is None else len(self.anchors)
        self.wait = graph.y.device.type == "cpu"
        self.recompute = not keeps_all(graph.num_nodes * columns, config)

    def draw_anchors(self, generator: torch.Generator) -> Tensor | None:
        """The nodes that all others are compared with; None means all."""
        return None

    def latent(self, weights: Tensor) -> Latent:
        """The learned graph from A^(t)."""
        return LearnedGraph.of(weights)

    def loss(self, dropout: Dropout) -> Tensor:
        first, *others = self.rounds(dropout)
        total = self.training_loss(first.logits) + first.penalty
        if not others:
            return total
        losses = self.training_loss(torch.stack([step.logits for step in others]))  # [T - 1]
        losses = losses + torch.stack([step.penalty for step in others])
        one = torch.ones((), dtype=torch.bool, device=total.device)
        active = torch.stack([one if step.active is None else step.active for step in others])
        return total + (losses * active).sum() / (1 + active.sum())

    @torch.no_grad()
    def logits(self) -> Tensor:
        logits: Tensor | None = None
        for step in self.rounds(None):
            if logits is None or step.active is None:
                logits = step.logits
            else:
                logits = torch.where(step.active, step.logits, logits)
        assert logits is not None
        return logits

    def rounds(self, dropout: Dropout | None) -> Iterator[Round]:
        """The steps t = 1, 2, .. of one forward pass; on a GPU always all T."""
        config = self.config
        compared = dropout and replace(dropout, rates=(config.metric_dropout,))
        first = self.latent(self.features(self.heads_x, config.cut, compared))  # A^(1)
        xw = drop_features(self.graph.x, dropout) @ self.weight_in
        fixed = self.graph.adj @ xw, first.propagate(xw)  # the same in all steps, [N, hidden]
        z, logits, penalty = self._layers(first, first, fixed, fixed[1], _mask(xw, dropout))
        yield Round(logits, penalty, None)
        before = first.weights.detach()
        limit = config.tolerance * squared(before)
        active: Tensor | None = None
        for t in range(2, config.refinements + 1):
            # the mask is drawn here: a step that is made again in the backward pass draws nothing
            parts = (z, first, xw, fixed, _mask(xw, dropout))
            if self.recompute and torch.is_grad_enabled():
                made = checkpoint(
                    self._next_step, *parts, use_reentrant=False, preserve_rng_state=False
                )
            else:
                made = self._next_step(*parts)
            z, logits, penalty, weights = made
            yield Round(logits, penalty, active)
            if config.tolerance > 0 and t < config.refinements:
                moving = squared(weights - before) > limit
                active = moving if active is None else active & moving
                if self.wait and not bool(active):
                    return
            before = weights

    def _next_step(
        self,
        z: Tensor,
        first: Latent,
        xw: Tensor,
        fixed: Pair,
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """From Z^(t-1): Z^(t), logits, L_G and A^(t)."""
        q = unit_heads(z, self.heads_z)
        k = q if self.anchors is None else q.index_select(0, self.anchors)
        learned = self.latent(cut_similarity(q, k, self.config.cut))
        made = self._layers(learned, first, fixed, learned.propagate(xw), mask)
        return *made, learned.weights.detach()

    def _layers(
        self,
        learned: Latent,
        first: Latent,
        fixed: Pair,
        through_learned: Tensor,
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both layers on M, and L_G; of the first layer the messages are there already."""
        z = torch.relu(self._mix(*fixed, through_learned))
        z = z if mask is None else z * mask
        v = z @ self.weight_out
        from_first = first.propagate(v)
        from_learned = from_first if learned is first else learned.propagate(v)
        penalty = learned.penalty(self.distances, self.config.rates)
        return z, self._mix(self.graph.adj @ v, from_first, from_learned), penalty

    def _mix(self, through_input: Tensor, through_first: Tensor, through_learned: Tensor) -> Tensor:
        latent = torch.lerp(through_first, through_learned, self.config.structure_momentum)
        return torch.lerp(latent, through_input, self.config.input_weight)


class IDGLAnchor(IDGL):
    """IDGL-Anchor (Chen, Wu and Zaki, NeurIPS 2020, section 3.4): O(N s), never N x N.

    As :class:`IDGL`, with R_up between nodes and s anchors in place of A, and messages in two
    steps, ``f(A)`` becoming ``Delta^-1 R Lambda^-1 R^T``. With all nodes as anchors, R is IDGL's A
    (its columns in the anchors' order) and a message takes two steps of IDGL's, ``f(A) f(A)``:
    "anchors = all nodes is IDGL" holds for what is learned, not for how far it reaches.

    The graph that is regularised is the anchors': ``R^T Delta^-1 R`` [s, s], whose row sums are
    Lambda, in O(N s^2) time. The stopping rule compares R^(t), as IDGL compares A^(t). Anchors are
    drawn once per run.

    Shapes:
        R [N, s], anchors [s]
    """

    config: IDGLAnchorConfig

    def draw_anchors(self, generator: torch.Generator) -> Tensor:
        order = torch.randperm(self.graph.num_nodes, generator=generator)
        return order[: self.config.num_anchors].to(self.graph.y.device)

    def latent(self, weights: Tensor) -> Latent:
        return AnchorGraph.of(weights)


def keeps_all(entries: int, config: IDGLConfig) -> bool:
    """Whether all learned graphs, of so many entries each, are kept for the backward pass."""
    return entries * (config.refinements - 1) <= KEPT_ENTRIES


def _mask(like: Tensor, dropout: Dropout | None) -> Tensor | None:
    if dropout is None or not any(dropout.rates):
        return None
    return dropout.mask(like, tuple(like.shape))


def memory_of(graph: Graph, config: IDGLConfig, columns: int) -> int:
    """Bytes at the peak of training, of learned graphs with N x ``columns`` entries.

    At the peak there are A^(1) and either all later graphs, or two and their difference where they
    are made again; then three more for the gradient of A^(1), one use's part of it and its
    symmetric part. Sparse features need two dense copies of a head's share; dense ones, the
    weighted unit vectors of all heads.
    """
    n, features = graph.num_nodes, graph.num_features
    kept = config.refinements - 1 if keeps_all(n * columns, config) else min(2, config.refinements)
    learned = n * columns * (1 + kept + 3)
    if isinstance(graph.x, Tensor):
        compared = 3 * n * features * config.num_heads
    else:
        compared = 2 * max(n, columns) * features + 6 * config.num_heads * len(graph.x.values)
    hidden = n * config.hidden * (config.num_heads * 2 + 8) * config.refinements
    return 4 * (learned + compared + hidden)


def _memory(graph: Graph, config: IDGLConfig) -> int:
    distances = 4 * graph.num_nodes**2 if config.smoothness > 0 else 0
    return memory_of(graph, config, graph.num_nodes) + distances


def _anchor_memory(graph: Graph, config: IDGLAnchorConfig) -> int:
    anchors = min(config.num_anchors, graph.num_nodes)
    regularised = anchors * (config.refinements + 3) * (graph.num_nodes + anchors)
    return memory_of(graph, config, anchors) + 4 * regularised


SPACE: Space = {
    **SHARED_SPACE,
    "weight_decay": WEIGHT_DECAY,
    "hidden": (16, 64, 96, 128),
    "threshold": (0.01,),
    "input_weight": (0.5, 0.6, 0.7, 0.8),
    "structure_momentum": (0.0, 0.1, 0.2),
    "smoothness": (0.0, 0.1, 0.2),
    "connectivity": (0.0, 0.1),
    "sparsity": (0.1, 0.2),
    "num_heads": (6, 9, 12),
}
"""Appendix C, and the weight decay that all methods search."""

METHOD = Method(
    family="structure",
    summary="IDGL: graph and embeddings refine each other (Chen et al., NeurIPS 2020)",
    config=IDGLConfig,
    build=of_model(IDGL),
    space=SPACE,
    backbone="gcn",
    memory=_memory,
    lighter="idgl-anchor",
)
ANCHOR_METHOD = Method(
    family="structure",
    summary="IDGL-Anchor: IDGL through anchors, linear in the nodes (Chen et al., NeurIPS 2020)",
    config=IDGLAnchorConfig,
    build=of_model(IDGLAnchor),
    space={**SPACE, "num_anchors": (700, 1000, 1400)},
    backbone="gcn",
    memory=_anchor_memory,
)
