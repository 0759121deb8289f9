"""The pages of a demo and of saved transfers: accuracies, learned edges, the training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from graphglow.demo import DEMO_METHODS, OTHERS, DemoResult
from graphglow.gnn.train import Epoch
from graphglow.graph.graph import undirected_edges
from graphglow.graph.write import class_names, own_ids
from graphglow.report import write_page
from graphglow.result import TransferResult

TOP_K = 16
"""Strongest incoming edges of each node that make up the learned graph."""
LARGEST_REFINED = 20_000
"""Nodes; beyond, the learned graph of the paper's learner, in O(N^2 P), takes too long."""
LISTED = 25
WIDTH, HEIGHT = 640, 160
SHOWN = ("balanced_accuracy", "f1_macro", "auroc", "calibration_error")


def write_report(result: DemoResult, path: str | Path, *, title: str = "graphglow demo") -> None:
    """Write the page of a demo, whole or not at all; an existing file is replaced."""
    lines = {name: {one.method: one for one in of.lines} for name, of in result.comparisons.items()}
    labels = {method: one.name for of in lines.values() for method, one in of.items()}
    methods = [name for name in DEMO_METHODS if name in labels]
    write_page(
        path, "demo.html.j2", title=title, methods=methods, labels=labels, targets=lines,
        result=result, headline=headline(result),
    )  # fmt: skip


def headline(result: DemoResult) -> list[str]:
    """Say how predict, and the best method that has nothing of ours, do on each target."""
    sentences = []
    for target, found in result.comparisons.items():
        ours = [line for line in found.lines if line.method == "predict"]
        others = [line for line in found.lines if line.method in OTHERS]
        parts = [
            f"{line.name} {line.accuracy:.1%} ({line.against_highest})"
            for line in ours + others[:1]
        ]
        sentences.append(f"{target}: {', '.join(parts)}")
    return sentences


def write_transfers(
    transfers: Sequence[tuple[Path, TransferResult]],
    path: str | Path,
    *,
    title: str = "graphglow results",
) -> None:
    """Write one page of transfers and the files that they come from."""
    shown = [{"path": source, **_shown(result)} for source, result in transfers]
    size = {"width": WIDTH, "height": HEIGHT, "listed": LISTED, "top_k": TOP_K}
    write_page(path, "transfer.html.j2", title=title, transfers=shown, **size)


def _shown(result: TransferResult) -> dict[str, Any]:
    data, nodes = result.data, result.graph.num_nodes
    edges = {"input graph": undirected_edges(data.edge_index, data.get("edge_weight"), nodes)}
    if nodes <= LARGEST_REFINED:
        learned = result.refined_graph(TOP_K, self_loops=False)
        found = undirected_edges(learned.edge_index, learned.edge_weight, nodes)
        edges["learned graph"] = found
    metrics, facts = result.metrics() or {}, result.summary()
    facts |= {name: metrics.get(name) for name in SHOWN}
    graphs: list[dict[str, Any]] = []
    new: list[dict[Any, Any]] = []
    for name, (low, high, _) in edges.items():
        known = (data.y[low] >= 0) & (data.y[high] >= 0)
        same = (data.y[low] == data.y[high])[known].double().mean()
        graphs.append({"graph": name, "pairs": len(low), "of one class": float(same)})
    if len(edges) == 2:
        (given_low, given_high, _), (low, high, weight) = edges.values()
        assert weight is not None
        order = weight.argsort(descending=True, stable=True)
        keys, given = low.long() * nodes + high, given_low.long() * nodes + given_high
        best = order[~torch.isin(keys, given)[order]][:LISTED]
        names = class_names(data, int(data.y.max()) + 1)
        known = np.array([*names, None], dtype=object)[data.y]  # -1, the last, is unknown
        ids, u, v = np.array(own_ids(data, nodes), dtype=object), low[best], high[best]
        columns = {"node": ids[u], "class": known[u], "other node": ids[v], "its class": known[v]}
        new = pd.DataFrame(columns | {"weight": weight[best].tolist()}).to_dict("records")
    return {
        "verdict": facts.pop("verdict"),
        "learner": repr(result.learner),
        "facts": facts,
        "graphs": graphs,
        "new": new,
        "classes": metrics.get("classes", []),
        "confusion": metrics.get("confusion", []),
        "history": training_lines(result.history, result.best_epoch),
    }


def training_lines(history: Sequence[Epoch], best: Epoch) -> dict[str, Any]:
    """Losses over the largest loss, and validation accuracy, as points of SVG lines.

    ``best`` is the epoch that was kept; ``at`` is its place on the axis.
    """
    lines = {
        "training loss": [one.loss for one in history],
        "validation loss": [one.val_loss for one in history],
    }
    largest = max(max(values) for values in lines.values()) or 1.0
    scaled = {name: [v / largest for v in values] for name, values in lines.items()}
    scaled["validation accuracy"] = [one.val_accuracy for one in history]
    across = [WIDTH * k / max(1, len(history) - 1) for k in range(len(history))]
    points = {
        name: " ".join(f"{x:.1f},{HEIGHT * (1 - v):.1f}" for x, v in zip(across, of, strict=True))
        for name, of in scaled.items()
    }
    kept = {"best": best.epoch, "accuracy": best.val_accuracy, "at": across[best.epoch - 1]}
    return {"lines": points, "largest": largest, "epochs": len(history)} | kept
