"""NetworkX graphs, and GraphML files through NetworkX."""

from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.labels import encode_labels
from graphglow.graphs.node_features import RowName, encode_features
from graphglow.graphs.table_folder import add_masks

LABELS = ("y", "class", "label")
"""Where a graph has several, the first: programs for drawing put the node's name in ``label``."""
NOT_FEATURES = {*LABELS, "split", "x", "id", "node_id", "name"}


def read_graphml(path: Path, need_labels: bool = True) -> Data:
    """Read a graph, not yet checked, from a GraphML file."""
    import networkx as nx

    try:
        graph = nx.read_graphml(path)
    except Exception as error:  # XML, key and type errors of a damaged file
        raise InputError(
            f"{path} must be a GraphML file; it is damaged or foreign ({type(error).__name__})"
        ) from error
    return from_networkx(graph, name=str(path), need_labels=need_labels)


def from_networkx(graph: Any, *, name: str, need_labels: bool = True) -> Data:
    """Turn a NetworkX graph into a ``Data``, not yet checked.

    Node attributes: ``y``, ``class`` or ``label`` (missing: unlabelled), optionally ``split``, and
    ``x`` (a list of numbers, or its JSON text) or any numeric attributes, which are standardised.
    Edge attribute: ``weight`` (missing: 1). Undirected edges come in both directions.
    """
    nodes = list(graph.nodes)
    if not nodes:
        raise InputError(f"a graph must have at least one node; got none in {name}")
    attributes = [graph.nodes[node] for node in nodes]
    keys = set().union(*attributes)
    label = next((key for key in LABELS if key in keys), None)
    if label is None and need_labels:
        raise InputError(
            f"nodes of {name} must have an attribute {', '.join(LABELS)}; got {_listed(keys)}"
        )

    def node_name(position: int) -> str:
        return f"node {nodes[position]!r}"

    labels = [None if label is None else a.get(label) for a in attributes]
    y, class_names = encode_labels(labels, f"{label} of {name}", row_name=node_name)
    x = _vectors(attributes, name) if "x" in keys else _numbers(attributes, keys, name, node_name)
    data = Data(x=x, y=y)
    data.node_id = nodes if all(type(node) is int for node in nodes) else [str(n) for n in nodes]
    if class_names:
        data.class_names = class_names
    if "split" in keys:
        split = [str(a.get("split") or "").strip() for a in attributes]
        add_masks(data, split, name, node_name)
    _add_edges(data, graph, nodes, name)
    return data


def _add_edges(data: Data, graph: Any, nodes: list[Any], name: str) -> None:
    position = {node: i for i, node in enumerate(nodes)}
    edges = list(graph.edges(data="weight"))
    ends = [(position[u], position[v]) for u, v, _ in edges]
    edge_index = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    both = not graph.is_directed()
    data.edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1) if both else edge_index
    if any(weight is not None for _, _, weight in edges):
        try:
            weight = torch.tensor([1.0 if w is None else float(w) for _, _, w in edges])
        except (TypeError, ValueError) as error:
            raise InputError(f"edge weights of {name} must be numbers; got {error}") from error
        data.edge_weight = weight.repeat(2) if both else weight


def _vectors(attributes: list[dict[str, Any]], name: str) -> Tensor:
    rows = [_vector(a.get("x"), f"x of node {i} of {name}") for i, a in enumerate(attributes)]
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise InputError(
            f"x of {name} must have one length for all nodes; got {min(lengths)} and {max(lengths)}"
        )
    return torch.from_numpy(np.stack(rows))


def _vector(value: Any, what: str) -> np.ndarray:
    import json

    try:
        array = np.asarray(json.loads(value) if isinstance(value, str) else value)
        if value is not None and array.ndim <= 1:
            return np.atleast_1d(array).astype(np.float32)
    except (TypeError, ValueError):
        pass
    raise InputError(f"{what} must be a list of numbers; got {str(value)[:40]!r}")


def _numbers(
    attributes: list[dict[str, Any]], keys: set[Any], name: str, node_name: RowName
) -> Tensor:
    import pandas as pd

    columns = {
        str(key): [float("nan") if a.get(key) is None else float(a[key]) for a in attributes]
        for key in sorted(keys - NOT_FEATURES, key=str)
        if all(isinstance(a[key], Real) for a in attributes if a.get(key) is not None)
    }
    if not columns:
        raise InputError(
            f"nodes of {name} must have features: an attribute x (a list) or numeric attributes; "
            f"got {_listed(keys)}"
        )
    return encode_features(pd.DataFrame(columns), name, row_name=node_name)


def _listed(keys: set[Any]) -> str:
    return ", ".join(sorted(map(str, keys))) or "no attributes"
