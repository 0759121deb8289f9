r"""The predictor, chosen by leave-one-family-out: make the learners, and see how each line does.

    python benchmarks/predictor.py --train runs/learners --processes 15 --device cuda
    python benchmarks/predictor.py --evaluate runs/learners --out results/predictor.jsonl

``--train`` makes ``fold0.safetensors`` to ``fold5.safetensors``, each of which has seen no graph of
its families, and ``universal.safetensors``, of all open graphs: the package's. ``--evaluate``
gives every open graph the learner that has not seen its family, under the conditions of the
open-world suite, all labels at work (training and validation nodes: "pool"), and writes a row for
each cell with every channel's accuracy on test nodes.
"""

import argparse
import json
import multiprocessing
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.pretraining import (
    ALL_SOURCES,
    STAGES,
    ClassBatch,
    predict_batch,
    pretrain_folds,
)
from graphglow.graph import load_graph
from graphglow.graph.load import data_folder
from graphglow.lab.open_world.targets import Target, draw, find_targets
from graphglow.lab.row_files import provenance
from graphglow.parallel import map_blocks
from graphglow.settings import EvidencePretrainConfig

CONDITIONS = (
    "as it is", "1 label per class", "3 labels per class", "5 labels per class",
    "20 labels per class", "false edges 1x", "false edges 2x", "lost edges 60%", "lost edges 90%",
    "half the features noise", "no features",
)  # fmt: skip
FEW = CONDITIONS[1:4]


class Drawing:
    """Draws episodes in several processes, and keeps those of the predictor."""

    def __init__(self, processes: int, folder: Path | None) -> None:
        self.processes, self.folder = processes, folder

    def __call__(self, step: Any, known: Any, episodes: Iterable[int], /) -> Iterator[Any]:
        kept = []
        for batches in map_blocks(step, known, episodes, workers=self.processes):
            kept += (
                [_small(one) for one in batches] if self.folder and step is predict_batch else []
            )
            yield batches
        if kept and self.folder:
            _save(kept, self.folder)


def _small(batch: ClassBatch) -> dict[str, np.ndarray]:
    """A third of an episode's nodes in half precision."""
    given = {name: getattr(batch, name) for name in ("odds", "trust", "more", "truth")}
    small = {name: value[:96].numpy() for name, value in given.items()}
    small = {
        n: v.astype(np.float16 if v.dtype == np.float32 else np.int8) for n, v in small.items()
    }
    return small | {"log_prior": batch.log_prior.numpy(), "fold": np.array(batch.fold)}


def _save(batches: list[dict[str, np.ndarray]], folder: Path) -> None:
    """In files of a few hundred episodes."""
    for part in range(0, len(batches), 250):
        some = batches[part : part + 250]
        arrays = {f"{i}.{name}": a for i, one in enumerate(some) for name, a in one.items()}
        np.savez_compressed(folder / f"episodes{part // 250}.npz", **arrays)


def _quiet() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def open_targets(root: Path) -> list[Target]:
    return [target for target in find_targets(root) if target.fold is not None]


def sparse_features(data: Data) -> Data:
    """Words take little room as they travel."""
    if float((data.x != 0).float().mean()) < 0.1:
        data.x = data.x.to_sparse().coalesce()
    return data


def train(args: argparse.Namespace) -> None:
    """All learners of one set of episodes."""
    root = data_folder(args.data_root)
    targets = open_targets(root)
    sizes = Counter(target.family for target in targets)
    weights = [sizes[target.family] ** -0.5 for target in targets]
    graphs = [sparse_features(load_graph(target.file)) for target in targets]
    config = EvidencePretrainConfig(**json.loads(args.set))
    args.train.mkdir(parents=True, exist_ok=True)
    drawing = Drawing(args.processes, args.keep)
    learners = load_learners(args.train) or None
    for stage in args.stages:
        learners = pretrain_folds(
            graphs, [target.fold for target in targets], config, weights=weights,
            device=args.device, draw_on=args.draw_on or args.device, map_blocks=drawing,
            learners=learners, stages=[stage],
        )  # fmt: skip
        for fold, learner in learners.items():
            name = "universal" if fold == ALL_SOURCES else f"fold{fold}"
            learner.provenance["source_weights"] = [round(weight, 3) for weight in weights]
            learner.provenance["command"] = provenance()["command"]
            learner.save(args.train / f"{name}.safetensors")
        print(f"{stage}: {learners[ALL_SOURCES].provenance['seconds']} s in all", flush=True)


def load_learners(folder: Path) -> dict[int, EvidenceLearner]:
    """By fold; none where there are no files."""
    files = {ALL_SOURCES: "universal"} | {fold: f"fold{fold}" for fold in range(6)}
    paths = {fold: folder / f"{name}.safetensors" for fold, name in files.items()}
    found = {f: EvidenceLearner.load(path) for f, path in paths.items() if path.exists()}
    return {fold: learner.requires_grad_(True) for fold, learner in found.items()}


def cells(root: Path, args: argparse.Namespace) -> Iterator[tuple[Target, str, int]]:
    targets = [target for target in open_targets(root) if target.size[0] <= args.most_nodes]
    large_first = sorted(targets, key=lambda target: -sum(target.size))
    for seed in range(args.seeds):
        for condition in args.conditions or CONDITIONS:
            for target in large_first:
                yield target, condition, seed


@torch.no_grad()
def run_cell(
    target: Target, condition: str, seed: int, folder: str, control: bool, device: str, root: str
) -> dict[str, Any] | None:
    """How every channel and the prediction do on one cell, all labels at work."""
    data = draw(target, condition, seed, Path(root))
    if data is None:
        return None
    known = data.train_mask | data.val_mask
    pooled = data.clone()
    pooled.train_mask = known
    learner = EvidenceLearner.load(Path(folder) / f"fold{target.fold}.safetensors")
    if control:
        scale = learner.logit_scale
        learner = EvidenceLearner.untrained(seed)
        learner.logit_scale.copy_(scale)
    began = time.perf_counter()
    refined = learner.to(device).refine(pooled, seed=seed)
    final = refined.final
    if final is None or refined.probabilities is None:
        return None
    seconds = time.perf_counter() - began
    problem, test = final.graph, data.test_mask & (data.y >= 0)
    lines = {name: channel.probabilities for name, channel in final.channels.items()}
    lines["mean"] = torch.stack([p.clamp_min(1e-6).log() for p in lines.values()]).mean(0)
    truth = data.y[test]
    accuracy = {}
    for name, p in lines.items():
        said = problem.seen[p.argmax(1)].cpu()[test]
        accuracy[name] = float((said == truth).double().mean())
    p = refined.probabilities.cpu()
    accuracy["prediction"] = float((p[test].argmax(1) == truth).double().mean())
    labelled = known & (data.y >= 0)
    return {
        "target": target.name, "family": target.family, "condition": condition, "seed": seed,
        "control": control, "seconds": round(seconds, 3), "accuracy": accuracy,
        "log_loss": float(-p[test, truth].clamp_min(1e-6).log().mean()),
        "loo": float((p[labelled].argmax(1) == data.y[labelled]).double().mean()),
        "labels": int(labelled.sum()), "classes": p.shape[1], "test": int(test.sum()),
        "majority": float(torch.bincount(truth).max() / len(truth)),
        "ece": calibration_error(p[test], truth),
    }  # fmt: skip


def calibration_error(p: torch.Tensor, truth: torch.Tensor, bins: int = 10) -> float:
    """Mean difference between what is said and what is true of the most probable class."""
    sure, said = p.max(1)
    place = (sure * bins).long().clamp_max(bins - 1)
    right = (said == truth).double()
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, sure.double() - right)
    return float(gap.abs().sum() / len(truth))


def evaluate(args: argparse.Namespace) -> None:
    root = data_folder(args.data_root)
    spawn = multiprocessing.get_context("spawn")
    origin = {name: provenance()[name] for name in ("commit", "date", "machine")}
    rows = []
    with ProcessPoolExecutor(args.processes, spawn, initializer=_quiet) as pool:
        rest = (str(args.evaluate), args.control, args.device, str(root))
        jobs = [pool.submit(run_cell, *cell, *rest) for cell in cells(root, args)]
        for job in jobs:
            try:
                row = job.result()
            except Exception as error:
                print(f"failed: {error!r:.300}", flush=True)
                continue
            if row is not None:
                rows.append(row)
                with args.out.open("a") as file:
                    file.write(json.dumps({"experiment": "predictor", **row, **origin}) + "\n")
    summary(rows)


def summary(rows: list[dict[str, Any]]) -> None:
    """Means over cells, by condition."""
    by = defaultdict(list)
    for row in rows:
        by[row["condition"]].append(row)
        by["all"].append(row)
        if row["condition"] in FEW:
            by["few"].append(row)
    lines = list(rows[0]["accuracy"])
    for condition, some in by.items():
        means = {n: 100 * sum(r["accuracy"][n] for r in some) / len(some) for n in lines}
        loss = sum(r["log_loss"] for r in some) / len(some)
        enough = [r for r in some if r["labels"] >= 20 * r["classes"]]
        off = sum(abs(r["loo"] - r["accuracy"]["prediction"]) for r in enough)
        print(
            f"{condition} ({len(some)}): "
            + ", ".join(f"{n} {m:.1f}" for n, m in sorted(means.items(), key=lambda one: -one[1]))
            + f"; log-loss {loss:.3f}, ece {sum(r['ece'] for r in some) / len(some):.3f}, "
            f"loo off {100 * off / max(1, len(enough)):.1f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--evaluate", type=Path)
    parser.add_argument("--stages", nargs="*", default=STAGES)
    parser.add_argument("--draw-on", help="where to draw episodes, if not on --device")
    parser.add_argument("--keep", type=Path, help="keep the predictor's episodes in this folder")
    parser.add_argument("--control", action="store_true", help="weights that were never trained")
    parser.add_argument("--out", type=Path, default=Path("results/predictor.jsonl"))
    parser.add_argument("--conditions", nargs="*")
    parser.add_argument("--most-nodes", type=int, default=10**9, help="leave out larger targets")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", default="{}", help="settings of pre-training, as JSON")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.train:
        train(given)
    if given.evaluate:
        evaluate(given)
