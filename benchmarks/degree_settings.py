"""Settle c of the lines with lambda by degree, from the runs of the figure ``degree``.

    graphglow reproduce degree
    python benchmarks/degree_settings.py

The figure has GraphGLOW and its control, a random theta, each with the settings that are its best
at one lambda, and several c. For each method and graph the c with the best mean validation
accuracy is taken, and all else stays.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphglow.experiments.cell_config import with_degree
from graphglow.experiments.cell_rows import of_newest_settings, read_rows
from graphglow.experiments.lines import BY_DEGREE, ON, PRETRAINED
from graphglow.experiments.paper import GRAPHS, of_the_other_kind
from graphglow.experiments.provenance import provenance
from graphglow.experiments.settings import read_settings, write_settings
from graphglow.storage import append_line

Row = dict[str, Any]


def scores_of(rows: Sequence[Row], method: str, target: str) -> dict[float, list[float]]:
    """Validation accuracies of a method on a graph, by c."""
    found: dict[float, list[float]] = {}
    for row in rows:
        asked = (row["experiment"], row["method"], row["target"])
        if asked == ("degree", method, target) and row["val_accuracy"] is not None:
            found.setdefault(row["x"], []).append(row["val_accuracy"])
    return found


def settle(rows: Path, path: Path) -> None:
    """Write the best settings of each line on each graph, and a row with what was compared."""
    settings, every = read_settings(path), read_rows(rows)
    newest = [every[place] for place in of_newest_settings(every)[0]]
    for line, (method, _) in BY_DEGREE.items():
        for target in GRAPHS:
            scores = scores_of(newest, method, target)
            if not scores:
                continue
            best = max(scores, key=lambda c: statistics.mean(scores[c]))
            sources = of_the_other_kind(target) if method in PRETRAINED else ()
            given = with_degree(settings.of(ON[method], target, sources), method, best)
            settings = settings.having(line, target, given, sources)
            row = {
                "experiment": "search",
                "method": line,
                "target": target,
                "sources": list(sources) or None,
                "settings": given,
                "val_accuracy": statistics.mean(scores[best]),
                "by_latent_degree": scores,
                "provenance": provenance(),
            }
            append_line(path.with_name("search.jsonl"), json.dumps(row))
            print(f"{line} on {target}: c = {best:g}, {statistics.mean(scores[best]):.4f}")
    write_settings(path, settings)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=Path, default=Path("results/reproduce.jsonl"))
    parser.add_argument("--settings", type=Path, default=Path("results/settings.json"))
    args = parser.parse_args(argv)
    settle(args.rows, args.settings)


if __name__ == "__main__":
    main()
