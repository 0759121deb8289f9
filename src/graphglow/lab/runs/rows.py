"""Result rows: one line of JSON for one run of one method on one target with one seed.

``pandas.read_json(path, lines=True)`` reads a file of them; what a run has not is null. Rows are
only ever added: one that was run anew, with other settings or after a failure, stands behind the
one that it replaces. Anybody may have written a file: a line that is no row is named, and skipped.
"""

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from heapq import merge
from itertools import product
from operator import itemgetter
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from graphglow.errors import InputError
from graphglow.lab.runs.config import as_compared, config_kind, source_kind
from graphglow.storage import existing_file

Metric = float | tuple[float | None, ...]
"""A number, or numbers with gaps."""
MOST_BYTES = 2**30
"""Of a file, unpacked."""


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
    seed: int
    test_accuracy: float | None = None
    val_accuracy: float | None = None
    error: str = ""
    """Why there is no accuracy."""
    paper: float | None = None
    paper_std: float | None = None
    series: str = ""
    """Which of the things that the experiment sweeps."""
    x: float | None = None
    """The swept value, if the experiment sweeps one."""
    split: str = ""
    sources: tuple[str, ...] = ()
    damage: Mapping[str, Any] | None = None
    """What was done to the target before training."""
    observe_every: int | None = None
    epochs: int | None = None
    train_seconds: float | None = None
    total_seconds: float | None = None
    pretrain_seconds: float | None = None
    peak_memory_bytes: int | None = None
    timed: bool | None = None
    """Whether its seconds were taken with care: false for a batch, for instance."""
    device: str = ""
    threads: int | None = None
    processes: int = 1
    """Runs that shared the machine."""
    runs_at_once: int = 1
    """Runs trained as one batch, whose time is that of the whole batch."""
    copied_from: str = ""
    """The experiment that the run was made for, if not for this one."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    pretraining: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    left_out: int = 0
    """Not in files: runs of its cell with other settings, which :func:`without_repeats` dropped."""
    outdated: bool = False
    """Not in files: made with other settings, or another learner, than are held today."""

    @property
    def slot(self) -> tuple[str, str, int]:
        """What the row is about: experiment, cell and seed."""
        return self.experiment, self.cell, self.seed

    @property
    def seconds(self) -> float | None:
        """The time of the run; None where the row says that it was not taken with care."""
        return None if self.timed is False else self.train_seconds

    @property
    def ended(self) -> bool:
        """Whether the row can stand for its run: it says what was run, and how it ended."""
        return bool(self.config) and (self.val_accuracy is not None or bool(self.error))

    @property
    def learner_seed(self) -> int | None:
        """Of the pre-training, where there was one: runs with the same share a learner."""
        seed = self.pretraining.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def alone(self) -> str:
        """The backbone, where lambda = 1 switches the learned graph off; else nothing.

        Theta then plays no part, whatever the method is called.
        """
        ours = self.method == "random-theta" or self.method.startswith("graphglow")
        off = ours and self.config.get("input_weight") == 1
        return str(self.config.get("backbone") or "gcn") if off else ""


STORED = [item.name for item in fields(ResultRow) if item.name not in ("left_out", "outdated")]
REQUIRED = ("experiment", "cell", "label", "method", "target", "seed")
EMPTY: tuple[Any, ...] = ("", (), {})
NUMBER = (int, float)
JSON_TYPES: dict[Any, tuple[type, ...]] = {
    str: (str,), bool: (bool,), int: NUMBER, float: NUMBER, tuple: (list,), Mapping: (dict,),
}  # fmt: skip


def _json_types(hint: Any) -> tuple[type, ...]:
    """What a field of that type is in JSON, if it is not null."""
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return sum((JSON_TYPES.get(get_origin(part) or part, ()) for part in parts), ())


TYPES = {name: _json_types(hint) for name, hint in get_type_hints(ResultRow).items()}
TYPES["seed"] = (int,)


@dataclass(frozen=True)
class RowFile:
    """What a file gave: rows, and ``line 3: why`` for each line that is none."""

    path: Path
    rows: list[ResultRow] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    @property
    def skipped(self) -> str:
        """What of the file is not shown, in one sentence; nothing if all is."""
        if not self.damaged:
            return "" if self.rows else f"{self.path}: skipped (no rows in it)"
        first = f"the first: {self.damaged[0]}" if len(self.damaged) > 1 else self.damaged[0]
        rest = "" if self.rows else "no rows in it; "
        return f"{self.path}: {counted(len(self.damaged), 'line')} skipped ({rest}{first})"


def read_rows(path: Path) -> RowFile:
    """Read a file of JSON lines, plain or ``.gz``; a line that is no row is left out, and named.

    Raises:
        InputError: There is no such file, or it cannot be read.
    """
    found = RowFile(existing_file(path, "a results file"))
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise OSError(0, f"it holds more than {MOST_BYTES:,} bytes")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"a file of rows must be readable; got {path} ({reason})") from error
    for number, line in enumerate(content.splitlines(), 1):
        try:
            row = row_of(json.loads(line, parse_constant=lambda _: None)) if line.strip() else None
            if row is not None:
                found.rows.append(row)
            elif line.strip():
                found.damaged.append(f"line {number}: no row of a run")
        except InputError as error:
            found.damaged.append(f"line {number}: {error}")
        except (ValueError, RecursionError):
            found.damaged.append(f"line {number}: not JSON")
    return found


def row_of(record: Any) -> ResultRow | None:
    """The row that a JSON value holds; None if it lacks what every row has.

    Raises:
        InputError: A field has a value of another type.
    """
    if not isinstance(record, dict) or not {*REQUIRED, "test_accuracy"} <= record.keys():
        return None
    given = {name: record[name] for name in STORED if record.get(name) is not None}
    for name in dict.fromkeys((*REQUIRED, *given)):
        if type(given.get(name)) not in TYPES[name]:
            known = " or ".join(kind.__name__ for kind in TYPES[name])
            raise InputError(f"{name} must be of type {known}; got {given.get(name)!r:.40}")
    try:
        metrics = {n: _metric(v) for n, v in given.get("metrics", {}).items() if v is not None}
    except (TypeError, ValueError, OverflowError):
        raise InputError("metrics must be numbers or lists of them") from None
    sources = tuple(map(str, given.get("sources", ())))
    return ResultRow(**given | {"sources": sources, "metrics": metrics})


def _metric(value: Any) -> Metric:
    if isinstance(value, list):
        return tuple(None if item is None else float(item) for item in value)
    return float(value)


def line_of(row: ResultRow) -> str:
    """The row as it stands in a file: no digits that nobody measured, null for what is empty."""
    digits = {"accuracy": 7, "seconds": 4, "metrics": 5}
    filled = {name: getattr(row, name) for name in STORED if getattr(row, name) not in EMPTY}
    record = dict.fromkeys(STORED) | {
        name: _stored(value, digits.get(name.rpartition("_")[2])) for name, value in filled.items()
    }
    return json.dumps(record, allow_nan=False, separators=(",", ":"))


def _stored(value: Any, digits: int | None) -> Any:
    """Strict JSON: NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): _stored(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_stored(item, digits) for item in value]
    if isinstance(value, float):
        return (value if digits is None else round(value, digits)) if math.isfinite(value) else None
    return value


# Rows beside each other


def same_run(facts: Mapping[str, Any]) -> str:
    """A text that is the same for the same run, of the fields of a row or of what will be run.

    The device does not count, nor does the version of the code.
    """
    names = ("method", "target", "split", "seed", "damage", "observe_every")
    told = {name: facts[name] for name in names} | {"sources": sorted(facts["sources"])}
    told["learner_seed"] = facts["pretraining"].get("seed")
    return json.dumps([told, _settings(facts)], sort_keys=True)


def same_settings(row: ResultRow) -> str:
    """A text that is the same for runs of a cell whose mean means something.

    They differ in seeds, and in what is not meant to change a result: device, capture, backend.
    """
    settings = [part | {"backend": None} for part in _settings(vars(row))]
    return json.dumps([sorted(row.sources), row.damage, row.split, settings], sort_keys=True)


def _settings(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """On the target, and before it on the sources if there was something before."""
    method, before = facts["method"], facts["pretraining"]
    parts = [as_compared(config_kind(method), facts["config"])]
    return parts + [as_compared(source_kind(method), before)] * bool(before)


def by_date(files: Iterable[RowFile]) -> list[ResultRow]:
    """The rows of several files, newer behind older, whatever the order of the files.

    Within a file rows stay as they stand: one that was taken back is older than those before it.
    """

    def dated(file: RowFile) -> Iterator[tuple[str, ResultRow]]:
        latest = ""
        for row in file.rows:
            latest = max(latest, str(row.provenance.get("date") or ""))
            yield latest, row

    return [row for _, row in merge(*map(dated, files), key=itemgetter(0))]


def without_repeats(rows: Sequence[ResultRow]) -> tuple[list[ResultRow], int]:
    """The rows that each cell is summed up from; also how many were replaced by later ones.

    Those with the settings of its newest row: a mean over runs of several settings is that of no
    method. Rows say how many seeds had other settings alone, which are not among the replaced. Of
    several rows about one seed the last counts.
    """
    settings = [same_settings(row) for row in rows]
    newest = {row.slot[:2]: own for row, own in zip(rows, settings, strict=True)}
    kept = {
        row.slot: row
        for row, own in zip(rows, settings, strict=True)
        if own == newest[row.slot[:2]]
    }
    left_out = Counter(slot[:2] for slot in {row.slot for row in rows} - kept.keys())
    found = [replace(row, left_out=left_out[row.slot[:2]]) for row in kept.values()]
    return found, len(rows) - len(found) - left_out.total()


def origins(rows: Iterable[ResultRow]) -> dict[str, str]:
    """Commits, machines, versions and dates of rows, each with how many rows have it."""
    found: dict[str, Counter[str]] = {}
    for row, name in product(rows, ("commit", "machine", "versions", "date")):
        value = row.provenance.get(name) or ""
        if isinstance(value, dict) and name == "machine":
            value = f"{value.get('gpu') or value.get('cpu')}, {value.get('cores')} CPU cores"
        elif isinstance(value, dict):
            value = ", ".join(f"{key} {item}" for key, item in value.items() if item is not None)
        if told := str(value)[: 10 if name == "date" else 200]:
            found.setdefault(name, Counter())[told] += 1
    return {
        name: "; ".join(f"{value} ({counted(n, 'row')})" for value, n in counts.most_common())
        for name, counts in found.items()
    }


# Numbers and lists as people say them


def counted(number: int, what: str, many: str | None = None) -> str:
    """``1 run``, ``2 runs``; ``many`` where an s is not enough."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def shortened(items: Iterable[str], most: int = 5) -> str:
    """Items with commas between; of many, the first and how many more there are."""
    every = list(items)
    more = len(every) - most
    return ", ".join(every[:most]) + (f" and {more:,} more" if more > 0 else "")
