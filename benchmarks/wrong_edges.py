"""When does a learned graph help? Random graphs with more and fewer wrong edges, few labels.

    python benchmarks/wrong_edges.py                     rows: results/wrong_edges.jsonl
    python benchmarks/wrong_edges.py --tables [--check]  the table of docs/method.md

Two structure learners, the paper's (similarities cut at 0) and one with a learned sharpness
(``delta = "exp"``), are pre-trained on four random graphs and transferred, frozen, to others with
other seeds; beside each stands one of the same shape that was never trained. Lambda is chosen among
three by validation accuracy, for each run. Stop it whenever you like: rows that are there are not
made again.
"""

import argparse
import json
import statistics
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphglow.baselines import fit
from graphglow.baselines.gnns import GNNConfig
from graphglow.experiments.cell_rows import as_line
from graphglow.experiments.demo import logistic_regression, with_few_labels
from graphglow.experiments.provenance import provenance
from graphglow.graphs import load_graph
from graphglow.graphs.synthetic import synthetic_graph
from graphglow.storage import append_line
from graphglow.structure import LearnerConfig, StructureLearner
from graphglow.structure.config import Delta
from graphglow.training import PretrainConfig, TransferConfig, pretrain, transfer
from marked_page import NO_ROWS, rewrite

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ((0.1, 2.0, 4), (0.35, 1.5, 5), (0.6, 2.5, 6), (0.8, 3.0, 5))
"""Of pre-training: homophily, noise of the features, classes."""
HOMOPHILIES = (0.1, 0.35, 0.6, 0.8)
NOISES = (1.5, 2.5)
LAMBDAS = (0.3, 0.5, 0.7)
LABELS = 10
"""Of each class; a quarter of the other nodes validates."""
MODEL: dict[str, Any] = {"encoder": "mlp", "num_pivots": 100, "refinements": 2}
EPOCHS = 120
PRETRAINING: dict[str, Any] = {"input_weight": 0.5}
LEARNERS: dict[str, tuple[Delta, bool]] = {
    "random-truncate": ("truncate", False),
    "pretrained-truncate": ("truncate", True),
    "random-exp": ("exp", False),
    "pretrained-exp": ("exp", True),
}
"""By method: the learner's delta, and whether it was trained."""
METHODS = ("logistic-regression", "gcn", *LEARNERS)
NAMES = {
    "logistic-regression": "features alone",
    "gcn": "GCN",
    "random-truncate": "cut at 0, random theta",
    "pretrained-truncate": "cut at 0, pre-trained",
    "random-exp": "sharp, random theta",
    "pretrained-exp": "sharp, pre-trained",
}
Row = dict[str, Any]


def drawn(homophily: float, noise: float, classes: int, seed: int) -> Data:
    """A random graph of 1,000 nodes with a few labels of each class."""
    made = synthetic_graph(homophily=homophily, feature_noise=noise, num_classes=classes, seed=seed)
    return with_few_labels(load_graph(made), LABELS, seed)


@cache
def pretrained(delta: Delta) -> StructureLearner:
    """The learner of the sources; their seeds are no target's."""
    graphs = [drawn(*facts, seed=1000 + i) for i, facts in enumerate(SOURCES)]
    config = PretrainConfig(learner=LearnerConfig(delta=delta), **PRETRAINING, **MODEL)
    learner = pretrain(graphs, config)
    print(f"pre-trained: {delta}, kappa {kappa_of(learner)}", flush=True)
    return learner


def kappa_of(learner: StructureLearner) -> float | None:
    return None if learner.kappa is None else learner.kappa.item()


def runs(method: str, data: Data, seed: int) -> list[Row]:
    """One row for each lambda, or the only one."""
    if method == "logistic-regression":
        return [_scores(logistic_regression(data, seed)) | {"config": {}}]
    if method == "gcn":
        plain = fit("gcn", data, GNNConfig(hidden=64, epochs=EPOCHS, seed=seed))
        return [_scores(plain) | {"config": asdict(plain.config)}]
    delta, trained = LEARNERS[method]
    untrained = StructureLearner(LearnerConfig(delta=delta), seed=seed)
    learner = pretrained(delta) if trained else untrained
    found = []
    for input_weight in LAMBDAS:
        config = TransferConfig(input_weight=input_weight, epochs=EPOCHS, seed=seed, **MODEL)
        scores = _scores(transfer(learner, data, config))
        about = {"config": asdict(config), "learner": asdict(learner.config)}
        found.append(scores | about | {"kappa": kappa_of(learner)})
    return found


def _scores(result: Any) -> Row:
    return {"test_accuracy": result.test_accuracy, "val_accuracy": result.val_accuracy}


def make_rows(out: Path, seeds: int) -> None:
    """The rows that are not there yet."""
    there = {(r["homophily"], r["noise"], r["seed"], r["method"]) for r in read(out)}
    for seed in range(seeds):
        for noise in NOISES:
            for homophily in HOMOPHILIES:
                for method in METHODS:
                    if (homophily, noise, seed, method) in there:
                        continue
                    about = {"homophily": homophily, "noise": noise, "seed": seed}
                    best = max(
                        runs(method, drawn(homophily, noise, 5, seed), seed),
                        key=lambda row: row["val_accuracy"],
                    )
                    row = {"benchmark": "wrong-edges", "method": method, **about, **best}
                    append_line(out, as_line({**row, "provenance": provenance()}))
                    print(about, method, f"{100 * best['test_accuracy']:.1f} %", flush=True)


def read(path: Path) -> list[Row]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def table(rows: Sequence[Row]) -> str:
    """Test accuracy in %; the best mean of a line is bold."""
    if not rows:
        return NO_ROWS
    names = [NAMES[method] for method in METHODS]
    lines = [
        f"| noise of features | edges within a class | {' | '.join(names)} |",
        "|---" * 8 + "|",
    ]
    for noise in NOISES:
        for homophily in HOMOPHILIES:
            scores = {
                method: [
                    100 * row["test_accuracy"]
                    for row in rows
                    if (row["noise"], row["homophily"], row["method"]) == (noise, homophily, method)
                ]
                for method in METHODS
            }
            best = max((statistics.mean(s) for s in scores.values() if s), default=0.0)
            cells = [shown(s, best=best) for s in scores.values()]
            lines.append(f"| {noise} | {100 * homophily:.0f} % | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def differences(rows: Sequence[Row]) -> str:
    """The sharp, pre-trained learner against others, in points over the runs that both have."""
    if not rows:
        return NO_ROWS
    from scipy.stats import ttest_rel

    scores = {
        (row["homophily"], row["noise"], row["seed"], row["method"]): 100 * row["test_accuracy"]
        for row in rows
    }
    lines = [
        f"| {NAMES['pretrained-exp']}, less "
        "| most edges wrong (10, 35 %) | most right (60, 80 %) |",
        "|---" * 3 + "|",
    ]
    for method in METHODS[:-1]:
        cells = []
        for low in (True, False):
            pairs = [
                (score, scores[(*run, method)])
                for (*run, name), score in scores.items()
                if name == "pretrained-exp" and (run[0] < 0.5) == low and (*run, method) in scores
            ]
            ours, others = zip(*pairs, strict=True)
            p = ttest_rel(ours, others).pvalue
            gain = statistics.mean(ours) - statistics.mean(others)
            cells.append(f"{gain:+.1f} (p {'< 0.001' if p < 0.001 else f'= {p:.2g}'})")
        lines.append(f"| {NAMES[method]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def shown(scores: Sequence[float], *, best: float) -> str:
    if not scores:
        return "-"
    mean = statistics.mean(scores)
    text = f"**{mean:.1f}**" if mean == best else f"{mean:.1f}"
    return f"{text} +- {statistics.stdev(scores):.1f}" if len(scores) > 1 else text


def main(argv: Sequence[str] | None = None) -> int:
    whole = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=whole)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "wrong_edges.jsonl")
    parser.add_argument("--tables", action="store_true", help="write the page's table, run none")
    parser.add_argument("--check", action="store_true", help="with --tables: 1 if it is stale")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "method.md")
    args = parser.parse_args(argv)
    if args.tables:
        rows = read(args.out)
        made = {"wrong_edges": table(rows), "sharper": differences(rows)}
        return rewrite(args.page, made, check=args.check)
    warnings.simplefilter("ignore")  # of torch and PyG, at import and in use
    torch.set_num_threads(1)
    make_rows(args.out, args.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
