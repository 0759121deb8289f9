"""Settle the settings of the lines with lambda by degree, from runs of the figure ``degree``.

    graphglow reproduce degree
    python benchmarks/degree_settings.py --cross runs/crossed.json
    graphglow reproduce degree --settings runs/crossed.json --out runs/crossed.jsonl
    python benchmarks/degree_settings.py results/reproduce.jsonl runs/crossed.jsonl

The figure has GraphGLOW and its control, a random theta, each with the settings that are its best
at one lambda; in the crossed runs each has the other's step size, weight decay and dropout. Of all
of them, and all c, the best mean validation accuracy wins, for each method and graph.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphglow.experiments.cell_config import in_parts, merged, with_degree
from graphglow.experiments.cell_rows import latest, read_rows
from graphglow.experiments.lines import BY_DEGREE, ON, PRETRAINED
from graphglow.experiments.paper import GRAPHS, of_the_other_kind
from graphglow.experiments.provenance import provenance
from graphglow.experiments.settings import Settings, read_settings, write_settings
from graphglow.storage import append_line

CROSSED = ("learning_rate", "weight_decay", "dropout")
Row = dict[str, Any]


def sources_of(method: str, target: str) -> tuple[str, ...]:
    return of_the_other_kind(target) if method in PRETRAINED else ()


def on_settings(settings: Settings, method: str, target: str) -> dict[str, Any]:
    """What the method has at one lambda, the learned graph on."""
    return settings.of(ON[method], target, sources_of(method, target))


def crossed(settings: Settings) -> Settings:
    """Each of the two methods with the other's step size, weight decay and dropout."""
    swapped = settings
    for method, other in zip(ON, reversed(ON), strict=True):
        for target in GRAPHS:
            mine, given = (on_settings(settings, name, target) for name in (method, other))
            (_, after), nested = in_parts(given), method in PRETRAINED
            if other not in PRETRAINED:
                after = given
            taken = {name: after[name] for name in CROSSED if name in after}
            changed = merged(mine, {"transfer": taken} if nested else taken)
            sources = sources_of(method, target)
            swapped = swapped.having(ON[method], target, changed, sources)
    return swapped


def runs_of(files: Sequence[Path], method: str, target: str) -> dict[str, list[Row]]:
    """The rows of the figure, by the settings of their runs."""
    found: dict[str, list[Row]] = {}
    for file in files:
        for row in latest(read_rows(file)):
            asked = (row["experiment"], row["method"], row["target"])
            if asked == ("degree", method, target) and row["val_accuracy"] is not None:
                chosen = {name: row["config"][name] for name in ("latent_degree", *CROSSED)}
                found.setdefault(json.dumps(chosen, sort_keys=True), []).append(row)
    return found


def settle(files: Sequence[Path], path: Path) -> None:
    """Write the best settings of each line on each graph, and a row with what was compared."""
    settings = read_settings(path)
    for line, (method, _) in BY_DEGREE.items():
        for target in GRAPHS:
            finalists = runs_of(files, method, target)
            if not finalists:
                continue
            scores = {key: [row["val_accuracy"] for row in rows] for key, rows in finalists.items()}
            best = max(scores, key=lambda key: statistics.mean(scores[key]))
            chosen = json.loads(best)
            base = with_degree(
                on_settings(settings, method, target), method, chosen["latent_degree"]
            )
            taken = {name: chosen[name] for name in CROSSED}
            given = merged(base, {"transfer": taken} if method in PRETRAINED else taken)
            sources = sources_of(method, target)
            settings = settings.having(line, target, given, sources)
            row = {
                "experiment": "search",
                "method": line,
                "target": target,
                "split": finalists[best][0]["split"],
                "sources": list(sources) or None,
                "settings": given,
                "val_accuracy": statistics.mean(scores[best]),
                "val_accuracies": scores[best],
                "found_by": method,
                "trials": 0,
                "finalists": [
                    {"settings": json.loads(key), "val_accuracies": values}
                    for key, values in scores.items()
                ],
                "provenance": provenance(),
            }
            append_line(path.with_name("search.jsonl"), json.dumps(row))
            print(f"{line} on {target}: {best}, {statistics.mean(scores[best]):.4f}", flush=True)
    write_settings(path, settings)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("rows", nargs="*", type=Path, help="files of graphglow reproduce degree")
    parser.add_argument("--cross", type=Path, help="write the crossed settings there, settle none")
    parser.add_argument("--settings", type=Path, default=Path("results/settings.json"))
    args = parser.parse_args(argv)
    if args.cross is not None:
        write_settings(args.cross, crossed(read_settings(args.settings)))
    elif args.rows:
        settle(args.rows, args.settings)
    else:
        parser.error("files with rows, or --cross FILE")


if __name__ == "__main__":
    main()
