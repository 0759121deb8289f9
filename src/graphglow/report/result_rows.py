"""Rows of results from files of JSON lines: one run of one method on one target with one seed."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphglow.errors import InputError
from graphglow.storage import existing_file

Metric = float | tuple[float | None, ...]
OURS = ("graphglow", "graphglow*", "graphglow-star")
"""The methods that the page is about; all others are competitors or controls."""


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One run. Accuracies are fractions; ``paper`` is what the paper reports for its cell."""

    experiment: str
    cell: str
    """Which cell of the experiment: all but the seed."""
    label: str
    """The name of its row or curve, for people."""
    method: str
    target: str
    split: str
    seed: int
    x: float | None = None
    """The swept value, if the experiment sweeps one."""
    series: str = ""
    """Which of the things that the experiment sweeps."""
    sources: tuple[str, ...] = ()
    test_accuracy: float | None = None
    train_seconds: float | None = None
    paper: float | None = None
    paper_std: float | None = None
    device: str = ""
    runs_at_once: int = 1
    """Runs trained as one batch, whose time is that of the whole batch."""
    processes: int = 1
    """Runs that shared the machine."""
    error: str = ""
    """Why there is no accuracy."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFile:
    """What a file gave: rows, and what else it held."""

    path: Path
    rows: list[ResultRow]
    damaged: list[str]
    """``line 3: why``, for each line that could not be read."""
    others: int
    """Rows of other kinds, such as the trials of a search."""


def read_rows(path: Path) -> RowFile:
    """Read a file of JSON lines; a damaged line is left out and named, a foreign file refused."""
    path = existing_file(path, "a results file")
    rows: list[ResultRow] = []
    damaged: list[str] = []
    others = 0
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} must be lines of JSON, or a saved transfer that ends in .safetensors; "
            "got a binary file"
        ) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = row_of(json.loads(line))
        except (ValueError, RecursionError) as error:
            damaged.append(f"line {number}: {_reason(error)}")
            continue
        others += row is None
        rows += [] if row is None else [row]
    if not rows:
        raise InputError(
            f"{path} must hold at least one row of results; got {_got(damaged, others)}"
        )
    return RowFile(path, rows, damaged, others)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "not JSON"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _got(damaged: list[str], others: int) -> str:
    if not damaged and not others:
        return "an empty file"
    parts = [f"{others} rows of other kinds"] if others else []
    parts += [f"{len(damaged)} damaged lines (the first: {damaged[0]})"] if damaged else []
    return " and ".join(parts)


def row_of(record: Any) -> ResultRow | None:
    """The row that a JSON object holds; None if it is not the result of a run.

    Besides rows of ``graphglow reproduce`` these are rows of ``benchmarks/``, where the benchmark
    is the experiment and settings that its rows differ in are part of the label.
    """
    if not isinstance(record, dict):
        raise ValueError("must be a JSON object")
    if "experiment" not in record:
        wanted = ("benchmark", "method", "target", "seed", "test_accuracy")
        if not all(name in record for name in wanted):
            return None
        record = _of_benchmark(record)
    sources = record.get("sources") or []
    if not isinstance(sources, list):
        raise ValueError("sources must be a list or null")
    return ResultRow(
        experiment=_text(record, "experiment"),
        cell=_text(record, "cell"),
        label=_text(record, "label"),
        method=_text(record, "method"),
        target=_text(record, "target"),
        split=_text(record, "split", ""),
        seed=_seed(record),
        x=_number(record, "x"),
        series=_text(record, "series", ""),
        sources=tuple(map(str, sources)),
        test_accuracy=_share(record, "test_accuracy"),
        train_seconds=_seconds(record),
        paper=_share(record, "paper"),
        paper_std=_number(record, "paper_std"),
        device=_text(record, "device", ""),
        runs_at_once=int(_number(record, "runs_at_once") or 1),
        processes=int(_number(record, "processes") or 1),
        error=_text(record, "error", ""),
        metrics=_metrics(record),
        config=_mapping(record, "config"),
        provenance=_mapping(record, "provenance"),
    )


def _of_benchmark(record: dict[str, Any]) -> dict[str, Any]:
    told = [f"{name} {record[key]}" for name, key in _TOLD_APART.items() if record.get(key)]
    if told:
        told.append(f"{record.get('epochs')} epochs")
    label = f"{record['method']} ({', '.join(told)})" if told else record["method"]
    cell = f"{label} on {record['target']}, {record.get('split')}, from {record.get('sources')}"
    return {**record, "experiment": record["benchmark"], "label": label, "cell": cell}


_TOLD_APART = {"setting": "setting", "learner step": "learner_rate"}


def _text(record: dict[str, Any], name: str, default: str | None = None) -> str:
    value = record.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or not (value or default is not None):
        raise ValueError(f"{name} must be text; got {value!r:.40}")
    return value


def _number(record: dict[str, Any], name: str) -> float | None:
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise ValueError(f"{name} must be a finite number or null; got {value!r:.40}")
    return float(value)


def _seconds(record: dict[str, Any]) -> float | None:
    """The time of a run; None where its row says that it was not taken with care."""
    seconds = _number(record, "train_seconds")
    return None if record.get("timed") is False else seconds


def _share(record: dict[str, Any], name: str) -> float | None:
    value = _number(record, name)
    if value is not None and not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1]; got {value:g}")
    return value


def _seed(record: dict[str, Any]) -> int:
    value = record.get("seed")
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"seed must be a whole number; got {value!r:.40}")
    return value


def _mapping(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object; got {value!r:.40}")
    return value


def _metrics(record: dict[str, Any]) -> dict[str, Metric]:
    """Numbers and lists of numbers; NaN and null in a list are gaps."""
    found: dict[str, Metric] = {}
    for name, value in _mapping(record, "metrics").items():
        if isinstance(value, list):
            if not all(v is None or isinstance(v, int | float) for v in value):
                raise ValueError(f"metrics.{name} must hold numbers")
            found[name] = tuple(None if v is None or not _finite(v) else float(v) for v in value)
        elif value is not None:
            number = _number({name: value}, name) if isinstance(value, int | float) else None
            if number is None:
                raise ValueError(f"metrics.{name} must be a number or a list; got {value!r:.40}")
            found[name] = number
    return found


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond floats
        return False


def without_repeats(rows: list[ResultRow]) -> tuple[list[ResultRow], int]:
    """Of rows for the same cell and seed keep the last; also say how many were dropped."""
    last = {(row.experiment, row.cell, row.seed): row for row in rows}
    return list(last.values()), len(rows) - len(last)


def origins(rows: list[ResultRow]) -> dict[str, str]:
    """Commits, machines, versions and dates of rows, each with how many rows have it."""
    found: dict[str, Counter[str]] = {}

    def count(name: str, value: object) -> None:
        if value not in (None, ""):
            found.setdefault(name, Counter())[str(value)] += 1

    for row in rows:
        source = row.provenance
        count("commit", source.get("commit"))
        machine = source.get("machine")
        if isinstance(machine, dict):
            cores = machine.get("cores")
            count("machine", f"{machine.get('gpu') or machine.get('cpu')}, {cores} CPU cores")
        versions = source.get("versions")
        if isinstance(versions, dict):
            shown = {k: v for k, v in versions.items() if v is not None}
            count("versions", ", ".join(f"{name} {value}" for name, value in shown.items()))
        count("date", str(source.get("date") or "")[:10])
    return {
        name: "; ".join(f"{value} ({number} rows)" for value, number in counts.most_common())
        for name, counts in found.items()
    }
