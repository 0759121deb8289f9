"""LDS: the graph is learned as one Bernoulli probability per pair of nodes, by bilevel descent."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from graphglow.competitors.method import Competitor, Method, two_layer_gcn
from graphglow.errors import InputError
from graphglow.gnn.propagation import Dropout, drop
from graphglow.gnn.train import cross_entropy
from graphglow.graph import Graph
from graphglow.linalg.rows import transposed
from graphglow.linalg.sparse import SparseMatrix
from graphglow.settings import RunConfig

BETA_1, BETA_2 = 0.9, 0.999
EPSILON = 1e-8
"""Added to Adam's squares under the root, where a derivative exists for a gradient of zero too."""


@dataclass(frozen=True, kw_only=True)
class LDSConfig(RunConfig):
    """LDS: learned edge probabilities, and a GCN that is trained on graphs drawn from them.

    An epoch is ``window`` steps of the GCN, then one step of the edge probabilities, which learn
    from half of the validation nodes; the validation accuracy is that of the other half.
    """

    least: ClassVar = RunConfig.least | {"samples": 1}

    epochs: int = 200
    """Epochs, of a window of steps each; the one with the best validation accuracy is kept."""
    weight_decay: float = 5e-4
    """L2 penalty on the GCN's first layer."""
    hidden: int = 16
    """Width of the GCN's hidden layer."""
    window: int = 5
    """tau: steps of the GCN per step of the probabilities, through which that step looks back."""
    inner_patience: int = 20
    """rho: the GCN starts anew once its loss has found no new low for this many steps."""
    graph_learning_rate: float = 0.3
    """Step size of the edge probabilities (plain gradient descent)."""
    graph_decay: float = 0.99
    """That step size is multiplied by this after each of its steps."""
    samples: int = 16
    """S: graphs that a prediction is averaged over."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.graph_decay <= 1:
            raise InputError(f"graph_decay must lie in (0, 1]; got {self.graph_decay}")


class Adam(NamedTuple):
    """The weights and Adam's two moments, [S] each, and the steps done."""

    weights: Tensor
    mean: Tensor
    square: Tensor
    done: int = 0

    def step(self, grad: Tensor, rate: float) -> "Adam":
        """Take one step; it can be differentiated, with epsilon under the root."""
        done = self.done + 1
        mean = torch.lerp(self.mean, grad, 1 - BETA_1)
        square = torch.lerp(self.square, grad * grad, 1 - BETA_2)
        root = (square / (1 - BETA_2**done) + EPSILON).sqrt()
        return Adam(self.weights - rate * (mean / (1 - BETA_1**done)) / root, mean, square, done)


class Recorded:
    """A constant matrix whose products are differentiable as often as needed, and remembered.

    LDS uses a graph in products Y = A V only: degrees (V = 1), messages, and the messages of
    backward passes. So a gradient with respect to A is the sum of (d/dY) V^T over its products,
    two thin factors, and no gradient of size N x N is ever made. Without a ``transpose`` the matrix
    is symmetric.
    """

    def __init__(self, matrix: SparseMatrix | Tensor, transpose: "Recorded | None" = None) -> None:
        self.matrix, self.transpose = matrix, transpose or self
        self.products: list[tuple[Tensor, Tensor]] = []

    def __matmul__(self, v: Tensor) -> Tensor:
        product: Tensor = _Product.apply(self, v)  # type: ignore[no-untyped-call]
        if torch.is_grad_enabled():
            self.products.append((product, v))
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: Recorded, v: Tensor) -> Tensor:
        ctx.graph = graph
        return graph.matrix @ v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.graph.transpose @ grads[0]


def rows_of(x: SparseMatrix | Tensor) -> Recorded:
    """Record features, with their transpose."""
    turned = Recorded(transposed(x))  # type: ignore[arg-type]
    turned.transpose = Recorded(x, turned)
    return turned.transpose


def gradient_factors(value: Tensor, graphs: Iterable[Recorded]) -> tuple[Tensor, Tensor]:
    """D value / dA summed over all graphs A, as ``left @ right.T``: [N, K] each."""
    products = [product for graph in graphs for product in graph.products]
    left = torch.autograd.grad(value, [product for product, _ in products])
    return torch.cat(left, 1), torch.cat([v.detach() for _, v in products], 1)


class LDS(Competitor):
    """Learning Discrete Structures for Graph Neural Networks (Franceschi et al., ICML 2019).

    min over theta of E_A~Ber(theta) F(w_theta, A), where w_theta trains a GCN on E_A~Ber(theta)
    L(w, A): L is the loss on the training nodes, F that on one half of the validation nodes. Every
    step of w (Adam) draws a graph. After tau of them theta takes a step along the hypergradient and
    is projected to [0, 1]: dF/dA, back through these tau steps and summed over their graphs and
    that of F, stands for dF/dtheta (straight-through); steps before count as constant (truncation).
    The other half of the validation nodes chooses the epoch: ``graph.val`` is that half. A
    prediction is the mean over S graphs, the same random numbers every time; its logarithm stands
    for logits.

    Differs from the paper: the S graphs are drawn with one shifted set of numbers
    (:meth:`fixed_draws`); Adam's epsilon stands under the root, as its derivative must exist; F is
    judged on one further draw, without dropout; whether the GCN is to start anew is asked before a
    window of tau steps, so that none spans two starts; the weights of the best epoch are kept with
    theta, and not trained again.

    Shapes:
        theta [N, N], zero but above its diagonal: A_ij = A_ji ~ Ber(theta_ij) for i < j;
        state.weights [S], the GCN's weights in one vector
    """

    capturable = False
    config: LDSConfig

    def __init__(self, graph: Graph, config: LDSConfig) -> None:
        self.learn, stop = validation_halves(graph, config.seed)
        super().__init__(graph.with_labels(val=stop), config)
        d, h, c = graph.num_features, config.hidden, graph.num_classes
        self.shapes = (d, h), (h,), (h, c), (c,)
        self.state = self.fresh_state(self.start)
        self.theta = graph.links.to_dense().to(graph.adj.values).triu(1)
        self.uniform = torch.empty_like(self.theta).uniform_(generator=self.generator)
        self.rate = config.graph_learning_rate
        self.lowest, self.since = math.inf, 0  # of the loss, and the steps since then

    def fresh_state(self, generator: torch.Generator) -> Adam:
        """Return Glorot's uniform weights, and biases of zero."""
        parts = [torch.zeros(shape, device=generator.device) for shape in self.shapes]
        for matrix in parts[::2]:
            torch.nn.init.xavier_uniform_(matrix, generator=generator)
        flat = torch.cat([part.flatten() for part in parts]).to(self.graph.adj.values)
        return Adam(flat, torch.zeros_like(flat), torch.zeros_like(flat))

    @property
    def weights(self) -> list[Tensor]:
        return [self.state.weights, self.theta]

    def graph_of(self, drawn: Tensor) -> Recorded:
        """Make the graph of pairs i < j, in both directions: [2, E]."""
        n, both = self.graph.num_nodes, torch.cat([drawn, drawn.flip(0)], 1)
        row, col = both[:, (both[0] * n + both[1]).argsort()]
        crow = torch.nn.functional.pad(torch.bincount(row, minlength=n).cumsum(0), (1, 0))
        ones = self.state.weights.new_ones(len(row))
        return Recorded(SparseMatrix.symmetric(crow, col, ones, n))

    def draws(self, count: int) -> list[Recorded]:
        """Draw graphs from theta; only pairs that can be edges take a random number."""
        pairs = self.theta.nonzero().T
        theta = self.theta[pairs[0], pairs[1]]
        uniform = (torch.empty_like(theta).uniform_(generator=self.generator) for _ in range(count))
        return [self.graph_of(pairs[:, u < theta]) for u in uniform]

    def fixed_draws(self) -> Iterator[Recorded]:
        """Yield S graphs that are a function of theta and of the fixed numbers u.

        Graph s has the pair where (u + s / S) mod 1 < theta: each is a draw from Ber(theta), and
        together they have every edge as often as they should, up to one. One pass over all pairs
        finds those that any of the graphs has.
        """
        count = self.config.samples
        near = (self.uniform * count).frac() <= self.theta * count
        pairs, u, theta = near.nonzero().T, self.uniform[near], self.theta[near]
        for s in range(count):
            yield self.graph_of(pairs[:, (u + s / count).remainder(1) < theta])

    def update_theta(self, left: Tensor, right: Tensor) -> None:
        """Subtract the gradient ``left @ right.T`` with respect to A, and project to [0, 1].

        A pair is both A_ij and A_ji: its gradient is the sum of the two. left, right [N, K].
        """
        rows, columns = torch.cat([left, right], 1), torch.cat([right, left], 1)  # [N, 2K]
        self.theta.addmm_(rows, columns.T, alpha=-1).clamp_(0, 1).triu_(1)

    def gcn(
        self, flat: Tensor, graph: Recorded, x: Recorded, dropout: Dropout | None = None
    ) -> Tensor:
        """Logits of the GCN on a drawn graph: [N, C]."""
        parts = flat.split([math.prod(shape) for shape in self.shapes])  # type: ignore[no-untyped-call]
        first, *weights = map(Tensor.view, parts, self.shapes)
        degree = graph @ flat.new_ones(self.graph.num_nodes, 1)
        degree.requires_grad_(torch.is_grad_enabled())
        return two_layer_gcn(graph, degree, x @ first, weights, dropout)

    def inner_steps(self, state: Adam, graphs: Iterable[Recorded]) -> tuple[Adam, Tensor]:
        """Take a step of w on each graph, all in autograd's graph; return the losses before each.

        L is the cross-entropy on the training nodes, and an L2 penalty on the first layer.
        """
        config, losses = self.config, []
        state = state._replace(weights=state.weights.detach().requires_grad_())
        for graph in graphs:
            x = rows_of(drop(self.graph.x, self.dropout))
            loss = self.training_loss(self.gcn(state.weights, graph, x, self.dropout))
            first = state.weights[: math.prod(self.shapes[0])]
            losses.append(loss + config.weight_decay / 2 * first.square().sum())
            (grad,) = torch.autograd.grad(losses[-1], state.weights, create_graph=True)
            state = state.step(grad, config.learning_rate)
        return state, torch.stack(losses).detach()

    def outer_loss(self, state: Adam, graph: Recorded) -> Tensor:
        """F: the cross-entropy on the validation nodes that theta learns from."""
        logits = self.gcn(state.weights, graph, rows_of(self.graph.x))
        return cross_entropy(logits, self.learn, self.graph.y[self.learn])

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Take tau steps of w and one of theta; return the mean inner objective."""
        fresh = self.fresh_state(self.generator)  # each epoch: no later draw depends on a start
        if self.since >= self.config.inner_patience:
            self.state.weights.copy_(fresh.weights)
            self.state = fresh._replace(weights=self.state.weights)
            self.lowest, self.since = math.inf, 0
        graphs = self.draws(self.config.window + 1)
        state, losses = self.inner_steps(self.state, graphs[:-1])
        left, right = gradient_factors(self.outer_loss(state, graphs[-1]), graphs)
        self.update_theta(left * self.rate, right)
        self.rate *= self.config.graph_decay
        self.state.weights.copy_(state.weights.detach())
        moments = state.mean.detach(), state.square.detach()
        self.state = Adam(self.state.weights, *moments, state.done)
        for loss in losses.tolist():
            self.since = 0 if loss < self.lowest else self.since + 1
            self.lowest = min(loss, self.lowest)
        return losses.mean(), torch.ones_like(losses[0])

    @torch.no_grad()
    def logits(self) -> Tensor:
        """The logarithm of the mean probabilities over S graphs: [N, C]."""
        x = Recorded(self.graph.x)
        draws = (self.gcn(self.state.weights, g, x) for g in self.fixed_draws())
        total = torch.stack([logits.softmax(1) for logits in draws])
        return total.mean(0).clamp_min(torch.finfo(total.dtype).tiny).log()


def validation_halves(graph: Graph, seed: int) -> tuple[Tensor, Tensor]:
    """The validation nodes to learn theta from, and those to stop by; each class is halved."""
    nodes = graph.val.cpu()
    if len(nodes) < 2:
        raise InputError(f"lds needs at least two validation nodes; got {len(nodes)}")
    nodes = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))]
    nodes = nodes[graph.y.cpu()[nodes].argsort(stable=True)]
    learn, stop = (nodes[half::2].sort().values.to(graph.val.device) for half in (0, 1))
    return learn, stop


METHOD = Method(
    family="structure",
    summary="LDS: learned edge probabilities, bilevel (Franceschi et al., ICML 2019)",
    config=LDSConfig,
    build=LDS.build,
    backbone="gcn",
    pair_bytes=20,  # theta, its best copy, numbers, draws
)
