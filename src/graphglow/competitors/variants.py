"""Variants of GraphGLOW: the same model under another structure learner, trained on the target.

Each has the paper's two-layer GCN inside, or another ``backbone``. The refined graph is had from
the same learner in Python::

    learner = StructureLearner(LearnerConfig(similarity="dot", weighted=False, num_heads=1))
    graphglow.transfer(data, learner).refined_graph()

Of the paper's variants, GraphGLOW_at is pre-trained on source graphs like GraphGLOW itself. A
``fit`` sees the target only, so here attention is trained there, as in GraphGLOW*; the paper's is
``graphglow pretrain --learner.similarity attention``, then ``graphglow transfer``.
"""

from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any

from graphglow.checks import step_size
from graphglow.competitors.method import SHARED_SPACE, WEIGHT_DECAY, Method, Space
from graphglow.gnn.train import Task, adam
from graphglow.graph import Graph
from graphglow.paper import StructureLearner
from graphglow.paper.algorithms import PaperTask
from graphglow.settings import Delta, LearnerConfig, ModelConfig, ObjectiveConfig


def shared_settings(config: ModelConfig) -> dict[str, Any]:
    """Those that a variant's config and :class:`LearnerConfig` both name."""
    names = {f.name for f in fields(config)} & {f.name for f in fields(LearnerConfig)}
    return {name: getattr(config, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class VariantConfig(ModelConfig):
    """GraphGLOW with a structure learner that has no weights."""

    embedding_size: int = 64
    """d: width of the node embeddings that are compared, and of the GNN's hidden layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        LearnerConfig(**shared_settings(self))  # refuses bad ones


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


@dataclass(frozen=True, kw_only=True)
class RandomConfig(WeightedConfig):
    """GraphGLOW with a random theta, never trained; what is made of similarities can be chosen."""

    delta: Delta = "truncate"
    """Truncate cuts similarities at 0; affine maps a cosine s to (1 + s) / 2."""


@dataclass(frozen=True, kw_only=True)
class TrainedConfig(WeightedConfig):
    """GraphGLOW with a structure learner that is trained on the target, along with the GNN."""

    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """The structure learner's objective."""
    learner_learning_rate: float = 0.01
    """Step size of the structure learner's optimizer (Adam)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        step_size("learner_learning_rate", self.learner_learning_rate)


WITHOUT_WEIGHTS: dict[str, Any] = {"weighted": False, "num_heads": 1}
REGULARISERS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3)

PIVOT_SPACE: Space = {
    **SHARED_SPACE,
    "weight_decay": WEIGHT_DECAY,
    "embedding_size": (64,),
    "input_weight": (0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    "refinements": (4,),
    "encoder": ("gcn", "mlp"),
    "num_pivots": (400,),
}
"""What is searched of GraphGLOW and its variants. Of Appendix C's space, d, T, H and P are fixed
here: trials of one shape are trained as one program, and theta, which has d and H, is the same for
all. lambda has fewer values, and 1 besides: a learned graph that does not help is left out. The
encoder, which the paper compares in an experiment of its own, is chosen along."""
OBJECTIVES: Space = {
    "objective": tuple(
        ObjectiveConfig(smoothness=alpha, sparsity=rho)
        for alpha, rho in product(REGULARISERS, repeat=2)
    )
}
"""alpha and rho of Appendix C, each pair."""
TRAINED_SPACE: Space = {**PIVOT_SPACE, **OBJECTIVES}


def _variant(
    summary: str,
    config: type[VariantConfig] = VariantConfig,
    space: Space = PIVOT_SPACE,
    **learner_settings: Any,
) -> Method:
    """The learner is trained on the target where the config says how, else fixed."""

    def build(graph: Graph, run: Any) -> Task:
        settings = LearnerConfig(**shared_settings(run), **learner_settings)
        learner = StructureLearner(settings, seed=run.seed).to(graph.device)
        if isinstance(run, TrainedConfig):
            theta = adam(learner, run.learner_learning_rate)
            return PaperTask(graph, learner, run, theta=theta, objective=run.objective)
        return PaperTask(graph, learner.requires_grad_(False), run)

    return Method(
        family="graphglow",
        summary=summary,
        config=config,
        build=build,
        space=space,
        backbone="gcn",
    )


VARIANTS: dict[str, Method] = {
    "graphglow-dot": _variant(
        "GraphGLOW_dp: dot products of embeddings, no weights, only the GNN is trained",
        similarity="dot",
        **WITHOUT_WEIGHTS,
    ),
    "graphglow-knn": _variant(
        "GraphGLOW_knn: the k most similar pivots by cosine, only the GNN is trained",
        KNNConfig,
        {**PIVOT_SPACE, "neighbours": (5, 10, 20, 50)},  # Appendix C has no k
        **WITHOUT_WEIGHTS,
    ),
    "graphglow-cosine": _variant(
        "GraphGLOW_cos: cosines of embeddings, no weights, only the GNN is trained",
        **WITHOUT_WEIGHTS,
    ),
    "graphglow-attention": _variant(
        "GraphGLOW_at, but trained on the target: attention instead of weighted cosines",
        TrainedConfig,
        TRAINED_SPACE,
        similarity="attention",
    ),
    "graphglow-star": _variant(
        "GraphGLOW*: the same architecture, its learner trained on the target",
        TrainedConfig,
        TRAINED_SPACE,
    ),
    "random-theta": _variant(
        "control: GraphGLOW with a random structure learner, never trained", RandomConfig
    ),
}
"""By their names behind ``fit``."""
