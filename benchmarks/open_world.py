"""How the open-world suite was set up, and its page.

    python benchmarks/open_world.py --choose             one setting per method, over open graphs
    python benchmarks/open_world.py [--check]            the tables of docs/open_world.md

``graphglow reproduce open-world`` makes the rows; learners of held-out families are made before
it, by ``python benchmarks/predictor.py --train FOLDER``.
"""

import argparse
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

import torch

from graphglow import PaperConfig, fit, transfer
from graphglow.competitors import METHODS
from graphglow.graph.load import data_folder
from graphglow.lab.open_world.methods import EPOCHS, HIDDEN, NAMES, PAPER_LEARNER, PATIENCE
from graphglow.lab.open_world.standings import standings_table
from graphglow.lab.open_world.targets import draw, find_targets
from graphglow.lab.rows import rows_in
from graphglow.lab.tables import markdown
from graphglow.storage import append_line
from marked_page import RESULTS, ROOT, rewrite
from measuring import Row, read_rows

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


def trials(root: Path, device: str, done: set[str]) -> Iterator[Row]:
    """Every setting of every method on every graph, under both conditions, as far as missing."""
    known = {target.name: target for target in find_targets(root)}
    shared = {"epochs": EPOCHS, "patience": PATIENCE, "seed": 0, "device": device}
    for target in map(known.__getitem__, CHOSEN_ON):
        for condition in CHOSEN_UNDER:
            data = draw(target, condition, 0, root)
            cases = [(method, given) for method, tried in TRIED.items() for given in tried]
            for method, given in cases if data is not None else []:
                facts = {"method": method, "target": target.name, "family": target.family,
                         "condition": condition, "settings": given}  # fmt: skip
                if json.dumps(facts) in done:
                    continue
                if method == "paper":
                    result = transfer(
                        data, "paper", PaperConfig(**shared, **PAPER_LEARNER, **given)
                    )
                else:
                    config = METHODS[method].config(**shared, hidden=HIDDEN, **given)
                    result = fit(method, data, config)
                yield facts | {"val_accuracy": round(result.val_accuracy, 4)}


def settings_table(rows: list[Row]) -> str:
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


def tables(results: Path) -> dict[str, str]:
    """Every block of the page, by name."""
    rows = rows_in(results / "open_world.jsonl", ["open-world"])
    chosen = read_rows(results / "open_world_settings.jsonl")
    return {"suite": standings_table(rows), "settings": settings_table(chosen)}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--check", action="store_true", help="change nothing; 1 if it is stale")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(words)
    if not args.choose:
        return rewrite(ROOT / "docs/open_world.md", tables(args.results), check=args.check)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path = args.results / "open_world_settings.jsonl"
    asked = ("method", "target", "family", "condition", "settings")
    done = {json.dumps({name: row[name] for name in asked}) for row in read_rows(path)}
    for row in trials(data_folder(args.data_root), args.device, done):
        append_line(path, json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
