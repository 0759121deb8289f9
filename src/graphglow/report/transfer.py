"""The page of saved transfers: accuracies, which classes the learned edges join, the training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphglow.gnn.train import Epoch
from graphglow.graph.graph import undirected_edges
from graphglow.graph.write import class_names, own_ids
from graphglow.report.page import write_page
from graphglow.result import TransferResult

TOP_K = 16
"""Strongest incoming edges of each node that make up the learned graph."""
LARGEST_REFINED = 20_000
"""Nodes; the learned graph of the paper's learner takes O(N^2 P), too long for a page beyond."""
LISTED = 25
WIDTH, HEIGHT = 640, 160


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
    """What the page shows of a transfer."""
    data, y = result.data, result.data.y
    names = class_names(data, max(result.graph.num_classes, int(y.max()) + 1))
    edges = {"input graph": _pairs(data.edge_index, data.get("edge_weight"), len(y))}
    if len(y) <= LARGEST_REFINED:
        learned = result.refined_graph(TOP_K, self_loops=False)
        edges["learned graph"] = _pairs(learned.edge_index, learned.edge_weight, len(y))
    by_class = [
        {"class": name, **{graph: _within(y, found, c) for graph, found in edges.items()}}
        for c, name in enumerate(names)
    ]
    facts = result.summary()
    metrics = result.metrics() or {}
    for name in ("balanced_accuracy", "f1_macro", "auroc", "calibration_error"):
        facts[name] = metrics.get(name)
    graphs = [
        {"graph": name, "pairs": len(found[0]), "of one class": _within(y, found)}
        for name, found in edges.items()
    ]
    return {
        "verdict": facts.pop("verdict"),
        "facts": facts,
        "graphs": graphs,
        "by_class": by_class if len(edges) > 1 else [],
        "new": _new_pairs(result, edges, names),
        "classes": metrics.get("classes", []),
        "confusion": metrics.get("confusion", []),
        "history": training_lines(result.history, result.best_epoch),
    }


def _pairs(edge_index: Tensor, weight: Tensor | None, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Each pair of different nodes once: low, high, weight."""
    given = torch.ones(edge_index.shape[1]) if weight is None else weight
    low, high, strength = undirected_edges(edge_index, given, nodes)
    assert strength is not None
    return low.long(), high.long(), strength


def _within(y: Tensor, pairs: tuple[Tensor, ...], label: int | None = None) -> float | None:
    """The share of labelled pairs, or of those with an end in a class, that are of one class."""
    one, other = y[pairs[0]], y[pairs[1]]
    counted = (one >= 0) & (other >= 0)
    if label is not None:
        counted = counted & ((one == label) | (other == label))
    return float((one == other)[counted].double().mean()) if bool(counted.any()) else None


def _new_pairs(
    result: TransferResult, edges: dict[str, tuple[Tensor, Tensor, Tensor]], names: list[str]
) -> list[dict[str, Any]]:
    """The strongest learned pairs that the input does not join, as rows of a table."""
    if "learned graph" not in edges:
        return []
    nodes, y = result.graph.num_nodes, result.data.y
    given, learned = (low * nodes + high for low, high, _ in edges.values())
    low, high, weight = edges["learned graph"]
    new = (~torch.isin(learned, given)).nonzero()[:, 0]
    new = new[weight[new].argsort(descending=True, stable=True)][:LISTED]
    ids = own_ids(result.data, nodes)
    known = [names[c] if c >= 0 else None for c in y.tolist()]
    return [
        {
            "node": ids[u],
            "class": known[u],
            "other node": ids[v],
            "its class": known[v],
            "weight": float(weight[k]),
        }
        for k, u, v in zip(new.tolist(), low[new].tolist(), high[new].tolist(), strict=True)
    ]


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
