"""Result rows: one line of JSON for one run of one method on one target with one seed.

``pandas.read_json(path, lines=True)`` reads a file of them; what a run has not is null. Rows are
only ever added: one that was run anew, with other settings or after a failure, stands behind the
one that it replaces. Anybody may have written a file: what is no row is named, never trusted.
"""

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from graphglow.errors import InputError
from graphglow.experiments.runs.config import as_compared, config_kind
from graphglow.experiments.wording import counted
from graphglow.storage import append_line, existing_file
from graphglow.training import PretrainConfig
from graphglow.training.config import LARGEST_SEED, RunConfig

Metric = float | tuple[float | None, ...]
"""A number, or numbers with gaps."""

LONGEST_LINE = 2**24
"""Bytes; a longer line is skipped without being read into memory."""
MOST_BYTES = 2**31
"""Of a file, unpacked."""
LONGEST_NAME, LONGEST_TEXT = 300, 5000
"""Characters: of names, and of sentences that say why a run failed."""
LARGEST = 1e12
"""No number of a row is beyond this: no count, time or metric is."""
TRIED = 1000
"""A file that has no JSON object in so many lines is not read to its end."""


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


STORED = [item.name for item in fields(ResultRow) if item.name != "left_out"]


# Files


@dataclass(frozen=True)
class RowFile:
    """What a file gave: rows, and what else it held."""

    path: Path
    rows: list[ResultRow] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    """``line 3: why``, for each line that could not be read."""
    others: Counter[str] = field(default_factory=Counter)
    """How many rows of which other kinds, such as the trials of a search."""
    foreign: str = ""
    """What the file is, if it is no file of rows at all."""
    cut: bool = False
    """Whether it was not read to its end, after ``TRIED`` damaged lines and no object."""

    @property
    def num_others(self) -> int:
        return self.others.total()

    @property
    def skipped(self) -> str:
        """What of the file is not shown, in one sentence; nothing if all is."""
        if self.foreign or not (self.rows or self.damaged or self.others):
            return f"{self.path}: skipped ({self.foreign or 'an empty file'})"
        why = [f"{number:,} {kind}" for kind, number in self.others.items()]
        if self.damaged:
            what = counted(len(self.damaged), "damaged line")
            why.append(f"{what}{', the first' if len(self.damaged) > 1 else ''}: {self.damaged[0]}")
        lines = counted(self.num_others + len(self.damaged), "line")
        told = f"the first {lines} skipped, the rest not read" if self.cut else f"{lines} skipped"
        return f"{self.path}: {told} ({', '.join(why)})" if why else ""


def read_rows(path: Path) -> RowFile:
    """Read a file of JSON lines, plain or ``.gz``; what is no row of a run is left out, and named.

    Raises:
        InputError: There is no such file, or it cannot be read.
    """
    found, objects, head = RowFile(existing_file(path, "a results file")), 0, b""
    try:
        with cast(BinaryIO, (gzip.open if path.suffix == ".gz" else open)(path, "rb")) as file:
            for number, line in enumerate(_lines(file), 1):
                if len(found.damaged) >= TRIED and not objects:
                    found = replace(found, cut=True)
                    break
                head = line if number == 1 else head
                try:
                    record = _object(line)
                    objects += record is not None
                    row = row_of(record or {})
                except ValueError as error:
                    found.damaged.append(f"line {number}: {error}")
                    continue
                if row is not None:
                    found.rows.append(row)
                elif record is not None:
                    found.others[_other_kind(record)] += 1
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"a file of rows must be readable; got {path} ({reason})") from error
    foreign = found.damaged and not objects and not head.startswith(b'{"')
    return replace(found, foreign=_kind_of(head)) if foreign else found


def _kind_of(line: bytes) -> str:
    try:
        binary = "\0" in line.decode()
    except UnicodeDecodeError:
        binary = True
    return "a binary file" if binary else "text that is no lines of JSON"


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines; of one that is too long, so much that it shows."""
    unpacked = 0
    while line := file.readline(LONGEST_LINE + 1):
        yield line
        while not line.endswith(b"\n") and line:
            line = file.readline(LONGEST_LINE)
            unpacked += len(line)
        unpacked += len(line)
        if unpacked > MOST_BYTES:
            raise OSError(0, f"it holds more than {MOST_BYTES:,} bytes")


def _object(line: bytes) -> dict[str, Any] | None:
    """The object in a line; None for an empty one."""
    if len(line) > LONGEST_LINE:
        raise ValueError(f"longer than {LONGEST_LINE:,} bytes")
    try:
        record = json.loads(line) if line.strip() else None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError:
        raise ValueError("not JSON") from None
    if record is not None and not isinstance(record, dict):
        raise ValueError("must be a JSON object")
    return record


def _other_kind(record: Mapping[str, Any]) -> str:
    """What an object is that is no row of a run."""
    if record.get("experiment") == "search" or record.get("kind") in ("search", "trial"):
        return "of a search"
    benchmark = record.get("benchmark")
    return f"of the benchmark {benchmark:.40}" if isinstance(benchmark, str) else "of another kind"


def append_row(path: Path, row: ResultRow) -> None:
    """Add a row to a file, whole or not at all."""
    append_line(path, line_of(row))


def line_of(row: ResultRow) -> str:
    """The row as it stands in a file."""
    return as_line({name: _rounded(name, getattr(row, name)) for name in STORED})


def _rounded(name: str, value: Any) -> Any:
    """What a file holds: nothing that is empty, and no digits that nobody has measured."""
    if isinstance(value, str | tuple | Mapping) and not value:
        return None
    if name == "metrics":
        return {key: [_rounded("", v) for v in item] if isinstance(item, Sequence) else item
                for key, item in value.items()}  # fmt: skip
    digits = {"accuracy": 7, "seconds": 4}.get(name.rpartition("_")[2], 5)
    return round(value, digits) if isinstance(value, float) and name != "x" else value


def as_line(record: Mapping[str, Any]) -> str:
    """One line of strict JSON; NaN and infinity become null."""
    return json.dumps(_finite(record), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# One row, checked

REQUIRED = ("experiment", "cell", "label", "method", "target")
TEXTS = dict.fromkeys((*REQUIRED, "split", "series", "device", "copied_from"), LONGEST_NAME)
OBJECTS = ("config", "pretraining", "provenance", "metrics", "damage")
RANGES = (
    dict.fromkeys(("test_accuracy", "val_accuracy", "paper", "paper_std"), (0.0, 1.0))
    | dict.fromkeys(("train_seconds", "total_seconds", "pretrain_seconds"), (0.0, LARGEST))
    | dict.fromkeys(("peak_memory_bytes", "epochs", "observe_every"), (0.0, LARGEST))
    | dict.fromkeys(("runs_at_once", "processes", "threads"), (1.0, LARGEST))
    | {"x": (-LARGEST, LARGEST)}
)


def row_of(record: Mapping[str, Any]) -> ResultRow | None:
    """The row that a JSON object holds; None if it does not mean to be the result of a run.

    Raises:
        ValueError: It holds what no run can have.
    """
    if not all(name in record for name in (*REQUIRED, "seed", "test_accuracy")):
        return None
    given = {name: record[name] for name in STORED if record.get(name) is not None}
    for name in REQUIRED:
        if not given.get(name):
            raise ValueError(f"{name} must be text; got {record[name]!r:.40}")
    for name, longest in (TEXTS | {"error": LONGEST_TEXT}).items():
        _check_text(name, given.get(name, ""), longest)
    for name, (low, high) in RANGES.items():
        if name in given:
            _check_number(name, given[name], low, high)
    for name in OBJECTS:
        if not isinstance(given.get(name, {}), dict):
            raise ValueError(f"{name} must be an object; got {given[name]!r:.40}")
    seed = record["seed"]
    if type(seed) is not int or not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed must be a whole number in [0, {LARGEST_SEED}]; got {seed!r:.40}")
    sources = given.get("sources", [])
    if not isinstance(sources, list):
        raise ValueError("sources must be a list or null")
    for source in sources:
        _check_text("sources", source, LONGEST_NAME)
    metrics = {n: _metric(n, v) for n, v in given.get("metrics", {}).items() if v is not None}
    return ResultRow(**given | {"sources": tuple(sources), "metrics": metrics})


def _check_text(name: str, value: Any, longest: int) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; got {value!r:.40}")
    if len(value) > longest:
        raise ValueError(f"{name} must have at most {longest} characters; got {len(value):,}")


def _check_number(name: str, value: Any, low: float = -LARGEST, high: float = LARGEST) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number or null; got {value!r:.40}")
    if not low <= value <= high:  # nor is NaN
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}]; got {value!r:.40}")


def _metric(name: str, value: Any) -> Metric:
    """A number, or a list of numbers; in a list NaN, infinity and null are gaps."""
    _check_text("the name of a metric", name, LONGEST_NAME)
    if not isinstance(value, list):
        _check_number(f"metrics.{name}", value)
        return float(value)
    known = [_finite(item) for item in value]
    for item in known:
        if item is not None:
            _check_number(f"metrics.{name}", item)
    return tuple(None if item is None else float(item) for item in known)


# Rows beside each other


def same_run(facts: Mapping[str, Any]) -> str | None:
    """A text that is the same for the same run, of the fields of a row or of what will be run.

    The device does not count, nor does the version of the code. None for a method of others.
    """
    before = facts["pretraining"]
    try:
        told = {name: facts[name] for name in ("method", "target", "split", "seed")}
        told |= {name: facts[name] for name in ("damage", "observe_every")}
        told["sources"] = sorted(facts["sources"])
        told["config"] = as_compared(config_kind(facts["method"]), facts["config"])
        told["pretraining"] = before and {
            **as_compared(PretrainConfig, before),
            "seed": before.get("seed"),
        }
        return json.dumps(told, sort_keys=True)
    except (TypeError, AttributeError, RecursionError, InputError):
        return None


def same_settings(row: ResultRow) -> str:
    """A text that is the same for runs of a cell whose mean means something.

    They differ in seeds, and in what is not meant to change a result: device, capture, backend.
    """
    try:
        kind = config_kind(row.method)
    except InputError:  # of somebody else
        kind = RunConfig
    parts = [(kind, row.config)] + [(PretrainConfig, row.pretraining)] * bool(row.pretraining)
    try:
        configs = [as_compared(of, stored) | {"backend": None} for of, stored in parts]
        return json.dumps([sorted(row.sources), row.damage, row.split, configs], sort_keys=True)
    except RecursionError:  # nested as no settings are
        return ""


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


def origins(rows: list[ResultRow]) -> dict[str, str]:
    """Commits, machines, versions and dates of rows, each with how many rows have it."""
    found: dict[str, Counter[str]] = {}

    def count(name: str, value: object) -> None:
        if value not in (None, ""):
            found.setdefault(name, Counter())[f"{value!s:.200}"] += 1

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
        name: "; ".join(
            f"{value} ({counted(number, 'row')})" for value, number in counts.most_common()
        )
        for name, counts in found.items()
    }
