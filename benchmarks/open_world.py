r"""The open-world suite on a machine without the command line's dependencies; how it was set up.

    python benchmarks/open_world.py --seconds 560 --small-workers 5 --workers 7 \
        --large-workers 4
    python benchmarks/open_world.py --choose             one setting per method, over open graphs
    python benchmarks/open_world.py --docs [--check]     tables and pictures of docs/open_world.md

The first makes the same rows as ``graphglow reproduce open-world``. Learners of held-out families
are made before it, by ``python benchmarks/predictor.py --train open_world_learners``.
"""

import argparse
import json
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import mean

import torch

from graphglow import PaperConfig, fit, transfer
from graphglow.competitors import METHODS
from graphglow.graph.load import data_folder
from graphglow.lab.open_world.methods import EPOCHS, HIDDEN, NAMES, PAPER_LEARNER, PATIENCE
from graphglow.lab.open_world.standings import Found
from graphglow.lab.open_world.suite import SuiteConfig, run_suite
from graphglow.lab.open_world.targets import draw, find_targets
from graphglow.lab.runs.reproduce import found_rows
from graphglow.storage import append_line
from marked_page import NO_ROWS, ROOT, markdown, rewrite

CHOSEN_ON = (
    "airports-brazil", "webkb-washington", "airports-europe", "facebook-caltech36-dorm",
    "german-credit", "facebook-caltech36-year", "acm", "squirrel-filtered", "minesweeper",
)  # fmt: skip
"""Small open graphs of many families."""
CHOSEN_UNDER = ("as it is", "5 labels per class")
RATES = [
    {"learning_rate": rate, "weight_decay": decay, "dropout": dropout}
    for rate, decay, dropout in (
        (0.01, 5e-4, 0.5), (0.01, 5e-3, 0.5), (0.01, 5e-5, 0.5), (0.01, 5e-5, 0.0),
        (0.05, 5e-4, 0.5), (0.05, 5e-3, 0.5),
    )
]  # fmt: skip
LAMBDAS = [
    {"learning_rate": rate, "weight_decay": decay, "input_weight": weight}
    for rate, decay, weight in (
        (0.01, 5e-4, 0.5), (0.01, 5e-4, 0.9), (0.01, 5e-3, 0.5), (0.01, 5e-3, 0.9),
        (0.05, 5e-4, 0.5), (0.05, 5e-4, 0.9),
    )
]  # fmt: skip
TRIED = dict.fromkeys(("gcn", "mlp", "linkx", "gpr", "h2gcn"), RATES) | {"paper": LAMBDAS}
SHORT = {"learning_rate": "step", "weight_decay": "decay", "input_weight": "lambda"}


def trials(root: Path, device: str, done: set[tuple]) -> Iterator[dict]:
    """Every setting of every method on every graph, under both conditions, as far as missing."""
    known = {target.name: target for target in find_targets(root)}
    shared = {"epochs": EPOCHS, "patience": PATIENCE, "seed": 0, "device": device}
    for target in map(known.__getitem__, CHOSEN_ON):
        for condition in CHOSEN_UNDER:
            data = draw(target, condition, 0, root)
            if data is None:
                continue
            for method, tried in TRIED.items():
                where = (method, target.name, condition)
                settings = [one for one in tried if (*where, json.dumps(one)) not in done]
                if not settings:
                    continue
                began = time.perf_counter()
                if method == "paper":
                    configs = [
                        PaperConfig(**shared, **PAPER_LEARNER, **given) for given in settings
                    ]
                    results = [transfer(data, "paper", config) for config in configs]
                else:
                    kind = METHODS[method].config
                    configs = [kind(**shared, hidden=HIDDEN, **given) for given in settings]
                    results = [fit(method, data, config) for config in configs]
                seconds = round(time.perf_counter() - began, 2)
                for given, result in zip(settings, results, strict=True):
                    yield {
                        "method": method, "target": target.name, "family": target.family,
                        "condition": condition, "settings": given,
                        "val_accuracy": round(result.val_accuracy, 4), "seconds_of_all": seconds,
                    }  # fmt: skip


def read(path: Path) -> list[dict]:
    return [*map(json.loads, path.read_text().splitlines())] if path.exists() else []


def choose(args: argparse.Namespace) -> None:
    """Append a row for each trial that is missing."""
    done = {
        (row["method"], row["target"], row["condition"], json.dumps(row["settings"]))
        for row in read(args.settings)
    }
    for row in trials(data_folder(args.data_root), args.device, done):
        append_line(args.settings, json.dumps(row))


def settings_table(rows: list[dict]) -> str:
    """Mean validation accuracy of each setting over families; the best of a method is bold.

    Over the cells that all settings of a method have.
    """
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        found: dict[str, dict[tuple[str, str, str], float]] = defaultdict(dict)
        for row in (row for row in rows if row["method"] == method):
            said = ", ".join(f"{SHORT.get(n, n)} {value:g}" for n, value in row["settings"].items())
            found[said][row["family"], row["target"], row["condition"]] = row["val_accuracy"]
        cells = set.intersection(*map(set, found.values()))
        families = {family for family, *_ in cells}
        means = {
            said: mean(mean(by[c] for c in cells if c[0] == family) for family in families)
            for said, by in found.items()
        }
        best = max(means, key=means.__getitem__)
        shown = [f"{said}: {100 * value:.1f}" for said, value in means.items() if said != best]
        first = f"**{best}: {100 * means[best]:.1f}**"
        lines.append((NAMES[method], str(len(cells)), "; ".join([first, *shown])))
    return markdown(("method", "cells", "validation accuracy by setting"), lines)


def write_docs(args: argparse.Namespace) -> int:
    """The tables and pictures of docs/open_world.md; 1 if the tables were stale."""
    from graphglow.report import open_world as shown

    found = Found([row for file in found_rows(args.out) for row in file.rows])
    made = {
        "suite": f"{shown.markdown(found)}\n" if found.rows else NO_ROWS,
        "settings": settings_table(read(args.settings)),
    }
    if not args.check:
        shown.write_pictures(found, ROOT / "docs" / "pictures")
    return rewrite(ROOT / "docs" / "open_world.md", made, check=args.check)


def main(words: Sequence[str] | None = None) -> int:
    """Choose settings, or run the suite."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--check", action="store_true", help="with --docs: change nothing")
    parser.add_argument("--settings", type=Path, default=ROOT / "results/open_world_settings.jsonl")
    parser.add_argument("--out", type=Path, default=ROOT / "results/open_world.jsonl")
    parser.add_argument("--learners", type=Path, default=Path("open_world_learners"))
    parser.add_argument("--data-root", type=Path)
    for name in ("targets", "conditions", "methods"):
        parser.add_argument(f"--{name}", nargs="+", default=[])
    for one in fields(SuiteConfig):
        kind = {"seconds": float, "device": str}.get(one.name, int)
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=kind, default=one.default)
    args = parser.parse_args(words)
    warnings.simplefilter("ignore")
    if args.docs:
        return write_docs(args)
    if args.choose:
        torch.set_num_threads(1)
        choose(args)
        return 0
    given = {one.name: getattr(args, one.name) for one in fields(SuiteConfig)}
    also = ("learners", "data_root", "targets", "conditions", "methods")
    outcome = run_suite(
        args.out,
        SuiteConfig(**given),
        **{name: getattr(args, name) for name in also},
        told=lambda said, done, total: print(f"{done}/{total} {said}", flush=True),
    )
    print(outcome, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
