"""Batches of runs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.settings import ModelConfig, RunConfig

NO_LONGER = ("train_learner", "objective", "learner_learning_rate")
"""What transfers had in old files: GraphGLOW* has one door, ``fit`` by ``graphglow-star``."""


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
        check_same_shape(configs)

        def stacked(name: str) -> float | Tensor:
            values = [float(getattr(config, name)) for config in configs]
            if len(set(values)) == 1:
                return values[0]
            return torch.tensor(values, device=device)[:, None, None]

        names = ("input_weight", "structure_momentum", "learning_rate", "weight_decay")
        rates = tuple(float(config.dropout) for config in configs)
        return cls(len(configs), configs[0], rates, *map(stacked, names))


def check_same_shape(configs: Sequence[RunConfig]) -> None:
    """Raise unless the runs differ only in settings that a batch can hold."""
    first = configs[0]
    for config in configs[1:]:
        assert type(config) is type(first)
        for name in (setting.name for setting in fields(first)):
            mine, other = getattr(first, name), getattr(config, name)
            if name not in MAY_DIFFER and mine != other:
                raise InputError(
                    f"the runs of a batch may differ in {', '.join(MAY_DIFFER)} only; "
                    f"got {name} {mine!r} and {other!r}"
                )
