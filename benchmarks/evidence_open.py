r"""How well the evidence learner carries over: leave-one-family-out over a folder of open graphs.

For each fold of families a learner is pre-trained on the other graphs and on random ones; then
``graphglow.transfer`` runs with it on each graph of the fold and under each condition, beside its
controls: the same with a learner never trained, with the plain mean of the evidence and with a kNN
graph of the features in the place of the refined one, and a GCN and an MLP, each with the best of
three settings by validation. One JSON line per run and method; a table of means at the end.

    python benchmarks/evidence_open.py --graphs data/open --out results/evidence_open.jsonl
    python benchmarks/evidence_open.py --graphs data/attacked --learner universal \\
        --conditions given --seeds 5 --out results/evidence_attacked.jsonl
    python benchmarks/evidence_open.py --table --out results/evidence_open.jsonl
"""

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import graphglow
from graphglow.evidence import EvidencePretrainConfig, pretrain_evidence
from graphglow.evidence.candidates import nearest
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.problem import problem_of
from graphglow.evidence.refined import RefinedGraph
from graphglow.evidence.views import first_views
from graphglow.graphs.graph import undirected_edges
from graphglow.pretrained import evidence_learner

FAMILIES = {
    "dblp": "citation", "acm": "citation", "amazon-computers": "co-purchase",
    "coauthor-physics": "co-author", "facebook-pages": "pages", "flickr": "photos",
    "uai2010": "wiki", "squirrel-filtered": "wiki", "minesweeper": "grid",
    "airports-brazil": "airports", "airports-europe": "airports", "german-credit": "tabular",
    "webkb-washington": "web",
}  # fmt: skip
"""Of each graph; Facebook colleges besides, and the paper's graphs."""
FOLDS = {
    "citation": 0, "airports": 0, "colleges": 1, "photos": 2, "grid": 2, "co-purchase": 3, "web": 3,
    "co-author": 4, "wiki": 4, "pages": 5, "tabular": 5,
}  # fmt: skip
"""Families that are held out together."""
CONDITIONS = ("half", "twenty", "five", "false edges", "lost edges")
"""50 % labels; 20 and 5 per class; twice as many false edges added; 80 % of edges lost."""
SETTINGS = ((5e-4, 0.5), (5e-3, 0.5), (5e-5, 0.0))
"""Weight decay and dropout of GCN and MLP; by validation."""
METHODS = ("gcn", "mlp", "knn", "mean", "untrained", "evidence")
LARGE = 500_000
"""Files above this many bytes have workers of their own: they need more memory."""


# ---------------------------------------------------------------- graphs


def load(path: Path) -> Data:
    return graphglow.load_graph(path)


def family(name: str) -> str:
    return FAMILIES.get(name, "colleges" if name.startswith("facebook-") else "paper")


def under(data: Data, condition: str, seed: int) -> Data | None:
    """The graph under a condition, split by the seed; None where it makes no sense."""
    if condition == "given":
        return data
    generator = torch.Generator().manual_seed(1000 + seed)
    y, nodes = data.y, len(data.y)
    order = torch.randperm(nodes, generator=generator)
    order = order[y[order] >= 0]
    budget = {"twenty": 20, "five": 5}.get(condition)
    if budget is None:
        train = order[: len(order) // 2]
    else:
        members = [order[y[order] == c] for c in range(int(y.max()) + 1)]
        train = torch.cat([m[: min(budget, len(m) // 2)] for m in members])
        if len(train) > 0.4 * len(order):
            return None
    rest = order[~torch.isin(order, train)]
    held = len(order) // 4 if budget is None else min(500, len(rest) // 3)
    masks = {"train": train, "val": rest[:held], "test": rest[held:]}
    edges = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    if condition == "false edges":
        false = torch.randint(nodes, (2, 2 * edges.shape[1]), generator=generator)
        edges = torch.cat([edges, false], 1)
    if condition == "lost edges":
        edges = edges[:, torch.rand(edges.shape[1], generator=generator) < 0.2]
    out = Data(x=data.x, y=y, edge_index=edges, name=data.name)
    for name, index in masks.items():
        out[f"{name}_mask"] = torch.zeros(nodes, dtype=torch.bool)
        out[f"{name}_mask"][index] = True
    return out


# ---------------------------------------------------------------- controls and one run


class MeanOfEvidence(EvidenceLearner):
    """The plain mean of the evidence, brought to the scale of the trained one: no learning."""

    def __init__(self) -> None:
        super().__init__()
        self.vote = _MeanVote()

    def pair_scores(self, round_: int, evidence: Tensor, context: Tensor) -> Tensor:
        return evidence.mean(1)


class _MeanVote(nn.Module):
    def forward(self, odds: Tensor, trust: Tensor) -> Tensor:
        return odds.mean(-1)


class NearestFeatures(MeanOfEvidence):
    """Each node's ten nearest by features in the place of the refined graph; all else alike."""

    def refine(self, data: Data, *, seed: int = 0, device: Any = None) -> RefinedGraph:
        made = super().refine(data, seed=seed, device=device)
        problem = problem_of(data, made.edge_index.device)
        views = first_views(problem, torch.Generator().manual_seed(seed))
        near = nearest(views["x"], 10)
        low, high, _ = undirected_edges(near, None, made.num_nodes)
        both = torch.stack([torch.cat([low, high]), torch.cat([high, low])]).long()
        ones = torch.ones(both.shape[1], device=both.device)
        return replace(
            made, edge_index=both, edge_weight=ones, edge_probability=ones, edge_in_input=ones > 1
        )


def calibration_error(probability: Tensor, same: Tensor) -> float:
    """Expected calibration error over 15 equal bins."""
    place = (probability * 15).long().clamp_max(14)
    count = torch.bincount(place, minlength=15).clamp_min(1)
    sure = torch.bincount(place, probability, minlength=15) / count
    true = torch.bincount(place, same, minlength=15) / count
    return float(((sure - true).abs() * torch.bincount(place, minlength=15)).sum() / len(same))


def plain(method: str, data: Data, seed: int, device: str) -> tuple[float, float]:
    """A competitor under three settings: test and validation accuracy of the best by validation."""
    kind = graphglow.METHODS[method].config
    configs = [
        kind(epochs=200, patience=40, hidden=64, weight_decay=decay, dropout=dropout, seed=seed,
             device=device)
        for decay, dropout in SETTINGS
    ]  # fmt: skip
    best = max(graphglow.fit_many(method, data, configs), key=lambda run: run.val_accuracy)
    return best.test_accuracy or 0.0, best.val_accuracy


def run_cell(
    path: str, condition: str, seed: int, learner: str, device: str, methods: Iterable[str]
) -> list[dict]:
    """All methods on one graph under one condition."""
    data = under(load(Path(path)), condition, seed)
    if data is None:
        return []
    trained = evidence_learner(learner)
    kinds = {
        "evidence": trained,
        "untrained": EvidenceLearner.untrained(seed),
        "mean": MeanOfEvidence().frozen(),
        "knn": NearestFeatures().frozen(),
    }
    facts = {
        "target": Path(path).stem, "family": family(Path(path).stem), "condition": condition,
        "seed": seed, "learner": Path(learner).name, "train_labels": int(data.train_mask.sum()),
    }  # fmt: skip
    config = graphglow.TransferConfig(seed=seed, device=device)
    rows = []
    for method in methods:
        began = time.perf_counter()
        if method in ("gcn", "mlp"):
            test, val = plain(method, data, seed, device)
            row = facts | {"accuracy": test, "val": val}
        else:
            kinds[method].logit_scale.copy_(trained.logit_scale.cpu())
            result = graphglow.transfer(data, kinds[method].to("cpu"), config)
            row = facts | {"accuracy": result.test_accuracy, "val": result.val_accuracy}
            row["shares"] = {name: round(w, 3) for name, w in result.graph_weights.items()}
            row["instant"] = _accuracy(result.known.instant, data)
        row |= {"method": method, "seconds": round(time.perf_counter() - began, 2)}
        rows.append(row)
    if "evidence" in methods:
        rows.append(facts | calibrated(trained, data, seed, device))
    return rows


def calibrated(learner: EvidenceLearner, data: Data, seed: int, device: str) -> dict:
    """The calibration error of candidate pairs with at most one labelled end."""
    began = time.perf_counter()
    known = Data(x=data.x, y=data.y, edge_index=data.edge_index, train_mask=data.train_mask)
    made = learner.refine(known, seed=seed, device=None if device == "auto" else device)
    y, labelled = data.y.to(made.pairs.device), data.train_mask.to(made.pairs.device)
    fair = (y[made.pairs] >= 0).all(0) & ~labelled[made.pairs].all(0)
    pairs = made.pairs[:, fair]
    same = (y[pairs[0]] == y[pairs[1]]).float()
    error = calibration_error(made.pair_probability[fair], same)
    seconds = round(time.perf_counter() - began, 2)
    return {"method": "refine", "ece": error, "seconds": seconds}


def _accuracy(probabilities: Tensor, data: Data) -> float:
    found = probabilities.argmax(1).cpu() == data.y
    return float(found[data.test_mask].float().mean())


# ---------------------------------------------------------------- folds, processes, tables


def quiet() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def pretrain_fold(files: list[str], out: str, device: str, config: EvidencePretrainConfig) -> dict:
    quiet()
    sources = [load(Path(f)) for f in files]
    sizes: dict[str, int] = defaultdict(int)
    for file in files:
        sizes[family(Path(file).stem)] += 1
    weights = [sizes[family(Path(f).stem)] ** -0.5 for f in files]
    learner = pretrain_evidence(sources, config, weights=weights, device=device)
    learner.provenance["source_weights"] = [round(w, 3) for w in weights]
    learner.provenance["command"] = "benchmarks/evidence_open.py"
    learner.to("cpu").save(out)
    return {"out": out, "seconds": learner.provenance["seconds"],
            "scale": learner.logit_scale.tolist()}  # fmt: skip


def run_cell_safely(*cell: Any) -> list[dict]:
    quiet()
    try:
        return run_cell(*cell)
    except Exception:
        return [{"error": traceback.format_exc(), "cell": list(map(str, cell))}]


def means(rows: list[dict]) -> str:
    """Mean accuracy by condition and family, and in all; the worst cells; calibration."""
    table: dict[tuple, list[float]] = defaultdict(list)
    for row in rows:
        if "accuracy" in row:
            table[row["target"], row["condition"], row["method"]].append(100 * row["accuracy"])
        if row["method"] == "evidence":
            table[row["target"], row["condition"], "instant"].append(100 * row["instant"])
    cell = {key: float(np.mean(values)) for key, values in table.items()}
    kind = {row["target"]: row["family"] for row in rows}
    methods = list(dict.fromkeys(m for _, _, m in cell))
    whole = {(t, c) for t, c, _ in cell}
    cells = sorted(k for k in whole if all((*k, m) in cell for m in methods))
    if {"gcn", "mlp"} <= {*methods}:
        methods.insert(0, "better")
        for t, c in cells:
            cell[t, c, "better"] = max(cell[t, c, "gcn"], cell[t, c, "mlp"])
    lines = [" " * 22 + "".join(f"{m:>11}" for m in methods)]

    def line(name: str, some: list[tuple]) -> None:
        values = [np.mean([cell[t, c, m] for t, c in some]) for m in methods]
        lines.append(f"{name[:17]:17}{len(some):4d} " + "".join(f"{v:11.1f}" for v in values))

    for condition in dict.fromkeys(c for _, c in cells):
        line(condition, [k for k in cells if k[1] == condition])
    for one in sorted(set(kind.values())):
        if some := [k for k in cells if kind[k[0]] == one]:
            line(one, some)
    if len(kind) <= 12:
        for target in sorted(kind):
            line(target, [k for k in cells if k[0] == target])
    line("all", cells)
    if "better" in methods:
        gaps = sorted((cell[t, c, "evidence"] - cell[t, c, "better"], t, c) for t, c in cells)
        worst = "; ".join(f"{g:.1f} {t} {c}" for g, t, c in gaps[:6])
        lines.append(f"worst of evidence against better: {worst}")
    if ece := [row["ece"] for row in rows if "ece" in row]:
        lines.append(f"calibration error: mean {np.mean(ece):.3f}, largest {np.max(ece):.3f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=Path, default=Path("data/open"))
    parser.add_argument("--out", type=Path, default=Path("results/evidence_open.jsonl"))
    parser.add_argument("--table", action="store_true", help="only print that of the rows in --out")
    parser.add_argument("--learner", help="evaluate this one instead of folds")
    parser.add_argument("--final", type=Path, help="also pre-train on all graphs, into this file")
    parser.add_argument("--keep", type=Path, default=Path("evidence_folds"))
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--targets", nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--large-seeds", type=int, default=5, help="of large files")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--large-workers", type=int, default=1, help="for large files")
    parser.add_argument("--seconds", type=float, help="stop after this long; rows so far stay")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--config", type=json.loads, default={}, help="of the pre-training")
    parser.add_argument("--commit", default=os.environ.get("GRAPHGLOW_COMMIT", ""))
    args = parser.parse_args()
    if args.table:
        print(means([json.loads(line) for line in args.out.read_text().splitlines()]))
        return
    files = {p.stem: str(p) for p in sorted(args.graphs.glob("*.npz"))}
    targets = args.targets or list(files)
    config = EvidencePretrainConfig(**args.config)
    args.keep.mkdir(parents=True, exist_ok=True)
    git = partial(subprocess.run, capture_output=True, text=True)
    commit = args.commit or git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip()
    place = torch.cuda.get_device_name() if args.device == "cuda" else platform.machine()
    machine = {"commit": commit, "machine": place, "torch": str(torch.__version__)}
    started = time.perf_counter()
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(args.workers, mp_context=spawn)
    large_pool = ProcessPoolExecutor(args.large_workers, mp_context=spawn)
    learners, training = {}, []
    if args.learner is None:
        for fold in sorted({FOLDS[family(t)] for t in targets}):
            learners[fold] = str(args.keep / f"fold{fold}.safetensors")
            others = [f for n, f in files.items() if FOLDS[family(n)] != fold]
            if not Path(learners[fold]).exists():
                job = (pretrain_fold, others, learners[fold], args.device, config)
                training.append(pool.submit(*job))
    if args.final:
        job = (pretrain_fold, list(files.values()), str(args.final), args.device, config)
        training.append(pool.submit(*job))
    for done in as_completed(training):
        print(round(time.perf_counter() - started), done.result(), flush=True)
    size = {n: Path(f).stat().st_size for n, f in files.items()}
    jobs: list[Future] = []
    for seed in range(args.seeds):
        for c in args.conditions:
            for t in targets:
                large = size[t] > LARGE
                if large and seed >= args.large_seeds:
                    continue
                learner = args.learner or learners[FOLDS[family(t)]]
                cell = (files[t], c, seed, learner, args.device, args.methods)
                jobs.append((large_pool if large else pool).submit(run_cell_safely, *cell))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict] = []
    left = None if args.seconds is None else args.seconds - (time.perf_counter() - started)
    with args.out.open("a") as out:
        try:
            for done in as_completed(jobs, timeout=left):
                for row in done.result():
                    if "error" in row:
                        print(row["error"][-1500:], row["cell"], flush=True)
                        continue
                    rows.append(row)
                    out.write(json.dumps({**row, **machine}) + "\n")
                out.flush()
        except TimeoutError:
            print("stopped: the time is up", flush=True)
    print(means(rows), flush=True)
    print(f"{len(rows)} rows, {time.perf_counter() - started:.0f} s", flush=True)
    os._exit(0)  # workers may be in the middle of a cell


if __name__ == "__main__":
    main()
