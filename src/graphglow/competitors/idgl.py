"""IDGL: a graph and the embeddings on it refine each other; IDGL-Anchor, linear in the nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphglow.checks import at_least, in_unit_interval, number, rate
from graphglow.competitors.feature_similarity import FeatureSimilarity, cut_similarity
from graphglow.competitors.method import SHARED_SPACE, WEIGHT_DECAY, Method, Model, Space, of_model
from graphglow.errors import InputError
from graphglow.gnn import Dropout, drop_features, glorot
from graphglow.graph import Graph
from graphglow.ops import EPS
from graphglow.ops.embeddings import unit_heads
from graphglow.settings import RunConfig

KEPT_ENTRIES = 200_000_000
"""Learned graphs are kept for the backward pass up to this many entries in all (800 MB in float32);
beyond, each is made again there: a third more work, and T times less memory."""


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
        for name in ("hidden", "num_heads", "refinements"):
            at_least(name, getattr(self, name), 1)
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


@dataclass(frozen=True, kw_only=True)
class IDGLAnchorConfig(IDGLConfig):
    """IDGL-Anchor; the defaults are IDGL's for Cora."""

    num_anchors: int = 1000
    """s: nodes that all others are compared with; at most the number of nodes is used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("num_anchors", self.num_anchors, 1)


def penalty(graph: Tensor, inverse: Tensor, distances: Tensor | None, config: IDGLConfig) -> Tensor:
    """L_G: alpha/(2n^2) sum A_ij d_ij - beta/n 1.log(A 1) + gamma/n^2 |A|_F^2 of A [n, n]: [].

    ``inverse`` is 1 / (A 1); ``distances`` are d, of the features; None where alpha is 0.
    """
    n = len(inverse)
    total = inverse.new_zeros(())
    if distances is not None:  # row by row: no third matrix is made
        inner = torch.bmm(graph[:, None], distances[:, :, None]).sum()
        total = total + config.smoothness / (2 * n * n) * inner
    if config.connectivity > 0:
        total = total + config.connectivity / n * inverse.log().sum()
    if config.sparsity > 0:
        total = total + config.sparsity / (n * n) * squared(graph)
    return total


def squared(weights: Tensor) -> Tensor:
    """|A|_F^2."""
    norm: Tensor = torch.linalg.vector_norm(weights)
    return norm.square()


class LearnedGraph:
    """A [N, N], symmetric, with the inverses of its row sums [N, 1] (clamped at EPS)."""

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights
        self.inverse = weights.sum(1, keepdim=True).clamp_min(EPS).reciprocal()

    def propagate(self, v: Tensor) -> Tensor:
        """f(A) v, f the row normalisation: [N, F] -> [N, F]."""
        return (self.weights @ v) * self.inverse

    def penalty(self, distances: Tensor | None, config: IDGLConfig) -> Tensor:
        """L_G of A."""
        return penalty(self.weights, self.inverse, distances, config)


class AnchorGraph(LearnedGraph):
    """R [N, s] with the inverses of its row sums Delta [N, 1] and column sums Lambda [s, 1].

    With all nodes as anchors, R is IDGL's A (its columns in the anchors' order) and a message takes
    two steps of IDGL's, ``f(A) f(A)``: "anchors = all nodes is IDGL" holds for what is learned, not
    for how far it reaches.
    """

    def __init__(self, weights: Tensor) -> None:
        super().__init__(weights)
        self.inverse_columns = weights.sum(0)[:, None].clamp_min(EPS).reciprocal()

    def propagate(self, v: Tensor) -> Tensor:
        """Delta^-1 R Lambda^-1 R^T v, from nodes to anchors and back."""
        at_anchors = (self.weights.T @ v) * self.inverse_columns  # [s, F]
        return (self.weights @ at_anchors) * self.inverse

    def penalty(self, distances: Tensor | None, config: IDGLConfig) -> Tensor:
        """L_G of the anchors' graph R^T Delta^-1 R [s, s], whose row sums are Lambda."""
        graph = self.weights
        if config.smoothness > 0 or config.sparsity > 0:
            graph = self.weights.T @ (self.weights * self.inverse)
        return penalty(graph, self.inverse_columns, distances, config)


class Round(NamedTuple):
    """Step t of the refinement, as the loss sees it."""

    logits: Tensor
    penalty: Tensor
    active: Tensor | None
    """Whether the step counts; None if it does for certain."""


class IDGL(Model):
    """Iterative Deep Graph Learning for Graph Neural Networks (Chen, Wu and Zaki, NeurIPS 2020).

    Two nodes are compared by ``s_ij = mean_p cos(w_p * v_i, w_p * v_j)``, and ``A_ij = s_ij`` where
    above epsilon, else 0. A^(1) compares features, A^(t) the embeddings of step t - 1, with other
    weights. Step t is a GCN of two layers, ``Z = relu(M X W_1)`` and ``M Z W_2``, on::

        M = lambda L_0 + (1 - lambda) (eta f(A^(t)) + (1 - eta) f(A^(1)))

    f normalises rows. It ends after T steps, or when |A^(t) - A^(t-1)|^2 <= delta |A^(1)|^2. The
    loss is L^(1) + sum_{i=2..t} L^(i) / t, each L^(i) the cross-entropy plus L_G of A^(i)
    (:func:`penalty`); predictions are the last step's.

    IDGL-Anchor (section 3.4), in O(N s) and never N x N, has R between nodes and s anchors in place
    of A, and messages in two steps, ``f(A)`` becoming ``Delta^-1 R Lambda^-1 R^T``. The graph that
    is regularised is the anchors', ``R^T Delta^-1 R`` [s, s]; the stopping rule compares R^(t).
    Anchors are drawn once per run.

    Differs from the paper, or says what it does not: L_0 is D^-1/2 (A + I) D^-1/2, with the
    self-loops that all methods here have. A row without similarity receives zero, and its degree
    counts as EPS in the logarithm. Features are rows of unit length. Dropout is on the features
    and on Z, which the next graph is learned from. On a GPU all T steps are made and those that do
    not count are masked, so that an epoch can be recorded: under dropout two steps differ far more
    than delta allows, so that in training all T count anyway.

    Shapes:
        heads_x [m, D], heads_z [m, hidden]; A [N, N]; R [N, s], anchors [s]
    """

    def __init__(self, graph: Graph, config: IDGLConfig) -> None:
        super().__init__(graph, config)
        self.config = config
        generator = torch.Generator().manual_seed(config.seed)
        self.weight_in = glorot(graph.num_features, config.hidden, generator)
        self.weight_out = glorot(config.hidden, graph.num_classes, generator)
        self.heads_x = glorot(config.num_heads, graph.num_features, generator)
        self.heads_z = glorot(config.num_heads, config.hidden, generator)
        self.anchors, self.latent = None, LearnedGraph
        if isinstance(config, IDGLAnchorConfig):
            order = torch.randperm(graph.num_nodes, generator=generator)
            self.anchors = order[: config.num_anchors].to(graph.y.device)
            self.latent = AnchorGraph
        self.features = FeatureSimilarity(graph.x, self.anchors)
        self.distances = self.features.distances() if config.smoothness > 0 else None
        self.wait = graph.y.device.type == "cpu"
        self.recompute = not keeps_all(graph.num_nodes, config)

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
        steps = self.rounds(None)
        logits = next(steps).logits
        for new, _, active in steps:
            logits = new if active is None else torch.where(active, new, logits)
        return logits

    def rounds(self, dropout: Dropout | None) -> Iterator[Round]:
        """The steps t = 1, 2, .. of one forward pass; on a GPU always all T."""
        config = self.config
        compared = dropout and replace(dropout, rates=(config.metric_dropout,))
        first = self.latent(self.features(self.heads_x, config.cut, compared))  # A^(1)
        xw = drop_features(self.graph.x, dropout) @ self.weight_in
        fixed = [self.graph.adj @ xw, first.propagate(xw)]  # the same in all steps, [N, hidden]
        passed = [*fixed, fixed[1]]
        z, logits, penalty = self._layers(first, first, passed, _mask(xw, dropout))
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
        self, z: Tensor, first: LearnedGraph, xw: Tensor, fixed: list[Tensor], mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """From Z^(t-1): Z^(t), logits, L_G and A^(t)."""
        q = unit_heads(z, self.heads_z)
        k = q if self.anchors is None else q.index_select(0, self.anchors)
        learned = self.latent(cut_similarity(q, k, self.config.cut))
        passed = [*fixed, learned.propagate(xw)]
        return *self._layers(learned, first, passed, mask), learned.weights.detach()

    def _layers(
        self, learned: LearnedGraph, first: LearnedGraph, passed: list[Tensor], mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Both layers on M, and L_G; of the first layer the messages are passed already."""
        z = torch.relu(self._mix(*passed))
        z = z if mask is None else z * mask
        v = z @ self.weight_out
        from_first = first.propagate(v)
        from_learned = from_first if learned is first else learned.propagate(v)
        penalty = learned.penalty(self.distances, self.config)
        return z, self._mix(self.graph.adj @ v, from_first, from_learned), penalty

    def _mix(self, through_input: Tensor, through_first: Tensor, through_learned: Tensor) -> Tensor:
        latent = torch.lerp(through_first, through_learned, self.config.structure_momentum)
        return torch.lerp(latent, through_input, self.config.input_weight)


def columns_of(num_nodes: int, config: IDGLConfig) -> int:
    """Of a learned graph: one per node, or per anchor."""
    return min(getattr(config, "num_anchors", num_nodes), num_nodes)


def keeps_all(num_nodes: int, config: IDGLConfig) -> bool:
    """Whether all learned graphs are kept for the backward pass."""
    entries = num_nodes * columns_of(num_nodes, config)
    return entries * (config.refinements - 1) <= KEPT_ENTRIES


def _mask(like: Tensor, dropout: Dropout | None) -> Tensor | None:
    if dropout is None or not any(dropout.rates):
        return None
    return dropout.mask(like, tuple(like.shape))


def memory(graph: Graph, config: IDGLConfig) -> int:
    """Bytes at the peak of training.

    There are A^(1) and either all later graphs, or two and their difference where they are made
    again; then three more for the gradient of A^(1), one use's part of it and its symmetric part.
    Sparse features need two dense copies of a head's share; dense ones, the weighted unit vectors
    of all heads. Regularised are the distances, or all that is made of the anchors' graphs.
    """
    n, features = graph.num_nodes, graph.num_features
    columns = columns_of(n, config)
    kept = config.refinements - 1 if keeps_all(n, config) else min(2, config.refinements)
    if isinstance(graph.x, Tensor):
        compared = 3 * n * features * config.num_heads
    else:
        compared = 2 * max(n, columns) * features + 6 * config.num_heads * len(graph.x.values)
    regularised = n * n if config.smoothness > 0 else 0
    if isinstance(config, IDGLAnchorConfig):
        regularised = columns * (config.refinements + 3) * (n + columns)
    hidden = n * config.hidden * (config.num_heads * 2 + 8) * config.refinements
    return 4 * (n * columns * (1 + kept + 3) + compared + regularised + hidden)


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
    "structure",
    "IDGL: graph and embeddings refine each other (Chen et al., NeurIPS 2020)",
    IDGLConfig,
    of_model(IDGL),
    SPACE,
    backbone="gcn",
    memory=memory,
    lighter="idgl-anchor",
)
ANCHOR_METHOD = Method(
    "structure",
    "IDGL-Anchor: IDGL through anchors, linear in the nodes (Chen et al., NeurIPS 2020)",
    IDGLAnchorConfig,
    of_model(IDGL),
    {**SPACE, "num_anchors": (700, 1000, 1400)},
    backbone="gcn",
    memory=memory,
)
