"""LDS: the graph is learned as one Bernoulli probability per pair of nodes, by bilevel descent.

A GCN with weights w is trained for T steps, w_t+1 = Adam(w_t, dL/dw (w_t, A_t)), on graphs A_t, and
is then judged by F(w_T, A_T). The hypergradient leads from F back to every possible edge: reverse
mode carries p = dF/d(w, m, v) back through the steps; each adds p E_t, the part of F that flows
through its own graph. Two things keep this cheap:

- p times the second derivatives of L is the gradient of one number, the directional derivative
  of L along p. It is written out (forward over reverse), so that a first-order pass is enough.
- A enters only by products Y = A V, degrees among them (V = 1). So the gradient with respect to
  A is a sum of G V^T with G = d/dY: two thin factors, never an N x N matrix.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphglow.checks import at_least, number, step_size
from graphglow.competitors.edge_probabilities import EdgeProbabilities, block_rows, stored_entries
from graphglow.competitors.method import SHARED_SPACE, Method, SingleTask
from graphglow.errors import InputError
from graphglow.gnn import drop_features
from graphglow.graph import Graph
from graphglow.linalg.knn import knn_edges
from graphglow.linalg.sparse import SparseMatrix
from graphglow.paper.objective import supervised_loss
from graphglow.settings import RunConfig
from graphglow.training.adam import BETA_1, BETA_2

EPSILON = 1e-8
"""Added to Adam's squares under the root, where a derivative exists for a gradient of zero too."""


class Factors(NamedTuple):
    """A gradient with respect to A, as ``left @ right.T``: [N, K] each."""

    left: Tensor
    right: Tensor


class Weights(NamedTuple):
    """Of the GCN: first [D, H], bias [H], second [H, C], last_bias [C]."""

    first: Tensor
    bias: Tensor
    second: Tensor
    last_bias: Tensor


class AdamState(NamedTuple):
    """The weights and Adam's two moments, flat, and the steps done: [S], [S], [S], []."""

    weights: Tensor
    mean: Tensor
    square: Tensor
    done: Tensor


class Objective(NamedTuple):
    """Cross-entropy on nodes [M] with labels [M], and an L2 penalty on the first layer."""

    nodes: Tensor
    labels: Tensor
    weight_decay: float = 0.0


class Inputs(NamedTuple):
    """What one pass of the GCN reads beside its weights: graph, features, mask of hidden units."""

    adjacency: SparseMatrix | Tensor
    features: SparseMatrix | Tensor
    mask: Tensor | None


class InnerStep(NamedTuple):
    """One update, as the reverse pass needs it."""

    inputs: Inputs
    before: AdamState
    gradient: Tensor
    after: AdamState


class Propagation:
    """V -> D^-1/2 (A + I) D^-1/2 V, which remembers its products with A [N, N], symmetric."""

    def __init__(self, adjacency: SparseMatrix | Tensor, dtype: torch.dtype) -> None:
        if isinstance(adjacency, SparseMatrix):
            self.adjacency: SparseMatrix | Tensor = adjacency
            degree = adjacency.crow.diff().to(dtype)[:, None]
        else:
            self.adjacency = adjacency.to(dtype)
            degree = self.adjacency.sum(1, keepdim=True)  # [N, 1]
        if torch.is_grad_enabled():
            degree.requires_grad_()
        self.scale = (1 + degree).rsqrt()
        self.products = [(degree, torch.ones_like(degree))]

    def __call__(self, v: Tensor) -> Tensor:
        v = self.scale * v
        product = self.adjacency @ v
        self.products.append((product, v))
        return self.scale * (product + v)

    def backward(self, value: Tensor, weights: Tensor) -> tuple[Tensor, Factors]:
        """Differentiate ``value`` with respect to the weights [S], and to A in factors."""
        outputs = [output for output, _ in self.products]
        grad, *left = torch.autograd.grad(value, [weights, *outputs])
        right = [v.detach() for _, v in self.products]
        return grad, Factors(torch.cat(left, 1), torch.cat(right, 1))


def gcn(weights: Weights, propagate: Propagation, xw: Tensor, mask: Tensor | None) -> Tensor:
    """A two-layer GCN (Kipf and Welling) from X W_1 [N, H] on: [N, C]."""
    hidden = torch.relu(propagate(xw) + weights.bias)
    hidden = hidden if mask is None else hidden * mask
    return propagate(hidden @ weights.second) + weights.last_bias


@dataclass(frozen=True, eq=False)
class Bilevel:
    """A GCN of D features, H hidden units and C classes, trained on L and judged by F."""

    widths: tuple[int, int, int]
    inner: Objective
    """L."""
    outer: Objective
    """F."""
    rate: float
    """Adam's step size."""

    @property
    def sizes(self) -> list[int]:
        d, h, c = self.widths
        return [d * h, h, h * c, c]

    def unpack(self, flat: Tensor) -> Weights:
        first, bias, second, last_bias = torch.split(flat, self.sizes)
        _, h, c = self.widths
        return Weights(first.view(-1, h), bias, second.view(-1, c), last_bias)

    def loss_and_factors(
        self, flat: Tensor, inputs: Inputs, objective: Objective
    ) -> tuple[Tensor, Tensor, Factors]:
        """The objective, its gradient [S] with respect to the weights, and that to A."""
        flat = flat.detach().requires_grad_()
        weights = self.unpack(flat)
        propagate = Propagation(inputs.adjacency, flat.dtype)
        logits = gcn(weights, propagate, inputs.features @ weights.first, inputs.mask)
        value = supervised_loss(logits, objective.nodes, objective.labels)
        value = value + objective.weight_decay / 2 * weights.first.square().sum()
        grad, factors = propagate.backward(value, flat)
        return value.detach(), grad, factors

    def second_order(self, flat: Tensor, along: Tensor, inputs: Inputs) -> tuple[Tensor, Factors]:
        """``along`` times the derivatives of dL/dw: with respect to w [S], and to A."""
        flat = flat.detach().requires_grad_()
        w, d = self.unpack(flat), self.unpack(along)
        propagate = Propagation(inputs.adjacency, flat.dtype)
        xw = inputs.features @ torch.cat([w.first, d.first], 1)  # [N, 2H]: value and derivative
        z, dz = torch.chunk(propagate(xw), 2, dim=1)
        alive = (z.detach() + w.bias.detach() > 0).to(flat.dtype)
        alive = alive if inputs.mask is None else alive * inputs.mask
        h, dh = (z + w.bias) * alive, (dz + d.bias) * alive
        hw = torch.cat([h @ w.second, dh @ w.second + h @ d.second], 1)  # [N, 2C]
        nodes, labels, weight_decay = self.inner
        logits, change = torch.chunk(propagate(hw).index_select(0, nodes), 2, dim=1)
        p, change = (logits + w.last_bias).softmax(1), change + d.last_bias
        own = change.gather(1, labels[:, None])
        value = ((p * change).sum(1, keepdim=True) - own).mean()
        value = value + weight_decay * (w.first * d.first).sum()
        return propagate.backward(value, flat)

    def step(self, state: AdamState, inputs: Inputs) -> tuple[Tensor, InnerStep]:
        """One Adam step on the inner objective; return its value before the step."""
        value, grad, _ = self.loss_and_factors(state.weights, inputs, self.inner)
        return value, InnerStep(inputs, state, grad, adam(state, grad, self.rate))

    def hypergradient(self, steps: list[InnerStep], inputs: Inputs) -> Factors:
        """dF/dA summed over all graphs of these steps and of the outer objective (Algorithm 1).

        With the straight-through estimator, dA/dtheta = I, it is the gradient in theta. Steps
        before these count as constant (truncation); F is evaluated on ``inputs``.
        """
        last = steps[-1].after.weights
        _, p_weights, factors = self.loss_and_factors(last, inputs, self.outer)
        p_mean, p_square = torch.zeros_like(p_weights), torch.zeros_like(p_weights)
        parts = [factors]
        for step in reversed(steps):
            p_grad, p_mean, p_square = adam_backward(step, (p_weights, p_mean, p_square), self.rate)
            change, factors = self.second_order(step.before.weights, p_grad, step.inputs)
            p_weights = p_weights + change
            parts.append(factors)
        return Factors(*(torch.cat(side, 1) for side in zip(*parts, strict=True)))


def adam(state: AdamState, grad: Tensor, rate: float) -> AdamState:
    """Adam with epsilon under the root."""
    done = state.done + 1
    mean = torch.lerp(state.mean, grad, 1 - BETA_1)
    square = torch.lerp(state.square, grad * grad, 1 - BETA_2)
    first, second = _corrections(done, grad.dtype)
    step = rate * (mean / first) / (square / second + EPSILON).sqrt()
    return AdamState(state.weights - step, mean, square, done)


def adam_backward(
    step: InnerStep, p: tuple[Tensor, Tensor, Tensor], rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    """From dF/d(w, m, v) after a step to dF/d(gradient, m, v) before it."""
    p_weights, p_mean, p_square = p
    first, second = _corrections(step.after.done, p_weights.dtype)
    root = (step.after.square / second + EPSILON).sqrt()
    scaled = rate * p_weights / (first * root)
    p_mean = p_mean - scaled
    p_square = p_square + scaled * step.after.mean / (2 * second * root * root)
    p_grad = (1 - BETA_1) * p_mean + 2 * (1 - BETA_2) * step.gradient * p_square
    return p_grad, BETA_1 * p_mean, BETA_2 * p_square


def _corrections(done: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What Adam divides its moments by after so many steps."""
    return (1 - BETA_1**done).to(dtype), (1 - BETA_2**done).to(dtype)


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
    knn: int | None = None
    """Ignore the edges and start from so many nearest neighbours by features (kNN-LDS)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden", "window", "inner_patience", "samples"):
            at_least(name, getattr(self, name), 1)
        step_size("graph_learning_rate", self.graph_learning_rate)
        if self.knn is not None:
            at_least("knn", self.knn, 1)
        if not 0 < number("graph_decay", self.graph_decay) <= 1:
            raise InputError(f"graph_decay must lie in (0, 1]; got {self.graph_decay}")


class LDSTask(SingleTask):
    """Learning Discrete Structures for Graph Neural Networks (Franceschi et al., ICML 2019).

    min over theta of E_A~Ber(theta) F(w_theta, A), where w_theta trains a GCN on E_A~Ber(theta)
    L(w, A): L is the loss on the training nodes, F that on one half of the validation nodes. Every
    step of w draws a graph; after tau of them theta takes a step along the hypergradient
    (:meth:`Bilevel.hypergradient`) and is projected to [0, 1]. The other half of
    the validation nodes chooses the epoch: ``graph.val`` is that half. A prediction is the mean
    over S graphs, the same random numbers every time; its logarithm stands for logits.

    Where the code differs from the paper: the S graphs are drawn with one shifted set of numbers
    (:meth:`EdgeProbabilities.fixed_draws`); Adam's epsilon
    stands under the root, as its derivative must exist; F is judged on one further draw, without
    dropout; whether the GCN is to start anew is asked before a window of tau steps, so that none
    spans two starts; the weights of the best epoch are kept with theta, and not trained again.
    """

    def __init__(self, graph: Graph, config: LDSConfig) -> None:
        learn, stop = validation_halves(graph, config.seed)
        super().__init__(graph.with_labels(val=stop), config)
        self.config = config
        device, dtype = graph.y.device, graph.adj.values.dtype
        self.bilevel = Bilevel(
            (graph.num_features, config.hidden, graph.num_classes),
            inner=Objective(graph.train, graph.y[graph.train], config.weight_decay),
            outer=Objective(learn, graph.y[learn]),
            rate=config.learning_rate,
        )
        start = torch.Generator().manual_seed(config.seed)
        flat = _first_weights(self.bilevel, start, dtype).to(device)
        done = torch.zeros((), dtype=torch.float64, device=device)
        self.state = AdamState(flat, torch.zeros_like(flat), torch.zeros_like(flat), done)
        edges = torch.stack(graph.entries)
        if config.knn is not None:
            x = graph.x if isinstance(graph.x, Tensor) else graph.x.to_dense()
            edges = knn_edges(x.cpu(), config.knn).to(device)
        self.theta = EdgeProbabilities(edges, graph.num_nodes, dtype)
        self.uniform = torch.empty_like(self.theta.flat).uniform_(generator=self.generators[0])
        self.rate = torch.full((), config.graph_learning_rate, dtype=dtype, device=device)
        self.lowest = torch.full((), math.inf, dtype=dtype, device=device)
        self.since = torch.zeros((), dtype=torch.int64, device=device)  # steps since that low

    @property
    def weights(self) -> list[Tensor]:
        return [self.state.weights, self.theta.flat]

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Take tau steps of w and one of theta; return the mean inner objective."""
        self._start_anew_where_stuck()
        steps: list[InnerStep] = []
        values = []
        state = AdamState(*(tensor.clone() for tensor in self.state))
        for _ in range(self.config.window):
            value, step = self.bilevel.step(state, self._inputs())
            state = step.after
            steps.append(step)
            values.append(value)
            self.since.add_(1).masked_fill_(value < self.lowest, 0)
            self.lowest.copy_(torch.minimum(value, self.lowest))
        for kept, tensor in zip(self.state, state, strict=True):
            kept.copy_(tensor)
        judged = Inputs(self.theta.draw(self.generators[0]), self.graph.x, None)
        left, right = self.bilevel.hypergradient(steps, judged)
        self.theta.descend(left * self.rate, right)
        self.rate *= self.config.graph_decay
        return torch.stack(values).mean(), self.one

    @torch.no_grad()
    def logits(self) -> Tensor:
        """The logarithm of the mean probabilities over S graphs: [N, C]."""
        weights = self.bilevel.unpack(self.state.weights)
        xw = self.graph.x @ weights.first
        total = xw.new_zeros(self.graph.num_nodes, self.graph.num_classes)
        for sample in self.theta.fixed_draws(self.uniform, self.config.samples):
            total += gcn(weights, Propagation(sample, xw.dtype), xw, None).softmax(1)
        return (total / self.config.samples).clamp_min(torch.finfo(xw.dtype).tiny).log()

    def _inputs(self) -> Inputs:
        """What one inner step draws."""
        sample = self.theta.draw(self.generators[0])
        size = (self.graph.num_nodes, self.config.hidden)
        mask = self.dropout.mask(self.state.weights, size) if self.config.dropout > 0 else None
        return Inputs(sample, drop_features(self.graph.x, self.dropout), mask)

    @torch.no_grad()
    def _start_anew_where_stuck(self) -> None:
        """New weights, moments and low once the inner objective has stopped to fall."""
        stuck = self.since >= self.config.inner_patience
        fresh = _first_weights(self.bilevel, self.generators[0], self.rate.dtype)
        self.state.weights.copy_(torch.where(stuck, fresh, self.state.weights))
        for tensor in (self.state.mean, self.state.square, self.state.done, self.since):
            tensor.masked_fill_(stuck, 0)
        self.lowest.masked_fill_(stuck, math.inf)


def validation_halves(graph: Graph, seed: int) -> tuple[Tensor, Tensor]:
    """The validation nodes to learn theta from, and those to stop by; each class is halved."""
    nodes = graph.val.cpu()
    if len(nodes) < 2:
        raise InputError(f"lds needs at least two validation nodes; got {len(nodes)}")
    nodes = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))]
    nodes = nodes[graph.y.cpu()[nodes].argsort(stable=True)]
    learn, stop = (nodes[half::2].sort().values.to(graph.val.device) for half in (0, 1))
    return learn, stop


def _first_weights(gcn: Bilevel, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Glorot's uniform weights, and biases of zero: [S], where the generator is."""
    flat = torch.zeros(sum(gcn.sizes), dtype=dtype, device=generator.device)
    weights = gcn.unpack(flat)
    for matrix in (weights.first, weights.second):
        bound = math.sqrt(6 / sum(matrix.shape))
        matrix.uniform_(-bound, bound, generator=generator)
    return flat


def memory(graph: Graph, config: LDSConfig) -> int:
    """Bytes of training's peak.

    Per pair: theta, its best copy, the numbers of the fixed draws, and a copy that is chosen from
    when an epoch is compared. Then the thin factors, and the drawn graphs: on a GPU one byte per
    entry each, one of them in float32 at a time, and all temporaries count twice where they are
    recorded; on a CPU they are sparse, and one byte per entry is allowed for all.
    """
    nodes, size = graph.num_nodes, graph.adj.values.element_size()
    pairs = size * stored_entries(nodes)
    factors = 4 * nodes * (2 * (config.hidden + graph.num_classes) + 1) * (config.window + 1)
    passing = pairs + size * (2 * nodes * block_rows(nodes) + factors)
    if graph.y.device.type == "cpu":
        return 3 * pairs + passing + nodes * nodes
    passing += nodes * nodes * (config.window + 1 + size)
    return 3 * pairs + passing * (2 if config.capture else 1)


METHOD = Method(
    "structure",
    "LDS: learned edge probabilities, bilevel (Franceschi et al., ICML 2019)",
    LDSConfig,
    lambda graph, configs: LDSTask(graph, *configs),
    {
        "learning_rate": (1e-4, 1e-3, 1e-2, 1e-1),
        "dropout": SHARED_SPACE["dropout"],
        "hidden": (8, 16, 32, 64),
        "inner_patience": (10, 20),
        "window": (5, 10, 15),
    },
    backbone="gcn",
    memory=memory,
    lighter="idgl-anchor",
)
