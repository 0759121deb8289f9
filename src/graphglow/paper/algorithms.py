"""The paper's three algorithms.

Algorithm 1, one forward pass, is :func:`refinements`; Algorithm 2, pre-training, is
:func:`pretrain_structure`; Algorithm 3, transfer, is :func:`train_under`.

The loss of one refinement is L_s for the GNN, and L_s + L_r + L_e for the structure learner.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphglow.checkpoint import Checkpoint, adam_state, load_adam_state, restore
from graphglow.device import out_of_memory_hint, resolve_device
from graphglow.gnn import Backbone, Dropout, Encoded, MixedPropagation, Structure, build_gnn
from graphglow.gnn.train import Epoch, Loop, OnEpoch, Task, adam, cross_entropy
from graphglow.graph import Graph
from graphglow.paper.learner import StructureLearner
from graphglow.paper.objective import (
    edge_probabilities,
    entropy_loss,
    prior_loss,
    reinforced,
    relaxed_bernoulli,
    sketch,
)
from graphglow.paper.pivots import BlendedStructure, PivotStructure, SampledStructure
from graphglow.settings import ModelConfig, ObjectiveConfig, PaperConfig, PretrainConfig
from graphglow.storage import checksum, prefixed, within

NEEDS_LESS = "fewer --num-pivots or --refinements, a smaller graph"


# Algorithm 1


@dataclass(frozen=True, eq=False)
class Refinement:
    """Step t of a forward pass.

    Shapes:
        z [N, D] the embeddings that the structure was inferred from; logits [N, C];
        active [] whether this step counts
    """

    z: Tensor
    encoded: Encoded
    structure: PivotStructure
    latent: Structure
    logits: Tensor
    active: Tensor


def refinements(
    gnn: Backbone,
    learner: StructureLearner,
    graph: Graph,
    pivots: Tensor,
    config: ModelConfig,
    dropout: Dropout | None = None,
) -> Iterator[Refinement]:
    """Yield the refinements t = 1 .. T of one forward pass (Algorithm 1).

    The structure is inferred from the embeddings, and the embeddings from the structure, until the
    squared relative change of the embeddings is at most the tolerance. A GPU, which would have to
    be waited for, makes all T steps; those after that are not active and count for nothing. With a
    structure momentum eta below 1, messages mix the current structure with the first.
    """
    encoded = gnn.encode(graph, dropout)
    z, eta = encoded.z0, config.structure_momentum
    first: PivotStructure | None = None
    active = torch.ones((), dtype=torch.bool, device=z.device)
    for step in range(1, config.refinements + 1):
        structure = learner.structure(z, pivots)
        first = first or structure
        blended = structure is not first and eta < 1
        latent = BlendedStructure(structure, first, eta) if blended else structure
        mix = MixedPropagation(graph.adj, latent, config.input_weight)
        z_next, logits = gnn(encoded, mix, dropout)
        yield Refinement(z, encoded, structure, latent, logits, active)
        if config.tolerance > 0 and step < config.refinements:
            change, size = (z_next - z).detach().square().sum(), z.detach().square().sum()
            active = active & (change > config.tolerance * size)
            if not z.is_cuda and not active:
                return
        z = z_next


@torch.no_grad()
def last_refinement(
    gnn: Backbone, learner: StructureLearner, graph: Graph, pivots: Tensor, config: ModelConfig
) -> Refinement:
    """Make an evaluation pass and return its last step that counts."""
    last: Refinement | None = None
    for step in refinements(gnn, learner, graph, pivots, config):
        if last is not None:
            step = replace(step, logits=torch.where(step.active, step.logits, last.logits))
        last = step
    assert last is not None
    return last


# One step of training, in both algorithms


class PaperTask(Task):
    """A GNN h_w under a structure learner g_theta, which is frozen or trained along.

    Args:
        graph: On its device already.
        learner: g_theta.
        config: Model and optimisation.
        seed: Of weights, dropout and pivots; by default the config's.
        theta: The learner's optimizer, if it is trained.
        objective: The learner's objective, if it is trained.
    """

    def __init__(
        self,
        graph: Graph,
        learner: StructureLearner,
        config: ModelConfig,
        *,
        seed: int | None = None,
        theta: torch.optim.Optimizer | None = None,
        objective: ObjectiveConfig | None = None,
    ) -> None:
        seed, device = config.seed if seed is None else seed, graph.y.device
        generator = torch.Generator(device).manual_seed(seed)
        super().__init__(graph, (generator,), capture=config.capture)
        self.learner, self.config, self.theta, self.objective = learner, config, theta, objective
        self.generator = generator
        self.degree = graph.adj.crow.diff().to(graph.adj.values.dtype)  # [N], self-loops included
        self.num_pivots = min(config.num_pivots, graph.num_nodes)
        start = torch.Generator().manual_seed(seed)
        gnn = build_gnn(config, graph, learner.config.embedding_size, start)
        self.gnn = gnn.to(device, graph.adj.values.dtype)
        self.pivots = self._first_pivots(start).to(device)  # of evaluation: [P]
        self.dropout = Dropout(config.dropout, generator)
        self.optimizer = adam(self.gnn, config.learning_rate, config.weight_decay)
        self.train_labels = graph.y[graph.train]

    @property
    def weights(self) -> list[Tensor]:
        trained = [self.gnn] if self.theta is None else [self.gnn, self.learner]
        return [parameter.detach() for module in trained for parameter in module.parameters()]

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Update w once, and theta where it is trained; return loss and number of refinements.

        The loss is the first refinement's plus the mean of the others'.
        """
        optimizers = [self.optimizer] if self.theta is None else [self.optimizer, self.theta]
        for optimizer in optimizers:
            optimizer.zero_grad()
        pivots = self._training_pivots()
        features = self._pivot_features(pivots)
        steps, losses = [], []
        for step in refinements(
            self.gnn, self.learner, self.graph, pivots, self.config, self.dropout
        ):
            losses.append(self._supervised(step) + self._regularisers(step, pivots, features))
            steps.append(step)
        loss, count = over_refinements(losses, [step.active for step in steps])
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach(), count

    def evaluate(self) -> Refinement:
        """The last refinement as things stand: of weights, graph and fixed pivots only."""
        return last_refinement(self.gnn, self.learner, self.graph, self.pivots, self.config)

    def logits(self) -> Tensor:
        return self.evaluate().logits

    def state(self) -> dict[str, Tensor]:
        """All that training changes but theta, by name."""
        return {
            **prefixed("gnn", dict(self.gnn.state_dict())),
            **prefixed("adam", adam_state(self.optimizer)),
            "generator": self.generator.get_state(),
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state` gave; before an epoch is recorded."""
        self.gnn.load_state_dict(within("gnn", state))
        load_adam_state(self.optimizer, within("adam", state))
        self.generator.set_state(state["generator"])

    def _first_pivots(self, generator: torch.Generator) -> Tensor:
        if not self.config.pivots_by_degree:
            return torch.randperm(self.graph.num_nodes, generator=generator)[: self.num_pivots]
        key = torch.rand(self.graph.num_nodes, generator=generator)
        return by_weight(key, self.degree.cpu()).topk(self.num_pivots).indices

    def _training_pivots(self) -> Tensor:
        """The pivots of one step: [P], all different."""
        if not self.config.redraw_pivots or self.num_pivots == self.graph.num_nodes:
            return self.pivots
        device, nodes = self.pivots.device, self.graph.num_nodes
        key = torch.rand(nodes, generator=self.generator, device=device)
        if self.config.pivots_by_degree:
            key = by_weight(key, self.degree)
        return key.topk(self.num_pivots, sorted=False).indices

    def _pivot_features(self, pivots: Tensor) -> Tensor | None:
        """Features of the pivots for L_r: [P, D']; None where it counts for nothing."""
        o = self.objective
        if o is None or o.smoothness == o.sparsity == 0:
            return None
        return sketch(self.graph.x, o.sketch, self.generator)[pivots]

    def _supervised(self, step: Refinement) -> Tensor:
        """L_s by the estimator asked for; the loop itself moves on the expected structure."""
        o = self.objective
        if o is None or o.supervision == "nwgm":
            return cross_entropy(step.logits, self.graph.train, self.train_labels)
        alpha = edge_probabilities(step.structure.gamma())

        def loss_on(b: Tensor) -> Tensor:
            latent: Structure = SampledStructure(b)
            if isinstance(step.latent, BlendedStructure):
                latent = replace(step.latent, current=latent)
            mix = MixedPropagation(self.graph.adj, latent, self.config.input_weight)
            _, logits = self.gnn(step.encoded, mix, self.dropout)
            return cross_entropy(logits, self.graph.train, self.train_labels)

        if o.supervision == "gumbel":
            return loss_on(relaxed_bernoulli(alpha, o.temperature, self.generator))
        draws = [
            torch.bernoulli(alpha.detach(), generator=self.generator) for _ in range(o.samples)
        ]
        return reinforced(alpha, draws, loss_on)

    def _regularisers(self, step: Refinement, pivots: Tensor, features: Tensor | None) -> Tensor:
        """L_r + L_e, with gradients for theta only: the embeddings are a policy's given state."""
        o, total = self.objective, step.logits.new_zeros(())
        if o is None or (features is None and o.entropy == 0):
            return total
        alpha = edge_probabilities(self.learner.structure(step.z.detach(), pivots).gamma())
        if features is not None:
            total = total + prior_loss(alpha, features, o, self.generator)
        if o.entropy > 0:
            total = total + o.entropy * entropy_loss(alpha)
        return total


def over_refinements(losses: list[Tensor], active: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The first loss plus the mean of the others that count, and how many count in all."""
    if len(losses) == 1:
        return losses[0], active[0].long()
    counts = torch.stack(active[1:]).to(losses[0])  # [T - 1]
    others = (torch.stack(losses[1:]) * counts).sum() / counts.sum().clamp_min(1)
    return losses[0] + others, 1 + counts.sum().long()


def by_weight(uniform: Tensor, weight: Tensor) -> Tensor:
    """Keys whose largest are a draw without repetition, with chances in proportion to ``weight``.

    That is log(u) / w of Efraimidis and Spirakis (2006), for u uniform in [0, 1).
    """
    return uniform.log() / weight


# Algorithm 2


def pretrain_structure(
    graphs: Sequence[Graph],
    config: PretrainConfig,
    *,
    on_epoch: OnEpoch | None = None,
    checkpoint: Checkpoint | None = None,
) -> StructureLearner:
    """Train g_theta on source graphs and return the best one seen (Algorithm 2).

    In each of E episodes each source is visited in turn: its own GNN and the shared theta are
    trained on it until the validation score stops improving, and go back to where it was best.
    After each visit theta is scored by the mean validation accuracy over all sources, and the
    best theta is kept. Differs from the paper's Algorithm 2 in zeroing both gradients at every
    step, and in taking the "Delta^(0)" of its sum as the first refinement's.

    Where a training goes on from a checkpoint, ``on_epoch`` hears of the epochs before it too.
    """
    device = resolve_device(config.device)
    course = _Course([graph.to(device) for graph in graphs], config)
    if checkpoint is not None:
        course.resume(checkpoint)
    if on_epoch is not None:
        for epoch in course.history:
            on_epoch(epoch)
    for visit in range(len(course.scores), config.episodes * len(graphs)):
        loop = course.loops[visit % len(graphs)]
        with out_of_memory_hint(f"pre-training on {loop.task.graph.name}", NEEDS_LESS):
            offer = None if checkpoint is None else partial(course.offer, checkpoint, loop)
            course.history += loop.run(on_epoch, on_read=offer)
            course.score()
    return course.best_learner()


class _Course:
    """What Algorithm 2 trains, and how far it has come."""

    def __init__(self, graphs: Sequence[Graph], config: PretrainConfig) -> None:
        self.config = config
        self.learner = StructureLearner(config.learner, seed=config.seed).to(graphs[0].y.device)
        self.theta = adam(self.learner, config.learner_learning_rate)
        self.tasks = [
            PaperTask(
                graph,
                self.learner,
                config,
                seed=config.seed + 1000 * place,
                theta=self.theta,
                objective=config.objective,
            )
            for place, graph in enumerate(graphs)
        ]
        self.loops = [
            Loop(task, config.epochs, config.patience, read_every=1) for task in self.tasks
        ]
        self.best = self._copy_of_theta()
        self.scores: list[float] = []
        """Of theta after each visit."""
        self.history: list[Epoch] = []

    def score(self) -> None:
        """Score theta by the mean validation accuracy of all sources; keep it if it is the best."""
        score = sum(float(task.validate()[1]) for task in self.tasks) / len(self.tasks)
        if score >= max(self.scores, default=-1.0):
            self.best = self._copy_of_theta()
        self.scores.append(score)

    def best_learner(self) -> StructureLearner:
        """The best learner seen, on the CPU."""
        learner = StructureLearner(self.config.learner)
        learner.load_state_dict(self.best)
        learner.provenance = {
            "trained": True,
            "sources": [task.graph.name for task in self.tasks],
            "validation_accuracy": max(self.scores),
            "visit_scores": self.scores,
            "config": asdict(replace(self.config, device="auto")),
            "date": datetime.now(timezone.utc).date().isoformat(),
        }
        return learner.eval()

    def resume(self, checkpoint: Checkpoint) -> None:
        graphs = [fingerprint(task.graph) for task in self.tasks]
        saved = checkpoint.begin(
            {"command": "pretrain", "config": asdict(self.config), "sources": graphs}
        )
        if saved is not None:
            tensors, facts = saved
            self.scores = [float(score) for score in facts["scores"]]
            self.history = [Epoch(*row) for row in facts["history"]]
            restore(self._parts(self.loops[len(self.scores) % len(self.loops)]), tensors)

    def offer(self, checkpoint: Checkpoint, loop: Loop) -> None:
        facts = {"scores": self.scores, "history": self.history}
        checkpoint.offer(self._parts(loop), facts)

    def _parts(self, loop: Loop) -> dict[str, Any]:
        tasks = {f"task_{place}": task for place, task in enumerate(self.tasks)}
        return {"course": self, "loop": loop, **tasks}

    def state(self) -> dict[str, Tensor]:
        """Theta, its optimizer and the best theta so far, by name."""
        theta = prefixed("theta", dict(self.learner.state_dict()))
        return theta | prefixed("best", self.best) | prefixed("adam", adam_state(self.theta))

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.learner.load_state_dict(within("theta", state))
        self.best = within("best", state)
        load_adam_state(self.theta, within("adam", state))

    def _copy_of_theta(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.learner.state_dict().items()}


# Algorithm 3


def train_under(
    learner: StructureLearner,
    graph: Graph,
    config: PaperConfig,
    *,
    on_epoch: OnEpoch | None = None,
    look: Callable[[PaperTask, int], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[PaperTask, list[Epoch]]:
    """Train a new GNN on a new graph under a frozen g_theta, with L_s alone (Algorithm 3)."""
    task = PaperTask(graph, learner, config)
    loop = Loop(task, config.epochs, config.patience)
    parts: dict[str, Any] = {"task": task, "loop": loop}
    if checkpoint is not None:
        training = {
            "command": "transfer",
            "config": asdict(config),
            "target": fingerprint(graph),
            "learner": checksum(dict(learner.state_dict()), asdict(learner.config)),
        }
        if (saved := checkpoint.begin(training)) is not None:
            restore(parts, saved[0])
    offer = None if checkpoint is None else partial(checkpoint.offer, parts)
    seen = None if look is None else partial(look, task)
    return task, loop.run(on_epoch, look=seen, on_read=offer)


def fingerprint(graph: Graph) -> list[str]:
    """The name of a graph, and a checksum of its edges, labels and training nodes."""
    known = {"adj": graph.adj.values, "col": graph.adj.col, "y": graph.y, "train": graph.train}
    return [graph.name, checksum(known)]
