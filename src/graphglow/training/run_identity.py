"""What a run is: all that its result depends on, so that checkpoints are used by no other."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs import Graph
from graphglow.ops.sparse import SparseMatrix
from graphglow.storage import checksum
from graphglow.structure import StructureLearner
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


def learner_identity(learner: StructureLearner) -> str:
    """A fingerprint of weights and configuration."""
    return checksum(dict(learner.state_dict()), asdict(learner.config))[:16]


def versions() -> dict[str, str]:
    """Of what computes: another one may round differently."""
    return {"graphglow": __version__, "torch": str(torch.__version__)}


def check_same_run(saved: Any, run: dict[str, Any], folder: Path) -> None:
    """Raise, naming what differs, unless the checkpoints in ``folder`` are of this run."""
    there, here = dict(_flat(saved)), dict(_flat(run))
    differing = [n for n in {**there, **here} if there.get(n) != here.get(n)]
    if not differing:
        return
    named = {n.removesuffix("name") for n in differing if n.endswith(".name")}
    differing = [n for n in differing if n.removesuffix("content") not in named]
    said = list(
        dict.fromkeys(_said(n, there.get(n, "none"), here.get(n, "none")) for n in differing)
    )
    more = len(said) - DIFFERENCES_SHOWN
    raise InputError(
        f"checkpoints must be of the same run; got {folder}, which differs in "
        f"{', '.join(said[:DIFFERENCES_SHOWN])}{f' and {more} more' if more > 0 else ''}"
    )


def _said(name: str, there: object, here: object) -> str:
    """A difference in words; fingerprints say nothing to people."""
    values = f" ({there} there, {here} here)"
    match name.split("."):
        case ["graph", "name"]:
            return f"the graph{values}"
        case ["graph", *_]:
            return "the graph or its split"
        case ["sources", number, "name"]:
            return f"source {number}{values}"
        case ["sources", number, *_]:
            return f"source {number} or its split"
        case ["learner"]:
            return "the learner"
        case ["config", *setting]:
            return f"the setting {'.'.join(setting)}{values}"
        case ["versions", what]:
            return f"the version of {what}{values}"
        case ["command"]:
            return f"the command{values}"
    return f"{name}{values}"


def _flat(facts: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every fact."""
    if isinstance(facts, list):
        facts = {str(i + 1): value for i, value in enumerate(facts)}
    if not isinstance(facts, dict):
        yield path, facts
        return
    for name, value in facts.items():
        yield from _flat(value, f"{path}.{name}" if path else name)
