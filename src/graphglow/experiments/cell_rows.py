"""Rows of experiments: how they are written, read, compared, and taken from one another."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphglow.errors import InputError
from graphglow.experiments.cell_config import Configs, as_compared, config_kind
from graphglow.experiments.cells import Cell
from graphglow.training import PretrainConfig

Row = dict[str, Any]
Slot = tuple[str, str, int]
"""Experiment, cell and seed: what a row is about."""

OF_THE_CELL = ("experiment", "cell", "label", "series", "x", "paper", "paper_std")
"""Fields that differ where one run serves several cells."""


def cell_facts(cell: Cell) -> Row:
    """What a row says of the cell alone."""
    return {
        "experiment": cell.experiment,
        "cell": cell.key,
        "label": cell.label,
        "series": cell.series,
        "x": cell.x,
        "paper": cell.paper.mean if cell.paper else None,
        "paper_std": cell.paper.std if cell.paper else None,
    }


def run_facts(cell: Cell, configs: Configs) -> Row:
    """What a row says of its run before it is made: all that the result is a function of."""
    before = configs.pretraining
    return {
        "method": cell.method,
        "sources": list(cell.sources) or None,
        "target": cell.target,
        "split": cell.split,
        "seed": configs.run.seed,
        "damage": cell.damage._asdict() if cell.damage else None,
        "observe_every": cell.observe_every,
        "config": asdict(configs.run),
        "pretraining": asdict(before) if before else None,
    }


def same_run(row: Mapping[str, Any]) -> str | None:
    """A text that is the same for the same run, of a row or of :func:`run_facts`.

    The device does not count, nor does the version of the code. None for what is no such row.
    """
    try:
        before = row["pretraining"]
        facts = {name: row[name] for name in ("method", "sources", "target", "split", "seed")}
        facts["sources"] = sorted(facts["sources"] or ())
        facts["damage"], facts["observe_every"] = row["damage"], row["observe_every"]
        facts["config"] = as_compared(config_kind(row["method"]), row["config"])
        facts["pretraining"] = before and as_compared(PretrainConfig, before)
        return json.dumps(facts, sort_keys=True)
    except (LookupError, TypeError, AttributeError, InputError):
        return None


def slot_of(row: Mapping[str, Any]) -> Slot | None:
    """What a row is about; None for what is no row of an experiment."""
    try:
        return str(row["experiment"]), str(row["cell"]), int(row["seed"])
    except (LookupError, TypeError, ValueError):
        return None


def taken_over(row: Row, cell: Cell) -> Row:
    """The row of another cell that asks for the same run."""
    return {**row, **cell_facts(cell), "copied_from": row["experiment"]}


def read_rows(path: Path) -> list[Row]:
    """All whole rows of a file, in order; a line that was cut short is none, nor is no file."""
    rows = []
    try:
        text = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise InputError(f"the rows must be readable; got {path} ({error.strerror})") from error
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and _whole(row):
            rows.append(row)
    return rows


def _whole(row: Row) -> bool:
    """Whether a row can stand for its run: it says what was run, and how it ended."""
    before, error, accuracy = (row.get(n) for n in ("pretraining", "error", "val_accuracy"))
    ended = isinstance(error, str) or (
        error is None and isinstance(accuracy, int | float) and math.isfinite(accuracy)
    )
    return (
        ended
        and all(isinstance(row.get(name), str) for name in ("experiment", "cell", "method"))
        and isinstance(row.get("seed"), int)
        and isinstance(row.get("config"), dict)
        and (before is None or isinstance(before, dict))
        and _number_or_none(row.get("test_accuracy"))
    )


def _number_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


def latest(rows: Iterable[Row]) -> list[Row]:
    """Of the rows about the same cell and seed the last, in the order of their first.

    Rows are only ever added: one that was run anew, with other settings or after a failure, stands
    behind the one that it replaces.
    """
    found: dict[Slot, Row] = {}
    for row in rows:
        slot = slot_of(row)
        if slot is not None:
            found[slot] = row
    return list(found.values())


def as_line(row: Row) -> str:
    """One line of strict JSON; NaN and infinity become null."""
    return json.dumps(_finite(row), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
