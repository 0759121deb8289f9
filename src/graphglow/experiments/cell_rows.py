"""Rows of experiments: how they are written, read, compared, and taken from one another."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from graphglow.errors import InputError
from graphglow.experiments.cell import Cell
from graphglow.experiments.cell_config import Configs, as_compared, config_kind
from graphglow.experiments.row_checks import Row, check_row, in_parts, is_result, read_records
from graphglow.storage import append_line
from graphglow.training import PretrainConfig
from graphglow.training.config import RunConfig

Slot = tuple[str, str, int]
"""Experiment, cell and seed: what a row is about."""
CellName = tuple[str, str]
"""Experiment and cell."""

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
        facts["pretraining"] = before and {
            **as_compared(PretrainConfig, before),
            "seed": before["seed"],
        }
        return json.dumps(facts, sort_keys=True)
    except (LookupError, TypeError, AttributeError, InputError):
        return None


def same_settings(row: Mapping[str, Any]) -> str:
    """A text that is the same for runs of a cell whose mean means something.

    They differ in seeds, and in what is not meant to change a result: device, capture, backend.
    """
    try:
        kind = config_kind(row["method"])
    except (LookupError, InputError):  # of somebody else
        kind = RunConfig
    before = row.get("pretraining")
    parts = [(kind, row.get("config") or {})] + [(PretrainConfig, before)] * bool(before)
    about = [sorted(row.get("sources") or ()), row.get("damage"), row.get("split")]
    try:
        configs = [as_compared(of, stored) | {"backend": None} for of, stored in parts]
        return json.dumps([about, configs], sort_keys=True)
    except RecursionError:  # nested as no settings are
        return ""


def slot_of(row: Mapping[str, Any]) -> Slot | None:
    """What a row is about; None for what is no row of an experiment."""
    try:
        return str(row["experiment"]), str(row["cell"]), int(row["seed"])
    except (LookupError, TypeError, ValueError):
        return None


def taken_over(row: Row, cell: Cell) -> Row:
    """The row of another cell that asks for the same run."""
    return {**row, **cell_facts(cell), "copied_from": row["experiment"]}


class Found(NamedTuple):
    """What a file of rows holds."""

    rows: list[Row]
    """Those that can stand for their runs, in order."""
    damaged: list[str]
    """``line 3: why``, for lines that are no JSON, or rows that cannot."""
    cut: bool = False
    """Whether these are the first of a file that was not read to its end."""


def find_rows(path: Path) -> Found:
    """All whole rows of a file; a file that is no file of rows is refused, no file is none."""
    if not path.exists():
        return Found([], [])
    records = read_records(path)
    if records.foreign:
        raise InputError(
            f"the rows must be in a file of JSON lines; got {path} ({records.foreign})"
        )
    found = Found([], list(records.damaged), records.cut)
    for number, row in records.objects:
        if not is_result(row):
            continue  # of another kind
        try:
            check_row(row)
            _check_ended(row)
        except ValueError as error:
            found.damaged.append(f"line {number}: {error}")
        else:
            found.rows.append(row)
    return found


def read_rows(path: Path) -> list[Row]:
    """The rows of :func:`find_rows` alone."""
    return find_rows(path).rows


def _check_ended(row: Row) -> None:
    """Raise unless a row can stand for its run: it says what was run, and how it ended."""
    if not isinstance(row.get("config"), dict):
        raise ValueError("config must say what was run; got none")
    if row.get("error") is None and row.get("val_accuracy") is None:
        raise ValueError("val_accuracy or error must say how the run ended; got neither")


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


def of_newest_settings(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[int], Counter[CellName]]:
    """Which rows a cell is summed up from, and how many of its runs are left out.

    Those with the settings of its newest row: a mean over runs of several settings is that of no
    method. Of several such rows about one seed the last counts.

    Returns:
        Places in ``rows``, in order; by cell, how many seeds have rows of other settings alone.
    """
    slots = [(place, slot) for place, row in enumerate(rows) if (slot := slot_of(row)) is not None]
    settings = {place: same_settings(rows[place]) for place, _ in slots}
    newest = {slot[:2]: settings[place] for place, slot in slots}
    found = {slot: place for place, slot in slots if settings[place] == newest[slot[:2]]}
    left_out = {slot for _, slot in slots} - found.keys()
    return list(found.values()), Counter(slot[:2] for slot in left_out)


def append_row(path: Path, row: Row, defined: set[str]) -> None:
    """Add a row to a file, after what it has in common with others and is not ``defined`` yet."""
    short, common = in_parts(_rounded(row))
    for key, value in common.items():
        if key not in defined:
            append_line(path, as_line({"as": key, "value": value}))
            defined.add(key)
    append_line(path, as_line(short))


def _rounded(row: Row) -> Row:
    """The row without digits that nobody has measured: of accuracies, seconds and curves."""
    digits = {"_accuracy": 7, "_seconds": 4}  # 7 tell one node of a million from none
    short = {
        name: round(value, places)
        for name, value in row.items()
        for end, places in digits.items()
        if name.endswith(end) and isinstance(value, float)
    }
    curves = {
        name: [round(v, 5) if isinstance(v, float) else v for v in value]
        if isinstance(value, list)
        else value
        for name, value in (row.get("metrics") or {}).items()
    }
    return row | short | {"metrics": curves}


def as_line(row: Row) -> str:
    """One line of strict JSON; NaN and infinity become null."""
    return json.dumps(_finite(row), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
