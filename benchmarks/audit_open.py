"""How well the auditor carries over: leave-one-family-out over a folder of open graphs.

For each fold of families an auditor is pre-trained on the other graphs and on random ones; then, on
each graph of the fold, edges are put in or hidden and it is asked which. Beside it stand single
heuristics, the graph's own regression without any pre-training, the untrained network, and PyG's
graph auto-encoder, which is trained on the very graph. One JSON line per graph and condition.

    python benchmarks/audit_open.py --graphs data/open --final audit.safetensors
    python benchmarks/audit_open.py --exam data --attacked data/open/attacked --auditor audit
    python benchmarks/audit_open.py --table
"""

import argparse
import json
import os
import platform
import subprocess
import time
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.metrics import roc_auc_score
from sklearn.utils.extmath import randomized_svd
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAE
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from graphglow import load_graph
from graphglow.auditing import Auditor
from graphglow.auditing.auditor import COMPARED, shift_to
from graphglow.auditing.episodes import Damaged, damaged
from graphglow.auditing.ground import ground_of
from graphglow.auditing.pretrain import (
    RANDOM,
    AuditPretrainConfig,
    Lesson,
    draw_lessons,
    fit_auditor,
    hard_pairs,
)
from graphglow.auditing.standing import EVIDENCE, evidence_of, pairs_without_edge, standing_of
from graphglow.evidence.problem import problem_of
from graphglow.experiments.open_world.targets import FOLDS
from graphglow.experiments.open_world.targets import family_of as family
from graphglow.inference.audit import audit, load_auditor

CONDITIONS: dict[str, tuple[str, float, float]] = {
    "random 0": ("random", 0.0, 0.0),
    "random 10": ("random", 0.1, 0.0),
    "random 30": ("random", 0.3, 0.0),
    "random 50": ("random", 0.5, 0.0),
    "random +50": ("random", 1 / 3, 0.0),
    "degree +50": ("degree", 1 / 3, 0.0),
    "across +50": ("across", 1 / 3, 0.0),
    "hidden 20": ("random", 0.0, 0.2),
}
"""Kind and share of false edges among all, and share of real ones hidden. +50: half as many false
edges as there are real ones."""
SHARES = ("random 0", "random 10", "random 30", "random 50")
MOST = 20_000
"""Edges of a graph that are judged, drawn at random; the graph they are judged in is whole."""
GAE_EPOCHS = 200


# ---------------------------------------------------------------- heuristics and the auto-encoder


def adjacency(data: Data) -> sp.csr_array:
    u, v = data.edge_index.numpy()
    ones, shape = np.ones(2 * len(u)), (data.num_nodes, data.num_nodes)
    made = sp.coo_array((ones, (np.r_[u, v], np.r_[v, u])), shape=shape)
    return sp.csr_array(made)


def features(data: Data) -> sp.csr_array | None:
    if data.x is None:
        return None
    x = (data.x if data.x.layout != torch.strided else data.x.to_sparse()).coalesce()
    return sp.csr_array(sp.coo_array((x.values().numpy(), x.indices().numpy()), shape=x.shape))


def products(left: sp.csr_array, right: sp.csr_array, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Row u of one times row v of the other, for each pair."""
    parts = [slice(i, i + 5000) for i in range(0, len(u), 5000)]
    return np.concatenate(
        [np.asarray(left[u[p]].multiply(right[v[p]]).sum(1)).ravel() for p in parts]
    )


def heuristics(data: Data, pairs: Tensor) -> dict[str, np.ndarray]:
    a, x = adjacency(data), features(data)
    u, v = pairs.numpy()
    degree = np.asarray(a.sum(1)).ravel()
    common = products(a, a, u, v)
    found = {
        "common neighbours": common,
        "jaccard": common / np.maximum(degree[u] + degree[v] - common, 1),
        "adamic-adar": products(a @ sp.diags_array(1 / np.log(np.maximum(degree, 2))), a, u, v),
        "resource allocation": products(a @ sp.diags_array(1 / np.maximum(degree, 1)), a, u, v),
        "preferential attachment": degree[u] * degree[v],
        "feature cosine": np.zeros(len(u)),
    }
    if x is not None:
        size = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel())
        found["feature cosine"] = products(x, x, u, v) / np.maximum(size[u] * size[v], 1e-9)
    scale = sp.diags_array(1 / np.sqrt(np.maximum(degree, 1)))
    left, values, _ = randomized_svd(scale @ a @ scale, min(64, a.shape[0] - 2), random_state=0)
    rows = left * values
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return found | {"adjacency svd cosine": (rows[u] * rows[v]).sum(1)}


class Encoder(nn.Module):
    """Two layers of GCN, 32 and 16 wide, as in the paper of GAE, on sparse features."""

    def __init__(self, data: Data) -> None:
        super().__init__()
        nodes = int(data.num_nodes)
        x = data.x if data.x is not None else torch.eye(nodes)
        x = x.to_sparse().coalesce()  # rows of sum 1, as PyG's example has them
        total = torch.zeros(nodes).index_add_(0, x.indices()[0], x.values().float().abs())
        value = x.values().float() / total.clamp_min(1e-9)[x.indices()[0]]
        self.x = torch.sparse_coo_tensor(x.indices(), value, x.shape).coalesce()
        index = torch.cat([data.edge_index, data.edge_index.flip(0)], 1)
        index, value = gcn_norm(index, num_nodes=nodes)
        self.adj = torch.sparse_coo_tensor(index, value, (nodes, nodes)).coalesce()
        self.first, self.second = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(*shape)))
            for shape in ((self.x.shape[1], 32), (32, 16))
        )

    def forward(self) -> Tensor:
        h = torch.sparse.mm(self.adj, torch.sparse.mm(self.x, self.first)).relu()
        return torch.sparse.mm(self.adj, h @ self.second)


def auto_encoder(data: Data, pairs: Tensor, seed: int = 0) -> np.ndarray:
    torch.manual_seed(seed)
    model = GAE(Encoder(data))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(GAE_EPOCHS):
        optimizer.zero_grad()
        model.recon_loss(model.encode(), data.edge_index).backward()
        optimizer.step()
    with torch.no_grad():
        return model.decode(model.encode(), pairs, sigmoid=False).numpy()


# ---------------------------------------------------------------- one graph, one condition


def judged(made: Damaged, seed: int) -> tuple[Tensor, Tensor]:
    """Edges with whether they are real, or hidden ones and hard pairs with whether hidden."""
    generator = torch.Generator().manual_seed(20_000 + seed)
    if made.hidden.shape[1] == 0:
        order = torch.randperm(len(made.real), generator=generator)[:MOST]
        return made.data.edge_index[:, order], made.real[order]
    order = torch.randperm(made.hidden.shape[1], generator=generator)[: MOST // 2]
    hidden = made.hidden[:, order]
    ground = ground_of(problem_of(made.data), generator)
    pairs = torch.cat([hidden, hard_pairs(made, ground, hidden.shape[1], generator)], 1)
    return pairs, torch.arange(pairs.shape[1]) < hidden.shape[1]


@torch.no_grad()
def row_of(made: Damaged, auditor: Auditor, *, seed: int, gae: bool) -> dict:
    pairs, truth = judged(made, seed)
    y, hidden = truth.numpy(), made.hidden.shape[1] > 0
    began = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    ground = ground_of(problem_of(made.data), generator)
    standing = standing_of(ground, generator)
    evidence = evidence_of(ground, standing, pairs)
    context = standing.context
    score = auditor.pair_scores if hidden else auditor.edge_scores
    scores = score(evidence, context)
    row: dict = {"seconds": round(time.perf_counter() - began, 2), "judged": len(y)}
    if not hidden:
        true_share = 1 - float(made.real.float().mean())
        free = pairs_without_edge(ground, COMPARED, generator)
        others = [auditor.edge_scores(evidence_of(ground, standing, p), context) for p in free]
        share = auditor.false_share(scores, *others, context)
        p = (scores + shift_to(scores, share.estimate)).sigmoid().numpy()
        worst = np.argsort(p)[: max(1, len(p) // 100)]
        row |= {
            "false_share": true_share, "estimate": share.estimate, "low": share.low,
            "high": share.high, "ece": calibration_error(p, y),
            "precision_1": 1 - float(y[worst].mean()),
        }  # fmt: skip
    if y.min() == y.max():
        return row
    untrained = Auditor()
    control = (untrained.pairs if hidden else untrained.edges)(evidence, context)
    others = heuristics(made.data, pairs) | {"untrained": control.numpy()}
    for kind in ("uniform", "degree"):
        others[f"regression, {kind}"] = evidence[:, EVIDENCE.index(f"fit_{kind}")].numpy()
    if gae:
        with torch.enable_grad():
            others["GAE"] = auto_encoder(made.data, pairs)
    row["auc"] = float(roc_auc_score(y, scores))
    return row | {"others": {n: float(roc_auc_score(y, s)) for n, s in others.items()}}


def calibration_error(p: np.ndarray, y: np.ndarray, bins: int = 15) -> float:
    place = np.minimum((p * bins).astype(int), bins - 1)
    parts = [place == i for i in range(bins) if (place == i).any()]
    return float(sum(abs(p[b].mean() - y[b].mean()) * b.mean() for b in parts))


def rows_of(data: Data, auditor: Auditor, *, seed: int, gae: int) -> list[dict]:
    rows = []
    for condition, (kind, false, hidden) in CONDITIONS.items():
        generator = torch.Generator().manual_seed(10_000 + seed)
        made = damaged(data, generator, kinds=[kind], false_share=false, hidden_share=hidden)
        with_gae = data.num_nodes <= gae and condition in ("random +50", "hidden 20")
        facts = {"target": data.name, "condition": condition, "seed": seed}
        rows.append(facts | row_of(made, auditor, seed=seed, gae=with_gae))
    return rows


def attacked_row(folder: Path, auditor: Auditor, rate: str, *, labels: bool) -> dict:
    """Edges that an attacker added to Cora, among all; with the usual training labels or none."""
    clean, data = (load_graph(folder / f"cora-metattack-{r}.npz") for r in ("00", rate))
    made = [damaged(d, torch.Generator(), kinds=[], false_share=0.0).data for d in (clean, data)]
    keys = [d.edge_index[0] * d.num_nodes + d.edge_index[1] for d in made]
    attacked = Damaged(made[1], torch.isin(keys[1], keys[0]), made[1].edge_index[:, :0])
    if labels:
        attacked.data.train_mask = data.train_mask
    facts = {"target": "cora", "condition": f"metattack {rate}{', labels' * labels}", "seed": 0}
    return facts | row_of(attacked, auditor, seed=0, gae=not labels)


# ---------------------------------------------------------------- labels


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
    began = time.perf_counter()
    frame = audit(noisy, missing=False, device="cpu").labels
    seconds = time.perf_counter() - began
    flipped = np.isin(frame["id"], wrong.numpy())
    held = out_of_fold(noisy, nodes[order], classes)
    quality = get_label_quality_scores(noisy.y[nodes].numpy(), held[nodes].numpy())
    auc = roc_auc_score(np.isin(nodes, wrong), -quality)
    return {
        "target": data.name, "condition": f"{len(nodes)} labels, {share:.0%} flipped", "seed": seed,
        "auc": float(roc_auc_score(flipped, -frame["quality"])), "seconds": round(seconds, 2),
        "others": {"cleanlab on a GCN": float(auc)},
    }  # fmt: skip


def out_of_fold(data: Data, nodes: Tensor, classes: int, folds: int = 5) -> Tensor:
    """Class probabilities of labelled nodes by GCNs that were trained without them: [N, C]."""
    torch.manual_seed(0)
    index, value = gcn_norm(data.edge_index, num_nodes=data.num_nodes)
    adj = torch.sparse_coo_tensor(index, value, (data.num_nodes, data.num_nodes)).coalesce()
    x = nn.functional.normalize(data.x, p=1, dim=1)
    held = torch.zeros(data.num_nodes, classes)
    drop = nn.functional.dropout
    for k in range(folds):
        out = torch.arange(len(nodes)) % folds == k
        weights = [nn.Parameter(nn.init.xavier_uniform_(torch.empty(*shape)))
                   for shape in ((x.shape[1], 64), (64, classes))]  # fmt: skip
        optimizer = torch.optim.Adam(weights, lr=0.01, weight_decay=5e-4)

        def logits(training: bool, weights: list[nn.Parameter] = weights) -> Tensor:
            h = (adj @ (drop(x, 0.5, training) @ weights[0])).relu()
            return adj @ (drop(h, 0.5, training) @ weights[1])

        for _ in range(200):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(logits(True)[nodes[~out]], data.y[nodes[~out]])
            loss.backward()
            optimizer.step()
        held[nodes[out]] = logits(False)[nodes[out]].detach().softmax(1)
    return held


# ---------------------------------------------------------------- folds, tables


def weight_of(lessons: list[Lesson]) -> dict[str, float]:
    """Families weigh as the root of their lessons; random graphs twice that."""
    kind = {n: n if n == RANDOM else family(n) for n in {lesson.source for lesson in lessons}}
    counts = Counter(kind[lesson.source] for lesson in lessons)
    return {n: counts[k] ** -0.5 * (2 if k == RANDOM else 1) for n, k in kind.items()}


def fitted(lessons: list[Lesson], config: AuditPretrainConfig) -> Auditor:
    weights = weight_of(lessons)
    return fit_auditor(lessons, config, weight=lambda source: weights[source])


def table(rows: list[dict]) -> str:
    """Means over graphs, by condition, of everybody; then what is estimated."""
    cells = defaultdict(list)
    for row in rows:
        for name, value in {"auditor": row.get("auc"), **row.get("others", {})}.items():
            if value is not None:
                cells[row["condition"], name].append(value)
    conditions = [c for c in dict.fromkeys(r["condition"] for r in rows) if (c, "auditor") in cells]
    names = list(dict.fromkeys(n for _, n in cells))
    lines = ["| AUC | " + " | ".join(conditions) + " |", "|---" * (len(conditions) + 1) + "|"]
    for name in names:
        means = [np.mean(v) if (v := cells.get((c, name))) else float("nan") for c in conditions]
        lines.append(f"| {name} | " + " | ".join(f"{m:.3f}" for m in means) + " |")

    def mean(key: str, conditions: tuple[str, ...]) -> float:
        found = [r[key] for r in rows if r["condition"] in conditions and key in r]
        return float(np.mean(found)) if found else float("nan")

    for row in rows:
        if "low" in row:
            row["error"] = abs(row["estimate"] - row["false_share"])
            row["inside"] = float(row["low"] <= row["false_share"] <= row["high"])
    for condition in SHARES:
        lines.append(
            f"{condition}: share off by {100 * mean('error', (condition,)):.1f} points, in the "
            f"interval {mean('inside', (condition,)):.0%}, calibration error "
            f"{mean('ece', (condition,)):.3f}, precision of the worst 1 % "
            f"{mean('precision_1', (condition,)):.3f}"
        )
    lines.append(f"all shares: off by {100 * mean('error', SHARES):.1f} points; calibration "
                 f"error {mean('ece', SHARES):.3f}")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=Path, default=Path("data/open"))
    parser.add_argument("--out", type=Path, default=Path("results/audit.jsonl"))
    parser.add_argument("--table", action="store_true", help="only print that of the rows in --out")
    parser.add_argument("--lessons", type=Path, help="keep the lessons in this file, or take them")
    parser.add_argument("--final", type=Path, help="also pre-train on all graphs, into this file")
    parser.add_argument("--exam", type=Path, help="folder of named graphs: Cora and CiteSeer")
    parser.add_argument("--labels", type=Path, help="folder of named graphs: labels of Cora")
    parser.add_argument("--attacked", type=Path, help="folder of attacked graphs")
    parser.add_argument("--auditor", default="audit", help="of the exam")
    parser.add_argument("--targets", nargs="+", help="of --graphs")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--gae", type=int, default=0, help="train GAEs on up to so many nodes")
    parser.add_argument("--config", type=json.loads, default={}, help="of the pre-training")
    parser.add_argument("--commit", default=os.environ.get("COMMIT", ""))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.table:
        rows = [json.loads(line) for line in args.out.read_text().splitlines()]
        print(table([row for row in rows if row["auditor"] != "exam"]))
        for target in ("cora", "citeseer"):
            own = [r for r in rows if (r["auditor"], r["target"]) == ("exam", target)]
            print(f"\n{target}\n{table(own)}")
        return
    commit = (
        args.commit
        or subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
    )
    machine = {"commit": commit, "machine": platform.machine(), "torch": str(torch.__version__)}
    rows = []

    def keep(some: list[dict], auditor: str) -> None:
        with args.out.open("a") as out:
            for row in some:
                rows.append(row)
                out.write(json.dumps({**row, "auditor": auditor, **machine}) + "\n")
        print(some[0]["target"], [round(r["auc"], 3) for r in some if "auc" in r], flush=True)

    if args.exam or args.attacked or args.labels:
        auditor = load_auditor(args.auditor)
        for name in ("cora", "citeseer") if args.exam else ():
            data = load_graph(name, data_root=args.exam)
            for seed in range(args.seeds):
                keep(rows_of(data, auditor, seed=seed, gae=args.gae), "exam")
        if args.labels:
            data = load_graph("cora", data_root=args.labels)
            keep([label_row(data, 0.1, seed) for seed in range(args.seeds)], "exam")
        if args.attacked:
            for labels in (False, True):
                rates = ("05", "15", "25")
                some = [attacked_row(args.attacked, auditor, r, labels=labels) for r in rates]
                keep(some, "exam")
        return
    config = AuditPretrainConfig(**args.config)
    sources = [load_graph(path) for path in sorted(args.graphs.glob("*.npz"))]
    if args.lessons and args.lessons.exists():
        from torch.serialization import add_safe_globals

        add_safe_globals([Lesson])
        lessons = torch.load(args.lessons, weights_only=True)
    else:
        sizes = Counter(family(s.name) for s in sources)
        weights = [sizes[family(s.name)] ** -0.5 for s in sources]
        lessons = draw_lessons(sources, config, weights=weights)
        if args.lessons:
            torch.save(lessons, args.lessons)
    if args.final:
        auditor = fitted(lessons, config)
        auditor.provenance["command"] = "benchmarks/audit_open.py"
        auditor.save(args.final)
    once = [s for s in sources if not s.name.endswith(("-dorm", "-gender"))]  # one graph, 3 tasks
    targets = [s for s in once if args.targets is None or s.name in args.targets]
    for fold in sorted({FOLDS[family(t.name)] for t in targets}):
        kept = [n for n in lessons if n.source == RANDOM or FOLDS[family(n.source)] != fold]
        auditor = fitted(kept, config)
        for data in targets:
            if FOLDS[family(data.name)] == fold:
                for seed in range(args.seeds):
                    keep(rows_of(data, auditor, seed=seed, gae=args.gae), f"fold {fold}")
    print(table(rows))


if __name__ == "__main__":
    main()
