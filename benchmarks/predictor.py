r"""Train the predictor by leave-one-family-out, and measure every channel on the open graphs.

    python benchmarks/predictor.py --train runs/learners --workers 15 --device cuda
    python benchmarks/predictor.py --evaluate runs/learners --out results/predictor.jsonl

``--train`` writes ``fold0.safetensors`` to ``fold5.safetensors``, each trained without the graphs
of its families, and ``universal.safetensors``, trained on all open graphs: the package's learner.
``--evaluate`` refines every open graph by the learner that has not seen its family, under the
conditions of the open-world suite, with training and validation labels. It writes a row for each
cell, with the test accuracy of every channel.
"""

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch_geometric.data import Data

from graphglow.device import map_blocks
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.pretraining import ALL_SOURCES, pretrain_folds
from graphglow.graph import load_graph
from graphglow.graph.load import data_folder
from graphglow.lab.open_suite import Target, draw, find_targets
from graphglow.lab.row_files import provenance
from graphglow.pretrained import untrained_like
from graphglow.settings import EvidencePretrainConfig
from graphglow.storage import append_line
from measuring import calibration_error

CONDITIONS = (
    "as it is", "1 label per class", "3 labels per class", "5 labels per class",
    "20 labels per class", "false edges 1x", "false edges 2x", "lost edges 60%", "lost edges 90%",
    "half the features noise", "no features",
)  # fmt: skip
SPARSE = 0.1
"""Features with a smaller share of non-zeros are kept sparse: dense, one graph takes 1.2 GB."""


def open_targets(root: Path) -> list[Target]:
    return [target for target in find_targets(root) if target.fold is not None]


def sparse_features(data: Data) -> Data:
    """Make the features sparse where most of them are zero."""
    if int(data.x.count_nonzero()) < SPARSE * data.x.numel():
        data.x = data.x.to_sparse()
    return data


def train(args: argparse.Namespace) -> None:
    """Train the learners of all folds on the same episodes."""
    targets = open_targets(args.data_root)
    sizes = Counter(target.family for target in targets)
    weights = [sizes[target.family] ** -0.5 for target in targets]
    learners = pretrain_folds(
        [sparse_features(load_graph(target.file)) for target in targets],
        [target.fold for target in targets],
        EvidencePretrainConfig(**json.loads(args.set)),
        weights=weights,
        device=args.device,
        draw_on=args.device if args.workers == 1 else "cpu",
        map_blocks=partial(map_blocks, workers=args.workers),
        on_progress=print_progress,
    )
    args.train.mkdir(parents=True, exist_ok=True)
    for fold, learner in learners.items():
        name = "universal" if fold == ALL_SOURCES else f"fold{fold}"
        learner.provenance["source_weights"] = [round(weight, 3) for weight in weights]
        learner.provenance["command"] = provenance()["command"]
        learner.save(args.train / f"{name}.safetensors")


def print_progress(stage: str, done: int, total: int) -> None:
    if done % 100 == 0 or done == total:
        print(f"{stage}: {done:,} of {total:,} episodes", flush=True)


def cells(args: argparse.Namespace) -> Iterator[tuple[Target, str, int]]:
    large_first = sorted(open_targets(args.data_root), key=lambda target: -sum(target.size))
    every = product(range(args.seeds), args.conditions or CONDITIONS, large_first)
    return ((target, condition, seed) for seed, condition, target in every)


@torch.no_grad()
def run_cell(args: argparse.Namespace, cell: tuple[Target, str, int]) -> dict[str, Any] | None:
    """Measure every channel and the prediction; None where the condition makes no sense."""
    target, condition, seed = cell
    data = draw(target, condition, seed, args.data_root)
    if data is None:
        return None
    data = sparse_features(data)
    data.train_mask = data.train_mask | data.val_mask
    learner = EvidenceLearner.load(args.evaluate / f"fold{target.fold}.safetensors")
    if args.control:
        learner = untrained_like(learner, seed)
    began = time.perf_counter()
    refined = learner.to(args.device).refine(data, seed=seed)
    seconds = time.perf_counter() - began
    if refined.update is None or refined.probabilities is None:
        return None
    labelled, test = data.train_mask & (data.y >= 0), data.test_mask & (data.y >= 0)
    truth, seen = data.y[test], refined.graph.seen.cpu()
    channels = {name: one.probabilities.cpu() for name, one in refined.known.channels.items()}
    channels["mean"] = torch.stack([p.clamp_min(1e-6).log() for p in channels.values()]).mean(0)
    predicted = {name: seen[p[test].argmax(1)] for name, p in channels.items()}
    p = refined.probabilities.cpu()
    predicted["prediction"] = p[test].argmax(1)
    confidence, right = p[test].amax(1).double().numpy(), predicted["prediction"] == truth
    return {
        "target": target.name, "family": target.family, "condition": condition, "seed": seed,
        "control": args.control, "seconds": round(seconds, 3),
        "accuracy": {name: float((c == truth).double().mean()) for name, c in predicted.items()},
        "log_loss": float(-p[test, truth].clamp_min(1e-6).log().mean()),
        "loo": float((p[labelled].argmax(1) == data.y[labelled]).double().mean()),
        "labels": int(labelled.sum()), "classes": p.shape[1], "test": int(test.sum()),
        "majority": float(torch.bincount(truth).max() / len(truth)),
        "ece": calibration_error(confidence, right.numpy(), bins=10),
    }  # fmt: skip


def evaluate(args: argparse.Namespace) -> None:
    """Append a row for each cell as it is finished."""
    rows: list[dict[str, Any]] = []
    origin = {name: provenance()[name] for name in ("commit", "date", "machine")}
    gpus = 1 / args.workers if args.device == "cuda" and args.workers > 1 else 0
    for row in map_blocks(
        run_cell, args, cells(args), workers=args.workers, gpus=gpus, ordered=False
    ):
        if row is not None:
            rows.append(row)
            append_line(args.out, json.dumps({"experiment": "predictor", **row, **origin}))
    columns = ["accuracy.prediction", "accuracy.vote", "log_loss", "ece"]
    print(pd.json_normalize(rows).groupby("condition", sort=False)[columns].mean().round(3))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", metavar="FOLDER", type=Path)
    parser.add_argument("--evaluate", metavar="FOLDER", type=Path)
    parser.add_argument("--control", action="store_true", help="evaluate untrained weights")
    parser.add_argument("--out", type=Path, default=Path("results/predictor.jsonl"))
    parser.add_argument("--conditions", nargs="+")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", default="{}", help="settings of pre-training, as JSON")
    parser.add_argument("--workers", type=int, default=1, help="Ray workers on this machine")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root", type=data_folder, default=data_folder(None))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.train:
        train(given)
    if given.evaluate:
        evaluate(given)
