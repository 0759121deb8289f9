"""One graph with GNNs and optimizers of its own: the unit that both algorithms train.

The loss of one refinement is L_s for the GNN, and L_s + L_r + L_e for the structure learner.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphglow.gnn import Backbone, Dropout, MixedPropagation, build_gnn, stack
from graphglow.graph import Graph
from graphglow.paper import BlendedStructure, SampledStructure, Structure, StructureLearner
from graphglow.paper.objective import (
    edge_probabilities,
    entropy_loss,
    log_probability,
    prior_loss,
    relaxed_bernoulli,
    sketch,
    supervised_loss,
)
from graphglow.settings import ModelConfig, ObjectiveConfig
from graphglow.storage import prefixed, within
from graphglow.training.adam import Adam
from graphglow.training.device import check_runnable
from graphglow.training.refine import Refinement, last_refinement, refine
from graphglow.training.runs import Runs


class Trained(NamedTuple):
    """A learner that is trained along: its optimizer and its objective."""

    theta: Adam
    objective: ObjectiveConfig


class Task(ABC):
    """What a :class:`~graphglow.training.loop.Loop` trains: one run on one graph, or several.

    Args:
        graph: On its device already.
        generators: All that a step draws from.
        capture: Whether an epoch may be recorded as a CUDA graph: then it works in place, on
            tensors that stay where they are, and never waits for the GPU.
    """

    count = 1
    """Runs in a batch."""
    val_weight: Tensor | None = None

    def __init__(
        self, graph: Graph, generators: tuple[torch.Generator, ...], *, capture: bool
    ) -> None:
        self.graph, self.generators, self.capture = graph, generators, capture
        self.val_labels = graph.y[graph.val]

    @property
    @abstractmethod
    def weights(self) -> list[Tensor]:
        """Everything that is trained, in place, as flat tensors: [S] or [B, S] each."""

    @abstractmethod
    def train_step(self) -> tuple[Tensor, Tensor]:
        """Update the weights once; return loss [..] and number of refinements [..]."""

    @abstractmethod
    def logits(self) -> Tensor:
        """Evaluate all nodes: [.., N, C]."""

    @torch.no_grad()
    def validate(self) -> tuple[Tensor, Tensor]:
        """Loss [..] and accuracy [..] on the validation nodes."""
        logits, labelled = self.logits(), (self.graph.val, self.val_labels, self.val_weight)
        return supervised_loss(logits, *labelled), accuracy(logits, *labelled)


class GraphTask(Task):
    """A graph, the GNN h_w of one run or of a batch of runs, its optimizer, and its pivots.

    All work stays on the graph's device: no method waits for a GPU.

    Args:
        graph: On its device already.
        learner: The structure learner; None trains a plain GNN.
        hidden: d, the learner's embedding size.
        configs: Model and optimisation of each run; several make a batch.
        seeds: Of each run's weights, dropout and pivots; by default the configs' own.
        given: A graph that messages pass over besides, where there is no learner.
        trained: Given, theta is trained too (one run only).
        balanced: Let each class count alike, in the loss and in validation.
    """

    def __init__(
        self,
        graph: Graph,
        learner: StructureLearner | None,
        hidden: int,
        configs: Sequence[ModelConfig],
        *,
        seeds: Sequence[int] | None = None,
        given: Structure | None = None,
        trained: Trained | None = None,
        balanced: bool = False,
    ) -> None:
        assert trained is None or (learner is not None and len(configs) == 1)
        assert given is None or learner is None
        device = graph.y.device
        check_runnable(configs[0], learner, device)
        seeds = seeds or [config.seed for config in configs]
        drawn = tuple(torch.Generator(device).manual_seed(seed) for seed in seeds)
        super().__init__(graph, drawn, capture=configs[0].capture)
        self.learner, self.given, self.trained = learner, given, trained
        self.runs = runs = Runs.of(configs, device)
        self.count = runs.count
        self._on_cpu = device.type == "cpu"
        self.degree = graph.adj.crow.diff().to(graph.adj.values.dtype)  # [N], self-loops included
        self.num_pivots = min(runs.shared.num_pivots, graph.num_nodes)
        gnns, orders = [], []
        for config, seed in zip(configs, seeds, strict=True):
            start = torch.Generator().manual_seed(seed)
            gnns.append(build_gnn(config, graph, hidden, start))
            orders.append(self._first_pivots(start))
        self.gnn = stack(gnns).to(device)
        self.pivots = (torch.stack(orders) if runs.count > 1 else orders[0]).to(device)  # [.., P]
        self.dropout = Dropout(runs.dropout, self.generators)
        self.optimizer = Adam(
            self.gnn.parameters(),
            _per_vector(runs.learning_rate),
            _per_vector(runs.weight_decay),
            runs=runs.count,
        )
        self.train_labels = graph.y[graph.train]
        self.train_weight = balancing(self.train_labels) if balanced else None
        self.val_weight = balancing(self.val_labels) if balanced else None

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Update w once, and theta where it is trained; return loss [..] and refinements [..].

        The loss is the first refinement's plus the mean of the others'.
        """
        pivots = self._training_pivots()
        self.optimizer.zero_grad()
        steps = refine(
            self.gnn, self.learner, self.graph, pivots, self.runs, self.dropout,
            wait=self._on_cpu, given=self.given,
        )  # fmt: skip
        if self.trained is None:
            done = list(steps)
            logits = torch.stack([step.logits for step in done])  # [T, .., N, C]
            labelled = self.graph.train, self.train_labels, self.train_weight
            losses = supervised_loss(logits, *labelled)  # [T, ..]
        else:
            self.trained.theta.zero_grad()
            done, losses = self._learner_losses(steps, pivots)
        loss, refinements = _over_refinements(losses, done)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if self.trained is not None:
            self.trained.theta.step()
        return loss.detach(), refinements

    def evaluate(self) -> Refinement:
        """The last refinement as things stand: of weights, graph and fixed pivots only."""
        return last_refinement(
            self.gnn, self.learner, self.graph, self.pivots, self.runs,
            wait=self._on_cpu, given=self.given,
        )  # fmt: skip

    def logits(self) -> Tensor:
        return self.evaluate().logits

    @property
    def weights(self) -> list[Tensor]:
        along = [] if self.trained is None else [self.trained.theta.flat]
        return [self.optimizer.flat, *along]

    def state(self) -> dict[str, Tensor]:
        """All that training changes but theta, which is not its own; nothing is copied.

        Pivots of evaluation and first weights are drawn from the seed, and so are not part of it.
        """
        drawn = {str(i): g.get_state() for i, g in enumerate(self.generators)}
        return prefixed("gnn", self.optimizer.state()) | prefixed("generator", drawn)

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state` gave, in place; before an epoch is recorded."""
        self.optimizer.load_state(within("gnn", state))
        drawn = within("generator", state)
        for i, generator in enumerate(self.generators):
            generator.set_state(drawn[str(i)])

    def _first_pivots(self, generator: torch.Generator) -> Tensor:
        """The pivots of evaluation: [P], all different."""
        if not self.runs.shared.pivots_by_degree:
            return torch.randperm(self.graph.num_nodes, generator=generator)[: self.num_pivots]
        key = torch.rand(self.graph.num_nodes, generator=generator)
        return by_weight(key, self.degree.cpu()).topk(self.num_pivots).indices

    def _training_pivots(self) -> Tensor:
        fixed = not self.runs.shared.redraw_pivots or self.num_pivots == self.graph.num_nodes
        if fixed or self.learner is None:
            return self.pivots
        keys = [
            torch.rand(self.graph.num_nodes, generator=generator, device=self.pivots.device)
            for generator in self.generators
        ]
        key = torch.stack(keys) if self.runs.count > 1 else keys[0]
        if self.runs.shared.pivots_by_degree:
            key = by_weight(key, self.degree)
        return key.topk(self.num_pivots, dim=-1, sorted=False).indices  # [.., P], all different

    def _learner_losses(
        self, steps: Iterator[Refinement], pivots: Tensor
    ) -> tuple[list[Refinement], Tensor]:
        """L_s + L_r + L_e of each refinement: [T]."""
        assert self.trained is not None
        assert self.learner is not None
        (generator,) = self.generators
        objective = self.trained.objective
        features: Tensor | None = None
        if objective.smoothness > 0 or objective.sparsity > 0:
            features = sketch(self.graph.x, objective.sketch, generator)[pivots]
        terms = LearnerLoss(self.learner, objective, pivots, features, generator)
        done, losses = [], []
        for step in steps:
            loss = terms.supervised(step, self.gnn, self.graph, self.runs, self.dropout)
            losses.append(loss + terms.regularisers(step))
            done.append(step)
        return done, torch.stack(losses)


@dataclass(frozen=True)
class LearnerLoss:
    """What a trainable structure learner adds to the loss of one refinement (Eq. 13-18).

    Gradients of L_r and L_e reach theta only, as in Alg. 2: the embeddings that the structure is
    inferred from count as given, like the state of a policy. One run at a time, not a batch.

    Args:
        learner: g_theta.
        objective: Weights and estimators.
        pivots: [P].
        features: [P, D'] features of the pivots, sketched; None where the prior has no weight.
        generator: Draws the samples.
    """

    learner: StructureLearner
    objective: ObjectiveConfig
    pivots: Tensor
    features: Tensor | None
    generator: torch.Generator

    def regularisers(self, step: Refinement) -> Tensor:
        """L_r + L_e."""
        o = self.objective
        total = step.logits.new_zeros(())
        if o.smoothness == o.sparsity == o.entropy == 0:
            return total
        alpha = edge_probabilities(self.learner.structure(step.z.detach(), self.pivots).gamma())
        if self.features is not None:
            total = total + prior_loss(alpha, self.features, o, self.generator)
        if o.entropy > 0:
            total = total + o.entropy * entropy_loss(alpha)
        return total

    def supervised(
        self,
        step: Refinement,
        gnn: Backbone,
        graph: Graph,
        runs: Runs,
        dropout: Dropout,
    ) -> Tensor:
        """L_s by the estimator asked for; the loop itself moves on the expected structure."""
        labels = graph.y[graph.train]
        if self.objective.supervision == "nwgm":
            return supervised_loss(step.logits, graph.train, labels)
        assert step.structure is not None
        alpha = edge_probabilities(step.structure.gamma())

        def loss_on(b: Tensor) -> Tensor:
            latent: Structure = SampledStructure(b)
            if isinstance(step.latent, BlendedStructure):
                latent = BlendedStructure(latent, step.latent.first, step.latent.eta)
            mix = MixedPropagation(graph.adj, latent, runs.input_weight)
            _, logits = gnn(step.encoded, mix, dropout)
            return supervised_loss(logits, graph.train, labels)

        if self.objective.supervision == "gumbel":
            return loss_on(relaxed_bernoulli(alpha, self.objective.temperature, self.generator))
        return self._reinforced(alpha, loss_on)

    def _reinforced(self, alpha: Tensor, loss_on: Callable[[Tensor], Tensor]) -> Tensor:
        """Mean loss over K drawn structures for w; score-function gradient for theta."""
        draws = [
            torch.bernoulli(alpha.detach(), generator=self.generator)
            for _ in range(self.objective.samples)
        ]
        losses = torch.stack([loss_on(b) for b in draws])
        log_pi = torch.stack([log_probability(b, alpha) for b in draws])
        advantage = (losses - losses.mean()).detach()
        score = (advantage * log_pi).sum() / (self.objective.samples - 1)
        return losses.mean() + score - score.detach()


def gnn_of(task: GraphTask, run: int) -> Backbone:
    """The trained GNN of one run, out of a batch: no batch dimension, memory of its own."""
    gnn = type(task.gnn)(task.gnn.shape, torch.Generator()).to(task.pivots.device)
    state = task.gnn.state_dict()
    gnn.load_state_dict({n: t if task.runs.count == 1 else t[run] for n, t in state.items()})
    return gnn.requires_grad_(False).eval()


def accuracy(logits: Tensor, nodes: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """Share of ``nodes`` whose largest logit is their label: [..] in float64; NaN for no nodes.

    Shapes:
        logits [.., N, C], nodes [M], labels [M], weight [M] of mean 1
    """
    right = (logits.index_select(-2, nodes).argmax(-1) == labels).double()
    return (right if weight is None else right * weight).mean(-1)


def balancing(labels: Tensor) -> Tensor:
    """A weight per node, by which each class that occurs counts alike: [M] -> [M], of mean 1."""
    counts = torch.bincount(labels)
    each = len(labels) / (counts.clamp_min(1) * (counts > 0).sum())
    return each[labels]


def by_weight(uniform: Tensor, weight: Tensor) -> Tensor:
    """Keys whose largest are a draw without repetition, with chances in proportion to ``weight``.

    That is log(u) / w of Efraimidis and Spirakis (2006), for u uniform in [0, 1).
    """
    return uniform.log() / weight


def _over_refinements(losses: Tensor, steps: list[Refinement]) -> tuple[Tensor, Tensor]:
    """The first loss plus the mean of the others that count, and how many count in all.

    Shapes:
        losses [T, ..] -> [..], [..]
    """
    first, others = losses[0], losses[1:]
    counts = [step.active for step in steps[1:] if step.active is not None]
    if not counts:
        every = torch.full_like(first, len(steps), dtype=torch.int64)
        return (first + others.mean(0) if len(others) else first), every
    # a step is active in every run until the first tolerance check, which precedes step 2
    active = torch.stack(counts)  # [T - 1, ..]
    weight = active / active.sum(0).clamp_min(1)
    return first + (others * weight).sum(0), 1 + active.sum(0)


def _per_vector(setting: float | Tensor) -> float | Tensor:
    """[B, 1, 1] -> [B, 1], to go with flat weights."""
    return setting[..., 0] if isinstance(setting, Tensor) else setting
