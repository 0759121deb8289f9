"""What benchmarks share: settings, and rows."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import torch

from graphglow.checks import at_least, one_of, plain_numbers
from graphglow.lab.provenance import provenance
from graphglow.ops import available_backends
from graphglow.paper import StructureLearner
from graphglow.settings import Backend, Delta, Device, LearnerConfig, PaperConfig, Precision
from graphglow.training.device import check_runnable, resolve_device

Row = dict[str, Any]
"""Names and JSON values; one per case."""


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What every benchmark takes."""

    seed: int = 0
    """Seeds the inputs, the learner and the training."""
    device: Device = "auto"
    """Where to measure: auto takes the GPU if there is one."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        at_least("seed", self.seed, 0)

    def facts(self) -> Row:
        """The part of a row that says what was run: all settings but those that name cases."""
        return {name: v for name, v in asdict(self).items() if not isinstance(v, tuple)}


@dataclass(frozen=True, kw_only=True)
class ModelBench(BenchConfig):
    """A model as it is measured: a random learner, and every refinement made."""

    refinements: int = 10
    """T: refinements of each forward pass; none is saved by stopping early."""
    pivots: int = 1000
    """P; at most the number of nodes is used."""
    backend: Backend = "auto"
    """How the learned graph's messages are computed."""
    precision: Precision = "float32"
    """Arithmetic of the learned graph's messages."""
    delta: Delta = "truncate"
    """The learner's delta; affine is what the linear backend serves."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("delta", self.delta, get_args(Delta))
        settings = self.transfer_config()  # checks the rest
        check_runnable(settings, self.learner(), resolve_device(self.device))

    def transfer_config(self) -> PaperConfig:
        return PaperConfig(
            refinements=self.refinements,
            tolerance=0.0,
            num_pivots=self.pivots,
            precision=self.precision,
            backend=self.backend,
            seed=self.seed,
            device=self.device,
        )

    def learner(self) -> StructureLearner:
        return StructureLearner(LearnerConfig(delta=self.delta), seed=self.seed)

    def picked(self, nodes: int, *, runs: int = 1) -> Backend:
        """The backend that is used: the named one, or what ``auto`` picks for these sizes."""
        learner, one = self.learner(), torch.empty(1, device=resolve_device(self.device))
        width = learner.config.num_heads * learner.config.embedding_size
        batch = (runs,) if runs > 1 else ()  # whole factors are seen; nothing is allocated
        q, k = (one.expand(*batch, n, width) for n in (nodes, min(self.pivots, nodes)))
        structure = learner.pivot_structure(q, k, backend=self.backend, precision=self.precision)
        return structure.chosen_backend


@dataclass(frozen=True, kw_only=True)
class TransferBench(ModelBench):
    """A whole transfer."""

    epochs: int = 50
    """Epochs measured: a training step and a validation pass each."""
    warm_up: int = 10
    """Epochs of a transfer that is made first, outside the clock."""
    repeats: int = 3
    """How often it is measured; medians are reported."""
    capture: bool = True
    """On a GPU, replay an epoch as a CUDA graph."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("warm_up", self.warm_up, 1)
        at_least("repeats", self.repeats, 1)

    def transfer_config(self) -> PaperConfig:
        return replace(super().transfer_config(), epochs=self.epochs, capture=self.capture)


def compared(names: tuple[Backend, ...], device: torch.device) -> list[Backend]:
    """The backends to compare, eager first; by default all that can run on the device."""
    usable = available_backends(device)
    for name in names:
        one_of(f"backends on a {device.type} device", name, usable)
    return sorted(names or usable, key=lambda name: name != "eager")


def stamped(benchmark: str, device: torch.device, rows: Iterable[Row]) -> Iterator[Row]:
    """Add to each row, as it comes, which benchmark on which machine with which versions."""
    origin = provenance()
    where = {"device": device.type, "threads": torch.get_num_threads()}
    for row in rows:
        yield {"benchmark": benchmark, **row, **where, "provenance": origin}


def quotient(a: float | None, b: float | None) -> float | None:
    """``a / b``, or None where one of them was not measured."""
    return None if a is None or not b else a / b


def shown(row: Row, field: str) -> str:
    """A field as people read it: bytes in MB, shares in %, accuracies in points."""
    value = row.get(field)
    if value is None:
        return "out of memory" if row.get("out_of_memory") and field.endswith("_ms") else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if field.endswith(("share", "share_of_eager")):
        return f"{100 * value:.3g} %"
    if field.endswith("_error"):
        return f"{value:.0e}" if value else "0"
    if field in ("ratio", "speedup_over_eager"):
        return f"{value:.2f}x" if value < 10 else f"{value:.0f}x"
    if "accuracy" in field or field == "exponent":
        return f"{value if field == 'exponent' else 100 * value:.2f}"
    if field.endswith("_bytes"):
        value = value / 1e6
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}"
