"""What a benchmark gives back: one flat row per case, each with where it was measured."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from graphglow.experiments.provenance import provenance

Row = dict[str, Any]
"""Names and JSON values."""


def stamped(benchmark: str, device: torch.device, rows: Iterable[Row]) -> Iterator[Row]:
    """Add to each row, as it comes, which benchmark on which machine with which versions."""
    origin = provenance()
    where = {"device": device.type, "threads": torch.get_num_threads()}
    for row in rows:
        yield {"benchmark": benchmark, **row, **where, "provenance": origin}


def quotient(a: float | None, b: float | None) -> float | None:
    """``a / b``, or None where one of them was not measured."""
    return None if a is None or not b else a / b
