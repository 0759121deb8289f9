"""Settings of every model, checked when they are made; the command line's flags are these fields.

Nothing here imports torch, so that help and a mistyped flag answer at once.
"""

from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, get_args, get_origin

from graphglow.errors import LARGEST_RATE, InputError, at_least, number, one_of, plain

BackboneName = Literal["appnp", "gat", "gcn", "gcnii", "gpr", "h2gcn", "linkx", "sage"]
Delta = Literal["truncate", "affine"]
Device = Literal["auto", "cpu", "cuda"]
Encoder = Literal["gcn", "mlp"]
Similarity = Literal["cosine", "dot", "rbf", "attention"]

SHARES = ("teleport", "input_weight", "structure_momentum", "random_share")
"""Settings in [0, 1]."""


class Settings:
    """Checks every field by its type and name; a class adds the rules that hold between several.

    Whole numbers are at least 1, or what ``least`` says; others lie in what :func:`bounds` says.
    """

    least: ClassVar[dict[str, int]] = {
        "seed": 0, "num_layers": 2, "samples": 2, "max_nodes": 300, "random_episodes": 0,
    }  # fmt: skip

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            name, value, choices = one.name, getattr(self, one.name), get_args(one.type)
            if hasattr(value, "dtype"):
                value = plain(value)
                object.__setattr__(self, name, value)
            kind = one.type
            if type(None) in choices:
                kind = choices[0] if value is not None else None
            if get_origin(kind) is Literal:
                one_of(name, value, choices)
            elif kind is bool and type(value) is not bool:
                raise InputError(f"{name} must be True or False; got {value!r}")
            elif kind is int:
                at_least(name, value, self.least.get(name, 1))
            elif kind is float:
                number(name, value, *bounds(name))


def bounds(name: str) -> tuple[float, float]:
    """Return the least and the largest value of a setting that is no whole number."""
    if name.endswith("dropout"):
        return 0, 0.999
    if name.endswith(("learning_rate", "temperature")):
        return 1 / LARGEST_RATE, LARGEST_RATE
    return 0, 1 if name in SHARES else LARGEST_RATE


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """How one model is trained on one graph: what every method has, ours and the competitors."""

    epochs: int = 500
    """Training epochs; the one with the best validation accuracy is kept."""
    patience: int | None = None
    """End after this many epochs without a better validation score; None runs them all."""
    learning_rate: float = 0.01
    """Step size of the optimizer (Adam)."""
    weight_decay: float = 5e-4
    """L2 penalty on the weights."""
    dropout: float = 0.5
    """Share of features and hidden units dropped in training."""
    seed: int = 0
    """Seeds weights, pivots, dropout and sampling."""
    device: Device = "auto"
    """Where to compute: auto takes the GPU if there is one."""
    capture: bool = True
    """On a GPU, record an epoch once as a CUDA graph and replay it: same numbers, much faster."""


@dataclass(frozen=True, kw_only=True)
class BackboneConfig(Settings):
    """The GNN: its kind, its depth, and the settings of some kinds."""

    backbone: BackboneName = "gcn"
    """The graph-specific GNN, by name."""
    num_layers: int = 2
    """L: number of GNN layers, at least 2."""
    encoder: Encoder = "gcn"
    """How the first embeddings are made: a one-layer GCN, or an MLP that ignores the edges."""
    attention_heads: int = 8
    """Attention heads of gat; their largest common divisor with the width is used."""
    teleport: float = 0.1
    """alpha of appnp, gpr (at the start) and gcnii: weight of the features against the messages."""
    steps: int = 10
    """K of appnp and gpr: number of propagations."""


@dataclass(frozen=True, kw_only=True)
class GNNConfig(BackboneConfig, RunConfig):
    """A GNN on one graph."""

    hidden: int = 64
    """Width of the GNN."""


@dataclass(frozen=True, kw_only=True)
class LearnerConfig(Settings):
    """Structure learner g_theta (Eq. 9)."""

    embedding_size: int = 64
    """d: width of the node embeddings that the learner reads. One number for all graphs."""
    num_heads: int = 4
    """H: number of heads. The paper searches 4 and 6."""
    similarity: Similarity = "cosine"
    """s: how two weighted embeddings are compared."""
    tied: bool = True
    """Use one weight vector per head for nodes and pivots; otherwise two independent ones."""
    delta: Delta = "truncate"
    """Truncate cuts similarities at the threshold; affine maps a cosine s to (1 + s) / 2."""
    threshold: float = 0.0
    """Similarities at or below this become zero (with delta = truncate)."""
    weighted: bool = True
    """Weigh embeddings before comparing them; otherwise as they are, with nothing to train."""
    neighbours: int | None = None
    """Of each node, keep only so many of the most similar pivots; None keeps all not cut."""

    def __post_init__(self) -> None:
        super().__post_init__()
        inner, affine = self.similarity in ("cosine", "dot"), self.delta == "affine"
        if affine and self.similarity != "cosine":
            raise InputError(f"delta affine needs similarity cosine; got {self}")
        if not (self.weighted or (inner and self.num_heads == 1 and self.tied)):
            raise InputError(f"no weights need cosine or dot, num_heads 1 and tied; got {self}")
        if self.neighbours is not None and (affine or not inner):
            raise InputError(f"neighbours need cosine or dot, cut; got {self}")


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig(Settings):
    """Objective of the structure learner (Eq. 13-18). L_r and L_e are means per entry."""

    smoothness: float = 0.1
    """alpha: weight of feature smoothness in the prior (Eq. 14)."""
    sparsity: float = 0.1
    """rho: weight of the squared Frobenius norm in the prior (Eq. 14)."""
    entropy: float = 0.1
    """Weight of the entropy term L_e (Eq. 18); the paper's is 1."""
    samples: int = 5
    """K: structures drawn for each REINFORCE estimate."""
    probes: int = 8
    """Random sign vectors for the Frobenius norm (Hutchinson)."""
    sketch: int = 64
    """Features are projected to this many random directions inside the smoothness term."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(BackboneConfig, RunConfig):
    """The GNN of one graph, the learned graph in its messages, and how it is optimised."""

    input_weight: float = 0.7
    """lambda: weight of the input graph in message passing; the learned graph has 1 - lambda."""
    num_pivots: int = 400
    """P: nodes through which the learned graph is routed; at most the number of nodes is used."""
    redraw_pivots: bool = True
    """Draw new pivots every training epoch. Evaluation always uses one fixed draw."""
    pivots_by_degree: bool = False
    """Draw pivots with chances in proportion to their degree; otherwise each node alike."""
    refinements: int = 4
    """T: most refinements of structure and embeddings in one forward pass."""
    tolerance: float = 4e-5
    """Stop refining when the squared relative change of the embeddings falls below this."""
    structure_momentum: float = 1.0
    """eta: weight of the current learned graph against the first one; 1 means the current only."""


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(ModelConfig):
    """Algorithm 2: one structure learner, trained on several source graphs."""

    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """The structure learner."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """Its objective."""
    learner_learning_rate: float = 0.1
    """Step size of the structure learner's optimizer (Adam)."""
    episodes: int = 2
    """E: how often all sources are visited in turn."""
    epochs: int = 80
    """Most epochs on one source in one visit."""
    patience: int = 40
    """End a visit after this many epochs without a better validation score."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.learner.weighted:
            raise InputError("pre-training needs a learner with weights; got weighted = False")


@dataclass(frozen=True, kw_only=True)
class PaperConfig(ModelConfig):
    """Algorithm 3: a new GNN on a new graph, under the paper's structure learner, frozen."""


@dataclass(frozen=True, kw_only=True)
class TransferConfig(GNNConfig):
    """A GNN on a new graph, over that graph and the one that an evidence learner makes of it."""

    epochs: int = 200
    """Training epochs; the one with the best validation accuracy is kept."""
    patience: int = 40
    """End after this many epochs without a better validation score."""
    input_weight: float | None = None
    """lambda: weight of the input graph in message passing; the refined graph has 1 - lambda.
    None: 0, 0.5 or 1, by validation accuracy."""
    top_k: int = 16
    """Edges of the refined graph that a node keeps, the strongest; more where others keep them."""


EPISODES = {
    "first_episodes": 700,
    "vote_episodes": 300,
    "second_episodes": 700,
    "predict_episodes": 1500,
}
"""Episodes of each network with ten sources or more."""


@dataclass(frozen=True, kw_only=True)
class EvidencePretrainConfig(Settings):
    """Pre-training of an evidence learner."""

    first_episodes: int | None = None
    """Episodes for the first scorer; None: 70 for each source, at most 700."""
    vote_episodes: int | None = None
    """Further episodes, for the voter; None: 30 for each source, at most 300."""
    second_episodes: int | None = None
    """Further episodes, for the second scorer; None: 70 for each source, at most 700."""
    predict_episodes: int | None = None
    """Further episodes, for the predictor; None: 150 for each source, at most 1,500."""
    random_share: float = 0.4
    """Share of episodes on random graphs."""
    max_nodes: int = 2000
    """Of larger sources, each episode takes a part."""
    pairs: int = 8192
    """Pairs kept of each episode."""
    nodes: int = 256
    """Nodes kept of each episode, for the voter and the predictor."""
    steps: int = 2500
    """Of the optimizer, for each network."""
    learning_rate: float = 3e-3
    """The highest of one cycle."""
    weight_decay: float = 1e-3
    """L2 penalty on the weights."""
    seed: int = 0
    """Seeds episodes and weights."""
    device: Device = "auto"
    """Where to compute: auto takes the GPU if there is one."""

    least: ClassVar = Settings.least | {"steps": 2}

    def episode_counts(self, sources: int) -> list[int]:
        """Episodes of each network, in the order in which they are trained."""
        given = [(getattr(self, name), most) for name, most in EPISODES.items()]
        share = min(10, max(1, sources))
        return [most * share // 10 if number is None else number for number, most in given]


@dataclass(frozen=True, kw_only=True)
class AuditPretrainConfig(Settings):
    """Pre-training of an auditor."""

    episodes: int = 12
    """Of each source."""
    random_episodes: int = 200
    """On random graphs."""
    max_nodes: int = 3000
    """Of larger sources, each episode takes a part."""
    steps: int = 600
    """Of the optimizer, for each network."""
    learning_rate: float = 1e-2
    """The highest of one cycle."""
    weight_decay: float = 1e-2
    """L2 penalty on the weights."""
    ridge: float = 0.05
    """L2 penalty on what is added to the graph's own regressions."""
    seed: int = 0
    """Seeds episodes and weights."""

    least: ClassVar = Settings.least | {"steps": 2, "episodes": 0}


PRETRAINING: dict[str, type[Settings]] = {
    "evidence": EvidencePretrainConfig,
    "auditor": AuditPretrainConfig,
    "paper": PretrainConfig,
}
"""Settings of each kind of learner that can be pre-trained."""
