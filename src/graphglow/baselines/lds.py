"""LDS: the graph is learned as one Bernoulli probability per pair of nodes, by bilevel descent."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphglow.baselines.edge_probabilities import EdgeProbabilities, block_rows, stored_entries
from graphglow.baselines.hypergradient import (
    AdamState,
    Bilevel,
    InnerStep,
    Inputs,
    Objective,
    Propagation,
    gcn,
)
from graphglow.baselines.method import SHARED_SPACE, Method, SingleTask
from graphglow.checks import at_least, number, step_size
from graphglow.errors import InputError
from graphglow.gnn.dropout import drop_features
from graphglow.graphs import Graph
from graphglow.ops.knn import knn_edges
from graphglow.training.config import RunConfig


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
    (:mod:`~graphglow.baselines.hypergradient`) and is projected to [0, 1]. The other half of
    the validation nodes chooses the epoch: ``graph.val`` is that half. A prediction is the mean
    over S graphs, the same random numbers every time; its logarithm stands for logits.

    Where the code differs from the paper: the S graphs are drawn with one shifted set of numbers
    (:meth:`~graphglow.baselines.edge_probabilities.EdgeProbabilities.fixed_draws`); Adam's epsilon
    stands under the root, as its derivative must exist; F is judged on one further draw, without
    dropout; whether the GCN is to start anew is asked before a window of tau steps, so that none
    spans two starts; the weights of the best epoch are kept with theta, and not trained again.
    """

    def __init__(self, graph: Graph, config: LDSConfig) -> None:
        learn, stop = validation_halves(graph, config.seed)
        super().__init__(replace(graph, val=stop), config)
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
