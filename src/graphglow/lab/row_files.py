"""Rows: one line of JSON for one run of one method on one target with one seed, and its origin.

``pandas.read_json(path, lines=True)`` reads a file of them. Rows are only ever added: of several
rows about one run the last counts. ``setup`` is a digest of all that a result depends on but the
seed, so that a run is known by its setup and seed.
"""

import gzip
import hashlib
import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch_geometric

from graphglow.errors import InputError, InputWarning
from graphglow.version import __version__

Row = dict[str, Any]


def digest(*facts: Any) -> str:
    """Return a short name of JSON values, whatever the order of their names."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def as_line(row: Mapping[str, Any]) -> str:
    """Return a row as JSON, without values that are empty."""
    kept = {name: value for name, value in row.items() if value not in (None, "", [], {})}
    return json.dumps(kept, separators=(",", ":"))


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file, packed (.gz) or not; an absent file has none.

    A line that a kill has torn, or that is no row, is left out with a warning.
    """
    if not path.exists():
        return []
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            lines = [line for line in file if line.strip()]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no file of rows ({error}). Name another.") from error
    rows = []
    for line in lines:
        with suppress(ValueError):
            row = json.loads(line)
            rows += [row] if isinstance(row, dict) and "cell" in row else []
    if count := len(lines) - len(rows):
        warnings.warn(f"{path}: {count} lines are no rows and are left out", InputWarning, 2)
    return rows


def file_of(out: Path, experiment: str) -> Path:
    """Return where rows of an experiment are written: ``out``, or a file of that folder."""
    return out if out.suffix == ".jsonl" else out / f"{experiment}.jsonl"


def rows_in(out: Path, experiments: Iterable[str]) -> list[Row]:
    """Read the rows of experiments: first those that lie packed beside a file, then its own."""
    files = dict.fromkeys(file_of(out, name) for name in experiments)
    return [
        row
        for file in files
        for path in (file.with_name(f"{file.name}.gz"), file)
        for row in read_rows(path)
    ]


def newest(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that count: of each cell those of its last setup, the last of each seed.

    A mean over runs of several setups would be that of no method.
    """
    rows = list(rows)
    setups = {(row["experiment"], row["cell"]): row.get("setup") for row in rows}
    mine = (row for row in rows if row.get("setup") == setups[row["experiment"], row["cell"]])
    return list({(row["experiment"], row["cell"], row["seed"]): row for row in mine}.values())


def provenance() -> dict[str, Any]:
    """Return command, commit, date, machine and versions; of absolute paths the last part.

    ``GRAPHGLOW_COMMIT`` names the commit where there is no git.
    """
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    program, *words = (Path(w).name if Path(w).is_absolute() else w for w in sys.argv)
    ours = program in ("__main__.py", "graphglow")
    program = "graphglow" if ours else f"{Path(sys.executable).name} {program}"
    return {
        "command": " ".join([program, *words]),
        "commit": os.environ.get("GRAPHGLOW_COMMIT") or _git_commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": platform.machine(), "cores": os.cpu_count(), "gpu": gpu},
        "versions": {
            "graphglow": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "cuda": torch.version.cuda,
        },
    }


@cache
def _git_commit() -> str:
    """Return the commit of the source tree, marked where files differ from it."""
    words, where = ["git", "describe", "--always", "--dirty", "--exclude", "*"], Path(__file__)
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(words, cwd=where.parent, capture_output=True, text=True, timeout=10)
        return done.stdout.strip() or "unknown"
    return "unknown"
