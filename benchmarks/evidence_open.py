"""How well the evidence learner carries over: leave-one-family-out over a folder of open graphs.

For each fold of families a learner is pre-trained on the other graphs and on random ones; then, on
each graph of the fold and under each condition, a small GNN is trained on the input graph, on none,
on a kNN graph of the features, and on what the learner makes of it, pre-trained or not. One JSON
line per run and method; a table of means at the end.

    python benchmarks/evidence_open.py --graphs data/open --out results/evidence_open.jsonl
    python benchmarks/evidence_open.py --graphs data/exam --learner evidence.safetensors \
        --conditions given --seeds 5 --out results/evidence_exam.jsonl
    python benchmarks/evidence_open.py --table --out results/evidence_exam.jsonl
"""

import argparse
import faulthandler
import json
import multiprocessing
import os
import platform
import subprocess
import time
import traceback
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import groupby
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.evidence import EvidenceLearner, EvidencePretrainConfig, pretrain_evidence
from graphglow.evidence.answers import (
    graph_by_leave_one_out,
    mixed_by_validation,
    validation_score,
)
from graphglow.evidence.candidates import nearest
from graphglow.evidence.problem import problem_of
from graphglow.evidence.rows import entries, times
from graphglow.evidence.views import first_views, role_view
from graphglow.graphs.graph import normalised_adjacency
from graphglow.ops.sparse import SparseMatrix
from graphglow.training.loop import Replay

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
"""Weight decay and dropout; by validation, for every line alike."""
UNITS, EPOCHS, RATE, EVERY = 64, 200, 0.01, 4
LARGE = 500_000
"""Files above this many bytes have workers of their own: they need more memory."""


SHORT = {"evidence": "EV", "untrained": "unt", "instant": "inst", "mixed": "mix"}
"""Of the table's heads."""


# ---------------------------------------------------------------- graphs


def load(path: Path) -> Data:
    """A graph in the sparse convention; features as a sparse tensor."""
    with np.load(path, allow_pickle=False) as z:
        adj = sp.csr_array((z["adj_data"], z["adj_indices"], z["adj_indptr"]), z["adj_shape"])
        x = sp.csr_array((z["attr_data"], z["attr_indices"], z["attr_indptr"]), z["attr_shape"])
        y = torch.from_numpy(z["labels"]).long()
        split = {k: torch.from_numpy(z[k]).long() for k in ("train", "val", "test") if k in z}
    adj, x = adj.tocoo(), x.tocoo()
    data = Data(
        x=torch.sparse_coo_tensor(
            np.stack([x.row, x.col]).astype(np.int64), torch.from_numpy(x.data).float(), x.shape
        ).coalesce(),
        edge_index=torch.from_numpy(np.stack([adj.row, adj.col]).astype(np.int64)),
        y=y,
        name=path.stem,
    )
    for name, nodes in split.items():
        data[f"{name}_mask"] = torch.zeros(len(y), dtype=torch.bool)
        data[f"{name}_mask"][nodes] = True
    return data


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


# ---------------------------------------------------------------- the GNN of all lines


def block_diagonal(parts: list[SparseMatrix]) -> SparseMatrix:
    """Symmetric matrices [N, N] as one [B N, B N]."""
    nodes = parts[0].shape[0]
    starts = np.cumsum([0] + [len(p.col) for p in parts[:-1]])
    crow = [p.crow[:-1].long() + int(s) for p, s in zip(parts, starts, strict=True)]
    crow.append(torch.tensor([sum(len(p.col) for p in parts)], device=parts[0].col.device))
    col = torch.cat([p.col.long() + i * nodes for i, p in enumerate(parts)])
    values = torch.cat([p.values for p in parts])
    return SparseMatrix.symmetric(torch.cat(crow), col, values, nodes * len(parts))


def mixture(a: SparseMatrix, b: SparseMatrix, share: float) -> SparseMatrix:
    """``share a + (1 - share) b``, both symmetric."""
    nodes = a.shape[0]
    (r1, c1, v1), (r2, c2, v2) = entries(a), entries(b)
    key, place = torch.unique(torch.cat([r1 * nodes + c1, r2 * nodes + c2]), return_inverse=True)
    values = torch.zeros(len(key), device=v1.device)
    values.index_add_(0, place, torch.cat([share * v1, (1 - share) * v2]))
    row, col = key // nodes, key % nodes
    crow = torch.zeros(nodes + 1, dtype=torch.int64, device=row.device)
    crow[1:] = torch.bincount(row, minlength=nodes).cumsum(0)
    return SparseMatrix.symmetric(crow, col, values, nodes)


def gnn_features(data: Data, device: str) -> Tensor:
    """All features, dense: rows of unit length, or columns standardised if few are zero."""
    x = data.x.to(device).to_dense().float()
    if float((x != 0).float().mean()) < 0.5 and bool((x >= 0).all()):
        return F.normalize(x, dim=1)
    return (x - x.mean(0)) / x.std(0).clamp_min(1e-6)


Lines = dict[str, tuple[Tensor, SparseMatrix]]
"""By name: the input columns [N, D] and the graph that messages go over."""


def train_lines(lines: Lines, data: Data, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Two-layer GNNs, one per line and setting, all at once.

    Returns by name the predictions of the epoch that is best on validation, and its score there:
    [S, N, C], [S].
    """
    groups: dict[int, list[str]] = defaultdict(list)  # lines that read the same columns
    for name, (x, _) in lines.items():
        groups[id(x)].append(name)
    names = [name for group in groups.values() for name in group]
    inputs = [lines[group[0]][0] for group in groups.values()]
    sizes = [len(group) for group in groups.values()]
    count, sets, device = len(names), len(SETTINGS), inputs[0].device
    torch.manual_seed(seed)
    adj = block_diagonal([lines[name][1] for name in names])
    y = data.y.to(device)
    classes = int(data.y.max()) + 1
    train = data.train_mask.to(device).nonzero()[:, 0]
    val = data.val_mask.to(device).nonzero()[:, 0]
    nodes = len(y)

    def weight(some: int, *shape: int) -> nn.Parameter:
        bound = (6 / (shape[-1] + shape[-2])) ** 0.5
        drawn = torch.empty(sets, *shape).uniform_(-bound, bound)  # the same for all lines
        return nn.Parameter(drawn.expand(some, *drawn.shape).to(device).contiguous())

    w1 = [weight(some, x.shape[1], UNITS) for some, x in zip(sizes, inputs, strict=True)]
    w2 = weight(count, UNITS, classes)
    b1 = nn.Parameter(torch.zeros(count, 1, sets, UNITS, device=device))
    b2 = nn.Parameter(torch.zeros(count, 1, sets, classes, device=device))
    decay = torch.tensor([s[0] for s in SETTINGS], device=device)[:, None, None]
    drop = [s[1] for s in SETTINGS]
    kept = torch.tensor([1 - d for d in drop], device=device)[:, None]
    gpu = device.type == "cuda"
    optimizer = torch.optim.Adam([*w1, w2, b1, b2], lr=RATE, fused=gpu, capturable=gpu)
    alike = [list(some) for _, some in groupby(range(sets), key=lambda s: drop[s])]

    def first_layer(x: Tensor, w: Tensor, training: bool) -> Tensor:  # [lines, N, S, U]
        parts = []
        for some in alike if training else [list(range(sets))]:
            weights = w[:, some[0] : some[-1] + 1].permute(2, 0, 1, 3).flatten(1)
            out = F.dropout(x, drop[some[0]], training) @ weights  # [N, lines * some * units]
            parts.append(out.view(nodes, len(w), len(some), UNITS))
        return torch.cat(parts, 2).transpose(0, 1)

    def forward(training: bool) -> Tensor:
        h = torch.cat([first_layer(x, w, training) for x, w in zip(inputs, w1, strict=True)])
        h = times(adj, h.reshape(count * nodes, sets * UNITS)).view(count, nodes, sets, UNITS)
        h = (h + b1).relu()
        if training:
            h = h * (torch.rand_like(h) < kept) / kept
        h = torch.einsum("bnsu,bsuc->bnsc", h, w2)
        h = times(adj, h.reshape(count * nodes, sets * classes))
        return h.view(count, nodes, sets, classes) + b2

    best = torch.full((count, sets), -1e9, device=device)
    answer = torch.zeros(count, sets, nodes, classes, device=device)
    index = y[train].view(1, -1, 1, 1).expand(count, -1, sets, 1)
    y_val = y[val]

    def step() -> None:
        out = forward(True).index_select(1, train).log_softmax(-1)
        loss = -out.gather(3, index).mean(1).sum()
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for w in (*w1, w2):
                w.grad += decay * w
        optimizer.step()

    @torch.no_grad()
    def look() -> None:
        out = forward(False).transpose(1, 2).log_softmax(-1)  # [B, S, N, C]
        score = line_scores(out.index_select(2, val), y_val)
        better = score > best
        best.copy_(torch.where(better, score, best))
        answer.copy_(torch.where(better[..., None, None], out, answer))

    generators = [torch.cuda.default_generators[0]] if gpu else []
    stepping, looking = (Replay(generators, device, enabled=gpu) for _ in range(2))
    for epoch in range(EPOCHS):
        stepping(step)
        if epoch % EVERY == EVERY - 1:
            looking(look)
    return {name: (answer[i].exp(), best[i]) for i, name in enumerate(names)}


def line_scores(logs: Tensor, y: Tensor) -> Tensor:
    """Accuracy, ties by the log-loss: [.., K, C], [K] -> [..]."""
    right = (logs.argmax(-1) == y).float().mean(-1)
    own = y[:, None].expand(*logs.shape[:-1], 1)
    return right + 1e-3 * logs.gather(-1, own)[..., 0].clamp_min(-20).mean(-1)


# ---------------------------------------------------------------- controls and one run


class MeanOfEvidence(EvidenceLearner):
    """The plain mean of the evidence, brought to the scale of the trained one: no learning."""

    def __init__(self) -> None:
        super().__init__()
        self.vote = _MeanVote()

    def pair_scores(self, round_: int, evidence: Tensor, context: Tensor) -> Tensor:
        scores = evidence.mean(1)
        mean, deviation = self.logit_scale[round_]
        return (scores - scores.mean()) / scores.std().clamp_min(1e-6) * deviation + mean


class _MeanVote(nn.Module):
    def forward(self, odds: Tensor, trust: Tensor) -> Tensor:
        return odds.mean(-1)


def identity(nodes: int, device: str) -> SparseMatrix:
    none = torch.empty(2, 0, dtype=torch.int64, device=device)
    return normalised_adjacency(none, None, nodes)


def calibration_error(probability: Tensor, same: Tensor) -> float:
    """Expected calibration error over 15 equal bins."""
    place = (probability * 15).long().clamp_max(14)
    count = torch.bincount(place, minlength=15).clamp_min(1)
    sure = torch.bincount(place, probability, minlength=15) / count
    true = torch.bincount(place, same, minlength=15) / count
    return float(((sure - true).abs() * torch.bincount(place, minlength=15)).sum() / len(same))


def run_cell(path: str, condition: str, seed: int, learner_file: str, device: str) -> list[dict]:
    """All methods on one graph under one condition."""
    data = under(load(Path(path)), condition, seed)
    if data is None:
        return []
    started = time.perf_counter()
    learner = EvidenceLearner.load(learner_file).to(device)
    controls = {"untrained": EvidenceLearner.untrained(seed), "mean": MeanOfEvidence().frozen()}
    for control in controls.values():
        control.logit_scale.copy_(learner.logit_scale)
    known = Data(x=data.x, y=data.y, edge_index=data.edge_index, train_mask=data.train_mask)
    refined = {"evidence": learner.refine(known, seed=seed, device=device)}
    refine_seconds = time.perf_counter() - started
    for name, control in controls.items():
        refined[name] = control.refine(known, seed=seed, device=device)
    nodes, classes = len(data.y), int(data.y.max()) + 1
    problem = problem_of(known, device)
    a, none = problem.adj, identity(nodes, device)
    views = first_views(problem, torch.Generator().manual_seed(seed))
    x = gnn_features(data, device)
    wide = torch.cat([x, views["link"], role_view(problem)], 1)  # and where a node is in the graph
    prior = torch.zeros(classes, device=device)
    prior[problem.seen] = problem.prior
    graphs: Lines = {"gcn": (x, a), "mlp": (x, none), "wide A": (wide, a), "wide I": (wide, none)}
    latent = {"knn": normalised_adjacency(nearest(views["x"], 10), None, nodes)}
    latent |= {name: result.adjacency() for name, result in refined.items()}
    both = {name: mixture(a, s, 0.5) for name, s in latent.items()}
    for name in latent:
        graphs |= {name: (wide, latent[name]), f"{name}/2": (wide, both[name])}
    instant = {}
    for name, result in refined.items():
        instant[name] = F.pad(result.probabilities, (0, classes - result.probabilities.shape[1]))
        v = (instant[name] / prior.clamp_min(1e-9)).clamp_min(1e-6).log().clamp(-4, 4)
        v = v[:, problem.seen].contiguous()
        over = {" A": a, " I": none, " S": latent[name], "/2": both[name]}
        graphs |= {f"{name} votes{g}": (v, graph) for g, graph in over.items()}
    torch.backends.cuda.matmul.allow_tf32 = True  # of the GNNs, not of the evidence
    trained = train_lines(graphs, data, seed)
    torch.backends.cuda.matmul.allow_tf32 = False
    y = data.y.to(device)
    val, test = (data[f"{m}_mask"].to(device).nonzero()[:, 0] for m in ("val", "test"))
    lines = {}
    for name, (answers, scores) in trained.items():
        best = int(scores.argmax())  # over settings
        lines[name] = answers[best], float(scores[best])

    def judged(p: Tensor) -> tuple[Tensor, float]:
        return p, validation_score(p[val], y[val])

    for name, p in instant.items():
        lines[f"{name} instant"] = judged(p)
    methods = {"gcn": ["gcn"], "mlp": ["mlp"], "knn": ["wide A", "knn/2", "knn"]}
    for name in refined:
        methods[name] = ["wide A", f"{name}/2", name]
        methods[f"{name} S"] = [name]
        methods[f"{name} instant"] = [f"{name} instant"]
    picked = {m: max(options, key=lambda o: lines[o][1]) for m, options in methods.items()}
    share = graph_by_leave_one_out(refined["evidence"].channel_scores)
    by_loo = {None: "wide I", 0.0: "evidence", 0.5: "evidence/2", 1.0: "wide A"}
    picked["evidence by loo"] = by_loo[share]
    plain = ["gcn", "mlp", "wide A", "wide I"]
    mixtures = {"gcn+mlp mixed": ["gcn", "mlp"], "wide mixed": plain,
                "knn mixed": [*plain, "knn/2", "knn"]}  # fmt: skip
    for name in refined:
        gnns = [*plain, f"{name}/2", name]
        votes = [f"{name} votes{g}" for g in (" A", " I", " S", "/2")]
        mixtures[f"{name} gnn mixed"] = gnns
        mixtures[f"{name} mixed"] = [*gnns, *votes, f"{name} instant"]
    for name, options in mixtures.items():
        p, _ = mixed_by_validation([lines[o][0] for o in options], prior, val, y[val])
        lines[name] = judged(p)
        picked[name] = name
    unjudged = ["wide A", "evidence/2", "evidence", "evidence votes S", "evidence instant"]
    lines["evidence even"] = judged(torch.stack([lines[o][0] for o in unjudged]).mean(0))
    picked["evidence even"] = "evidence even"
    accuracy = {
        name: float((p[test].argmax(1) == y[test]).float().mean()) for name, (p, _) in lines.items()
    }
    result = refined["evidence"]
    labelled = data.train_mask.to(device)
    fair = (y[result.pairs] >= 0).all(0) & ~labelled[result.pairs].all(0)
    pairs = result.pairs[:, fair]
    same = (y[pairs[0]] == y[pairs[1]]).float()
    facts = {
        "target": data.name, "family": family(data.name), "condition": condition, "seed": seed,
        "learner": Path(learner_file).name, "train_labels": int(data.train_mask.sum()),
        "ece": calibration_error(result.pair_probability[fair], same),
        "refine_seconds": round(refine_seconds, 3),
        "seconds": round(time.perf_counter() - started, 2),
    }  # fmt: skip
    rows = [
        {**facts, "method": m, "answer": line, "accuracy": accuracy[line], "val": lines[line][1]}
        for m, line in picked.items()
    ]
    raw = {n: [round(accuracy[n], 4), round(v, 4)] for n, (_, v) in lines.items()}
    rows[0]["lines"] = raw
    rows[0]["channels"] = {n: round(c["likelihood"], 3) for n, c in result.channel_scores.items()}
    return rows


# ---------------------------------------------------------------- folds, processes, tables


def quiet() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def pretrain_fold(files: list[str], out: str, device: str, config: EvidencePretrainConfig) -> dict:
    quiet()
    sources = [load(Path(f)) for f in files]
    sizes = defaultdict(int)
    for source in sources:
        sizes[family(source.name)] += 1
    weights = [sizes[family(s.name)] ** -0.5 for s in sources]
    learner = pretrain_evidence(sources, config, weights=weights, device=device)
    learner.provenance["source_weights"] = [round(w, 3) for w in weights]
    learner.provenance["command"] = "benchmarks/evidence_open.py"
    learner.to("cpu").save(out)
    torch.cuda.empty_cache()
    return {"out": out, "seconds": learner.provenance["seconds"],
            "scale": learner.logit_scale.tolist()}  # fmt: skip


def run_cell_safely(*cell: str) -> list[dict]:
    quiet()
    faulthandler.dump_traceback_later(150, exit=False)
    try:
        return run_cell(*cell)
    except Exception:
        return [{"error": traceback.format_exc(), "cell": list(map(str, cell))}]
    finally:
        faulthandler.cancel_dump_traceback_later()
        torch.cuda.empty_cache()


def means(rows: list[dict]) -> str:
    """Mean accuracy by condition, family or target, and in all; the worst cells; calibration."""
    table: dict[tuple, list[float]] = defaultdict(list)
    for row in rows:
        table[row["target"], row["condition"], row["method"]].append(100 * row["accuracy"])
    cell = {key: float(np.mean(values)) for key, values in table.items()}
    kind = {row["target"]: row["family"] for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = sorted({(t, c) for t, c, _ in cell})
    for t, c in cells:
        cell[t, c, "better"] = max(cell[t, c, "gcn"], cell[t, c, "mlp"])
    columns = short = ["better", *methods]
    for word, less in SHORT.items():
        short = [m.replace(word, less) for m in short]
    lines = [" " * 22 + "".join(f"{m[:8]:>9}" for m in short)]

    def line(name: str, some: list[tuple]) -> np.ndarray:
        values = np.array([np.mean([cell[t, c, m] for t, c in some]) for m in columns])
        lines.append(f"{name[:17]:17}{len(some):4d} " + "".join(f"{v:9.1f}" for v in values))
        return values

    for condition in dict.fromkeys(c for _, c in cells):
        line(condition, [k for k in cells if k[1] == condition])
    if len(kind) <= 12:
        for target in sorted(kind):
            line(target, [k for k in cells if k[0] == target])
    families = sorted(set(kind.values()))
    by_kind = [line(f, [k for k in cells if kind[k[0]] == f]) for f in families]
    line("all", cells)
    lines.append(f"{'mean of families':21} " + "".join(f"{v:9.1f}" for v in np.mean(by_kind, 0)))
    for m in [m for m in methods if m.startswith("evidence")]:
        gaps = sorted((cell[t, c, m] - cell[t, c, "better"], t, c) for t, c in cells)
        worst = "; ".join(f"{g:.1f} {t} {c}" for g, t, c in gaps[:6])
        lines.append(f"worst of {m}: {worst}")
    ece = [row["ece"] for row in rows if row["method"] == "evidence"]
    lines.append(f"calibration error: mean {np.mean(ece):.3f}, largest {np.max(ece):.3f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=Path, default=Path("data/open"))
    parser.add_argument("--out", type=Path, default=Path("results/evidence_open.jsonl"))
    parser.add_argument("--table", action="store_true", help="only print that of the rows in --out")
    parser.add_argument("--learner", type=Path, help="evaluate this one instead of folds")
    parser.add_argument("--final", type=Path, help="also pre-train on all graphs, into this file")
    kept = "folder of the folds' learners; those that are there are used"
    parser.add_argument("--keep", type=Path, default=Path("evidence_folds"), help=kept)
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS))
    parser.add_argument("--targets", nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--large-seeds", type=int, default=5, help="of large files")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--large-workers", type=int, default=2, help="for large files")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--config", type=json.loads, default={}, help="of the pre-training")
    parser.add_argument("--commit", default=os.environ.get("COMMIT", ""))
    args = parser.parse_args()
    if args.table:
        print(means([json.loads(line) for line in args.out.read_text().splitlines()]))
        return
    files = {p.stem: str(p) for p in sorted(args.graphs.glob("*.npz"))}
    targets = args.targets or list(files)
    config = EvidencePretrainConfig(**args.config)
    args.keep.mkdir(parents=True, exist_ok=True)
    commit = (
        args.commit
        or subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
    )
    place = torch.cuda.get_device_name() if args.device == "cuda" else platform.machine()
    machine = {"commit": commit, "machine": place, "torch": str(torch.__version__)}
    started = time.perf_counter()
    spawn = multiprocessing.get_context("spawn")
    rows: list[dict] = []
    with (
        ProcessPoolExecutor(args.workers, mp_context=spawn) as pool,
        ProcessPoolExecutor(args.large_workers, mp_context=spawn) as large_pool,
    ):
        learners, training = {}, []
        if args.learner is None:
            for fold in sorted({FOLDS[family(t)] for t in targets}):
                learners[fold] = str(args.keep / f"fold{fold}.safetensors")
                if Path(learners[fold]).exists():
                    continue
                others = [f for n, f in files.items() if FOLDS[family(n)] != fold]
                job = (pretrain_fold, others, learners[fold], args.device, config)
                training.append(pool.submit(*job))
            if args.final:
                job = (pretrain_fold, list(files.values()), str(args.final), args.device, config)
                training.append(pool.submit(*job))
        for done in as_completed(training):
            print(round(time.perf_counter() - started), done.result(), flush=True)
        size = {n: Path(f).stat().st_size for n, f in files.items()}
        jobs = []
        for seed in range(args.seeds):
            for t in sorted(targets, key=lambda t: -size[t]):
                large = size[t] > LARGE
                if large and seed >= args.large_seeds:
                    continue
                learner = str(args.learner or learners[FOLDS[family(t)]])
                for c in args.conditions:
                    cell = (files[t], c, seed, learner, args.device)
                    jobs.append((large_pool if large else pool).submit(run_cell_safely, *cell))
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("w") as out:
            for done in as_completed(jobs):
                for row in done.result():
                    if "error" in row:
                        print(row["error"][-1500:], row["cell"], flush=True)
                        continue
                    rows.append(row)
                    out.write(json.dumps({**row, **machine}) + "\n")
                out.flush()
    if rows:
        print(means(rows))
    print(f"{len(rows)} rows, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
