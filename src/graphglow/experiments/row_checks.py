"""Lines of results as anybody may have written them: which are rows, and what is wrong with others.

A row is one run of one method on one target with one seed. Who reads rows, to go on from them or
to show them, reads them here; nobody trusts a file.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from graphglow.errors import InputError
from graphglow.training.config import LARGEST_SEED

Row = dict[str, Any]

LONGEST_LINE = 2**24
"""Bytes; a longer line is skipped without being read into memory."""
LONGEST_NAME, LONGEST_TEXT = 300, 5000
"""Characters: of names, and of sentences that say why a run failed."""
LARGEST = 1e12
"""No number of a row is beyond this: no count, time or metric is."""
TRIED = 1000
"""A file that has no JSON object in so many lines is not read to its end."""

NAMES = ("experiment", "cell", "label", "method", "target")
PERHAPS_NAMES = ("split", "series", "device")
SHARES = ("test_accuracy", "val_accuracy", "paper", "paper_std")
NOT_NEGATIVE = ("train_seconds", "total_seconds", "pretrain_seconds", "peak_memory_bytes", "epochs")
AT_LEAST_ONE = ("runs_at_once", "processes")
IN_COMMON = ("config", "pretraining", "provenance")
"""Fields that are objects of many rows; in a file they stand once (:func:`in_parts`)."""
PER_RUN: Row = dict.fromkeys(
    ("seed", "test_accuracy", "val_accuracy", "epochs", "train_seconds", "total_seconds",
     "peak_memory_bytes", "error")
) | {"metrics": {}}  # fmt: skip
"""What the rows of a cell differ in, and what each is where a line does not say."""
OF_FEW: Row = dict.fromkeys(
    ("series", "x", "paper", "paper_std", "sources", "damage", "observe_every", "copied_from",
     "pretraining", "pretrain_seconds")
)  # fmt: skip
"""What few cells have; where a line does not say, it is None."""
MOST_FIELDS = 100
OF_A_RESULT = (*NAMES, "seed", "test_accuracy")
"""What every row of a run has; an object that lacks one of these is something else."""


class Records(NamedTuple):
    """The JSON objects of a file, and what else is in it."""

    objects: list[tuple[int, Row]]
    """Each with the number of its line."""
    damaged: list[str]
    """``line 3: why``, for each line that is none."""
    foreign: str
    """What the file is, if it is no file of JSON lines at all: ``a binary file``."""
    cut: bool = False
    """Whether there is more, which was not read after ``TRIED`` damaged lines and no object."""


def read_records(path: Path) -> Records:
    """Read a file of JSON lines as far as it is one."""
    found = Records([], [], "")
    try:
        with path.open("rb") as file:
            begun = file.read(2) == b'{"'
            file.seek(0)
            found = found._replace(cut=not _read_into(found, file))
            if found.objects or begun or not found.damaged:
                return found
            file.seek(0)
            return found._replace(foreign=_kind_of(file.read(LONGEST_LINE)))
    except OSError as error:
        raise InputError(f"a file of rows must be readable; got {path} ({error.strerror})") from (
            error
        )


def _read_into(found: Records, file: BinaryIO) -> bool:
    """Add what is in a file; return whether all of it was read."""
    defined: dict[str, Row] = {}
    for number, line in enumerate(_lines(file), 1):
        if not found.objects and len(found.damaged) >= TRIED:
            return False
        try:
            if line is None:
                raise ValueError(f"longer than {LONGEST_LINE:,} bytes")
            record = _object(line) if line.strip() else None
            if record is None or _defines(record, defined):
                continue
            found.objects.append((number, _whole(record, defined)))
        except (ValueError, RecursionError) as error:
            found.damaged.append(f"line {number}: {_reason(error)}")
    return True


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Lines; None for one that is too long."""
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) <= LONGEST_LINE:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)
        yield None


def in_parts(row: Row) -> tuple[Row, dict[str, Row]]:
    """A row without what many rows have in common, and that by its fingerprint.

    ``{"as": "5f0c..", "seed": 0}`` stands for all fields of the line ``{"as": "5f0c..", "value":
    {..}}``, which must come first, and these. So it does within a row: settings are the same but
    for their seed, and provenance but for nothing. The seed of a run is that of its settings, and
    is not said twice.
    """
    common: dict[str, Row] = {}

    def named(value: Row) -> str:
        text = json.dumps(value, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        common[key] = value
        return key

    def shortened(name: str, value: Any) -> Any:
        if not isinstance(value, dict) or len(value) > MOST_FIELDS:
            return value
        seed = {"seed": value["seed"]} if "seed" in value else {}
        if name == "config":
            if seed != {"seed": row.get("seed")}:
                return value
            seed = {}
        return {"as": named({k: v for k, v in value.items() if k != "seed"}), **seed}

    whole = {name: shortened(name, v) if name in IN_COMMON else v for name, v in row.items()}
    about = {
        name: value
        for name, value in whole.items()
        if name not in PER_RUN and not (name in OF_FEW and value is None)
    }
    own = {n: v for n, v in whole.items() if n in PER_RUN and v != PER_RUN[n]}
    return {"as": named(about), **own}, common


def _defines(record: Row, defined: dict[str, Row]) -> bool:
    """Whether a line only says what others mean; it is remembered."""
    if set(record) != {"as", "value"}:
        return False
    key, value = record["as"], record["value"]
    if not isinstance(key, str) or not isinstance(value, dict) or len(value) > MOST_FIELDS:
        raise ValueError(f"what rows have in common must have at most {MOST_FIELDS} fields")
    defined[key] = value
    return True


def _whole(record: Row, defined: Mapping[str, Row]) -> Row:
    """The row of a line, with what it has in common with others."""
    if "as" in record:
        record = {**PER_RUN, **OF_FEW, **_meant("the row", record, defined)}
    for name in IN_COMMON:
        given = record.get(name)
        if isinstance(given, dict) and "as" in given:
            record = {**record, name: _meant(name, given, defined)}
            if name == "config":
                record[name].setdefault("seed", record.get("seed"))
    return record


def _meant(what: str, given: Row, defined: Mapping[str, Row]) -> Row:
    key = given["as"]
    if not isinstance(key, str) or key not in defined:
        raise ValueError(f"{what} must be defined in a line before; got {key!r:.60}")
    return {**defined[key], **{name: value for name, value in given.items() if name != "as"}}


def _object(line: bytes) -> Row:
    value = json.loads(line.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "not JSON"
    if isinstance(error, UnicodeDecodeError):
        return "not text"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _kind_of(data: bytes) -> str:
    try:
        return "a binary file" if "\0" in data.decode("utf-8") else "text that is no lines of JSON"
    except UnicodeDecodeError as error:
        cut = error.reason == "unexpected end of data"  # in the middle of a character
        return "text that is no lines of JSON" if cut else "a binary file"


def is_result(record: Mapping[str, Any]) -> bool:
    """Whether an object means to be the row of a run."""
    return all(name in record for name in OF_A_RESULT)


def check_row(row: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a row holds what no run can have."""
    for name in NAMES:
        if not row.get(name):
            raise ValueError(f"{name} must be text; got {row.get(name)!r:.40}")
        _check_text(name, row[name], LONGEST_NAME)
    for name in PERHAPS_NAMES:
        _check_text(name, row.get(name), LONGEST_NAME)
    _check_text("error", row.get("error"), LONGEST_TEXT)
    for name in SHARES:
        _check_number(name, row.get(name), 0, 1)
    for name in NOT_NEGATIVE:
        _check_number(name, row.get(name), 0)
    for name in AT_LEAST_ONE:
        _check_number(name, row.get(name), 1)
    _check_number("x", row.get("x"))
    seed = row.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed must be a whole number in [0, {LARGEST_SEED}]; got {seed!r:.40}")
    sources = row.get("sources")
    if sources is not None and not isinstance(sources, list):
        raise ValueError("sources must be a list or null")
    for source in sources or ():
        if not isinstance(source, str):
            raise ValueError(f"sources must be names; got {source!r:.40}")
        _check_text("sources", source, LONGEST_NAME)
    for name in ("config", "pretraining", "provenance", "metrics"):
        if not isinstance(row.get(name), dict | None):
            raise ValueError(f"{name} must be an object; got {row[name]!r:.40}")
    for name, value in (row.get("metrics") or {}).items():
        _check_metric(name, value)


def _check_text(name: str, value: Any, longest: int) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; got {value!r:.40}")
    if len(value) > longest:
        raise ValueError(f"{name} must have at most {longest} characters; got {len(value):,}")


def _check_number(name: str, value: Any, low: float = -LARGEST, high: float = LARGEST) -> None:
    if value is None:
        return
    if not _is_number(value) or not is_finite(value):
        raise ValueError(f"{name} must be a finite number or null; got {value!r:.40}")
    if not low <= value <= high:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}]; got {value:g}")


def _check_metric(name: str, value: Any) -> None:
    """A number, or a list of numbers; in a list NaN, infinity and null are gaps."""
    _check_text("the name of a metric", name, LONGEST_NAME)
    for item in value if isinstance(value, list) else ():
        if item is not None and not _is_number(item):
            raise ValueError(f"metrics.{name} must hold numbers; got {item!r:.40}")
        _check_number(f"metrics.{name}", item if item is None or is_finite(item) else None)
    if not isinstance(value, list):
        if value is not None and not _is_number(value):
            raise ValueError(f"metrics.{name} must be a number or a list; got {value!r:.40}")
        _check_number(f"metrics.{name}", value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Whether a number is one that floats can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond floats
        return False
