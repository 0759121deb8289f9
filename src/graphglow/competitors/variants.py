"""Variants of GraphGLOW: the same model under another structure learner, trained on the target.

Each has the paper's two-layer GCN inside, or another ``backbone``. The refined graph comes from
the same learner in Python::

    learner = StructureLearner(LearnerConfig(similarity="dot", weighted=False, num_heads=1))
    graphglow.transfer(data, learner).refined_graph()

Differs from the paper: its GraphGLOW_at is pre-trained on source graphs, like GraphGLOW itself. A
``fit`` sees the target only, so here attention is trained there, as in GraphGLOW*; the paper's is
``graphglow pretrain --kind paper --learner.similarity attention``, then ``graphglow transfer``.
"""

from dataclasses import dataclass, field, fields
from typing import Any

import torch

from graphglow.competitors.method import Method
from graphglow.gnn.train import Task, adam
from graphglow.graph import Graph
from graphglow.paper.algorithms import PaperTask
from graphglow.paper.learner import StructureLearner
from graphglow.settings import LearnerConfig, ModelConfig, ObjectiveConfig


@dataclass(frozen=True, kw_only=True)
class VariantConfig(ModelConfig):
    """GraphGLOW with a structure learner that has no weights."""

    embedding_size: int = 64
    """d: width of the node embeddings that are compared, and of the GNN's hidden layers."""

    def learner(self, **more: Any) -> LearnerConfig:
        """Settings of the structure learner: those that both configs name, and ``more``."""
        names = {f.name for f in fields(self)} & {f.name for f in fields(LearnerConfig)}
        return LearnerConfig(**{name: getattr(self, name) for name in names}, **more)


@dataclass(frozen=True, kw_only=True)
class KNNConfig(VariantConfig):
    """GraphGLOW with a structure learner that keeps each node's most similar pivots."""

    neighbours: int = 20
    """k: pivots that each node keeps; all of them if there are no more."""


@dataclass(frozen=True, kw_only=True)
class WeightedConfig(VariantConfig):
    """GraphGLOW with a structure learner of random weights, which are never trained."""

    num_heads: int = 4
    """H: number of heads. The paper searches 4 and 6."""
    tied: bool = True
    """Use one weight vector per head for nodes and pivots; otherwise two independent ones."""


@dataclass(frozen=True, kw_only=True)
class EqualConfig(VariantConfig):
    """GraphGLOW with a theta set by hand, never trained: some dimensions count, each alike."""

    dimensions: int = 16
    """k: dimensions that count; all of them if there are no more."""


@dataclass(frozen=True, kw_only=True)
class TrainedConfig(WeightedConfig):
    """GraphGLOW with a structure learner that is trained on the target, along with the GNN."""

    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """The structure learner's objective."""
    learner_learning_rate: float = 0.01
    """Step size of the structure learner's optimizer (Adam)."""


def _variant(
    summary: str, config: type[VariantConfig] = VariantConfig, **learner_settings: Any
) -> Method:
    """A method whose learner is trained on the target where the config says how, else fixed."""

    def build(graph: Graph, run: Any) -> Task:
        learner = StructureLearner(run.learner(**learner_settings), seed=run.seed)
        if isinstance(run, EqualConfig):
            learner = equal_dimensions(learner.config, run.dimensions)
        learner = learner.to(graph.device)
        if isinstance(run, TrainedConfig):
            theta = adam(learner, run.learner_learning_rate)
            return PaperTask(graph, learner, run, theta=theta, objective=run.objective)
        return PaperTask(graph, learner.requires_grad_(False), run)

    return Method(family="graphglow", summary=summary, config=config, build=build, backbone="gcn")


def equal_dimensions(config: LearnerConfig, count: int) -> StructureLearner:
    """Return a learner that weighs the first ``count`` dimensions by 1 and the others by 0."""
    learner = StructureLearner(config)
    for weight in learner.parameters():
        with torch.no_grad():
            weight.copy_((torch.arange(weight.shape[-1]) < count).expand_as(weight))
    return learner


PLAIN: dict[str, Any] = {"weighted": False, "num_heads": 1}
VARIANTS: dict[str, Method] = {
    "graphglow-dot": _variant(
        "GraphGLOW_dp: dot products of embeddings, no weights, only the GNN is trained",
        similarity="dot",
        **PLAIN,
    ),
    "graphglow-knn": _variant(
        "GraphGLOW_knn: the k most similar pivots by cosine, only the GNN is trained",
        KNNConfig,
        **PLAIN,
    ),
    "graphglow-cosine": _variant(
        "GraphGLOW_cos: cosines of embeddings, no weights, only the GNN is trained", **PLAIN
    ),
    "graphglow-attention": _variant(
        "GraphGLOW_at, but trained on the target: attention instead of weighted cosines",
        TrainedConfig,
        similarity="attention",
    ),
    "graphglow-star": _variant(
        "GraphGLOW*: the same architecture, its learner trained on the target", TrainedConfig
    ),
    "random-theta": _variant(
        "control: GraphGLOW with a random structure learner, never trained", WeightedConfig
    ),
    "equal-theta": _variant(
        "control: GraphGLOW with k dimensions that count alike, set by hand",
        EqualConfig,
        num_heads=1,
    ),
}
"""By their names behind ``fit``."""
