"""Convert rows of earlier versions to the rows that graphglow writes today: a JSON line per run.

    python benchmarks/convert_rows.py old.jsonl results/reproduce --archive rest.jsonl

The folder gets a file for each experiment. Earlier versions wrote what rows have in common once, as
lines of ``{"as": .., "value": ..}``; rows of ``benchmarks/`` had no experiment, label or cell.
Settings that do not exist any more are dropped where they were off. What is no row of a run, and
rows of what does not exist any more (lambda by degree, ``delta="exp"``), go to the archive as they
were. A file above half a megabyte is packed.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphglow.experiments.paper import NAMES
from graphglow.experiments.runs.rows import line_of, row_of
from graphglow.storage import atomic_path

PACKED_ABOVE = 500_000
RETIRED_KEYS = ("latent_degree", "sharpness")

Record = dict[str, Any]


def whole(path: Path) -> Iterator[Record]:
    """The objects of a file, each with what it had in common with others."""
    opened = gzip.open if path.suffix == ".gz" else open
    meanings: dict[str, Record] = {}

    def meant(given: Any) -> Any:
        if not isinstance(given, dict) or "as" not in given:
            return given
        return {**meanings[given["as"]], **{k: v for k, v in given.items() if k != "as"}}

    with opened(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, filter(str.strip, file)):
            if set(record) == {"as", "value"}:
                meanings[record["as"]] = record["value"]
                continue
            row = meant(record)
            for name in ("config", "pretraining", "provenance"):
                row[name] = meant(row.get(name))
            if "as" in record and isinstance(row["config"], dict):
                row["config"].setdefault("seed", row.get("seed"))
            yield row


def retired(record: Record) -> bool:
    """Whether the run was of something that does not exist any more."""
    parts = [record.get("config") or {}, record.get("pretraining") or {}]
    learners = [part.get("learner") or part for part in parts]
    by_degree = any(part.get("latent_degree") is not None for part in parts)
    sharp = any(one.get("delta") == "exp" for one in learners)
    return by_degree or sharp or record.get("experiment") == "degree"


def of_today(record: Record) -> Record:
    """The record with a label and a cell, and without settings that are no more."""
    if "experiment" not in record and "benchmark" in record and "target" in record:
        backbone = (record.get("config") or {}).get("backbone", "gcn")
        line = record["method"] + ("" if backbone == "gcn" else f" ({backbone})")
        label = NAMES.get(record["method"], record["method"]) + line[len(record["method"]) :]
        cell = f"{line}/{record['target']}"
        record = {**record, "experiment": record["benchmark"], "label": label, "cell": cell}
    for part in ("config", "pretraining"):
        if record.get(part):
            learner = record[part].get("learner")
            kept = {k: v for k, v in record[part].items() if k not in RETIRED_KEYS}
            if learner:
                kept["learner"] = {k: v for k, v in learner.items() if k not in RETIRED_KEYS}
            record = {**record, part: kept}
    return record


def write(path: Path, lines: list[str]) -> None:
    """A file, packed if it is large."""
    data = "".join(f"{line}\n" for line in lines).encode()
    if len(data) > PACKED_ABOVE or path.suffix == ".gz":
        path = path.with_name(path.name.removesuffix(".gz") + ".gz")
        data = gzip.compress(data, mtime=0)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    print(f"{path}: {len(lines):,} lines, {len(data):,} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--archive", type=Path, help="(default: they are dropped, and counted)")
    args = parser.parse_args()
    kept: dict[str, list[str]] = {}
    rest: list[str] = []
    for record in whole(args.old):
        row = None if retired(record) or record.get("kind") == "trial" else row_of(of_today(record))
        if row is None:
            rest.append(json.dumps(record, separators=(",", ":")))
        else:
            kept.setdefault(row.experiment, []).append(line_of(row))
    for experiment, lines in kept.items():
        write(args.folder / f"{experiment}.jsonl", lines)
    if args.archive and rest:
        write(args.archive, rest)
    else:
        print(f"not converted: {len(rest):,} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
