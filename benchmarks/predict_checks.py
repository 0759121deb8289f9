r"""How good ``predict`` is where the open-world suite does not look; each check appends rows.

    python benchmarks/predict_checks.py communities fraud exam
    python benchmarks/predict_checks.py graphany seeds loo --learners runs/learners --device cuda
    python benchmarks/predict_checks.py speed [--nodes 1000000 --device cuda]

=========== ========================================================================
communities graphs without features, 30 of 500 nodes labelled: planted partition, LFR with mixing .3
fraud       5 % positive, 20 % labelled, 20 % false links: AUC and average precision
graphany    GraphAny's protocol on open graphs: 20 C training labels, stratified, and no others
exam        the paper's seven graphs and attacked Cora, training labels only
seeds       the share of predicted classes and of refined edges that another seed changes
loo         leave-one-out accuracy against test accuracy, calibration, coverage of 90 % sets
speed       seconds on Cora beside a GCN's, or on a random graph of so many nodes
=========== ========================================================================

Rows go to ``results/predict_checks.jsonl``. An open graph gets the learner that has seen none of
its family, from the folder ``--learners`` (``benchmarks/predictor.py --train FOLDER`` makes it);
``--learners universal`` takes the package's for all, which has seen them.
"""

import argparse
import json
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.competitors import METHODS, fit
from graphglow.device import peak_memory_bytes, reset_peak_memory, resolve_device
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.graph import load_graph
from graphglow.graph.load import data_folder
from graphglow.graph.synthetic import add_edges
from graphglow.lab.open_world.methods import (
    HIDDEN,
    accuracy_on,
    predict_pool,
    refine_pool,
    run_method,
    settings_of,
    untrained_like,
)
from graphglow.lab.open_world.targets import Target, attacked_files, draw, find_targets
from graphglow.lab.row_files import provenance
from graphglow.pretrained import UNIVERSAL, evidence_learner
from graphglow.refine import choose_edges
from graphglow.storage import append_line
from measuring import random_graph

Row = dict[str, Any]
PUBLISHED: dict[str, tuple[float, float] | None] = {
    "amazon-computers": (0.819, 0.865), "coauthor-physics": (0.939, 0.940), "dblp": (0.762, 0.821),
    "squirrel-filtered": None, "minesweeper": None,
}  # fmt: skip
"""GraphAny's protocol: frozen Node4All and the best method that is tuned on each graph, as
published; None where nothing is."""
SEED_TARGETS = (
    "airports-brazil", "webkb-washington", "acm", "uai2010", "squirrel-filtered",
    "facebook-caltech36-year",
)  # fmt: skip
LOO_CONDITIONS = ("as it is", "20 labels per class", "5 labels per class", "false edges 1x")
COVERAGE = 0.9
LABELLED, NODES = 30, 500
LABEL_SPREAD, STEPS = 0.9, 50


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    device: str
    root: Path
    seeds: int | None
    targets: Sequence[str]
    learners: str | None
    nodes: int | None

    def draws(self, usual: int) -> range:
        return range(self.seeds or usual)

    def open_targets(self, usual: Iterable[str] | None = None) -> Iterator[Target]:
        """Open graphs by name, as far as they are there."""
        names = self.targets or usual
        for target in find_targets(self.root):
            if target.fold is not None and (names is None or target.name in names):
                yield target

    def learner(self, target: Target | None = None) -> EvidenceLearner:
        """The package's, or of an open graph the one that has not seen its family."""
        if target is None or target.fold is None or self.learners == UNIVERSAL:
            return evidence_learner()
        if self.learners is None:
            raise InputError(
                "--learners FOLDER must name the learners of held-out families, which "
                "python benchmarks/predictor.py --train FOLDER makes; got none"
            )
        return evidence_learner(Path(self.learners) / f"fold{target.fold}.safetensors")


# communities


def communities(asked: Asked) -> Iterator[Row]:
    """Accuracy on nodes without a label."""
    for kind, make in {"planted partition": planted_partition, "LFR, mixing .3": lfr}.items():
        for seed in asked.draws(3):
            data = make(seed)
            lines = predictions(data, asked.learner(), seed, asked.device)
            lines |= {
                "spectral + logistic regression": spectral(data),
                "Louvain + vote": louvain(data, seed),
                "label propagation": label_propagation(data).argmax(1),
            }
            for method, classes in lines.items():
                right = (classes == data.y)[data.test_mask].double().mean()
                yield {"target": kind, "seed": seed, "method": method, "accuracy": float(right)}


def planted_partition(seed: int) -> Data:
    """Ten groups of fifty; a node has about ten neighbours in its own and seven in others."""
    import networkx as nx

    graph = nx.planted_partition_graph(10, NODES // 10, 0.2, 0.015, seed=seed)
    return with_labels(graph, torch.arange(NODES) // (NODES // 10), seed)


def lfr(seed: int) -> Data:
    """Communities and degrees by power laws (Lancichinetti, Fortunato and Radicchi, 2008)."""
    import networkx as nx

    for attempt in range(100):
        try:
            graph = nx.LFR_benchmark_graph(
                NODES, 2.5, 1.5, 0.3, average_degree=10, min_community=20, max_iters=200,
                seed=1000 * seed + attempt,
            )  # fmt: skip
            break
        except nx.ExceededMaxIterations:
            continue
    groups = {frozenset(graph.nodes[node]["community"]) for node in graph}
    y = torch.zeros(NODES, dtype=torch.int64)
    for number, group in enumerate(sorted(groups, key=min)):
        y[list(group)] = number
    return with_labels(graph, y, seed)


def with_labels(graph: Any, y: Tensor, seed: int) -> Data:
    """The graph without features; labels of some nodes are known, the rest is for tests."""
    ends = torch.tensor([(u, v) for u, v in graph.edges if u != v]).T
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(seed))
    known = torch.zeros(NODES, dtype=torch.bool)
    known[order[:LABELLED]] = True
    return Data(
        edge_index=torch.cat([ends, ends.flip(0)], 1), y=y, num_nodes=NODES,
        train_mask=known, val_mask=torch.zeros_like(known), test_mask=~known,
    )  # fmt: skip


def predictions(data: Data, learner: EvidenceLearner, seed: int, device: str) -> dict[str, Tensor]:
    """Classes [N] by ``predict`` and its untrained control, from training labels."""
    given = {"known": data.train_mask, "seed": seed, "device": device}
    frozen = {"predict": learner, "untrained": untrained_like(learner, seed)}
    return {name: predict_pool(data, one, **given).argmax(1) for name, one in frozen.items()}


def adjacency(data: Data) -> Any:
    import scipy.sparse as sp

    row, col = data.edge_index.numpy()
    return sp.csr_matrix((np.ones(len(row)), (row, col)), shape=(data.num_nodes,) * 2)


def spectral(data: Data) -> Tensor:
    """Logistic regression on as many eigenvectors as there are classes."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.manifold import spectral_embedding
    from sklearn.preprocessing import StandardScaler

    many = int(data.y.max()) + 1
    rows = spectral_embedding(adjacency(data), n_components=many, random_state=0, drop_first=False)
    rows, known = StandardScaler().fit_transform(rows), data.train_mask.numpy()
    model = LogisticRegression(max_iter=2000).fit(rows[known], data.y.numpy()[known])
    return torch.from_numpy(model.predict(rows))


def louvain(data: Data, seed: int) -> Tensor:
    """The most frequent label of a node's community; of the graph, where it has none."""
    import networkx as nx

    found = nx.community.louvain_communities(nx.from_scipy_sparse_array(adjacency(data)), seed=seed)
    labels, known = data.y, data.train_mask
    classes = torch.full_like(labels, int(torch.bincount(labels[known]).argmax()))
    for group in found:
        nodes = torch.tensor(sorted(group))
        there = labels[nodes][known[nodes]]
        if len(there):
            classes[nodes] = torch.bincount(there).argmax()
    return classes


def label_propagation(data: Data, known: Tensor | None = None) -> Tensor:
    """``F <- a D^-1 A F + (1 - a) Y``, over the class shares (Zhou et al., 2004): [N, C]."""
    known = data.train_mask if known is None else known
    weights = adjacency(data)
    scale = 1 / np.maximum(np.asarray(weights.sum(1)), 1)
    start = torch.nn.functional.one_hot(data.y)[known].double()
    given = np.zeros((data.num_nodes, start.shape[1]))
    given[known.numpy()] = (start / start.sum(0).clamp_min(1)).numpy()
    found = given
    for _ in range(STEPS):
        found = LABEL_SPREAD * scale * (weights @ found) + (1 - LABEL_SPREAD) * given
    return torch.from_numpy(found)


# fraud


def fraud(asked: Asked) -> Iterator[Row]:
    """Area under the curve and average precision, on nodes without a label."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    methods = ("predict", "untrained", "transfer", "gcn", "bag-gcn", "bag-gpr")
    for seed in asked.draws(4):
        data = fraud_graph(seed)
        scores = {
            method: run_method(method, data, seed=seed, device=asked.device).scores
            for method in methods
        }
        pool = data.train_mask | data.val_mask
        scores["label propagation"] = label_propagation(data, pool)
        truth = data.y[data.test_mask].numpy()
        for method, p in scores.items():
            odds = (p[:, 1] - p[:, 0] if method != "label propagation" else ratio(p)).double()
            odds = odds[data.test_mask].numpy()
            yield {
                "target": "fraud", "seed": seed, "method": method, "nodes": data.num_nodes,
                "auc": float(roc_auc_score(truth, odds)),
                "average_precision": float(average_precision_score(truth, odds)),
            }  # fmt: skip


def ratio(p: Tensor) -> Tensor:
    return p[:, 1] / (p.sum(1) + 1e-12)


def fraud_graph(seed: int) -> Data:
    """3,000 to 5,000 people, 5 % of them frauds who deal with each other and look a bit alike.

    One of five links means nothing. A fifth of the people is labelled, half of it for validation.
    """
    generator = torch.Generator().manual_seed(seed)
    nodes = int(torch.randint(3000, 5001, (), generator=generator))
    y = (torch.rand(nodes, generator=generator) < 0.05).long()
    rare, x = (y == 1).nonzero()[:, 0], torch.randn(nodes, 20, generator=generator)
    x[rare, :8] += 0.7

    def pairs(among: Tensor, count: int) -> Tensor:
        return among[torch.randint(len(among), (2, count), generator=generator)]

    some = (y == 0).nonzero()[:, 0]
    across = torch.stack([rare.repeat(2), pairs(some, 2 * len(rare))[0]])
    ends = torch.cat([pairs(some, 4 * len(some)), pairs(rare, 7 * len(rare) // 4), across], 1)
    ends = ends[:, ends[0] != ends[1]]
    order, fifth = torch.randperm(nodes, generator=generator), nodes // 5
    masks = torch.zeros(3, nodes, dtype=torch.bool)
    for mask, part in zip(masks, torch.tensor_split(order, [fifth // 2, fifth]), strict=True):
        mask[part] = True
    data = Data(
        x=x, y=y, edge_index=torch.cat([ends, ends.flip(0)], 1).unique(dim=1), num_nodes=nodes,
        train_mask=masks[0], val_mask=masks[1], test_mask=masks[2],
    )  # fmt: skip
    return add_edges(data, 0.25, seed=seed)


# graphany, exam


def graphany(asked: Asked) -> Iterator[Row]:
    """Accuracy beside the published figures of frozen and of tuned models."""
    for target in asked.open_targets(PUBLISHED):
        learner, data = asked.learner(target), load_graph(target.file)
        frozen, tuned = PUBLISHED.get(target.name) or (None, None)
        for seed in asked.draws(3):
            one = graphany_split(data, seed)
            began = time.perf_counter()
            found = predict_pool(one, learner, known=one.train_mask, seed=seed, device=asked.device)
            seconds = time.perf_counter() - began
            yield {
                "target": target.name, "seed": seed, "method": "predict", "seconds": seconds,
                "accuracy": accuracy_on(found, one, one.test_mask),
                "node4all": frozen, "best_tuned": tuned,
            }  # fmt: skip


def graphany_split(data: Data, seed: int) -> Data:
    """20 C training nodes by class shares; half of the rest validates, and is not read."""
    from sklearn.model_selection import train_test_split

    labelled, out = (data.y >= 0).nonzero()[:, 0].numpy(), data.clone()
    y, classes = data.y.numpy(), int(data.y.max()) + 1
    train, rest = train_test_split(
        labelled, train_size=20 * classes, random_state=seed, stratify=y[labelled]
    )
    val, test = train_test_split(rest, train_size=0.5, random_state=seed)
    for name, part in {"train_mask": train, "val_mask": val, "test_mask": test}.items():
        out[name] = torch.zeros(len(y), dtype=torch.bool)
        out[name][part] = True
    return out


def exam(asked: Asked) -> Iterator[Row]:
    """The paper's graphs by the public or the authors' split; none of them was a source."""
    every = {target.name: target for target in find_targets(asked.root)}
    exams = {name: one for name, one in every.items() if one.family == "paper"}
    for condition, file in attacked_files(asked.root).items():
        exams[f"cora, {condition}"] = every["cora"]._replace(file=file)
    for name, target in exams.items():
        if asked.targets and name not in asked.targets:
            continue
        for seed in asked.draws(1):
            data = target.load(asked.root, seed)
            lines = predictions(data, asked.learner(), seed, asked.device)
            for method, classes in lines.items():
                right = (classes == data.y)[data.test_mask].double().mean()
                yield {
                    "target": name, "seed": seed, "method": method, "accuracy": float(right),
                    "split": str(data.split), "labels": int(data.train_mask.sum()),
                }  # fmt: skip


# seeds, loo


def seeds(asked: Asked) -> Iterator[Row]:
    """Of what seed 0 gives, the share that each other seed changes."""
    for target in asked.open_targets(SEED_TARGETS):
        data, learner = target.load(asked.root, 0), asked.learner(target)
        first: tuple[Tensor, Tensor] | None = None
        for seed in range(1 + (asked.seeds or 2)):
            made = refine_pool(data, learner, seed=seed, device=asked.device)
            assert made.probabilities is not None
            kept = choose_edges(made)
            ends = kept.pairs[:, kept.edges]
            found = made.probabilities.argmax(1), ends[0] * made.num_nodes + ends[1]
            if first is None:
                first = found
                continue
            yield {
                "target": target.name, "seed": seed, "method": "predict",
                "classes_changed": float((found[0] != first[0]).double().mean()),
                "edges_changed": float((~torch.isin(first[1], found[1])).double().mean()),
            }  # fmt: skip


def loo(asked: Asked) -> Iterator[Row]:
    """How true ``predict`` is about itself, all labels at work."""
    for target in asked.open_targets():
        if target.tier == "large" and not asked.targets:
            continue
        for seed in asked.draws(1):
            for condition in LOO_CONDITIONS:
                data = draw(target, condition, seed, asked.root)
                if data is None:
                    continue
                given = {"seed": seed, "device": asked.device, "learner": asked.learner(target)}
                entry = run_method("predict", data, **given)
                test = accuracy_on(entry.scores, data, data.test_mask)
                enough = entry.metrics["labels"] >= 20 * entry.metrics["classes"]
                off = abs(test - entry.estimate)
                yield {
                    "target": condition, "graph": target.name, "seed": seed, "method": "predict",
                    "accuracy": test, "loo_accuracy": entry.estimate, **entry.metrics,
                    "loo_off": off if enough else None,
                    **coverage_of(entry.scores, data), "bins": reliability(entry.scores, data),
                }  # fmt: skip


def coverage_of(p: Tensor, data: Data) -> Row:
    """How often a test node's class is in its conformal set, and how many classes that has.

    A set has the classes that are at least as probable as all but a tenth of the labelled nodes'
    own, these by leave-one-out.
    """
    known = data.train_mask | data.val_mask
    own = p[known, data.y[known]].sort().values
    place = int((1 - COVERAGE) * (len(own) + 1)) - 1
    sets = p >= own[place] if place >= 0 else torch.ones_like(p, dtype=torch.bool)
    test = data.test_mask
    covered = sets[test, data.y[test]].double().mean()
    return {"coverage": float(covered), "set_size": float(sets[test].double().sum(1).mean())}


def reliability(p: Tensor, data: Data, bins: int = 10) -> list[list[float]]:
    """Of test nodes by tenths of the highest probability: count, its mean, share right."""
    sure, classes = p[data.test_mask].double().max(1)
    right = (classes == data.y[data.test_mask]).double()
    place = (sure * bins).long().clamp_max(bins - 1)
    count = torch.bincount(place, minlength=bins).double()
    sums = [torch.bincount(place, value, minlength=bins) for value in (sure, right)]
    means = [(total / count.clamp_min(1)).tolist() for total in sums]
    return [count.tolist(), *means]


# speed


def speed(asked: Asked) -> Iterator[Row]:
    """Median seconds of three runs after one that warms up."""
    learner = asked.learner()
    if asked.nodes:
        graph = random_graph(asked.nodes)
        refine = lambda: learner.refine(graph, device=resolve_device(asked.device))  # noqa: E731
        yield {"target": f"random, {asked.nodes:,} nodes", "seed": 0, "method": "predict"} | timed(
            refine, asked.device, 1
        )
        return
    data = load_graph("cora")
    given = settings_of("gcn") | {"hidden": HIDDEN, "device": asked.device}
    config = METHODS["gcn"].config(**given)
    steps: dict[str, Callable[[], object]] = {
        "gcn": lambda: fit("gcn", data, config),
        "predict": lambda: predict_pool(data, learner, device=asked.device),
    }
    found = {name: timed(step, asked.device, 3) for name, step in steps.items()}
    for name, spent in found.items():
        times = spent["seconds"] / found["gcn"]["seconds"]
        yield {"target": "cora", "seed": 0, "method": name, **spent, "times_a_gcn": times}


def timed(step: Callable[[], object], device: str, runs: int) -> Row:
    place, spent = resolve_device(device), []
    for _ in range(1 + runs):
        reset_peak_memory(place)
        began = time.perf_counter()
        step()
        if place.type == "cuda":
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - began)
    return {"seconds": statistics.median(spent[1:]), "peak_memory_bytes": peak_memory_bytes(place)}


CHECKS = {
    "communities": communities, "fraud": fraud, "graphany": graphany, "exam": exam, "seeds": seeds,
    "loo": loo, "speed": speed,
}  # fmt: skip
NOT_SHOWN = ("seed", "nodes", "labels", "test_nodes", "classes", "majority", "peak_memory_bytes")


def table(rows: Sequence[Row]) -> str:
    """Means over draws, a line for each target and method."""
    names = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if name not in NOT_SHOWN and any(isinstance(row.get(name), float) for row in rows)
    ]
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["target"], row["method"]].append(row)
    lines = [["", "", *names]]
    for (target, method), some in groups.items():
        values = [[row[name] for row in some if row.get(name) is not None] for name in names]
        means = [f"{statistics.mean(v):.3f}" if v else "" for v in values]
        lines.append([target, method, *means])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([cell.ljust(w) for cell, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checks", nargs="+", choices=list(CHECKS))
    parser.add_argument("--learners", metavar="FOLDER", help="learners of held-out families")
    parser.add_argument("--targets", nargs="+", default=(), help="instead of the usual ones")
    parser.add_argument("--seeds", type=int, help="draws, instead of the usual number")
    parser.add_argument("--nodes", type=int, help="of a random graph, with speed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/predict_checks.jsonl"))
    args = parser.parse_args(words)
    warnings.simplefilter("ignore")
    asked = Asked(
        args.device, data_folder(args.data_root), args.seeds, args.targets, args.learners,
        args.nodes,
    )  # fmt: skip
    origin = provenance()
    for check in args.checks:
        rows = []
        for row in CHECKS[check](asked):
            rows.append(row)
            facts = {"check": check, **row, "learners": args.learners or UNIVERSAL}
            append_line(args.out, json.dumps(facts | {"device": args.device, "provenance": origin}))
        print(f"{check}\n{table(rows) if rows else 'nothing to run'}\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
