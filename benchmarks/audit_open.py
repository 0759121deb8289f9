r"""How well the auditor carries over: leave-one-family-out over a folder of open graphs.

Lessons are drawn once, in rounds: one of each graph (a college's three tasks take turns), some of
random graphs. For each fold of families an auditor is trained on the lessons of others, the final
one on all. On each graph of a fold edges are put in or hidden, and its auditor is asked which.
Beside it stand single heuristics, the graph's own regressions, the untrained network, and PyG's
graph auto-encoder, which is trained on the very graph. One JSON line per graph and condition.

    python benchmarks/audit_open.py --graphs data/open --workers 16 \
        --final src/graphglow/pretrained/audit.safetensors
    python benchmarks/audit_open.py --exam data --attacked data/open/attacked
    python benchmarks/audit_open.py --labels data
    python benchmarks/audit_open.py --order breast_cancer cora data/open/acm.npz
    python benchmarks/audit_open.py --table --docs docs/audit.md

The first does all that is not there yet: lessons and folds in --work, rows in --out.
"""

import argparse
import json
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

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
from graphglow.audit import audit, load_auditor
from graphglow.auditing import Auditor
from graphglow.auditing.auditor import COMPARED, shift_to
from graphglow.auditing.episodes import Damaged, damaged
from graphglow.auditing.pair_inputs import ground_of
from graphglow.auditing.pretraining import (
    RANDOM,
    Lesson,
    fit_auditor,
    hard_pairs,
    lesson_of,
)
from graphglow.auditing.reference_tables import (
    EVIDENCE,
    evidence_of,
    pairs_without_edge,
    standing_of,
)
from graphglow.evidence import order as content
from graphglow.evidence.episodes import neighbourhood
from graphglow.graph.graph import known_graph
from graphglow.lab.open_world.targets import FOLDS
from graphglow.lab.open_world.targets import family_of as family
from graphglow.lab.provenance import provenance
from graphglow.refine import refine
from graphglow.settings import AuditPretrainConfig
from graphglow.storage import append_line

CONDITIONS: dict[str, tuple[str, float, float, float]] = {
    "random 0": ("random", 0.0, 0.0, 0.0),
    "random 10": ("random", 0.1, 0.0, 0.0),
    "random 30": ("random", 0.3, 0.0, 0.0),
    "random 50": ("random", 0.5, 0.0, 0.0),
    "random +50": ("random", 1 / 3, 0.0, 0.0),
    "degree +50": ("degree", 1 / 3, 0.0, 0.0),
    "across +50": ("across", 1 / 3, 0.0, 0.0),
    "attack +25": ("attack", 0.2, 0.0, 0.0),
    "hidden 20": ("random", 0.0, 0.2, 0.0),
    "random +50, labels": ("random", 1 / 3, 0.0, 0.2),
    "across +50, labels": ("across", 1 / 3, 0.0, 0.2),
    "attack +25, labels": ("attack", 0.2, 0.0, 0.2),
    "hidden 20, labels": ("random", 0.0, 0.2, 0.2),
}
"""Kind and share of false edges among all, share of real ones hidden, share of nodes with labels.
+50: half as many false edges as there are real ones."""
SHARES = ("random 0", "random 10", "random 30", "random 50")
PART = 3000
"""Nodes of a graph that is attacked; of larger ones a part."""
MOST = 20_000
"""Edges of a graph that are judged, drawn at random; the graph they are judged in is whole."""
GAE_EPOCHS = 200
RATES = ("05", "15", "25")
RANDOM_A_ROUND = 14
HEURISTICS = ("common neighbours", "jaccard", "adamic-adar", "resource allocation",
              "preferential attachment", "feature cosine", "adjacency svd cosine")  # fmt: skip
MOST_ORDERED = content.MOST
MARKS = ("<!-- tables of results/audit.jsonl -->", "<!-- end of tables -->")


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
    ground = ground_of(known_graph(made.data), generator)
    pairs = torch.cat([hidden, hard_pairs(made, ground, hidden.shape[1], generator)], 1)
    return pairs, torch.arange(pairs.shape[1]) < hidden.shape[1]


@torch.no_grad()
def row_of(made: Damaged, auditor: Auditor, *, seed: int, gae: bool) -> dict:
    pairs, truth = judged(made, seed)
    y, hidden = truth.numpy(), made.hidden.shape[1] > 0
    began = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    ground = ground_of(known_graph(made.data), generator)
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
        share, slope = auditor.false_share(scores, *others, context)
        p = (slope * scores + shift_to(slope * scores, share.estimate)).sigmoid().numpy()
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
    others = heuristics(made.data, pairs) | {"untrained": control.detach().numpy()}
    for kind in ("uniform", "degree", "own"):
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


def condition_row(data: Data, condition: str, auditor: Auditor, *, seed: int, gae: int) -> dict:
    kind, false, hidden, labels = CONDITIONS[condition]
    generator = torch.Generator().manual_seed(10_000 + seed)
    if kind == "attack":
        part = neighbourhood(data, generator, PART)
        data = Data(x=part.x, edge_index=part.edge_index, y=part.y, name=data.name)
        data.num_nodes = len(data.y)
    made = damaged(data, generator, kinds=[kind], false_share=false, hidden_share=hidden)
    if labels:
        made.data.train_mask = torch.rand(len(data.y), generator=generator) < labels
    with_gae = data.num_nodes <= gae and condition in ("random +50", "hidden 20")
    facts = {"target": data.name, "condition": condition, "seed": seed}
    return facts | row_of(made, auditor, seed=seed, gae=with_gae)


def attacked_row(folder: Path, auditor: Auditor, rate: str, *, labels: bool) -> dict:
    """Edges that an attacker added to Cora, among all; with the usual training labels or none."""
    clean, data = (load_graph(folder / f"cora-metattack-{r}.npz") for r in ("00", rate))
    made = [damaged(d, torch.Generator(), kinds=[], false_share=0.0).data for d in (clean, data)]
    keys = [d.edge_index[0] * d.num_nodes + d.edge_index[1] for d in made]
    attacked = Damaged(made[1], torch.isin(keys[1], keys[0]), made[1].edge_index[:, :0], [])
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


def order_row(data: Data, target: str, by: str, draws: int = 3) -> dict:
    """How far answers move where nodes are listed otherwise (3 draws), and by another seed (3)."""
    nodes, found = int(data.num_nodes), {}
    content.MOST = {"content": MOST_ORDERED, "number": 0}[by]
    same = torch.arange(nodes)
    cases = [("given", same, 0), *(("seed", same, seed) for seed in range(1, draws + 1))]
    for draw in range(1, draws + 1):
        order = torch.randperm(nodes, generator=torch.Generator().manual_seed(draw))
        cases.append(("order", order, 0))
    first: tuple = ()
    for kind, order, seed in cases:
        other = content.reordered(data, order)
        other.val_mask, other.test_mask = (data[m][order] for m in ("val_mask", "test_mask"))
        began = time.perf_counter()
        audited = audit(other, seed=seed, device="cpu")
        seconds = time.perf_counter() - began
        edges = order[audited.edges]
        chance = audited.probability_real[(edges.amin(0) * nodes + edges.amax(0)).argsort()]
        began = time.perf_counter()
        edges = order[refine(other, seed=seed, device="cpu").edge_index]
        refining = time.perf_counter() - began
        pairs = torch.unique(edges.amin(0) * nodes + edges.amax(0))
        if not first:
            first = chance, pairs
            found = {"edges": len(chance), "seconds": seconds, "refine_seconds": refining}
            continue
        moved = (chance - first[0]).abs()
        gone = 1 - float(torch.isin(pairs, first[1]).sum()) / max(len(pairs), len(first[1]))
        for name, value in (("largest", float(moved.max())), ("mean", float(moved.mean())),
                            ("refined", gone)):  # fmt: skip
            found[f"{kind}_{name}"] = max(found.get(f"{kind}_{name}", 0.0), value)
    found = {k: round(v, 4) for k, v in found.items()}
    return {"target": target, "condition": f"drawn by {by}", "seed": 0, **found}


def order_table(rows: list[dict]) -> str:
    columns = [f"{kind}_{name}" for kind in ("order", "seed") for name in
               ("largest", "mean", "refined")]  # fmt: skip
    names = [f"{what}, another {kind}" for kind in ("order", "seed") for what in
             ("largest change", "mean change", "refine's edges")]  # fmt: skip
    lines = [[r["target"], r["condition"], *(f"{r[c]:.3f}" for c in columns),
              f"{r['seconds']:.2f}", f"{r['refine_seconds']:.2f}"] for r in rows]  # fmt: skip
    return "\n".join(_markdown("graph", ["", *names, "audit, s", "refine, s"], lines))


# ---------------------------------------------------------------- lessons, auditors, rows: workers


def one_thread() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


@cache
def graph(path: Path) -> Data:
    return load_graph(path)


def make_lesson(path: Path | None, number: int, config: AuditPretrainConfig, out: Path) -> None:
    lesson = lesson_of(None if path is None else graph(path), number, config)
    if lesson is not None:
        lesson.save(out)


def weight_of(lessons: list[Lesson]) -> dict[str, float]:
    """Families weigh as the root of their lessons; random graphs twice that."""
    kind = {n: n if n == RANDOM else family(n) for n in {lesson.source for lesson in lessons}}
    counts = Counter(kind[lesson.source] for lesson in lessons)
    return {n: counts[k] ** -0.5 * (2 if k == RANDOM else 1) for n, k in kind.items()}


def make_auditor(files: list[Path], config: AuditPretrainConfig, out: Path) -> str:
    lessons = [Lesson.load(file) for file in files]
    weights = weight_of(lessons)
    auditor = fit_auditor(lessons, config, weight=lambda source: weights[source])
    auditor.provenance["command"] = "benchmarks/audit_open.py"
    auditor.save(out)
    return f"{out.name}: {len(lessons)} lessons"


def make_row(
    path: Path | str, condition: str, file: Path | str, facts: dict, out: Path, gae: int
) -> str:
    """Of a graph, named or in a file, or of attacked Cora: the conditions metattack."""
    auditor, seed = load_auditor(file), facts["seed"]
    if condition.startswith("metattack"):
        rate = condition.split()[1][:2]
        row = attacked_row(Path(path), auditor, rate, labels=condition.endswith("labels"))
    else:
        row = condition_row(graph(path), condition, auditor, seed=seed, gae=gae)
    append_line(out, json.dumps({**row, **facts}))
    return f"{row['target']} {condition} {row.get('auc', float('nan')):.3f}"


def done_in_time(
    pool: ProcessPoolExecutor, work: Callable[..., Any], tasks: list[tuple], until: float
) -> Iterator[Any]:
    """What tasks give back, as they are done; at the time ``until``, no more are begun."""
    futures = [pool.submit(work, *task) for task in tasks]
    for future in as_completed(futures):
        if time.time() > until:
            for other in futures:
                other.cancel()
        if not future.cancelled():
            yield future.result()


# ---------------------------------------------------------------- tables


def table(rows: list[dict]) -> str:
    """Means over graphs, by condition, of everybody; then what is estimated."""
    import pandas as pd

    frame = pd.DataFrame([
        {"condition": r["condition"], "name": name, "auc": value}
        for r in rows if "auc" in r
        for name, value in {"**auditor**": r["auc"], **r["others"]}.items()
    ])  # fmt: skip
    lines = []
    if len(frame):
        means = frame.pivot_table("auc", "name", "condition", sort=False)
        counts = frame.pivot_table("auc", "name", "condition", aggfunc="count", sort=False)
        fewer = counts.lt(counts.loc["**auditor**"]) & means.notna()
        text = means.map("{:.3f}".format) + counts.map(" ({:.0f})".format).where(fewer, "")
        text = text.where(means.notna(), "-")
        lines += _markdown("AUC", list(text), [[n, *text.loc[n]] for n in text.index])
    found = pd.DataFrame([r for r in rows if r["condition"] in SHARES and "low" in r])
    if len(found):
        found["off"] = 100 * (found["estimate"] - found["false_share"]).abs()
        inside = found["false_share"].between(found["low"], found["high"])
        found["inside"] = 100 * inside
        columns = ["off", "inside", "ece", "precision_1"]
        part = found.groupby("condition", sort=False)[columns].mean()
        part.loc["all four"] = found[columns].mean()
        names = ["share off by, points", "in the interval, %", "calibration error",
                 "precision of the worst 1 %"]  # fmt: skip
        lines += ["", *_markdown("false edges", names, [
            [name, f"{r.off:.1f}", f"{r.inside:.0f}", f"{r.ece:.3f}",
             "-" if name in ("random 0", "all four") else f"{r.precision_1:.3f}"]
            for name, r in part.iterrows()])]  # fmt: skip
    return "\n".join(lines)


def each_graph(rows: list[dict]) -> str:
    """The auditor and the best of the single heuristics, by graph and condition."""
    conditions = ("random +50", "degree +50", "across +50", "attack +25", "hidden 20")
    cells = {(r["target"], r["condition"]): r for r in rows if "auc" in r}
    lines = []
    for target in dict.fromkeys(t for t, _ in sorted(cells)):
        line = [target]
        for c in conditions:
            row = cells.get((target, c))
            best = 0.0 if row is None else max(row["others"][h] for h in HEURISTICS)
            line.append("-" if row is None else f"{row['auc']:.3f} / {best:.3f}")
        lines.append(line)
    return "\n".join(
        _markdown("auditor / best heuristic", list(conditions), lines) if lines else []
    )


def _markdown(corner: str, columns: list[str], lines: list[list[str]]) -> list[str]:
    head = [[corner, *columns], ["---"] * (len(columns) + 1)]
    return [f"| {' | '.join(line)} |" for line in head + lines]


def all_tables(rows: list[dict]) -> str:
    """Of the rows in results/audit.jsonl, as docs/audit.md has them; of several the latest."""
    rows = list({(r["target"], r["condition"], r["seed"], r["auditor"]): r for r in rows}.values())
    open_rows = [r for r in rows if r["auditor"] != "exam"]
    plain = [r for r in open_rows if not r["condition"].endswith("labels")]
    labels = [r for r in open_rows if r["condition"].endswith("labels")]
    parts = [("Held-out families, without labels", table(plain)),
             ("Held-out families, a fifth of the labels given", table(labels)),
             ("Each graph", each_graph(plain))]  # fmt: skip
    for target, start in (("cora", ""), ("citeseer", ""), ("cora", "metattack")):
        own = [r for r in rows if (r["auditor"], r["target"]) == ("exam", target)]
        own = [r for r in own if r["condition"].startswith("metattack") == bool(start)]
        own = [r for r in own if "flipped" not in r["condition"]]
        parts.append((f"The exam: {target}{' under ' * bool(start)}{start}", table(own)))
    flipped = [r for r in rows if "flipped" in r["condition"]]
    parts.append(("The exam: flipped labels of cora", table(flipped)))
    moved = [r for r in rows if r["condition"].startswith("drawn by")]
    if moved:
        parts.append(("Another order of nodes, another seed", order_table(moved)))
    return "\n\n".join(f"### {title}\n{text}" for title, text in parts if text)


def lesson_tasks(graphs: list[Path], args: argparse.Namespace) -> list[tuple]:
    """Round by round, so that those of any number of rounds are balanced; what is there is not
    made again.
    """
    tasks = []
    for number in range(args.rounds):
        turn = ("-year", "-dorm", "-gender")[number % 3]
        here = [g for g in graphs if family(g.stem) != "colleges" or g.stem.endswith(turn)]
        tasks += [(g, number) for g in here]
        tasks += [(None, RANDOM_A_ROUND * number + i) for i in range(RANDOM_A_ROUND)]
    named = [(g, n, args.config, args.work / f"{g.stem if g else RANDOM}+{n}.lesson")
             for g, n in tasks]  # fmt: skip
    return [task for task in named if not task[3].exists()]


def fold_of_lesson(file: Path) -> int:
    name = file.name.split("+")[0]
    return -1 if name == RANDOM else FOLDS[family(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=Path, default=Path("data/open"))
    parser.add_argument("--work", type=Path, default=Path("runs/audit"), help="lessons and folds")
    parser.add_argument("--out", type=Path, default=Path("results/audit.jsonl"))
    parser.add_argument("--table", action="store_true", help="only print that of the rows in --out")
    parser.add_argument("--docs", type=Path, help="with --table: put it between the page's marks")
    parser.add_argument("--final", type=Path, help="also train on all lessons, into this file")
    parser.add_argument("--exam", type=Path, help="folder of named graphs: Cora and CiteSeer")
    parser.add_argument("--attacked", type=Path, help="folder of attacked graphs")
    parser.add_argument("--labels", type=Path, help="folder of named graphs: labels of Cora")
    parser.add_argument("--order", nargs="+", help="graphs: how far order and seed move answers")
    parser.add_argument("--auditor", default="audit", help="of the exam")
    parser.add_argument("--targets", nargs="+", help="of --graphs")
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS))
    parser.add_argument("--rounds", type=int, default=60, help="lessons of each graph")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--gae", type=int, default=0, help="train GAEs on up to so many nodes")
    parser.add_argument("--seconds", type=float, default=1e9, help="half of them for lessons")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--config", type=lambda text: AuditPretrainConfig(**json.loads(text)),
                        default=AuditPretrainConfig(), help="of the training, as JSON")  # fmt: skip
    args = parser.parse_args()
    began = time.time()
    rows = []
    if args.out.exists():
        rows = [json.loads(line) for line in args.out.read_text().splitlines()]
    if args.table:
        print(all_tables(rows))
        if args.docs:
            before, _, rest = args.docs.read_text().partition(MARKS[0])
            after = rest.partition(MARKS[1])[2]
            text = f"{before}{MARKS[0]}\n{all_tables(rows)}\n{MARKS[1]}{after}"
            args.docs.write_text(text)
        return
    origin = provenance()
    machine = {"commit": origin["commit"], "machine": origin["machine"]["cpu"]}
    machine |= {"torch": origin["versions"]["torch"]}
    there = {(r["target"], r["condition"], r["seed"], r["auditor"]) for r in rows}

    def row_task(path: Any, target: str, condition: str, seed: int, file: Any, name: str) -> list:
        facts = {"seed": seed, "auditor": name, **machine}
        known = (target, condition, seed, name) in there
        return [] if known else [(path, condition, file, facts, args.out, args.gae)]

    tasks: list[tuple] = []
    alone = []
    if args.labels:
        data = load_graph("cora", data_root=args.labels)
        alone += [label_row(data, 0.1, seed) for seed in range(args.seeds)]
    for name in args.order or ():
        data = load_graph(name)
        alone += [order_row(data, Path(name).stem, by) for by in ("number", "content")]
    for row in alone:
        append_line(args.out, json.dumps(row | {"auditor": "exam", **machine}))
        print(row)
    if alone:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.workers, context, one_thread) as pool:
        if args.exam or args.attacked:
            for name in ("cora", "citeseer") if args.exam else ():
                for seed in range(args.seeds):
                    for c in CONDITIONS:
                        tasks += row_task(name, name, c, seed, args.auditor, "exam")
            for c in [f"metattack {r}{x}" for x in ("", ", labels") for r in RATES] * bool(
                args.attacked
            ):
                tasks += row_task(args.attacked, "cora", c, 0, args.auditor, "exam")
        else:
            graphs = sorted(args.graphs.glob("*.npz"))
            args.work.mkdir(parents=True, exist_ok=True)
            wanted = lesson_tasks(graphs, args)
            print(f"{len(wanted)} lessons to draw", flush=True)
            list(done_in_time(pool, make_lesson, wanted, began + args.seconds / 2))
            files = sorted(args.work.glob("*.lesson"))
            print(f"{time.time() - began:.0f} s: {len(files)} lessons", flush=True)
            once = [g for g in graphs if not g.stem.endswith(("-dorm", "-gender"))]
            targets = [g for g in once if args.targets is None or g.stem in args.targets]
            folds = sorted({FOLDS[family(g.stem)] for g in targets})
            fits = [(files, args.config, args.final)] if args.final else []
            for k in folds:
                kept = [f for f in files if fold_of_lesson(f) != k]
                fits.append((kept, args.config, args.work / f"fold-{k}.safetensors"))
            fits = [fit for fit in fits if fit[2] == args.final or not fit[2].exists()]
            for said in done_in_time(pool, make_auditor, fits, float("inf")):
                print(f"{time.time() - began:.0f} s: {said}", flush=True)
            for c in args.conditions:
                for g in targets:
                    fold = FOLDS[family(g.stem)]
                    file = args.work / f"fold-{fold}.safetensors"
                    for seed in range(args.seeds):
                        tasks += row_task(g, g.stem, c, seed, file, f"fold {fold}")
        for said in done_in_time(pool, make_row, tasks, began + args.seconds):
            print(f"{time.time() - began:.0f} s: {said}", flush=True)
    if args.out.exists() and not (args.exam or args.attacked):
        made = [json.loads(line) for line in args.out.read_text().splitlines()]
        print(all_tables(made))


if __name__ == "__main__":
    main()
