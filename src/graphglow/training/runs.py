"""Several runs of one graph as one batched program: their settings, stacked."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.ops.sparse import SparseMatrix
from graphglow.training.config import ModelConfig, RunConfig

MAY_DIFFER = (
    "seed",
    "learning_rate",
    "weight_decay",
    "dropout",
    "input_weight",
    "structure_momentum",
)
"""Settings that the runs of one batch may have each their own way: none changes a shape."""


@dataclass(frozen=True)
class Runs:
    """The settings of B runs. B = 1 is a single run, whose tensors have no batch dimension.

    Shapes:
        a setting that differs: [B, 1, 1]; else it is a float
    """

    count: int
    shared: ModelConfig
    """The first run's; only what all runs share is read from it."""
    dropout: tuple[float, ...]
    input_weight: float | Tensor
    structure_momentum: float | Tensor
    learning_rate: float | Tensor
    weight_decay: float | Tensor

    @classmethod
    def of(cls, configs: Sequence[ModelConfig], device: torch.device | str = "cpu") -> "Runs":
        if len(configs) == 0:
            raise InputError("a batch must have at least one run; got none")
        check_same_shape(configs)

        def stacked(name: str) -> float | Tensor:
            values = [float(getattr(config, name)) for config in configs]
            if len(set(values)) == 1:
                return values[0]
            return torch.tensor(values, device=device)[:, None, None]

        return cls(
            count=len(configs),
            shared=configs[0],
            dropout=tuple(float(config.dropout) for config in configs),
            input_weight=stacked("input_weight"),
            structure_momentum=stacked("structure_momentum"),
            learning_rate=stacked("learning_rate"),
            weight_decay=stacked("weight_decay"),
        )

    def input_weight_on(self, adj: SparseMatrix) -> float | Tensor:
        """Lambda on a graph: a number, [B, 1, 1] if the runs differ, or by degree [N, 1]."""
        if self.shared.latent_degree is None:
            return self.input_weight
        return self.shared.input_weight_on(adj)


def check_same_shape(configs: Sequence[RunConfig]) -> None:
    """Raise unless the runs differ only in settings that a batch can hold."""
    first = configs[0]
    for config in configs[1:]:
        if type(config) is not type(first):
            raise InputError(
                "the runs of a batch must have one kind of config; got "
                f"{type(first).__name__} and {type(config).__name__}"
            )
        for field in fields(first):
            mine, other = getattr(first, field.name), getattr(config, field.name)
            if field.name not in MAY_DIFFER and mine != other:
                raise InputError(
                    f"the runs of a batch may differ in {', '.join(MAY_DIFFER)} only; "
                    f"got {field.name} {mine!r} and {other!r}"
                )
