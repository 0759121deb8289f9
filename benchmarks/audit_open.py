r"""How well the auditor carries over: leave-one-family-out over a folder of open graphs.

For each fold of families an auditor is trained on episodes of others; on each graph of the fold
edges are put in or hidden, and the auditor is asked which. Beside it stand single heuristics, the
graph's own regressions, the untrained network, and PyG's graph auto-encoder, which is trained on
the very graph. One JSON line per graph and condition.

    python benchmarks/audit_open.py --graphs data/open --workers 16
    python benchmarks/audit_open.py --final src/graphglow/pretrained/audit.safetensors
    python benchmarks/audit_open.py --exam data --attacked data/open/attacked --stable

The first makes the rows that --out lacks, the second the shipped auditor, of all graphs.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GAE, GCN

from graphglow import load_graph
from graphglow.audit import audit, load_auditor
from graphglow.auditing import Auditor
from graphglow.auditing.episodes import Damaged, damaged
from graphglow.auditing.pretraining import (
    RANDOM,
    EpisodeEvidence,
    episode_evidence,
    fit_auditor,
    hard_pairs,
)
from graphglow.auditing.reference_tables import EVIDENCE
from graphglow.device import map_blocks
from graphglow.evidence.episodes import neighbourhood
from graphglow.graph.graph import known_graph
from graphglow.lab.open_suite import FAMILY_FOLDS, family_of
from graphglow.lab.row_files import provenance
from graphglow.settings import AuditPretrainConfig
from graphglow.storage import append_line
from measuring import calibration_error

CONDITIONS: dict[str, tuple[str, float, float, float]] = {
    "random 0": ("random", 0.0, 0.0, 0.0),
    **{f"{kind} {share}": (kind, share / 100, 0.0, 0.0)
       for kind in ("random", "degree", "across", "attack") for share in (10, 30, 50)},
    "hidden 20": ("random", 0.0, 0.2, 0.0),
    "random 30, labels": ("random", 0.3, 0.0, 0.2),
    "hidden 20, labels": ("random", 0.0, 0.2, 0.2),
}  # fmt: skip
"""Kind and share of false edges, share of real ones hidden, share of nodes with labels."""

PART = 2000
"""Nodes; of larger graphs a part is damaged and judged."""
RATES = ("05", "15", "25")
RANDOM_A_ROUND = 8
STABLE = ("acm", "airports-europe", "dblp", "german-credit", "squirrel-filtered", "uai2010")
"""Graphs on which other seeds are tried."""


# What the auditor is compared with


def heuristics(data: Data, pairs: Tensor) -> dict[str, np.ndarray]:
    """Return the scores of pairs by single heuristics."""
    (u, v), ends = pairs.numpy(), torch.cat([data.edge_index, data.edge_index.flip(0)], 1).numpy()
    shape = (int(data.num_nodes), int(data.num_nodes))
    a = sp.csr_array(sp.coo_array((np.ones(ends.shape[1]), tuple(ends)), shape=shape))
    degree = np.asarray(a.sum(1)).ravel()

    def products(left: sp.csr_array, right: sp.csr_array) -> np.ndarray:
        return np.asarray(left[u].multiply(right[v]).sum(1)).ravel()

    common = products(a, a)
    found = {
        "common neighbours": common,
        "jaccard": common / np.maximum(degree[u] + degree[v] - common, 1),
        "adamic-adar": products(a @ sp.diags_array(1 / np.log(np.maximum(degree, 2))), a),
        "resource allocation": products(a @ sp.diags_array(1 / np.maximum(degree, 1)), a),
        "preferential attachment": degree[u] * degree[v],
        "feature cosine": np.zeros(len(u)),
    }
    if data.x is not None:
        x = normalize(sp.csr_array(data.x.to_dense().double().numpy()))
        found["feature cosine"] = products(x, x)
    scale = sp.diags_array(1 / np.sqrt(np.maximum(degree, 1)))
    left, values, _ = randomized_svd(scale @ a @ scale, min(64, len(degree) - 2), random_state=0)
    rows = normalize(left * values)
    return found | {"adjacency svd cosine": (rows[u] * rows[v]).sum(1)}


def trained(model: torch.nn.Module, loss: Callable[[], Tensor], decay: float = 0.0) -> None:
    """Train a model by Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=decay)
    for _ in range(200):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def feature_rows(data: Data) -> Tensor:
    """Rows of sum 1, as PyG's example of GAE has them; the identity without features."""
    x = torch.eye(int(data.num_nodes)) if data.x is None else data.x.to_dense().float()
    return x / x.abs().sum(1, keepdim=True).clamp_min(1e-9)


def auto_encoder(data: Data, pairs: Tensor) -> np.ndarray:
    """Score pairs by two layers of GCN, 32 and 16 wide, as in the paper of GAE."""
    torch.manual_seed(0)
    x, index = feature_rows(data), torch.cat([data.edge_index, data.edge_index.flip(0)], 1)
    model = GAE(GCN(x.shape[1], 32, 2, 16))
    trained(model, lambda: model.recon_loss(model.encode(x, index), data.edge_index))
    with torch.no_grad():
        return model.decode(model.encode(x, index), pairs, sigmoid=False).numpy()


def out_of_fold(data: Data, nodes: Tensor, classes: int, folds: int = 5) -> Tensor:
    """Class probabilities of labelled nodes by GCNs that were trained without them: [N, C]."""
    torch.manual_seed(0)
    x, held = feature_rows(data), torch.zeros(int(data.num_nodes), classes)
    for k in range(folds):
        out = torch.arange(len(nodes)) % folds == k
        model, own = GCN(x.shape[1], 64, 2, classes, dropout=0.5), nodes[~out]
        trained(
            model,
            lambda m=model, n=own: F.cross_entropy(m(x, data.edge_index)[n], data.y[n]),
            decay=5e-4,
        )
        held[nodes[out]] = model.eval()(x, data.edge_index)[nodes[out]].detach().softmax(1)
    return held


# One graph, one condition


@torch.no_grad()
def row_of(made: Damaged, auditor: Auditor, *, seed: int, gae: bool) -> dict:
    """Judge edges by whether they are real, or hidden ones and hard pairs by whether hidden."""
    graph, hidden = known_graph(made.data), made.hidden.shape[1] > 0
    began = time.perf_counter()
    found = auditor.examine(graph, seed=seed, missing=False)
    row: dict = {"seconds": round(time.perf_counter() - began, 2)}
    pairs, truth, scores, (first, _) = found.edges, made.real, found.edge_log_odds, found.looks
    if hidden:
        generator = torch.Generator().manual_seed(20_000 + seed)
        hard = hard_pairs(made, graph, made.hidden.shape[1], generator)
        pairs = torch.cat([made.hidden, hard], 1)
        truth = torch.arange(pairs.shape[1]) < made.hidden.shape[1]
        scores = auditor.scores(first, found.facts, pairs, missing=True)
    y, evidence = truth.numpy(), first.evidence(pairs)
    row["judged"] = len(y)
    if not hidden:
        p = scores.sigmoid().numpy()
        worst = np.argsort(p)[: max(1, len(p) // 100)]
        row |= {"false_share": 1 - float(y.mean()), "ece": calibration_error(p, y)}
        row |= found.false_share._asdict() | {"precision_1": 1 - float(y[worst].mean())}
    if y.min() == y.max():
        return row
    compared = heuristics(made.data, pairs)
    facts = Auditor().facts(first.context, first.samples)
    compared["untrained"] = Auditor().score(evidence, facts, False).numpy()
    if not hidden:
        compared["one look"] = auditor.scores(first, found.facts, pairs).numpy()
    for kind in ("uniform", "degree"):
        compared[f"regression, {kind}"] = evidence[:, EVIDENCE.index(f"fit_{kind}")].numpy()
    if gae:
        with torch.enable_grad():
            compared["GAE"] = auto_encoder(made.data, pairs)
    row["auc"] = float(roc_auc_score(y, scores))
    return row | {"others": {n: float(roc_auc_score(y, s)) for n, s in compared.items()}}


def condition_row(data: Data, condition: str, auditor: Auditor, *, seed: int, gae: bool) -> dict:
    kind, false, hidden, labels = CONDITIONS[condition]
    generator = torch.Generator().manual_seed(10_000 + seed)
    part = neighbourhood(data, generator, PART)
    data = Data(x=part.x, edge_index=part.edge_index, y=part.y, num_nodes=len(part.y))
    made = damaged(data, generator, kinds=[kind], false_share=false, hidden_share=hidden)
    if labels:
        made.data.train_mask = torch.rand(len(data.y), generator=generator) < labels
    return row_of(made, auditor, seed=seed, gae=gae and condition in ("random 30", "hidden 20"))


def seed_row(path: Path | str, seeds: int) -> dict:
    """How far other seeds move the probabilities that edges are real: the most, and on average."""
    data = graph(path)
    found = [audit(data, missing=False, seed=seed, device="cpu") for seed in range(seeds)]
    real = torch.stack([one.probability_real for one in found])
    moves = (real[1:] - real[0]).abs()
    share = [one.false_share.estimate for one in found]
    return {"largest": float(moves.max()), "mean": float(moves.mean()),
            "share": max(share) - min(share)}  # fmt: skip


def attacked_row(folder: Path, auditor: Auditor, rate: str, *, labels: bool) -> dict:
    """Edges that an attacker added to Cora, among all; with the usual training labels or none."""
    clean, data = (load_graph(folder / f"cora-metattack-{r}.npz") for r in ("00", rate))
    made = [damaged(d, torch.Generator(), kinds=[], false_share=0.0).data for d in (clean, data)]
    keys = [d.edge_index[0] * d.num_nodes + d.edge_index[1] for d in made]
    attacked = Damaged(made[1], torch.isin(keys[1], keys[0]), made[1].edge_index[:, :0])
    if labels:
        attacked.data.train_mask = data.train_mask
    return row_of(attacked, auditor, seed=0, gae=not labels)


def label_row(data: Data, share: float, seed: int) -> dict:
    """Flipped training labels found by ``audit.labels``, and by cleanlab on a GCN's predictions."""
    from cleanlab.rank import get_label_quality_scores

    generator = torch.Generator().manual_seed(seed)
    nodes = data.train_mask.nonzero()[:, 0]
    order = torch.randperm(len(nodes), generator=generator)
    wrong = nodes[order[: int(share * len(nodes))]]
    classes = int(data.y.max()) + 1
    noisy = data.clone()
    step = torch.randint(1, classes, (len(wrong),), generator=generator)
    noisy.y[wrong] = (data.y[wrong] + step) % classes
    frame = audit(noisy, missing=False, device="cpu").labels
    flipped = np.isin(frame["id"], wrong.numpy())
    held = out_of_fold(noisy, nodes[order], classes)
    quality = get_label_quality_scores(noisy.y[nodes].numpy(), held[nodes].numpy())
    auc = roc_auc_score(np.isin(nodes, wrong), -quality)
    found = {"auc": float(roc_auc_score(flipped, -frame["quality"]))}
    return found | {"others": {"cleanlab on a GCN": float(auc)}}


# Auditors and rows, by several processes


@cache
def graph(path: Path | str) -> Data:
    warnings.simplefilter("ignore")
    return load_graph(path)


def draw(config: AuditPretrainConfig, task: tuple[Path | None, int]) -> EpisodeEvidence | None:
    path, number = task
    return episode_evidence(None if path is None else graph(path), number, config)


def batches_of(
    graphs: list[Path], rounds: int, config: AuditPretrainConfig, workers: int
) -> list[EpisodeEvidence]:
    """One episode of each graph in a round (a college's three tasks take turns), and some random
    graphs.
    """
    tasks: list[tuple[Path | None, int]] = []
    for number in range(rounds):
        turn = ("-year", "-dorm", "-gender")[number % 3]
        tasks += [(g, number) for g in graphs
                  if family_of(g.stem) != "colleges" or g.stem.endswith(turn)]  # fmt: skip
        tasks += [(None, RANDOM_A_ROUND * number + i) for i in range(RANDOM_A_ROUND)]
    drawn = map_blocks(draw, config, tasks, workers=workers)
    return [batch for batch in drawn if batch is not None]


def make_auditor(batches: list[EpisodeEvidence], config: AuditPretrainConfig) -> Auditor:
    auditor = fit_auditor(batches, config, family=family_of)
    auditor.provenance["command"] = "benchmarks/audit_open.py"
    return auditor


def make_row(given: tuple[dict[str, Auditor], bool], task: tuple[dict, Path | str]) -> dict:
    """Fill a row that says target, condition, seed and auditor."""
    (auditors, gae), (facts, path) = given, task
    auditor, condition = auditors[facts["auditor"]], facts["condition"]
    if condition == "seeds":
        return seed_row(path, 5) | facts
    if "flipped" in condition:
        return label_row(graph(path), 0.1, facts["seed"]) | facts
    if condition.startswith("metattack"):
        rate, labels = condition.split()[1][:2], condition.endswith("labels")
        return attacked_row(Path(path), auditor, rate, labels=labels) | facts
    return condition_row(graph(path), condition, auditor, seed=facts["seed"], gae=gae) | facts


def exam_tasks(args: argparse.Namespace) -> Iterator[tuple[dict, Path | str]]:
    for target in ("cora", "citeseer") if args.exam else ():
        for seed in range(args.seeds):
            for condition in CONDITIONS:
                yield {"target": target, "condition": condition, "seed": seed}, target
    if args.exam:
        for seed in range(args.seeds):
            yield {"target": "cora", "condition": "140 labels, 10% flipped", "seed": seed}, "cora"
    for path in sorted(args.graphs.glob("*.npz")) if args.stable else ():
        if path.stem in STABLE:
            yield {"target": path.stem, "condition": "seeds", "seed": 0}, path
    for suffix in ("", ", labels") if args.attacked else ():
        for rate in RATES:
            facts = {"target": "cora", "condition": f"metattack {rate}{suffix}", "seed": 0}
            yield facts, args.attacked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=Path, default=Path("data/open"))
    parser.add_argument("--out", type=Path, default=Path("results/audit.jsonl"))
    parser.add_argument("--final", type=Path, help="only train on all graphs, into this file")
    parser.add_argument("--exam", type=Path, help="folder of named graphs: Cora and CiteSeer")
    parser.add_argument("--attacked", type=Path, help="folder of attacked graphs")
    parser.add_argument("--stable", action="store_true", help="rows of other seeds")
    parser.add_argument("--rounds", type=int, default=24, help="episodes of each graph")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--gae", action="store_true", help="train GAEs to compare with")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    config = AuditPretrainConfig()
    if args.exam or args.attacked or args.stable:
        if args.exam:
            os.environ["GRAPHGLOW_DATA"] = str(args.exam)
        auditors = {"exam": load_auditor()}
        tasks = [(facts | {"auditor": "exam"}, path) for facts, path in exam_tasks(args)]
    else:
        graphs = sorted(args.graphs.glob("*.npz"))
        batches = batches_of(graphs, args.rounds, config, args.workers)
        if args.final:
            make_auditor(batches, config).save(args.final)
            return
        fold = {g.stem: FAMILY_FOLDS[family_of(g.stem)] for g in graphs} | {RANDOM: -1}
        auditors = {f"fold {k}": make_auditor([b for b in batches if fold[b.source] != k], config)
                    for k in sorted({*fold.values()} - {-1})}  # fmt: skip
        tasks = [
            ({"target": g.stem, "condition": c, "seed": seed, "auditor": f"fold {fold[g.stem]}"}, g)
            for c in CONDITIONS for g in graphs if not g.stem.endswith(("-dorm", "-gender"))
            for seed in range(args.seeds)
        ]  # fmt: skip
    there = {(r["target"], r["condition"], r["seed"], r["auditor"]) for r in rows}
    tasks = [task for task in tasks if tuple(task[0].values()) not in there]
    origin = provenance()
    machine = {"commit": origin["commit"], "machine": origin["machine"]["cpu"]}
    for row in map_blocks(
        make_row, (auditors, args.gae), tasks, workers=args.workers, ordered=False
    ):
        append_line(args.out, json.dumps(row | machine | {"torch": origin["versions"]["torch"]}))
        print(row["target"], row["condition"], row.get("auc"), flush=True)


if __name__ == "__main__":
    main()
