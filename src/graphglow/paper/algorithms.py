"""The paper's three algorithms, as a screen each, around the training step that two of them share.

Algorithm 1, one forward pass, is :func:`refinements`; Algorithm 2, pre-training, is
:func:`pretrain_structure`; Algorithm 3, transfer, is :func:`train_under`.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial

import torch
from torch import Tensor

from graphglow.device import out_of_memory_hint, resolve_device
from graphglow.gnn.backbones import BACKBONES
from graphglow.gnn.propagation import Backbone, Dropout, MixedPropagation, Structure
from graphglow.gnn.train import Epoch, Loop, OnEpoch, Task, adam, cross_entropy
from graphglow.graph import Graph
from graphglow.paper.learner import StructureLearner
from graphglow.paper.objective import edge_probabilities, entropy_loss, prior_loss, sketch
from graphglow.paper.pivots import BlendedStructure, PivotStructure
from graphglow.settings import ModelConfig, ObjectiveConfig, PaperConfig, PretrainConfig
from graphglow.storage import Checkpoint, Part, checksum

NEEDS_LESS = "fewer --num-pivots or --refinements, a smaller graph"


# Algorithm 1: a forward pass


@dataclass(frozen=True, eq=False)
class Refinement:
    """Step t of a forward pass: embeddings z [N, D], the structure inferred from them, logits.

    ``active`` [] says whether the step counts.
    """

    z: Tensor
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
        yield Refinement(z, structure, latent, logits, active)
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
    """Make an evaluation pass and return its last step, with the logits of the last that counts."""
    first, *others = refinements(gnn, learner, graph, pivots, config)
    last = first
    for step in others:
        last = replace(step, logits=torch.where(step.active, step.logits, last.logits))
    return last


# One training step, of Algorithms 2 and 3


class PaperTask(Task):
    """A GNN h_w under a structure learner g_theta, which is frozen or trained along.

    If theta is trained, it has an optimizer ``theta`` and an ``objective``.
    """

    def __init__(
        self,
        graph: Graph,
        learner: StructureLearner,
        config: ModelConfig,
        seed: int | None = None,
        theta: torch.optim.Optimizer | None = None,
        objective: ObjectiveConfig | None = None,
    ) -> None:
        super().__init__(graph, config, seed)
        self.learner, self.config, self.theta, self.objective = learner, config, theta, objective
        self.degree = graph.adj.crow.diff().to(graph.adj.values.dtype)  # [N], self-loops included
        self.num_pivots = min(config.num_pivots, graph.num_nodes)
        width = learner.config.embedding_size
        gnn = BACKBONES[config.backbone](config, graph, width, self.start)
        self.gnn = gnn.to(graph.device, graph.adj.values.dtype)
        self.optimizer = adam(self.gnn, config.learning_rate, config.weight_decay)
        if config.pivots_by_degree:
            key = by_weight(torch.rand(graph.num_nodes, generator=self.start), self.degree.cpu())
            pivots = key.topk(self.num_pivots).indices
        else:
            pivots = torch.randperm(graph.num_nodes, generator=self.start)[: self.num_pivots]
        self.pivots = pivots.to(graph.device)  # of evaluation: [P]

    @property
    def weights(self) -> list[Tensor]:
        trained = [self.gnn] if self.theta is None else [self.gnn, self.learner]
        return [parameter.detach() for module in trained for parameter in module.parameters()]

    def train_step(self) -> tuple[Tensor, Tensor]:
        """Update w once, and theta where it is trained; return loss and number of refinements."""
        if self.theta is not None:
            self.theta.zero_grad()
        loss, count = self.loss_and_count()
        self.descend(loss)
        if self.theta is not None:
            self.theta.step()
        return loss.detach(), count

    def loss(self) -> Tensor:
        return self.loss_and_count()[0]

    def loss_and_count(self) -> tuple[Tensor, Tensor]:
        """The loss of a training pass, and how many refinements count in it.

        A refinement's loss is L_s at the expected structure (Eq. 15); for theta, L_s + L_r + L_e.
        """
        pivots = self.training_pivots()
        features = None if self.objective is None else self.pivot_features(pivots)
        losses, active = [], []
        passes = self.gnn, self.learner, self.graph, pivots, self.config, self.dropout
        for step in refinements(*passes):
            loss = cross_entropy(step.logits, self.graph.train, self.train_labels)
            if self.objective is not None:
                loss = loss + self.regularisers(step, pivots, features)
            losses.append(loss)
            active.append(step.active)
        return over_refinements(losses, active)

    def regularisers(self, step: Refinement, pivots: Tensor, features: Tensor | None) -> Tensor:
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

    def pivot_features(self, pivots: Tensor) -> Tensor | None:
        """Features of the pivots for L_r: [P, D']; None where L_r has no weight."""
        o = self.objective
        if o is None or o.smoothness == o.sparsity == 0:
            return None
        return sketch(self.graph.x, o.sketch, self.generator)[pivots]

    def training_pivots(self) -> Tensor:
        """The pivots of one step: [P], all different."""
        if not self.config.redraw_pivots or self.num_pivots == self.graph.num_nodes:
            return self.pivots
        key = torch.rand(len(self.degree), generator=self.generator, device=self.graph.device)
        if self.config.pivots_by_degree:
            key = by_weight(key, self.degree)
        return key.topk(self.num_pivots, sorted=False).indices

    def evaluate(self) -> Refinement:
        """The last refinement in evaluation: a function of weights, graph and fixed pivots."""
        return last_refinement(self.gnn, self.learner, self.graph, self.pivots, self.config)

    def logits(self) -> Tensor:
        return self.evaluate().logits

    def parts(self) -> dict[str, Part]:
        """All that training changes but theta."""
        return {"gnn": self.gnn, "adam": self.optimizer, "generator": self.generator}


def over_refinements(losses: list[Tensor], active: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The first loss plus the mean of the others that count, and how many count in all."""
    if len(losses) == 1:
        return losses[0], active[0].long()
    counts = torch.stack(active[1:]).to(losses[0])  # [T - 1]
    others = (torch.stack(losses[1:]) * counts).sum() / counts.sum().clamp_min(1)
    return losses[0] + others, 1 + counts.sum().long()


def by_weight(uniform: Tensor, weight: Tensor) -> Tensor:
    """Keys log(u) / w (Efraimidis and Spirakis, 2006), whose largest are a draw by ``weight``."""
    return uniform.log() / weight


# Algorithm 2: pre-training


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
    """
    device = resolve_device(config.device)
    graphs = [graph.to(device) for graph in graphs]
    learner = StructureLearner(config.learner, seed=config.seed).to(device)
    theta, best = adam(learner, config.learner_learning_rate), copy.deepcopy(learner)
    tasks = [
        PaperTask(graph, learner, config, config.seed + 1000 * place, theta, config.objective)
        for place, graph in enumerate(graphs)
    ]
    parts: dict[str, Part] = {"learner": learner, "theta": theta, "best": best}
    for place, task in enumerate(tasks):
        parts |= {f"{name}_{place}": part for name, part in task.parts().items()}
    checkpoint, sources = checkpoint or Checkpoint(None), [fingerprint(graph) for graph in graphs]
    facts = checkpoint.begin({"command": "pretrain", "config": asdict(config), "sources": sources})
    scores: list[float] = facts.get("scores", [])  # of theta after each visit
    history = [Epoch(*row) for row in facts.get("history", [])]
    offer = partial(checkpoint.offer, parts, {"scores": scores, "history": history})
    for epoch in history:
        if on_epoch is not None:
            on_epoch(epoch)
    for visit in range(len(scores), config.episodes * len(tasks)):
        task = tasks[visit % len(tasks)]
        loop = parts["loop"] = Loop(task, config.epochs, config.patience, read_every=1)
        checkpoint.restore(parts)
        with out_of_memory_hint(f"pre-training on {task.graph.name}", NEEDS_LESS):
            history += loop.run(on_epoch, on_read=offer)
            scores.append(sum(float(task.validate()[1]) for task in tasks) / len(tasks))
        if scores[-1] == max(scores):
            best.load_state_dict(learner.state_dict())
    best = best.to("cpu").eval()
    best.provenance = {
        "trained": True,
        "sources": [graph.name for graph in graphs],
        "validation_accuracy": max(scores),
        "visit_scores": scores,
        "config": asdict(replace(config, device="auto")),
        "date": datetime.now(timezone.utc).date().isoformat(),
    }
    return best


# Algorithm 3: transfer


def train_under(
    learner: StructureLearner,
    graph: Graph,
    config: PaperConfig,
    *,
    on_epoch: OnEpoch | None = None,
    look: Callable[[PaperTask, int], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[PaperTask, list[Epoch], int]:
    """Train a new GNN on a new graph under a frozen g_theta, with L_s alone (Algorithm 3).

    Returns the task, its history and the number of the epoch that was kept.
    """
    task, offer = PaperTask(graph, learner, config), None
    loop = Loop(task, config.epochs, config.patience)
    if checkpoint is not None:
        parts: dict[str, Part] = {**task.parts(), "loop": loop}
        training = {
            "command": "transfer",
            "config": asdict(config),
            "target": fingerprint(graph),
            "learner": checksum(dict(learner.state_dict()), asdict(learner.config)),
        }
        checkpoint.begin(training)
        checkpoint.restore(parts)
        offer = partial(checkpoint.offer, parts)
    history = loop.run(on_epoch, look=look and partial(look, task), on_read=offer)
    return task, history, int(loop.best)


def fingerprint(graph: Graph) -> list[str]:
    """The name of a graph, and a checksum of its edges, labels and training nodes."""
    known = {"adj": graph.adj.values, "col": graph.adj.col, "y": graph.y, "train": graph.train}
    return [graph.name, checksum(known)]
