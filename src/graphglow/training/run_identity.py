"""What a run is: all that its result depends on, so that checkpoints are used by no other."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs import Graph
from graphglow.graphs.sparse import SparseMatrix
from graphglow.storage import checksum
from graphglow.version import __version__

DIFFERENCES_SHOWN = 3


def graph_identity(graph: Graph) -> dict[str, str]:
    """The name of a graph, and a fingerprint of all that a model sees of it."""
    tensors: dict[str, Tensor] = {}
    for field in fields(graph):
        value = getattr(graph, field.name)
        if isinstance(value, SparseMatrix):
            parts = {"crow": value.crow, "col": value.col, "values": value.values}
            tensors |= {f"{field.name}.{name}": part for name, part in parts.items()}
        elif isinstance(value, Tensor):
            tensors[field.name] = value
    return {"name": graph.name, "content": checksum(tensors)[:16]}


def versions() -> dict[str, str]:
    """Of what computes: another one may round differently."""
    return {"graphglow": __version__, "torch": str(torch.__version__)}


def check_same_run(saved: dict[str, Any], run: dict[str, Any], folder: Path) -> None:
    """Raise, naming what differs, unless the checkpoints in ``folder`` are of this run."""
    there, here = dict(_flat(saved)), dict(_flat(run))
    differing = [n for n in {**there, **here} if there.get(n) != here.get(n)]
    if not differing:
        return
    said = ", ".join(
        f"{name} ({there.get(name, 'none')} there, {here.get(name, 'none')} here)"
        for name in differing[:DIFFERENCES_SHOWN]
    )
    more = len(differing) - DIFFERENCES_SHOWN
    raise InputError(
        f"checkpoints must be of the same run; got {folder}, which differs in {said}"
        f"{f' and {more} more' if more > 0 else ''}"
    )


def _flat(facts: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every fact."""
    if isinstance(facts, list):
        facts = {str(i + 1): value for i, value in enumerate(facts)}
    if not isinstance(facts, dict):
        yield path, facts
        return
    for name, value in facts.items():
        yield from _flat(value, f"{path}.{name}" if path else name)
