"""Settings of the structure learner and of its objective."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from graphglow.checks import at_least, number, one_of, plain_numbers
from graphglow.errors import InputError

Similarity = Literal["cosine", "dot", "rbf", "attention"]
Delta = Literal["truncate", "affine"]
Supervision = Literal["nwgm", "gumbel", "reinforce"]


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
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
        plain_numbers(self)
        at_least("embedding_size", self.embedding_size, 1)
        at_least("num_heads", self.num_heads, 1)
        one_of("similarity", self.similarity, get_args(Similarity))
        one_of("delta", self.delta, get_args(Delta))
        if not 0 <= number("threshold", self.threshold) < math.inf:
            raise InputError(f"threshold must be >= 0 and finite; got {self.threshold}")
        if self.delta != "truncate" and self.similarity != "cosine":
            raise InputError(
                f"delta {self.delta!r} must be used with similarity 'cosine'; "
                f"got {self.similarity!r}"
            )
        inner_product = self.similarity in ("cosine", "dot")
        if not self.weighted and not (inner_product and self.num_heads == 1 and self.tied):
            raise InputError(
                "where nothing is weighted, similarity must be cosine or dot, num_heads 1 and tied "
                f"true; got {self.similarity!r}, {self.num_heads} and {self.tied}"
            )
        if self.neighbours is not None:
            at_least("neighbours", self.neighbours, 1)
            if not inner_product or self.delta != "truncate":
                raise InputError(
                    "neighbours must go with similarity cosine or dot and delta truncate; "
                    f"got {self.similarity!r} and {self.delta!r}"
                )


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """Objective of the structure learner (Eq. 13-18). L_r and L_e are means per entry."""

    supervision: Supervision = "nwgm"
    """Gradient of L_s: at the expected structure (nwgm, Eq. 15), or by sampling structures."""
    smoothness: float = 0.1
    """alpha: weight of feature smoothness in the prior (Eq. 14)."""
    sparsity: float = 0.1
    """rho: weight of the squared Frobenius norm in the prior (Eq. 14)."""
    entropy: float = 0.1
    """Weight of the entropy term L_e (Eq. 18); the paper's is 1."""
    samples: int = 5
    """K: structures drawn for each REINFORCE estimate."""
    temperature: float = 0.5
    """Temperature of the relaxed Bernoulli draws (supervision = gumbel)."""
    probes: int = 8
    """Random sign vectors for the Frobenius norm (Hutchinson)."""
    sketch: int = 64
    """Features are projected to this many random directions inside the smoothness term."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        one_of("supervision", self.supervision, get_args(Supervision))
        for name in ("smoothness", "sparsity", "entropy"):
            value = number(name, getattr(self, name))
            if not 0 <= value < math.inf:
                raise InputError(f"{name} must be >= 0 and finite; got {value}")
        at_least("samples", self.samples, 2)
        at_least("probes", self.probes, 1)
        at_least("sketch", self.sketch, 1)
        if not 0 < number("temperature", self.temperature) < math.inf:
            raise InputError(f"temperature must be > 0 and finite; got {self.temperature}")


def delta_facts(delta: str) -> dict[str, str]:
    """What a run says of its learner's delta: of the usual one nothing."""
    return {} if delta == LearnerConfig.delta else {"delta": delta}


RETIRED = {"sharpness": 10.0, "latent_degree": None, "train_learner": False}
"""Settings that older versions had, with the value under which nothing is different without."""


def current_settings(saved: Any) -> dict[str, Any]:
    """Settings out of a file, less the retired ones, which are refused where they did something."""
    if not isinstance(saved, dict):
        raise InputError(f"settings must be given by name; got {saved!r}")
    for name, default in RETIRED.items():
        if saved.get(name, default) != default:
            raise InputError(
                f"{name} must be {default}: graphglow has no other any more; got {saved[name]}"
            )
    return {name: value for name, value in saved.items() if name not in RETIRED}
