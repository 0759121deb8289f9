"""IDGL: a graph and the embeddings on it refine each other; IDGL-Anchor, linear in the nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from graphglow.competitors.method import Competitor, Method
from graphglow.gnn.propagation import Dropout, drop, glorot
from graphglow.graph import Graph
from graphglow.linalg.sparse import SparseMatrix
from graphglow.paper.learner import unit_heads
from graphglow.paper.pivots import EPS
from graphglow.settings import RunConfig


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
    refinements: int = 10
    """T: most learned graphs in one forward pass; 1 learns from features only."""
    tolerance: float = 4e-5
    """delta: stop refining when a graph differs from the last by less than this, relative to the
    first (both squared); 0 always makes all refinements."""


@dataclass(frozen=True, kw_only=True)
class IDGLAnchorConfig(IDGLConfig):
    """IDGL-Anchor; the defaults are IDGL's for Cora."""

    num_anchors: int = 1000
    """s: nodes that all others are compared with; at most the number of nodes is used."""


class LearnedGraph:
    """A [N, N], symmetric, with the inverses of its row sums [N, 1] (clamped at EPS).

    Through anchors: R [N, s], with those of its row sums, Delta, and of its column sums, Lambda.
    """

    def __init__(self, weights: Tensor, *, anchored: bool) -> None:
        self.weights = weights
        self.inverse = weights.sum(1, keepdim=True).clamp_min(EPS).reciprocal()
        self.columns = weights.sum(0)[:, None].clamp_min(EPS).reciprocal() if anchored else None

    def propagate(self, v: Tensor) -> Tensor:
        """f(A) v, f the row normalisation, or Delta^-1 R Lambda^-1 R^T v: [N, F] -> [N, F]."""
        if self.columns is not None:
            v = (self.weights.T @ v) * self.columns  # at the anchors: [s, F]
        return (self.weights @ v) * self.inverse

    def penalty(self, distances: Tensor, config: IDGLConfig) -> Tensor:
        """L_G: alpha/(2n^2) sum A_ij d_ij - beta/n 1.log(A 1) + gamma/n^2 |A|_F^2 of A [n, n]: [].

        ``distances`` d_ij = |x_i - x_j|^2 are of the features. Through anchors A is their graph
        R^T Delta^-1 R [s, s], whose row sums are Lambda.
        """
        graph, inverse = self.weights, self.inverse
        if self.columns is not None:
            graph, inverse = self.weights.T @ (self.weights * self.inverse), self.columns
        n = len(graph)
        total = config.smoothness / (2 * n * n) * (graph * distances).sum()
        if config.connectivity > 0:
            total = total + config.connectivity / n * inverse.log().sum()
        if config.sparsity > 0:
            total = total + config.sparsity / (n * n) * graph.square().sum()
        return total


class IDGL(Competitor):
    """Iterative Deep Graph Learning for Graph Neural Networks (Chen, Wu and Zaki, NeurIPS 2020).

    Two nodes are compared by ``s_ij = mean_p cos(w_p * v_i, w_p * v_j)``, and ``A_ij = s_ij`` where
    above epsilon, else 0. A^(1) compares features, A^(t) the embeddings of step t - 1, with other
    weights. Step t is a GCN of two layers, ``Z = relu(M X W_1)`` and ``M Z W_2``, on::

        M = lambda L_0 + (1 - lambda) (eta f(A^(t)) + (1 - eta) f(A^(1)))

    f normalises rows. It ends after T steps, or when |A^(t) - A^(t-1)|^2 <= delta |A^(1)|^2. The
    loss is L^(1) + sum_{i=2..t} L^(i) / t, each L^(i) the cross-entropy plus L_G of A^(i)
    (:meth:`LearnedGraph.penalty`); predictions are the last step's.

    IDGL-Anchor (section 3.4), in O(N s), has R between nodes and s anchors, drawn once per run, in
    place of A, and messages in two steps, ``f(A)`` becoming ``Delta^-1 R Lambda^-1 R^T``. The
    anchors' graph ``R^T Delta^-1 R`` is regularised; the stopping rule compares R^(t). With all
    nodes as anchors R is A, but a message takes two steps of IDGL's, ``f(A) f(A)``.

    Differs from the paper, or says what it does not: L_0 is D^-1/2 (A + I) D^-1/2, with the
    self-loops that all methods here have. A row without similarity receives zero, and its degree
    counts as EPS in the logarithm. Features are rows of unit length. Dropout is on the features
    and on Z, which the next graph is learned from. Head weights start as Glorot's.

    Shapes:
        heads_x [m, D], heads_z [m, hidden]; A [N, N]; R [N, s], anchors [s], or [N] without
    """

    capturable = False  # the host asks when to stop refining
    config: IDGLConfig

    def __init__(self, graph: Graph, config: IDGLConfig) -> None:
        super().__init__(graph, config)
        self.weight_in = glorot(graph.num_features, config.hidden, self.start)
        self.weight_out = glorot(config.hidden, graph.num_classes, self.start)
        self.heads_x = glorot(config.num_heads, graph.num_features, self.start)
        self.heads_z = glorot(config.num_heads, config.hidden, self.start)
        anchors = torch.arange(graph.num_nodes)
        if isinstance(config, IDGLAnchorConfig):
            anchors = torch.randperm(graph.num_nodes, generator=self.start)[: config.num_anchors]
        self.latent = partial(LearnedGraph, anchored=isinstance(config, IDGLAnchorConfig))
        self.anchors = anchors.to(graph.y.device)
        self.distances = squared_distances(graph.x.to_dense()[self.anchors])

    def loss(self) -> Tensor:
        losses = [
            self.training_loss(logits) + learned.penalty(self.distances, self.config)
            for logits, learned in self.steps(self.dropout)
        ]
        return losses[0] + torch.stack(losses[1:]).sum() / len(losses) if losses[1:] else losses[0]

    @torch.no_grad()
    def logits(self) -> Tensor:
        *_, (logits, _) = self.steps(None)
        return logits

    def steps(self, dropout: Dropout | None) -> Iterator[tuple[Tensor, LearnedGraph]]:
        """Logits [N, C] and A^(t) of the steps t = 1, 2, .. of one forward pass."""
        config, adj = self.config, self.graph.adj
        first = learned = self.latent(self.compare_features())  # A^(1)
        last, limit = False, config.tolerance * first.weights.detach().square().sum()

        def mix(through_input: Tensor, through_first: Tensor, v: Tensor) -> Tensor:
            latent = torch.lerp(through_first, learned.propagate(v), config.structure_momentum)
            return torch.lerp(latent, through_input, config.input_weight)

        xw = drop(self.graph.x, dropout) @ self.weight_in
        fixed = adj @ xw, first.propagate(xw)  # the same in all steps, [N, hidden]
        for t in range(1, config.refinements + 1):
            z = drop(torch.relu(mix(*fixed, xw)), dropout)
            v = z @ self.weight_out
            yield mix(adj @ v, first.propagate(v), v), learned
            if last or t == config.refinements:
                return
            unit = unit_heads(z, self.heads_z)
            before, learned = learned, self.latent(self.cut(unit @ unit[self.anchors].T))
            change = (learned.weights - before.weights).detach().square().sum()
            last = config.tolerance > 0 and bool(change <= limit)

    def compare_features(self) -> Tensor:
        """Cosines of the features with the anchors', cut: [N, s]. Sparse features stay sparse.

        A head's products are X diag(w^2) X^T, over the lengths of both sides.
        """
        x = self.graph.x
        squares = x.with_values(x.values.square()) if isinstance(x, SparseMatrix) else x.square()
        keys, tiny = x.to_dense()[self.anchors].T, torch.finfo(self.heads_x.dtype).tiny  # [D, s]
        total = keys.new_zeros(self.graph.num_nodes, len(self.anchors))
        for weight in self.heads_x.square()[:, :, None]:  # [D, 1]
            length = squares @ weight  # squared, [N, 1]
            inverse = length.clamp_min(tiny).rsqrt().masked_fill(length < tiny, 0)
            total = total + inverse * (x @ (weight * keys * inverse[self.anchors].T))
        return self.cut(total / len(self.heads_x))

    def cut(self, similarity: Tensor) -> Tensor:
        """Zero where it is at most epsilon; everything if that is 1, also a rounded 1 + 1e-7."""
        threshold = self.config.threshold
        return similarity.masked_fill(similarity <= threshold + (threshold >= 1), 0)


def squared_distances(x: Tensor) -> Tensor:
    """|x_i - x_j|^2: [M, D] -> [M, M]."""
    inner = x @ x.T
    norms = inner.diagonal().clone()
    return inner.mul_(-2).add_(norms).add_(norms[:, None]).clamp_min_(0)


METHOD = Method(
    family="structure",
    summary="IDGL: graph and embeddings refine each other (Chen et al., NeurIPS 2020)",
    config=IDGLConfig,
    build=IDGL.build,
    backbone="gcn",
    pair_bytes=34,  # one graph with its cut, a head's products, distances
)
ANCHOR_METHOD = replace(
    METHOD,
    summary="IDGL-Anchor: IDGL through anchors, linear in the nodes (Chen et al., NeurIPS 2020)",
    config=IDGLAnchorConfig,
    pair_bytes=0,
)
