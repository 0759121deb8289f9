r"""The open-world suite on a machine without the command line's dependencies; how it was set up.

    python benchmarks/open_world.py --seconds 560 --small-workers 6 --workers 6 \
        --large-workers 4
    python benchmarks/open_world.py --choose             one setting per method, over open graphs
    python benchmarks/open_world.py --final FILE         the package's learner, of all open graphs

The first makes the same rows as ``graphglow reproduce open-world``.
"""

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import torch

from graphglow import EvidencePretrainConfig, PaperConfig, fit_many, transfer_many
from graphglow.baselines import METHODS
from graphglow.experiments.open_world.learners import pretrain_on
from graphglow.experiments.open_world.methods import EPOCHS, HIDDEN, PATIENCE
from graphglow.experiments.open_world.suite import SuiteConfig, run_suite
from graphglow.experiments.open_world.targets import draw, find_targets
from graphglow.graphs.load import data_folder
from graphglow.storage import append_line
from graphglow.training.device import resolve_device

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
SHORTER = {"num_pivots": 200, "refinements": 2}
"""Of the paper's: what its learner was pre-trained with."""


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
                    configs = [PaperConfig(**shared, **SHORTER, **given) for given in settings]
                    results = transfer_many(data, "paper", configs)
                else:
                    kind = METHODS[method].config
                    configs = [kind(**shared, hidden=HIDDEN, **given) for given in settings]
                    results = fit_many(method, data, configs)
                seconds = round(time.perf_counter() - began, 2)
                for given, result in zip(settings, results, strict=True):
                    yield {
                        "method": method, "target": target.name, "family": target.family,
                        "condition": condition, "settings": given,
                        "val_accuracy": round(result.val_accuracy, 4), "seconds_of_all": seconds,
                    }  # fmt: skip


def choose(args: argparse.Namespace) -> None:
    """Append a row for each trial, then say which setting has the best mean over families."""
    rows = [json.loads(line) for line in args.settings.open()] if args.settings.exists() else []
    done = {
        (row["method"], row["target"], row["condition"], json.dumps(row["settings"]))
        for row in rows
    }
    for row in trials(data_folder(args.data_root), args.device, done):
        append_line(args.settings, json.dumps(row))
        rows.append(row)
    found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["method"], json.dumps(row["settings"])][row["family"]].append(row["val_accuracy"])
    for (method, settings), families in sorted(found.items()):
        print(f"{method:8}{100 * mean(map(mean, families.values())):6.2f}  {settings}")


def main() -> None:
    """Choose settings, or run the suite."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--final", type=Path, metavar="FILE")
    parser.add_argument("--settings", type=Path, default=Path("results/open_world_settings.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("results/open_world.jsonl"))
    parser.add_argument("--learners", type=Path, default=Path("open_world_learners"))
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--sources-curve", action="store_true")
    for name in ("targets", "conditions", "methods"):
        parser.add_argument(f"--{name}", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--small-workers", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--large-workers", type=int, default=1)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.choose:
        torch.set_num_threads(1)
        choose(args)
        return
    if args.final:
        sources = [target for target in find_targets(args.data_root) if target.fold is not None]
        device = resolve_device(args.device).type
        pretrain_on(sources, args.final, device, EvidencePretrainConfig())
        return
    names = ("seeds", "seconds", "small_workers", "workers", "large_workers", "device")
    given = {name: getattr(args, name) for name in names}
    also = ("learners", "data_root", "targets", "conditions", "methods", "sources_curve")
    outcome = run_suite(
        args.out,
        SuiteConfig(**given),
        **{name: getattr(args, name) for name in also},
        told=lambda said, done, total: print(f"{done}/{total} {said}", flush=True),
    )
    print(outcome, flush=True)


if __name__ == "__main__":
    main()
