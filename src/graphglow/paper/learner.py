"""The structure learner g_theta: the part that is shared by all graphs and transferred."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphglow.errors import InputError
from graphglow.paper.pivots import Kernel, KNNStructure, PivotStructure
from graphglow.settings import LearnerConfig
from graphglow.storage import fill, load_tensors, save_tensors

AFFINE_MARGIN = 1e-5
"""Added to 1 + s, so that rounding never makes a similarity of -1 a negative weight."""
SHORTEST = 1e-15
"""A vector shorter than this counts as zero."""
OWN_STREAM = 2**31
"""Changes the seed of theta's generator: a GNN of the same seed draws its weights independently."""
KIND = "learner"  # what its files are called


class StructureLearner(nn.Module):
    """Weighted multi-head similarity between nodes and pivots (Eq. 9).

    The mean of H cosines is one inner product of the H concatenated unit vectors, so the learner
    returns two factors and leaves ``Gamma = delta(q @ k.T)`` to :mod:`graphglow.paper.pivots`. RBF
    and attention factor in the same way, with an elementwise function of each head's inner product.

    Without weights (``weighted = False``) the learner has no parameters: the non-parametric
    similarities among the paper's competitors. Never trained, it is the "random theta" control.

    Shapes:
        z [N, D], pivots [P]  ->  q [N, W], k [P, W]
        weights [H, D], or [H, D, D/H] for attention; None without
    """

    def __init__(self, config: LearnerConfig | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config or LearnerConfig()
        self.provenance: dict[str, Any] = {"trained": False}
        if self.config.weighted:
            self.provenance["seed"] = seed
        generator = torch.Generator().manual_seed(seed ^ OWN_STREAM)
        heads, width = self.config.num_heads, self.config.embedding_size
        sides: list[nn.Parameter | None] = []
        for wanted in (self.config.weighted, self.config.weighted and not self.config.tied):
            weight = None
            if wanted and self.config.similarity == "attention":
                weight = torch.empty(heads, width, max(1, width // heads))
                for head in weight:
                    nn.init.xavier_uniform_(head, generator=generator)
            elif wanted:
                weight = torch.randn(heads, width, generator=generator)
            sides.append(None if weight is None else nn.Parameter(weight))
        self.node_weight, self.pivot_weight = sides  # w^1, w^2

    def forward(self, z: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor]:
        z_pivots = z.index_select(0, pivots)
        w1 = z.new_ones(1, z.shape[1]) if self.node_weight is None else self.node_weight
        w2 = w1 if self.pivot_weight is None else self.pivot_weight
        if self.config.similarity == "cosine":
            q, k = unit_heads(z, w1), unit_heads(z_pivots, w2)
            return (halved(q), halved(k)) if self.config.delta == "affine" else (q, k)
        if self.config.similarity == "dot":
            return self._dot(z, w1), self._dot(z_pivots, w2)
        if self.config.similarity == "rbf":
            return self._rbf(z, w1, 1), self._rbf(z_pivots, w2, 2)
        return self._attention(z, w1), self._attention(z_pivots, w2)

    def structure(self, z: Tensor, pivots: Tensor) -> PivotStructure:
        """Infer the latent graph from node embeddings z [N, D] and pivot indices [P]."""
        q, k = self(z, pivots)
        config = self.config
        if config.neighbours is not None:
            return KNNStructure(q, k, config.threshold, neighbours=config.neighbours)
        threshold = config.threshold if config.delta == "truncate" else None
        if config.similarity in ("rbf", "attention"):
            kernel: Kernel = "exp" if config.similarity == "rbf" else "sigmoid"
            return PivotStructure(q, k, threshold, kernel, config.num_heads)
        return PivotStructure(q, k, threshold)

    @staticmethod
    def _dot(z: Tensor, weight: Tensor) -> Tensor:
        return (z[:, None] * weight).flatten(1) / math.sqrt(weight.numel())  # [N, H*D]

    @staticmethod
    def _rbf(z: Tensor, weight: Tensor, side: int) -> Tensor:
        a = F.normalize(z, dim=1)[:, None] * weight  # [N, H, D]; unit: one bandwidth
        half = -0.5 * a.square().sum(-1, keepdim=True)  # [N, H, 1]
        one = torch.ones_like(half)
        return torch.cat([a, half, one] if side == 1 else [a, one, half], dim=-1).flatten(1)

    @staticmethod
    def _attention(z: Tensor, weight: Tensor) -> Tensor:
        unit = F.normalize(z, dim=1) * math.sqrt(z.shape[1])
        heads = torch.einsum("nd,hde->nhe", unit, weight)  # [N, H, E]
        return heads.flatten(1) / math.pow(weight.shape[-1], 0.25)

    def __repr__(self) -> str:
        kind = f"{self.config.similarity}, {self.config.num_heads} heads"
        return f"StructureLearner({kind}; {history_of(self.provenance)})"

    def save(self, path: str | Path) -> None:
        """Write theta and its configuration as safetensors; an old file is replaced."""
        save_tensors(path, KIND, dict(self.state_dict()), self.facts())

    def facts(self) -> dict[str, Any]:
        """Return what a file stores beside the weights."""
        return {"config": asdict(self.config), "provenance": self.provenance}

    @classmethod
    def load(cls, path: str | Path) -> "StructureLearner":
        """Read what :meth:`save` wrote; anything else is refused in one sentence."""
        tensors, meta = load_tensors(path, KIND)
        return cls.from_tensors(tensors, meta, str(path))

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, Tensor], meta: dict[str, Any], origin: str
    ) -> "StructureLearner":
        """Rebuild a learner from saved parts; ``origin`` names them in errors."""
        try:
            learner = cls(LearnerConfig(**meta["config"]))
        except (KeyError, TypeError, InputError, RuntimeError) as error:  # the last: too large
            raise InputError(
                f"{origin} must hold a known learner configuration; {error}"
            ) from error
        fill(learner, tensors, origin)
        provenance = meta.get("provenance")
        learner.provenance = provenance if isinstance(provenance, dict) else {}
        return learner


def history_of(provenance: dict[str, Any]) -> str:
    """Say on what a learner was trained, and when, as far as it is known."""
    if not provenance.get("trained"):
        return "untrained"
    sources = [str(name) for name in provenance.get("sources") or ()]
    named = ", ".join(sources[:3]) + (", ..." if len(sources) > 3 else "")
    words = f"trained on {len(sources)} graph{'s' * (len(sources) != 1)}{named and f': {named}'}"
    made = provenance.get("provenance")  # of a learner in the package: how its file was made
    date = provenance.get("date") or (made.get("date") if isinstance(made, dict) else None)
    return f"{words}, {str(date)[:10]}" if date else words


def unit_heads(z: Tensor, weight: Tensor) -> Tensor:
    """Return q with ``q_u . k_p = mean_h cos(w_h * z_u, w_h * z_p)``: H unit vectors over sqrt(H).

    A zero vector stays zero and passes no gradient.

    Shapes:
        z [N, D], weight [H, D] -> [N, H*D]
    """
    heads = z[:, None] * weight  # [N, H, D]
    length = torch.linalg.vector_norm(heads, dim=-1, keepdim=True)
    inverse = (length > SHORTEST) / (length.clamp_min(SHORTEST) * math.sqrt(len(weight)))
    unit: Tensor = heads * inverse
    return unit.flatten(1)


def halved(q: Tensor) -> Tensor:
    """Factors of (1 + s) / 2 where those of s are given: [N, W] -> [N, W + 1]."""
    one = q.new_full((len(q), 1), math.sqrt(1 + AFFINE_MARGIN))
    return torch.cat([q, one], dim=1) * math.sqrt(0.5)
