r"""Check ``predict`` where the open-world suite does not look; each check appends rows.

    python benchmarks/predict_checks.py communities fraud exam
    python benchmarks/predict_checks.py seeds loo --learners runs/learners --device cuda

=========== ========================================================================
communities graphs without features, 30 of 500 nodes labelled: planted partition, LFR with mixing .3
fraud       5 % positive, 20 % labelled, 20 % false links: AUC and average precision
graphany    GraphAny's protocol on open graphs: 20 C training labels, stratified, and no others
exam        the paper's seven graphs and attacked Cora, training labels only
seeds       the share of predicted classes and of refined edges that another seed changes
loo         leave-one-out accuracy against test accuracy, calibration, coverage of 90 % sets
edges       a plain GCN over the input, and over each choice of edges that ``refine`` offers
=========== ========================================================================

Rows go to ``results/predict_checks.jsonl``. Open graphs are predicted by the learner that has not
seen their family, from the folder ``--learners`` (``benchmarks/predictor.py --train FOLDER`` makes
it), or with ``--learners universal`` by the package's, which has seen them.
"""

import argparse
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import spectral_embedding
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

import graphglow
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.graph.check import with_random_split
from graphglow.graph.datasets import add_edges
from graphglow.graph.load import data_folder, load_graph
from graphglow.lab.open_methods import (
    predict_pool,
    refine_pool,
    run_method,
)
from graphglow.lab.open_suite import Target, attacked_files, draw, find_targets
from graphglow.lab.row_files import provenance
from graphglow.pretrained import UNIVERSAL, evidence_learner, untrained_like
from graphglow.refine import choose_edges
from graphglow.storage import append_line

Row = dict[str, Any]
PUBLISHED: dict[str, tuple[float, ...]] = {
    "amazon-computers": (0.819, 0.865), "coauthor-physics": (0.939, 0.940), "dblp": (0.762, 0.821),
    "squirrel-filtered": (), "minesweeper": (),
}  # fmt: skip
"""GraphAny's protocol: frozen Node4All and the best method tuned on each graph, as published."""
SEED_TARGETS = (
    "airports-brazil", "webkb-washington", "acm", "uai2010", "squirrel-filtered",
    "facebook-caltech36-year",
)  # fmt: skip
LOO_CONDITIONS = ("as it is", "20 labels per class", "5 labels per class", "false edges 1x")
EDGE_TARGETS = ("acm", "airports-europe", "facebook-caltech36-year", "squirrel-filtered",
                "webkb-washington", "german-credit")  # fmt: skip
CHOICES = ("auto", "augment", "replace")
COVERAGE = 0.9
LABELLED, NODES = 30, 500
DAMPING, STEPS = 0.9, 50


def open_targets(args: argparse.Namespace, usual: Iterable[str] | None = None) -> list[Target]:
    """Return the open graphs named by ``--targets``, by default the usual ones."""
    names = args.targets or usual
    targets = [target for target in find_targets(args.data_root) if target.fold is not None]
    return [target for target in targets if names is None or target.name in names]


def learner_for(target: Target, learners: str | None) -> EvidenceLearner:
    """Return the learner that has not seen the family of an open graph."""
    if learners == UNIVERSAL:
        return evidence_learner()
    if learners is None:
        raise InputError(
            "Open graphs need learners that have not seen them. Make them by python "
            "benchmarks/predictor.py --train FOLDER, and name them by --learners FOLDER."
        )
    return evidence_learner(Path(learners) / f"fold{target.fold}.safetensors")


def predictions(data: Data, seed: int, device: str) -> dict[str, Tensor]:
    """Predict classes [N] from training labels, by the package's learner and the control."""
    given = {"known": data.train_mask, "seed": seed, "device": device}
    learner = evidence_learner()
    lines = {"predict": learner, "untrained": untrained_like(learner, seed)}
    return {name: predict_pool(data, one, **given).argmax(1) for name, one in lines.items()}


def test_accuracy(classes: Tensor, data: Data) -> float:
    return float((classes == data.y)[data.test_mask].double().mean())


def communities(args: argparse.Namespace) -> Iterator[Row]:
    for kind, make in {"planted partition": planted_partition, "LFR, mixing .3": lfr}.items():
        for seed in range(args.seeds or 3):
            data = make(seed)
            lines = predictions(data, seed, args.device) | {
                "spectral + logistic regression": spectral(data),
                "Louvain + vote": louvain(data, seed),
                "label propagation": label_propagation(data, data.train_mask).argmax(1),
            }
            for method, classes in lines.items():
                row = {"target": kind, "seed": seed, "method": method}
                yield row | {"accuracy": test_accuracy(classes, data)}


def planted_partition(seed: int) -> Data:
    """Ten groups of fifty; a node has about ten neighbours in its group and seven in others."""
    graph = nx.planted_partition_graph(10, NODES // 10, 0.2, 0.015, seed=seed)
    return with_labels(graph, torch.arange(NODES) // (NODES // 10), seed)


def lfr(seed: int) -> Data:
    """Communities and degrees by power laws (Lancichinetti, Fortunato and Radicchi, 2008)."""
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


def with_labels(graph: nx.Graph, y: Tensor, seed: int) -> Data:
    """Drop features, give 30 nodes a label, and test on the others."""
    ends = torch.tensor([(u, v) for u, v in graph.edges if u != v]).T
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(seed))
    known = torch.zeros(NODES, dtype=torch.bool)
    known[order[:LABELLED]] = True
    return Data(
        edge_index=torch.cat([ends, ends.flip(0)], 1), y=y, num_nodes=NODES,
        train_mask=known, val_mask=torch.zeros_like(known), test_mask=~known,
    )  # fmt: skip


def adjacency_of(data: Data) -> sp.csr_matrix:
    return to_scipy_sparse_matrix(data.edge_index, num_nodes=data.num_nodes).tocsr().astype(float)


def spectral(data: Data) -> Tensor:
    """Logistic regression on as many eigenvectors as there are classes."""
    adjacency = adjacency_of(data)
    classes = int(data.y.max()) + 1
    rows = spectral_embedding(adjacency, n_components=classes, random_state=0, drop_first=False)
    rows, known = StandardScaler().fit_transform(rows), data.train_mask.numpy()
    model = LogisticRegression(max_iter=2000).fit(rows[known], data.y.numpy()[known])
    return torch.from_numpy(model.predict(rows))


def louvain(data: Data, seed: int) -> Tensor:
    """The most frequent label of a node's community, or of the graph if that has none."""
    graph = nx.from_scipy_sparse_array(adjacency_of(data))
    labels, known = data.y, data.train_mask
    classes = torch.full_like(labels, int(torch.bincount(labels[known]).argmax()))
    for group in nx.community.louvain_communities(graph, seed=seed):
        nodes = torch.tensor(sorted(group))
        given = labels[nodes][known[nodes]]
        if len(given):
            classes[nodes] = torch.bincount(given).argmax()
    return classes


def label_propagation(data: Data, known: Tensor) -> Tensor:
    """``F <- a D^-1 A F + (1 - a) Y``, over the class shares (Zhou et al., 2004): [N, C]."""
    adjacency = adjacency_of(data)
    scale = 1 / np.maximum(np.asarray(adjacency.sum(1)), 1)
    one_hot = torch.nn.functional.one_hot(data.y)[known].double()
    given = np.zeros((data.num_nodes, one_hot.shape[1]))
    given[known.numpy()] = (one_hot / one_hot.sum(0).clamp_min(1)).numpy()
    spread = given
    for _ in range(STEPS):
        spread = DAMPING * scale * (adjacency @ spread) + (1 - DAMPING) * given
    return torch.from_numpy(spread)


def fraud(args: argparse.Namespace) -> Iterator[Row]:
    methods = ("predict", "untrained", "transfer", "gcn", "bag-gcn", "bag-gpr")
    for seed in range(args.seeds or 4):
        data = fraud_graph(seed)
        odds = {}
        for method in methods:
            scores = run_method(method, data, seed=seed, device=args.device).scores
            odds[method] = scores[:, 1] - scores[:, 0]
        spread = label_propagation(data, data.train_mask | data.val_mask)
        odds["label propagation"] = spread[:, 1] / (spread.sum(1) + 1e-12)
        truth = data.y[data.test_mask].numpy()
        for method, values in odds.items():
            tested = values.double()[data.test_mask].numpy()
            yield {
                "target": "fraud", "seed": seed, "method": method, "nodes": data.num_nodes,
                "auc": float(roc_auc_score(truth, tested)),
                "average_precision": float(average_precision_score(truth, tested)),
            }  # fmt: skip


def fraud_graph(seed: int) -> Data:
    """3,000 to 5,000 people, 5 % of them frauds who deal with each other and look a bit alike.

    A fifth of the links are random. A fifth of the people are labelled, half of them to validate.
    """
    generator = torch.Generator().manual_seed(seed)
    nodes = int(torch.randint(3000, 5001, (), generator=generator))
    y = (torch.rand(nodes, generator=generator) < 0.05).long()
    rare, x = (y == 1).nonzero()[:, 0], torch.randn(nodes, 20, generator=generator)
    x[rare, :8] += 0.7

    def pairs(among: Tensor, count: int) -> Tensor:
        return among[torch.randint(len(among), (2, count), generator=generator)]

    honest = (y == 0).nonzero()[:, 0]
    across = torch.stack([rare.repeat(2), pairs(honest, 2 * len(rare))[0]])
    ends = torch.cat([pairs(honest, 4 * len(honest)), pairs(rare, 7 * len(rare) // 4), across], 1)
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


def exam(args: argparse.Namespace) -> Iterator[Row]:
    """Use the public or the authors' split; no graph was a source."""
    targets = {target.name: target for target in find_targets(args.data_root)}
    exams = {name: one for name, one in targets.items() if one.family == "paper"}
    for condition, file in attacked_files(args.data_root).items():
        exams[f"cora, {condition}"] = targets["cora"]._replace(file=file)
    for name in args.targets or exams:
        for seed in range(args.seeds or 1):
            data = exams[name].load(args.data_root, seed)
            for method, classes in predictions(data, seed, args.device).items():
                yield {
                    "target": name, "seed": seed, "method": method,
                    "accuracy": test_accuracy(classes, data),
                    "split": str(data.split), "labels": int(data.train_mask.sum()),
                }  # fmt: skip


def graphany(args: argparse.Namespace) -> Iterator[Row]:
    """Stand beside published figures of a frozen model and of the best tuned on each graph."""
    for target in open_targets(args, PUBLISHED):
        learner, data = learner_for(target, args.learners), load_graph(target.file)
        for seed in range(args.seeds or 3):
            y, known = data.y.numpy(), (data.y >= 0).nonzero()[:, 0].numpy()
            train, rest = train_test_split(
                known, train_size=20 * (int(y.max()) + 1), random_state=seed, stratify=y[known]
            )
            test = train_test_split(rest, train_size=0.5, random_state=seed)[1]
            masks = torch.zeros(2, len(y), dtype=torch.bool)
            masks[0, train], masks[1, test] = True, True
            p = predict_pool(data, learner, known=masks[0], seed=seed, device=args.device)
            right = (p.argmax(1) == data.y)[masks[1]].double().mean()
            row = {"target": target.name, "seed": seed, "method": "predict"}
            yield row | {"accuracy": float(right)}
            for name, figure in zip(("Node4All, published", "best tuned, published"),
                                    PUBLISHED[target.name], strict=False):  # fmt: skip
                yield row | {"method": name, "accuracy": figure}


def seeds(args: argparse.Namespace) -> Iterator[Row]:
    """Compare each further seed with seed 0."""
    for target in open_targets(args, SEED_TARGETS):
        data, learner = target.load(args.data_root, 0), learner_for(target, args.learners)
        results = []
        for seed in range(1 + (args.seeds or 2)):
            refined = refine_pool(data, learner, seed=seed, device=args.device)
            assert refined.probabilities is not None
            kept, _ = choose_edges(refined)
            low, high = kept.pairs[:, kept.edges]
            results.append((refined.probabilities.argmax(1), low * refined.graph.num_nodes + high))
        for seed, (classes, edges) in enumerate(results[1:], 1):
            yield {
                "target": target.name, "seed": seed, "method": "predict",
                "classes_changed": float((classes != results[0][0]).double().mean()),
                "edges_changed": float((~torch.isin(results[0][1], edges)).double().mean()),
            }  # fmt: skip


def loo(args: argparse.Namespace) -> Iterator[Row]:
    """Compare what ``predict`` says of itself, with all labels, with the test nodes."""
    for target in open_targets(args):
        if target.size[0] > 5000 and not args.targets:
            continue
        for seed in range(args.seeds or 1):
            for condition in LOO_CONDITIONS:
                data = draw(target, condition, seed, args.data_root)
                if data is not None:
                    learner = learner_for(target, args.learners)
                    row = {"target": condition, "graph": target.name, "seed": seed}
                    yield row | self_estimates(data, learner, seed, args.device)


def self_estimates(data: Data, learner: EvidenceLearner, seed: int, device: str) -> Row:
    """Leave-one-out accuracy and conformal sets, and how far they are off on test nodes."""
    prediction = graphglow.predict(
        data, learner, labels="train+val", coverage=COVERAGE, seed=seed, device=device
    )
    test, expected, sets = prediction.score("test"), prediction.accuracy, prediction.sets
    nodes = data.test_mask & (data.y >= 0)
    assert sets is not None
    enough = int(prediction.labelled.sum()) >= 20 * sets.shape[1]
    return {
        "method": "predict", "accuracy": test.accuracy, "loo_accuracy": expected.value,
        "loo_off": abs(test.accuracy - expected.value) if enough else None,
        "log_loss": test.log_loss, "calibration_error": test.calibration_error,
        "coverage": float(sets[nodes, data.y[nodes]].double().mean()),
        "set_size": float(sets[nodes].double().sum(1).mean()),
    }  # fmt: skip


def edge_cases(args: argparse.Namespace) -> Iterator[tuple[str, Data]]:
    """Clean and wrong edges, rare classes, classes that mix by rule, and small open graphs."""
    drawn = {"num_nodes": 1000, "num_features": 16, "average_degree": 8.0, "feature_noise": 1.5}
    yield "Cora", (cora := graphglow.load_graph("cora"))
    yield "Cora, 1x false edges", add_edges(cora, 1.0, seed=0)
    for name, homophily in (("like", 0.9), ("any", 0.33), ("unlike", 0.05)):
        made = graphglow.synthetic_graph(homophily=homophily, num_classes=3, seed=1, **drawn)
        yield f"block model, edges join {name} classes", with_random_split(made, 0)
    yield "fraud", fraud_graph(0)
    for target in open_targets(args, EDGE_TARGETS):
        for condition in LOO_CONDITIONS[:2]:
            data = draw(target, condition, 0, args.data_root)
            if data is not None:
                yield f"{target.name}, {condition}", data


def edges(args: argparse.Namespace) -> Iterator[Row]:
    """Train a plain GCN on edges and weights as they come; of two classes average precision."""
    for name, data in edge_cases(args):
        refined = {c: graphglow.refine(data, edges=c, device=args.device) for c in CHOICES}
        for seed in range(args.seeds or 2):
            for choice, graph in {"input": data, **refined}.items():
                result = graphglow.fit("gcn", graph, epochs=150, seed=seed, device=args.device)
                found = result.metrics()
                assert found is not None
                better = found["average_precision"] or found["accuracy"]
                row = {"target": name, "seed": seed, "method": choice, "accuracy": better}
                yield row | {"chosen": getattr(graph, "choice", None)}


CHECKS = {
    "communities": communities, "fraud": fraud, "graphany": graphany, "exam": exam, "seeds": seeds,
    "loo": loo, "edges": edges,
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checks", nargs="+", choices=list(CHECKS))
    parser.add_argument("--learners", metavar="FOLDER", help="learners of held-out families")
    parser.add_argument("--targets", nargs="+", help="instead of the usual ones")
    parser.add_argument("--seeds", type=int, help="instead of the usual number")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root", type=data_folder, default=data_folder(None))
    parser.add_argument("--out", type=Path, default=Path("results/predict_checks.jsonl"))
    args = parser.parse_args(words)
    warnings.simplefilter("ignore")
    more = {"learners": args.learners or UNIVERSAL, "device": args.device}
    for check in args.checks:
        rows = []
        for row in CHECKS[check](args):
            rows.append(row)
            facts = {"check": check, **row, **more, "provenance": provenance()}
            append_line(args.out, json.dumps(facts))
        means = pd.DataFrame(rows).groupby(["target", "method"], sort=False)
        print(f"{check}\n{means.mean(numeric_only=True).round(3)}\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
