"""Rows of results from files of JSON lines: one run of one method on one target with one seed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphglow.experiments.cell_rows import of_newest_settings
from graphglow.experiments.lines import NAMES
from graphglow.experiments.row_checks import check_row, is_finite, is_result, read_records
from graphglow.experiments.wording import counted
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
    pretraining: Mapping[str, Any] = field(default_factory=dict)
    damage: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    left_out: int = 0
    """Runs of its cell that had other settings than the newest, and are not among the rows."""

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


@dataclass(frozen=True)
class RowFile:
    """What a file gave: rows, and what else it held."""

    path: Path
    rows: list[ResultRow]
    damaged: list[str] = field(default_factory=list)
    """``line 3: why``, for each line that could not be read."""
    others: Mapping[str, int] = field(default_factory=dict)
    """How many rows of which other kinds, such as the trials of a search."""
    foreign: str = ""
    """What the file is, if it is no file of rows at all."""
    cut: bool = False
    """Whether the damaged lines are the first of a file that was not read to its end."""

    @property
    def num_others(self) -> int:
        return sum(self.others.values())

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
    """Read a file of JSON lines; what is no row of a run is left out, and named."""
    path = existing_file(path, "a results file")
    records = read_records(path)
    rows: list[ResultRow] = []
    damaged = list(records.damaged)
    others: Counter[str] = Counter()
    for number, record in records.objects:
        try:
            row = row_of(record)
        except ValueError as error:
            damaged.append(f"line {number}: {error}")
            continue
        if row is None:
            others[_kind(record)] += 1
        else:
            rows.append(row)
    damaged.sort(key=lambda said: int(said.split()[1].rstrip(":")))
    return RowFile(path, rows, damaged, others, records.foreign, records.cut)


def row_of(record: dict[str, Any]) -> ResultRow | None:
    """The row that a JSON object holds; None if it is not the result of a run.

    Besides rows of ``graphglow reproduce`` these are rows of ``benchmarks/``, where the benchmark
    is the experiment and settings that its rows differ in are part of the label.
    """
    if "experiment" not in record and record.get("kind", "run") == "run":
        record = _of_benchmark(record)
    if not is_result(record):
        return None
    check_row(record)
    return ResultRow(
        experiment=record["experiment"],
        cell=record["cell"],
        label=record["label"],
        method=record["method"],
        target=record["target"],
        split=record.get("split") or "",
        seed=record["seed"],
        x=_number(record, "x"),
        series=record.get("series") or "",
        sources=tuple(record.get("sources") or ()),
        test_accuracy=_number(record, "test_accuracy"),
        train_seconds=_seconds(record),
        paper=_number(record, "paper"),
        paper_std=_number(record, "paper_std"),
        device=record.get("device") or "",
        runs_at_once=int(record.get("runs_at_once") or 1),
        processes=int(record.get("processes") or 1),
        error=record.get("error") or "",
        metrics={
            name: _metric(value)
            for name, value in (record.get("metrics") or {}).items()
            if value is not None
        },
        config=record.get("config") or {},
        pretraining=record.get("pretraining") or {},
        damage=record.get("damage"),
        provenance=record.get("provenance") or {},
    )


def _of_benchmark(record: dict[str, Any]) -> dict[str, Any]:
    """The row of a benchmark as one of an experiment; what is not the row of a run stays."""
    if not all(name in record for name in ("benchmark", "method", "target")):
        return record
    told = [f"{name} {record[key]}" for name, key in _TOLD_APART.items() if record.get(key)]
    if told:
        told.append(f"{record.get('epochs')} epochs")
    called = NAMES.get(str(record["method"]), record["method"])
    label = f"{called} ({', '.join(told)})" if told else called
    cell = f"{label} on {record['target']}, {record.get('split')}, from {record.get('sources')}"
    return {**record, "experiment": record["benchmark"], "label": label, "cell": cell}


_TOLD_APART = {"setting": "setting", "learner step": "learner_rate"}


def _kind(record: dict[str, Any]) -> str:
    """What an object is that is no row of a run."""
    if record.get("experiment") == "search" or record.get("kind") in ("search", "trial"):
        return "of a search"
    benchmark = record.get("benchmark")
    return f"of the benchmark {benchmark:.40}" if isinstance(benchmark, str) else "of another kind"


def _number(record: dict[str, Any], name: str) -> float | None:
    value = record.get(name)
    return None if value is None else float(value)


def _seconds(record: dict[str, Any]) -> float | None:
    """The time of a run; None where its row says that it was not taken with care."""
    return None if record.get("timed") is False else _number(record, "train_seconds")


def _metric(value: Any) -> Metric:
    """A number, or numbers with gaps."""
    if isinstance(value, list):
        return tuple(None if v is None or not is_finite(v) else float(v) for v in value)
    return float(value)


def without_repeats(rows: list[ResultRow]) -> tuple[list[ResultRow], int]:
    """Of rows for the same cell and seed keep the last; also say how many were dropped.

    Of each cell only runs with the settings of its newest are kept; their rows say how many others
    there were, which are not among the dropped.
    """
    places, left_out = of_newest_settings([vars(row) for row in rows])
    kept = [
        replace(rows[at], left_out=left_out[rows[at].experiment, rows[at].cell]) for at in places
    ]
    return kept, len(rows) - len(kept) - left_out.total()


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
