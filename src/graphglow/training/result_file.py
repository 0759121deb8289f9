"""A transfer on disk: one safetensors file with the weights, the graph, and how it went."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.gnn import backbone_class
from graphglow.graphs import check_graph, graph_of
from graphglow.storage import load_tensors, save_tensors
from graphglow.structure import ObjectiveConfig, StructureLearner
from graphglow.training.config import TransferConfig
from graphglow.training.loop import Epoch

if TYPE_CHECKING:  # which imports this
    from graphglow.training.result import TransferResult

GRAPH_TENSORS = ("x", "y", "edge_index", "edge_weight", "train_mask", "val_mask", "test_mask")
GRAPH_LISTS = ("node_id", "class_names")
GRAPH_FACTS = ("knn_graph", "feature_columns")
"""What else of a graph is kept, so that new nodes are treated as those of training were."""


def save_result(result: "TransferResult", path: str | Path) -> None:
    """Write everything as one safetensors file, atomically."""
    data = result.data
    tensors = {f"gnn.{name}": t for name, t in result.gnn.state_dict().items()}
    tensors |= {f"learner.{name}": t for name, t in result.learner.state_dict().items()}
    tensors["pivots"] = result.pivots
    for name in GRAPH_TENSORS:
        if data.get(name) is not None:
            tensors[f"graph.{name}"] = data[name]
    meta: dict[str, Any] = {
        "config": asdict(result.config),
        "learner": {
            "config": asdict(result.learner.config),
            "provenance": result.learner.provenance,
        },
        "history": [list(epoch) for epoch in result.history],
        "train_seconds": result.train_seconds,
        "seconds": result.seconds,
        "peak_memory_bytes": result.peak_memory_bytes,
        "name": result.graph.name,
        "lists": {n: _plain(data[n]) for n in GRAPH_LISTS if n in data},
    }
    facts = {n: data[n] for n in GRAPH_FACTS if n in data}
    if facts:
        meta["facts"] = facts
    save_tensors(path, "result", tensors, meta)


def read_result(path: str | Path) -> dict[str, Any]:
    """The fields of a ``TransferResult`` that was saved; anything else is refused."""
    tensors, meta = load_tensors(path, "result")
    try:
        return _fields(tensors, meta, str(path))
    except InputError:
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        RuntimeError,
        AttributeError,
        ArithmeticError,
    ) as error:
        text = " ".join(str(error).split())
        raise InputError(f"{path} must be a whole graphglow result; {text}") from error


def _fields(tensors: dict[str, Tensor], meta: dict[str, Any], origin: str) -> dict[str, Any]:
    def group(prefix: str) -> dict[str, Tensor]:
        return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

    if "learner" not in meta:
        raise InputError(
            f"{origin} must hold a structure learner; got a plain GNN, which an older "
            "graphglow saved (graphglow fit trains one now)"
        )
    learner = StructureLearner.from_tensors(group("learner."), meta["learner"], origin)
    settings = dict(meta["config"])
    settings["objective"] = ObjectiveConfig(**settings["objective"])
    config = TransferConfig(**(settings | {"device": "cpu"}))
    known = meta.get("facts", {})
    facts = {name: known[name] for name in GRAPH_FACTS if name in known}
    data = Data(**group("graph."), **meta["lists"], **facts, name=str(meta["name"]))
    data = check_graph(data)
    graph = graph_of(data)
    gnn = backbone_class(config.backbone)(
        graph.num_features,
        graph.num_classes,
        config.backbone_shape(learner.config.embedding_size, graph.num_nodes),
        torch.Generator(),
    )
    gnn.load_state_dict(group("gnn."))
    if not all(bool(t.isfinite().all()) for t in gnn.state_dict().values()):
        raise InputError(f"{origin} must hold finite weights; got NaN or infinity")
    pivots = tensors["pivots"].to(torch.int64)
    if pivots.ndim != 1 or not 0 <= int(pivots.min()) <= int(pivots.max()) < graph.num_nodes:
        raise InputError(f"{origin} must hold pivots that are nodes of its graph")
    return {
        "data": data,
        "graph": graph,
        "config": config,
        "learner": learner.requires_grad_(False).eval(),
        "gnn": gnn.requires_grad_(False).eval(),
        "pivots": pivots,
        "history": [Epoch(*row) for row in meta["history"]],
        "train_seconds": float(meta["train_seconds"]),
        "seconds": float(meta["seconds"]),
        "peak_memory_bytes": int(meta["peak_memory_bytes"]),
    }


def _plain(values: Any) -> list[Any]:
    """Node ids and class names as JSON can hold them: numbers and text, no arrays."""
    return [value.item() if hasattr(value, "item") else value for value in values]
