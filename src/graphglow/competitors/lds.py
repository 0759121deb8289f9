"""LDS: the graph is learned as one Bernoulli probability per pair of nodes, by bilevel descent."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphglow.competitors.method import Competitor, Method
from graphglow.errors import InputError
from graphglow.gnn.propagation import drop_features
from graphglow.gnn.train import cross_entropy
from graphglow.graph import Graph
from graphglow.linalg.sparse import SparseMatrix
from graphglow.settings import RunConfig

BETA_1, BETA_2 = 0.9, 0.999
EPSILON = 1e-8
"""Added to Adam's squares under the root, where a derivative exists for a gradient of zero too."""
BLOCKS, LEAST_ROWS = 16, 64
"""Blocks of rows that the upper triangle is cut into, and the fewest rows of one but the last."""


@dataclass(frozen=True, kw_only=True)
class LDSConfig(RunConfig):
    """LDS: learned edge probabilities, and a GCN that is trained on graphs drawn from them.

    An epoch is ``window`` steps of the GCN, then one step of the edge probabilities, which learn
    from half of the validation nodes; the validation accuracy is that of the other half.
    """

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


class EdgeProbabilities:
    """theta of LDS: A_ij = A_ji ~ Ber(theta_ij) for each pair i < j; no self-loops.

    The upper triangle is stored once, as blocks of rows of one flat tensor, in place. An update is
    a matrix product per block that adds into it, so no gradient of size N x N ever exists.

    Args:
        edges: The pairs that start at 1, in any direction; all others start at 0.
        num_nodes: N.
        dtype: Of the probabilities.

    Shapes:
        edges [2, E]; flat [S], S about N^2 / 2; a drawn graph [N, N]
    """

    def __init__(self, edges: Tensor, num_nodes: int, dtype: torch.dtype) -> None:
        self.num_nodes = num_nodes
        height = max(LEAST_ROWS, -(-num_nodes // BLOCKS))
        self.starts = range(0, num_nodes, height)
        self.shapes = [(min(height, num_nodes - start), num_nodes - start) for start in self.starts]
        size = sum(rows * columns for rows, columns in self.shapes)
        self.flat = torch.zeros(size, dtype=dtype, device=edges.device)
        low, high = edges.min(0).values, edges.max(0).values
        for start, values in self.blocks(self.flat):
            inside = (low >= start) & (low < start + len(values)) & (low < high)
            values[low[inside] - start, high[inside] - start] = 1

    def blocks(self, flat: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The first row (and column) of each block, and a view of it, of ``flat`` [S]."""
        parts = torch.split(flat, [rows * columns for rows, columns in self.shapes])
        for start, part, shape in zip(self.starts, parts, self.shapes, strict=True):
            yield start, part.view(shape)

    def draw(self, generator: torch.Generator) -> SparseMatrix:
        """One graph."""
        drawn = []
        for start, theta in self.blocks(self.flat):
            uniform = torch.empty_like(theta).uniform_(generator=generator)
            drawn.append(self._pairs(start, uniform < theta))
        return self._graph(torch.cat(drawn))

    def fixed_draws(self, uniform: Tensor, count: int) -> Iterator[SparseMatrix]:
        """``count`` graphs that are a function of theta and of the numbers ``uniform`` [S].

        Graph s has the pair where (u + s / count) mod 1 < theta: each is a draw from Ber(theta),
        and together they have every edge as often as they should, up to one. One pass over all
        pairs finds those that any of the graphs has.
        """
        pairs, numbers, thetas = [], [], []
        for (start, theta), (_, u) in zip(
            self.blocks(self.flat), self.blocks(uniform), strict=True
        ):
            near = (u * count).frac() <= theta * count
            pairs.append(self._pairs(start, near))
            numbers.append(u[near])
            thetas.append(theta[near])
        pair, number, theta = torch.cat(pairs), torch.cat(numbers), torch.cat(thetas)
        for s in range(count):
            yield self._graph(pair[(number + s / count).remainder(1) < theta])

    def descend(self, left: Tensor, right: Tensor) -> None:
        """Subtract the gradient ``left @ right.T`` with respect to A, and project to [0, 1].

        A pair is both A_ij and A_ji: its gradient is the sum of the two. left, right [N, K].
        """
        rows, columns = torch.cat([left, right], 1), torch.cat([right, left], 1)  # [N, 2K]
        for start, theta in self.blocks(self.flat):
            part = rows[start : start + len(theta)]
            theta.addmm_(part, columns[start:].T, alpha=-1).clamp_(0, 1)
            theta[:, : len(theta)].triu_(1)

    def _pairs(self, start: int, hits: Tensor) -> Tensor:
        """Name the pairs (i, j) where a block is true i * N + j: [E]."""
        i, j = hits.nonzero().unbind(1)
        return (i + start) * self.num_nodes + (j + start)

    def _graph(self, pairs: Tensor) -> SparseMatrix:
        """From the names of its pairs, to which the other direction is added."""
        n = self.num_nodes
        both = torch.cat([pairs, pairs % n * n + pairs // n]).sort().values
        crow = torch.zeros(n + 1, dtype=torch.int64, device=pairs.device)
        crow[1:] = torch.bincount(both // n, minlength=n).cumsum(0)
        return SparseMatrix.symmetric(crow, both % n, self.flat.new_ones(len(both)), n)


class Recorded:
    """A constant matrix: products are differentiable as often as needed, and remembered.

    LDS uses a graph A in products Y = A V only: degrees (V = 1), messages, and the messages of
    backward passes. So a gradient with respect to A is the sum of (d/dY) V^T over its products,
    two thin factors, and no gradient of size N x N is ever made.
    """

    def __init__(self, matrix: SparseMatrix | Tensor, transpose: "Recorded | None" = None) -> None:
        self.matrix, self.transpose = matrix, transpose or self
        self.products: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def features(cls, x: SparseMatrix | Tensor) -> "Recorded":
        """A matrix that is not symmetric, with its transpose."""
        recorded = cls(x)
        if isinstance(x, SparseMatrix):
            assert x.order is not None
            values, shape = x.values.index_select(0, x.order), (x.shape[1], x.shape[0])
            x = SparseMatrix(x.crow_t, x.col_t, values, x.crow, x.col, None, shape)
            recorded.transpose = cls(x, recorded)
        else:
            recorded.transpose = cls(x.T, recorded)
        return recorded

    def __matmul__(self, v: Tensor) -> Tensor:
        product: Tensor = _Product.apply(self, v)  # type: ignore[no-untyped-call]
        if torch.is_grad_enabled():
            self.products.append((product, v))
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorded: Recorded, v: Tensor) -> Tensor:
        ctx.transpose = recorded.transpose
        return recorded.matrix @ v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.transpose @ grads[0]


class Inputs(NamedTuple):
    """What one pass of the GCN reads beside its weights: graph, features, mask of hidden units."""

    graph: Recorded
    features: Recorded
    mask: Tensor | None


class FunctionalGCN(NamedTuple):
    """The two-layer GCN of Kipf and Welling, as a function of its weights in one vector [S]."""

    features: int
    hidden: int
    classes: int

    def unpack(self, flat: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """First matrix [D, H], its bias [H], second matrix [H, C], its bias [C]: views."""
        d, h, c = self
        first, bias, second, last_bias = torch.split(flat, [d * h, h, h * c, c])
        return first.view(d, h), bias, second.view(h, c), last_bias

    def first_weights(self, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Glorot's uniform weights, and biases of zero: [S], where the generator is."""
        d, h, c = self
        flat = torch.zeros(d * h + h + h * c + c, dtype=dtype, device=generator.device)
        for matrix in self.unpack(flat)[::2]:
            bound = math.sqrt(6 / sum(matrix.shape))
            matrix.uniform_(-bound, bound, generator=generator)
        return flat

    def logits(self, flat: Tensor, inputs: Inputs) -> Tensor:
        """Logits on D^-1/2 (A + I) D^-1/2: [N, C]."""
        first, bias, second, last_bias = self.unpack(flat)
        degree = inputs.graph @ flat.new_ones(inputs.graph.matrix.shape[0], 1)
        if torch.is_grad_enabled():
            degree.requires_grad_()
        scale = (1 + degree).rsqrt()

        def propagate(v: Tensor) -> Tensor:
            v = scale * v
            return scale * (inputs.graph @ v + v)

        hidden = torch.relu(propagate(inputs.features @ first) + bias)
        hidden = hidden if inputs.mask is None else hidden * inputs.mask
        return propagate(hidden @ second) + last_bias


class Adam(NamedTuple):
    """The weights and Adam's two moments, [S] each, and the steps done."""

    weights: Tensor
    mean: Tensor
    square: Tensor
    done: int = 0

    def step(self, grad: Tensor, rate: float) -> "Adam":
        """One step; a function that can be differentiated, with epsilon under the root."""
        done = self.done + 1
        mean = torch.lerp(self.mean, grad, 1 - BETA_1)
        square = torch.lerp(self.square, grad * grad, 1 - BETA_2)
        root = (square / (1 - BETA_2**done) + EPSILON).sqrt()
        return Adam(self.weights - rate * (mean / (1 - BETA_1**done)) / root, mean, square, done)


def train(
    state: Adam, loss: Callable[[Tensor, Inputs], Tensor], inputs: Iterable[Inputs], rate: float
) -> tuple[Adam, list[Tensor]]:
    """Adam on ``loss``, a step for each of ``inputs``; return the losses before each step too.

    All steps stay in the autograd graph, from the weights of ``state`` on.
    """
    state = state._replace(weights=state.weights.detach().requires_grad_())
    losses = []
    for one in inputs:
        losses.append(loss(state.weights, one))
        (grad,) = torch.autograd.grad(losses[-1], state.weights, create_graph=True)
        state = state.step(grad, rate)
    return state, losses


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
    (:meth:`EdgeProbabilities.fixed_draws`); Adam's epsilon stands under the root, as its derivative
    must exist; F is judged on one further draw, without dropout; whether the GCN is to start anew
    is asked before a window of tau steps, so that none spans two starts; the weights of the best
    epoch are kept with theta, and not trained again.
    """

    capturable = False
    config: LDSConfig

    def __init__(self, graph: Graph, config: LDSConfig) -> None:
        self.learn, stop = validation_halves(graph, config.seed)
        super().__init__(replace(graph, val=stop), config)
        self.dtype = graph.adj.values.dtype
        self.gcn = FunctionalGCN(graph.num_features, config.hidden, graph.num_classes)
        self.state = self.fresh_state(self.start)
        self.theta = EdgeProbabilities(torch.stack(graph.entries), graph.num_nodes, self.dtype)
        self.uniform = torch.empty_like(self.theta.flat).uniform_(generator=self.generator)
        self.rate = config.graph_learning_rate
        self.lowest, self.since = math.inf, 0  # of the loss, and the steps since then

    def fresh_state(self, generator: torch.Generator) -> Adam:
        flat = self.gcn.first_weights(generator, self.dtype).to(self.graph.device)
        return Adam(flat, torch.zeros_like(flat), torch.zeros_like(flat))

    @property
    def weights(self) -> list[Tensor]:
        return [self.state.weights, self.theta.flat]

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Take tau steps of w and one of theta; return the mean inner objective."""
        config = self.config
        fresh = self.fresh_state(self.generator)  # each epoch: no later draw depends on a start
        if self.since >= config.inner_patience:
            self.state.weights.copy_(fresh.weights)
            self.state = fresh._replace(weights=self.state.weights)
            self.lowest, self.since = math.inf, 0
        inputs = [self.drawn_inputs() for _ in range(config.window)]
        state, losses = train(self.state, self.inner_loss, inputs, config.learning_rate)
        judged = Inputs(self.drawn_graph(), Recorded.features(self.graph.x), None)
        logits = self.gcn.logits(state.weights, judged)
        outer = cross_entropy(logits, self.learn, self.graph.y[self.learn])
        left, right = gradient_factors(outer, [one.graph for one in (*inputs, judged)])
        self.theta.descend(left * self.rate, right)
        self.rate *= config.graph_decay
        self.state.weights.copy_(state.weights.detach())
        moments = state.mean.detach(), state.square.detach()
        self.state = Adam(self.state.weights, *moments, state.done)
        values = torch.stack(losses).detach()
        for loss in values.tolist():
            self.since = 0 if loss < self.lowest else self.since + 1
            self.lowest = min(loss, self.lowest)
        return values.mean(), torch.ones_like(values[0])

    def inner_loss(self, flat: Tensor, inputs: Inputs) -> Tensor:
        """L: cross-entropy on the training nodes, and an L2 penalty on the first layer."""
        penalty = self.gcn.unpack(flat)[0].square().sum()
        loss = self.training_loss(self.gcn.logits(flat, inputs))
        return loss + self.config.weight_decay / 2 * penalty

    def drawn_graph(self) -> Recorded:
        return Recorded(self.theta.draw(self.generator))

    def drawn_inputs(self) -> Inputs:
        """Draw a graph, and what dropout keeps, for one inner step."""
        graph, mask = self.drawn_graph(), None
        if self.config.dropout > 0:
            shape = self.graph.num_nodes, self.config.hidden
            mask = self.dropout.mask(self.uniform.new_empty(shape))
        return Inputs(graph, Recorded.features(drop_features(self.graph.x, self.dropout)), mask)

    @torch.no_grad()
    def logits(self) -> Tensor:
        """The logarithm of the mean probabilities over S graphs: [N, C]."""
        features, total = Recorded(self.graph.x), torch.zeros(())
        for sample in self.theta.fixed_draws(self.uniform, self.config.samples):
            logits = self.gcn.logits(self.state.weights, Inputs(Recorded(sample), features, None))
            total = total.to(logits) + logits.softmax(1)
        return (total / self.config.samples).clamp_min(torch.finfo(total.dtype).tiny).log()


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
    memory=lambda graph, config: 12 * graph.num_nodes**2,  # theta, its best copy, numbers, draws
    lighter="idgl-anchor",
)
