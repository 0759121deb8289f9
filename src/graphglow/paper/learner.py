"""The structure learner g_theta: the part that is shared by all graphs and transferred."""

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphglow.errors import InputError
from graphglow.ops import Kernel
from graphglow.ops.embeddings import unit_heads
from graphglow.paper.config import current_settings
from graphglow.paper.latent import KNNStructure, PivotStructure
from graphglow.settings import Backend, LearnerConfig, Precision
from graphglow.storage import load_tensors, save_tensors

AFFINE_MARGIN = 1e-5
"""Added to 1 + s, so that rounding never makes a similarity of -1 a negative weight."""


KIND = "learner"
"""What its files are called."""
SHOWN = 3  # sources named where a learner is shown


class StructureLearner(nn.Module):
    """Weighted multi-head similarity between nodes and pivots (Eq. 9).

    The mean of H cosines is one inner product of the H concatenated unit vectors, so the learner
    returns two factors and leaves ``Gamma = delta(q @ k.T)`` to
    :func:`graphglow.ops.pivot_propagate`. RBF and attention factor in the same way, with an
    elementwise function of each head's inner product (:mod:`graphglow.ops.eager`).

    Without weights (``weighted = False``) the learner has no parameters: the non-parametric
    similarities among the paper's competitors. With ``neighbours`` its structure is a
    :class:`~graphglow.paper.latent.KNNStructure`.

    Args:
        config: What to compare and how.
        seed: Seeds the initial weights; a learner that is never trained is the "random theta"
            control.

    Shapes:
        z [.., N, D], pivots [.., P]  ->  q [.., N, W], k [.., P, W]
        weights [H, D], or [H, D, D/H] for attention; None without
    """

    def __init__(self, config: LearnerConfig | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config or LearnerConfig()
        self.provenance: dict[str, Any] = {"trained": False}
        if self.config.weighted:
            self.provenance["seed"] = seed
        generator = torch.Generator().manual_seed(seed)
        weights = {
            name: nn.Parameter(_initial(shape, generator))
            for name, shape in _weight_shapes(self.config).items()
        }
        self.node_weight = weights.get("node_weight")  # w^1
        self.pivot_weight = weights.get("pivot_weight")  # w^2

    def forward(self, z: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor]:
        z_pivots = take_rows(z, pivots)
        w1 = z.new_ones(1, z.shape[-1]) if self.node_weight is None else self.node_weight
        w2 = w1 if self.pivot_weight is None else self.pivot_weight
        if self.config.similarity == "cosine":
            constant = math.sqrt(1 + AFFINE_MARGIN) if self.config.delta == "affine" else None
            return unit_heads(z, w1, constant), unit_heads(z_pivots, w2, constant)
        if self.config.similarity == "dot":
            return self._dot(z, w1), self._dot(z_pivots, w2)
        if self.config.similarity == "rbf":
            return self._rbf(z, w1, 1), self._rbf(z_pivots, w2, 2)
        return self._attention(z, w1), self._attention(z_pivots, w2)

    def structure(
        self,
        z: Tensor,
        pivots: Tensor,
        *,
        backend: Backend = "auto",
        precision: Precision = "float32",
    ) -> PivotStructure:
        """Infer the latent graph from node embeddings z [.., N, D] and pivot indices [.., P]."""
        q, k = self(z, pivots)
        neighbours = self.config.neighbours
        if neighbours is None:
            return self.pivot_structure(q, k, backend=backend, precision=precision)
        if backend != "auto" or precision != "float32":
            raise InputError(
                "a learner with neighbours must have backend auto and precision float32; "
                f"got {backend!r} and {precision!r}"
            )
        return KNNStructure(
            q, k, self.config.threshold, kernel="identity", heads=1, neighbours=neighbours
        )

    def pivot_structure(
        self, q: Tensor, k: Tensor, *, backend: Backend, precision: Precision
    ) -> PivotStructure:
        """The latent graph over factors that :meth:`forward` made; all pivots, none left out."""
        kernels: dict[str, Kernel] = {"rbf": "exp", "attention": "sigmoid"}
        kernel = kernels.get(self.config.similarity, "identity")
        return PivotStructure(
            q,
            k,
            threshold=self.config.threshold if self.config.delta == "truncate" else None,
            kernel=kernel,
            heads=self.config.num_heads if self.config.similarity in kernels else 1,
            backend=backend,
            precision=precision,
        )

    @staticmethod
    def _dot(z: Tensor, weight: Tensor) -> Tensor:
        return (z[..., None, :] * weight).flatten(-2) / math.sqrt(weight.numel())  # [.., N, H*D]

    @staticmethod
    def _rbf(z: Tensor, weight: Tensor, side: int) -> Tensor:
        a = F.normalize(z, dim=-1)[..., None, :] * weight  # [.., N, H, D]; unit: one bandwidth
        half = -0.5 * a.square().sum(-1, keepdim=True)  # [.., N, H, 1]
        one = torch.ones_like(half)
        return torch.cat([a, half, one] if side == 1 else [a, one, half], dim=-1).flatten(-2)

    @staticmethod
    def _attention(z: Tensor, weight: Tensor) -> Tensor:
        unit = F.normalize(z, dim=-1) * math.sqrt(z.shape[-1])
        heads = torch.einsum("...nd,hde->...nhe", unit, weight)  # [.., N, H, E]
        return heads.flatten(-2) / math.pow(weight.shape[-1], 0.25)

    def __repr__(self) -> str:
        kind = f"{self.config.similarity}, {self.config.num_heads} heads"
        return f"StructureLearner({kind}; {history_of(self.provenance)})"

    def save(self, path: str | Path) -> None:
        """Write theta and its configuration as safetensors; an old file is replaced.

        The file is whole at all times: of two processes that write it, the last one wins.
        """
        meta = {"config": asdict(self.config), "provenance": self.provenance}
        save_tensors(path, KIND, dict(self.state_dict()), meta)

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
            config = LearnerConfig(**current_settings(meta.get("config")))
        except (TypeError, InputError) as error:
            raise InputError(
                f"{origin} must hold a known learner configuration; {error}"
            ) from error
        expected = _weight_shapes(config)
        received = {name: tuple(t.shape) for name, t in tensors.items()}
        if received != expected:
            raise InputError(f"{origin} must hold weights of shape {expected}; got {received}")
        if not all(t.is_floating_point() and bool(t.isfinite().all()) for t in tensors.values()):
            raise InputError(f"{origin} must hold finite weights; got NaN, infinity or integers")
        learner = cls(config)
        learner.load_state_dict(tensors)
        provenance = meta.get("provenance")
        learner.provenance = provenance if isinstance(provenance, dict) else {}
        return learner


def history_of(provenance: dict[str, Any]) -> str:
    """In a few words: on what a learner was trained, and when, as far as it is known."""
    if not provenance.get("trained"):
        return "untrained"
    sources = [str(name) for name in provenance.get("sources") or ()]
    named = ", ".join(sources[:SHOWN]) + (", ..." if len(sources) > SHOWN else "")
    nested = provenance.get("provenance")
    known = provenance | (nested if isinstance(nested, dict) else {})
    said = [f"trained on {len(sources)} graph{'s' * (len(sources) != 1)}{named and f': {named}'}"]
    return ", ".join([*said, *([str(known["date"])[:10]] if "date" in known else [])])


M = TypeVar("M", bound=nn.Module)


def stack(modules: Sequence[M]) -> M:
    """One module for a batch of runs: each parameter gets a leading dimension B.

    A single one is returned as it is, without a batch dimension.
    """
    if len(modules) == 1:
        return modules[0]
    stacked = copy.deepcopy(modules[0])
    states = [module.state_dict() for module in modules]
    for name, parameter in stacked.named_parameters():
        parameter.data = torch.stack([state[name] for state in states])
    return stacked


def stack_learners(learners: Sequence[StructureLearner]) -> StructureLearner:
    """One learner for a batch of runs with weights of their own: [B, H, D], by cosine.

    All must have the same configuration; of several without weights the first will do.
    """
    config = learners[0].config
    assert all(learner.config == config for learner in learners)
    assert len(learners) == 1 or not config.weighted or config.similarity == "cosine"
    return stack(learners if config.weighted else learners[:1])


def take_rows(z: Tensor, rows: Tensor) -> Tensor:
    """Rows of z, for each run of a batch its own: [.., N, D], [.., P] -> [.., P, D]."""
    return z.gather(-2, rows[..., None].expand(*rows.shape, z.shape[-1]))


def _weight_shapes(config: LearnerConfig) -> dict[str, tuple[int, ...]]:
    """The learner's weights by name: [H, D], or [H, D, D/H] projections for attention."""
    if not config.weighted:
        return {}
    shape: tuple[int, ...] = (config.num_heads, config.embedding_size)
    if config.similarity == "attention":
        shape = (*shape, max(1, config.embedding_size // config.num_heads))
    names = ("node_weight",) if config.tied else ("node_weight", "pivot_weight")
    return dict.fromkeys(names, shape)


def _initial(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if len(shape) == 3:
        weight = torch.empty(shape)
        for head in weight:
            nn.init.xavier_uniform_(head, generator=generator)
        return weight
    return torch.randn(shape, generator=generator)
