"""CPGNN: beliefs from the features, passed along edges through a learned class compatibility."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from graphglow.competitors.method import Competitor, Method
from graphglow.gnn.propagation import Dropout, drop, glorot, vector
from graphglow.graph import Graph
from graphglow.linalg.rows import entries
from graphglow.linalg.sparse import SparseMatrix
from graphglow.settings import RunConfig

Estimator = Literal["mlp", "cheb"]
Adjacency = Literal["raw", "symmetric"]

SINKHORN_STEPS = 200
SMOOTHING = 1e-3
"""Added to each count of class pairs, as a share of their mean: Sinkhorn-Knopp needs no zeros."""
ROUNDING = 1e-5
"""Row sums of H_bar up to this are taken as zero."""


@dataclass(frozen=True, kw_only=True)
class CPGNNConfig(RunConfig):
    """CPGNN: a prior belief of each node's class, then propagation by class compatibility."""

    least: ClassVar = RunConfig.least | {"pretrain_epochs": 0}

    weight_decay: float = 5e-3
    """L2 penalty on the prior belief estimator's weights."""
    dropout: float = 0.5
    """Share of the estimator's inputs and hidden units dropped in training."""
    hidden: int = 64
    """Width of the prior belief estimator's hidden layer."""
    estimator: Estimator = "cheb"
    """Where the prior beliefs come from: mlp reads features only, cheb is a Chebyshev GNN."""
    propagations: int = 2
    """K: how often beliefs pass along the edges. The paper has 1 and 2."""
    adjacency: Adjacency = "symmetric"
    """How a node weighs its neighbours: raw sums them, as the paper does, so that hubs get huge
    logits; symmetric divides by the root of both degrees."""
    co_training: float = 1.0
    """eta: weight of the prior beliefs' own loss beside that of the final ones."""
    pretrain_epochs: int = 100
    """Steps that train the estimator alone before the first epoch; they count in the seconds."""


class BeliefEstimator(nn.Module):
    """Class logits relu(X * W + b) * W' + b' [N, C], where * is a product (mlp) or ChebNet's layer.

    ChebNet (Defferrard et al., NeurIPS 2016): X * W is sum_k T_k(L~) X W_k, k = 0 .. 2, with
    L~ = 2 L / lambda_max - I and L = I - D^-1/2 A D^-1/2. The largest eigenvalue is replaced by its
    bound, 2, so that L~ = -D^-1/2 A D^-1/2. The W_k stand side by side, so that X is read once.
    """

    def __init__(self, graph: Graph, config: CPGNNConfig, generator: torch.Generator) -> None:
        super().__init__()
        chebyshev = config.estimator == "cheb"
        self.operator = weighted_neighbours(graph, "symmetric") if chebyshev else None  # -L~

        def weights(rows: int, columns: int) -> nn.Parameter:
            maps = [glorot(rows, columns, generator).data for _ in range(3 if chebyshev else 1)]
            return nn.Parameter(torch.cat(maps, dim=1))

        self.weight_in = weights(graph.num_features, config.hidden)
        self.weight_out = weights(config.hidden, graph.num_classes)
        self.bias_in, self.bias_out = vector(config.hidden), vector(graph.num_classes)
        self.x = graph.x

    def forward(self, dropout: Dropout | None) -> Tensor:
        hidden = self._mix(drop(self.x, dropout) @ self.weight_in) + self.bias_in
        hidden = drop(torch.relu(hidden), dropout)  # [N, H]
        return self._mix(hidden @ self.weight_out) + self.bias_out

    def _mix(self, products: Tensor) -> Tensor:
        """sum_k T_k(L~) v_k of the columns v_k that W_k made: v_0 + L~ (v_1 + 2 L~ v_2) - v_2."""
        if self.operator is None:
            return products
        v0, v1, v2 = products.chunk(3, dim=1)
        return v0 - self.operator @ (v1 - 2 * (self.operator @ v2)) - v2


class CPGNN(Competitor):
    """Graph Neural Networks with Heterophily (Zhu et al., AAAI 2021).

    The estimator's beliefs B_p = softmax(R), centred, are B0 = B_p - 1/C. They pass along the
    edges through the centred compatibility H_bar = H - 1/C of the classes:
    B_k = B0 + A B_{k-1} H_bar for k = 1 .. K; the prediction is softmax(B_K). The loss is the
    cross-entropy of softmax(B_K), plus eta times that of B_p, plus Phi(H_bar), which keeps the
    row sums at zero. The estimator is trained alone first; then H starts as the Sinkhorn-Knopp
    scaling of Y^T A B~, where Y has the training labels and B~ is Y on the training nodes and B_p
    on the others, and is trained along.

    Differs from the paper: A is D^-1/2 A D^-1/2 unless ``adjacency`` is raw; the counts behind H
    are of the raw A; the estimator's L2 penalty is not scaled by eta; edge weights are not read;
    an additive smoothing keeps classes without training nodes from dividing by zero.

    Shapes:
        compatibility [C, C] is H_bar, zero before :meth:`start_compatibility`
    """

    capturable = False  # its first step differs from the others
    config: CPGNNConfig

    def __init__(self, graph: Graph, config: CPGNNConfig) -> None:
        super().__init__(graph, config)
        self.estimator = BeliefEstimator(graph, config, self.start)
        self.compatibility = nn.Parameter(torch.zeros(graph.num_classes, graph.num_classes))
        self.weighing = weighted_neighbours(graph, config.adjacency)
        self.pretrained = False

    def propagate(self, prior: Tensor) -> Tensor:
        """Final logits from the estimator's: [N, C] -> [N, C]."""
        start = prior.softmax(-1) - 1 / prior.shape[-1]
        beliefs = start
        for _ in range(self.config.propagations):
            beliefs = start + self.weighing @ (beliefs @ self.compatibility)
        return beliefs

    def forward(self, dropout: Dropout | None) -> Tensor:
        return self.propagate(self.estimator(dropout))

    def loss(self) -> Tensor:
        prior, eta = self.estimator(self.dropout), self.config.co_training
        loss = self.training_loss(self.propagate(prior)) + row_sum_penalty(self.compatibility)
        return loss + eta * self.training_loss(prior) if eta > 0 else loss

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Pre-train before the first step, within the clock; Adam goes on from there."""
        if not self.pretrained:
            for _ in range(self.config.pretrain_epochs):
                self.descend(self.training_loss(self.estimator(self.dropout)))
            self.start_compatibility()
            self.pretrained = True
        return super().train_step()

    @torch.no_grad()
    def start_compatibility(self) -> None:
        """Set H_bar from the training labels and the estimator's beliefs."""
        counts = class_pairs(self.graph, self.estimator(None).softmax(-1))
        self.compatibility.copy_(sinkhorn(counts) - 1 / self.graph.num_classes)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """H_bar has no L2 penalty."""
        compatibility = {"params": [self.compatibility], "weight_decay": 0.0}
        return [{"params": list(self.estimator.parameters())}, compatibility]


def weighted_neighbours(graph: Graph, kind: Adjacency) -> SparseMatrix:
    """A of the graph's pattern, no self-loops, or D^-1/2 A D^-1/2."""
    links = graph.links
    if kind == "raw":
        return links
    row, col, _ = entries(links)
    degree = links.crow.diff().to(links.values.dtype)  # [N]
    return links.with_values((degree[row] * degree[col]).rsqrt())


def class_pairs(graph: Graph, beliefs: Tensor) -> Tensor:
    """Y^T A B~: how much of each class the training nodes of a class have as neighbours: [C, C]."""
    known = nn.functional.one_hot(graph.y[graph.train], graph.num_classes).to(beliefs.dtype)
    labels = torch.zeros_like(beliefs).index_copy_(0, graph.train, known)
    mixed = beliefs.index_copy(0, graph.train, known)
    return labels.T @ (graph.neighbours @ mixed)


def sinkhorn(counts: Tensor) -> Tensor:
    """Scale rows and columns of counts [C, C] to sums of 1 (Sinkhorn-Knopp), in float64."""
    scaled = counts.double()
    scaled = scaled + SMOOTHING * scaled.mean() + torch.finfo(torch.float32).tiny
    for _ in range(SINKHORN_STEPS):
        scaled = scaled / scaled.sum(0)
        scaled = scaled / scaled.sum(1, keepdim=True)
    return scaled


def row_sum_penalty(compatibility: Tensor) -> Tensor:
    """Phi(H_bar) = sum_i |sum_j H_bar_ij|, no slope within :data:`ROUNDING` of zero.

    H_bar starts in the kink: there the sign of a rounding error would choose the first steps.
    """
    sums = compatibility.sum(-1).abs()
    return (sums * (sums > ROUNDING)).sum()


METHOD = Method(
    family="gnn",
    summary="CPGNN: propagation by class compatibility (Zhu et al., AAAI 2021)",
    config=CPGNNConfig,
    build=CPGNN.build,
)
