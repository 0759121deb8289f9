"""NetworkX graphs, and GraphML files through NetworkX."""

import warnings
from contextlib import suppress
from datetime import date
from numbers import Real
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError, InputWarning
from graphglow.graphs.labels import encode_labels
from graphglow.graphs.node_features import RowName, encode_features
from graphglow.graphs.table_folder import add_masks

LABELS = ("y", "class", "label")
"""Where a graph has several, the first: programs for drawing put the node's name in ``label``."""
PARTS_OF_WEIGHT = ("input_weight", "latent_weight")
NUMBER = Real | np.bool_
NOT_FEATURES = {*LABELS, "split", "x", "id", "node_id", "name"}


def read_graphml(path: Path, need_labels: bool = True) -> Data:
    """Read a graph, not yet checked, from a GraphML file."""
    import networkx as nx

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NetworkX's of what it passes over
            _refuse_document_type(path)
            graph = nx.read_graphml(path)
    except InputError:
        raise
    except Exception as error:  # XML, key and type errors of a damaged file
        raise InputError(
            f"{path} must be a GraphML file; it is damaged or foreign ({type(error).__name__})"
        ) from error
    return from_networkx(graph, name=str(path), need_labels=need_labels)


class _PrologRead(Exception):
    """The first element has come: there is no document type."""


def _refuse_document_type(path: Path) -> None:
    """Raise if the file declares one: its entities can make gigabytes of a few lines."""
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise InputError(f"{path} must be GraphML without a document type; got <!DOCTYPE ...>")

    def stop(*_: object) -> None:
        raise _PrologRead

    parser.StartDoctypeDeclHandler, parser.StartElementHandler = refuse, stop
    with path.open("rb") as file, suppress(_PrologRead):
        parser.ParseFile(file)


def from_networkx(graph: Any, *, name: str, need_labels: bool = True) -> Data:
    """Turn a NetworkX graph into a ``Data``, not yet checked.

    Node attributes: ``y``, ``class`` or ``label`` (missing: unlabelled), optionally ``split``, and
    ``x`` (a list of numbers, or its JSON text) or any attributes that are numbers, dates or text:
    they are encoded as the columns of a table are, numbers standardised and text one-hot. Others
    are left out with an :class:`InputWarning`.

    Edge attributes: ``weight`` (missing: 1) and, where every edge has them, ``input_weight`` and
    ``latent_weight``, as :func:`~graphglow.graphs.write.to_networkx` writes them. Undirected edges
    come in both directions.
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
    x = _vectors(attributes, name) if "x" in keys else _columns(attributes, keys, name, node_name)
    data = Data(x=x, y=y)
    data.node_id = nodes if all(type(node) is int for node in nodes) else [str(n) for n in nodes]
    data.class_names = class_names
    if "split" in keys:
        split = [str(a.get("split") or "").strip() for a in attributes]
        add_masks(data, split, f"split of {name}", node_name)
    _add_edges(data, graph, nodes, name)
    return data


def _add_edges(data: Data, graph: Any, nodes: list[Any], name: str) -> None:
    position = {node: i for i, node in enumerate(nodes)}
    edges = list(graph.edges(data=True))
    ends = [(position[u], position[v]) for u, v, _ in edges]
    edge_index = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    both = not graph.is_directed()
    data.edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1) if both else edge_index
    for key in ("weight", *PARTS_OF_WEIGHT):
        given = [attributes.get(key) for _, _, attributes in edges]
        some = any(value is not None for value in given)
        if some and (key == "weight" or None not in given):
            values = _floats(given, f"edge {key}s of {name}")
            data[f"edge_{key}"] = values.repeat(2) if both else values


def _floats(values: list[Any], what: str) -> Tensor:
    """Missing is 1."""
    try:
        return torch.tensor([1.0 if value is None else float(value) for value in values])
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be numbers; got {error}") from error


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
            with np.errstate(over="ignore"):  # infinity, which the check refuses
                return np.atleast_1d(array).astype(np.float32)
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    raise InputError(f"{what} must be a list of numbers; got {str(value)[:40]!r}")


def _columns(
    attributes: list[dict[str, Any]], keys: set[Any], name: str, node_name: RowName
) -> Tensor:
    """Numbers, dates and text as the columns of a table are encoded; others are left out."""
    import pandas as pd

    columns: dict[str, Any] = {}
    for key in sorted(keys - NOT_FEATURES, key=str):
        values = [a.get(key) for a in attributes]
        known = [value for value in values if value is not None]
        other = next((v for v in known if not isinstance(v, NUMBER | date | str)), None)
        if other is not None:
            warnings.warn(
                f"attribute {str(key)!r} of {name} is left out: features must be numbers, dates or "
                f"text; got {type(other).__name__}",
                InputWarning,
                stacklevel=2,
            )
        elif all(isinstance(value, NUMBER) for value in known):
            columns[str(key)] = [float("nan") if v is None else _float(v) for v in values]
        else:
            columns[str(key)] = pd.Series(values, dtype=object)
    if not columns:
        raise InputError(
            f"nodes of {name} must have features: an attribute x (a list), or attributes that are "
            f"numbers, dates or text; got {_listed(keys)}"
        )
    return encode_features(pd.DataFrame(columns), name, row_name=node_name)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond floats: infinity, which is refused
        return float("inf")


def _listed(keys: set[Any]) -> str:
    return ", ".join(sorted(map(str, keys))) or "no attributes"
