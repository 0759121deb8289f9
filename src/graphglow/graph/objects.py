"""Graph objects of other libraries: NetworkX (and GraphML through it), SciPy and DGL.

None of them is imported unless the object, or the file, needs it.
"""

import json
import sys
import warnings
from datetime import date
from numbers import Real
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph.features import encode_columns, encode_labels
from graphglow.graph.files import OF_EDGES, edges_of, note, one_sentence
from graphglow.graph.table_file import is_frame, open_table
from graphglow.graph.tables import LEAVE_OUT, Columns, add_masks

LABELS = ("y", "class", "label")
"""Where a graph has several, the first: programs for drawing put the node's name in ``label``."""
ROLES = ("label", "split", "weight")
"""What an attribute can be named as."""
NUMBER = Real | np.bool_
NOT_FEATURES = {*LABELS, "split", "x", "id", "node_id", "name"}
DGL_FIELDS = {
    "x": ("feat", "x", "features"),
    "y": ("label", "y", "labels"),
    "train_mask": ("train_mask",),
    "val_mask": ("val_mask",),
    "test_mask": ("test_mask",),
}
"""Our name -> what DGL's data sets and users call it in ``ndata``."""
DGL_WEIGHTS = ("weight", "w", "edge_weight")


def is_networkx(source: object) -> bool:
    networkx = sys.modules.get("networkx")  # never imported: then it is no NetworkX graph
    return networkx is not None and isinstance(source, networkx.Graph)


def from_object(
    source: Any, *, x: Any, y: Any, columns: Columns | None = None, need_labels: bool
) -> Data:
    """Turn a graph of any of these libraries into a ``Data``, not yet checked."""
    if sp.issparse(source):
        return from_scipy(source, x=x, y=y)
    if is_networkx(source):
        name = str(source.name or "graph")
        data = from_networkx(source, name=name, columns=columns, need_labels=need_labels)
        data.name = name
        return data
    if type(source).__module__.split(".")[0] == "dgl" and hasattr(source, "ndata"):
        return from_dgl(source)
    raise InputError(
        "a graph must be a name, a path, a pair of tables, a torch_geometric Data or a NetworkX "
        f"graph, DGL graph or SciPy sparse matrix; got {type(source).__name__}"
    )


def read_graphml(path: Path, need_labels: bool = True, columns: Columns | None = None) -> Data:
    """Read a graph, not yet checked, from a GraphML file.

    One with a document type is refused: its entities can make gigabytes of a few lines.
    """
    import networkx as nx

    def refuse(*_: object) -> None:
        raise InputError(f"{path} must be GraphML without a document type; got <!DOCTYPE ...>")

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    rule = f"{path} must be a GraphML file; it is damaged or foreign"
    with one_sentence(rule), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NetworkX's of what it passes over
        with path.open("rb") as file:
            parser.ParseFile(file)
        graph = nx.read_graphml(path)
    return from_networkx(graph, name=str(path), columns=columns, need_labels=need_labels)


def from_networkx(
    graph: Any, *, name: str, columns: Columns | None = None, need_labels: bool = True
) -> Data:
    """Turn a NetworkX graph into a ``Data``, not yet checked.

    Node attributes: ``y``, ``class`` or ``label`` (missing: unlabelled), optionally ``split``, and
    ``x`` (a list of numbers, or its JSON text) or any attributes that are numbers, dates or text:
    they are encoded as the columns of a table are, numbers standardised and text one-hot. Others
    are left out with an :class:`InputWarning`. ``columns`` names others as label, split and weight,
    and those to leave out.

    Edge attributes: ``weight`` (missing: 1) and, where they are numbers at every edge, the others
    that :func:`~graphglow.graph.write.to_networkx` writes. Undirected edges come in both
    directions.
    """
    import pandas as pd

    nodes = list(graph.nodes)
    if not nodes:
        raise InputError(f"a graph must have at least one node; got none in {name}")
    attributes = [graph.nodes[node] for node in nodes]
    keys = set().union(*attributes)
    roles, left_out = _chosen(columns, keys, name)
    keys -= left_out
    label = roles.get("label") or next((key for key in LABELS if key in keys), None)
    if label is None and need_labels:
        found = ", ".join(sorted(map(str, keys))) or "no attributes"
        raise InputError(
            f"nodes of {name} must have an attribute {', '.join(LABELS)} (--columns label=NAME "
            f"names another, in Python columns={{'label': 'NAME'}}); got {found}"
        )
    split = roles.get("split", "split")

    def column(key: Any) -> Any:
        return pd.Series([a.get(key) for a in attributes], dtype=object, name=str(key))

    y, class_names = encode_labels(column(label), f"{label} of {name}")
    if "x" in keys:
        x = _vectors(attributes, name)
    else:
        others = sorted(keys - NOT_FEATURES - {label, split}, key=str)
        kept = {c.name: _plain(c) for c in map(column, others) if _is_feature(c, name)}
        x, made = encode_columns(pd.DataFrame(kept, index=range(len(nodes))), name)
    data = Data(x=x, y=y, class_names=class_names)
    if "x" not in keys:
        data.feature_columns = {"columns": made}
    data.node_id = nodes if all(type(node) is int for node in nodes) else [str(n) for n in nodes]
    if split in keys:
        add_masks(data, column(split), f"{split} of {name}")
    _add_edges(data, graph, nodes, name, roles.get("weight", "weight"))
    return data


def _chosen(columns: Columns | None, keys: set[Any], name: str) -> tuple[dict[str, str], set[str]]:
    """The attribute for each role that ``columns`` gives, and those to be left out."""
    roles = dict(columns or {})
    left_out = roles.pop(LEAVE_OUT, ())
    away = {left_out} if isinstance(left_out, str) else set(left_out)
    chosen = {role: str(attribute) for role, attribute in roles.items()}
    for role in chosen:
        if role not in ROLES:
            raise InputError(
                f"columns of {name} must name some of {', '.join(ROLES)}, or those to {LEAVE_OUT}; "
                f"got {role!r}"
            )
    missing = {*away, *(chosen[role] for role in chosen if role != "weight")} - keys
    if missing:
        raise InputError(
            f"nodes of {name} must have the attributes that columns name; got no "
            f"{', '.join(sorted(missing))} but {', '.join(sorted(map(str, keys))) or 'none'}"
        )
    return chosen, away


def _add_edges(data: Data, graph: Any, nodes: list[Any], name: str, weight: str) -> None:
    position = {node: i for i, node in enumerate(nodes)}
    edges = list(graph.edges(data=True))
    ends = [(position[u], position[v]) for u, v, _ in edges]
    edge_index = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    both = not graph.is_directed()
    data.edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1) if both else edge_index
    for key in OF_EDGES:
        own = weight if key == "weight" else key
        given = [attributes.get(own) for _, _, attributes in edges]
        if not any(value is not None for value in given):
            continue
        if key != "weight" and not all(isinstance(value, NUMBER) for value in given):
            continue
        try:
            values = torch.tensor([1.0 if value is None else float(value) for value in given])
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"edge {key}s of {name} must be numbers; got {error}") from error
        values = values.bool() if key == "in_input" else values
        data[f"edge_{key}"] = values.repeat(2) if both else values


def _vectors(attributes: list[dict[str, Any]], name: str) -> Tensor:
    """The attribute ``x`` of all nodes, lists of numbers or their JSON: [N, D]."""
    with (
        one_sentence(f"x of {name} must be a list of numbers, of one length, at every node"),
        np.errstate(over="ignore"),  # infinity, which the check refuses
    ):
        given = [a["x"] for a in attributes]
        rows = [np.atleast_1d(json.loads(x) if isinstance(x, str) else x) for x in given]
        return torch.from_numpy(np.stack(rows).astype(np.float32))


def _is_feature(column: Any, name: str) -> bool:
    """Whether an attribute can be a column of a table; others are left out, and said."""
    given = (value for value in column if value is not None)
    other = next((value for value in given if not isinstance(value, NUMBER | date | str)), None)
    if other is not None:
        note(
            f"attribute {column.name!r} of {name} is left out: features must be numbers, dates or "
            f"text; got {type(other).__name__}"
        )
    return other is None


def _plain(column: Any) -> Any:
    """An attribute as pandas knows it; booleans are numbers here."""
    if not all(isinstance(value, NUMBER | None) for value in column):
        return column
    with one_sentence(f"attribute {column.name!r} must hold numbers that are finite"):
        return column.astype(float)


def from_scipy(adjacency: Any, *, x: Any, y: Any) -> Data:
    """Make a graph, not yet checked; entries other than 1 are weights, zeros are no edges.

    ``x`` [N, D] is absent, an array, a SciPy sparse matrix, a tensor, or a DataFrame, whose columns
    are encoded as those of a nodes table; ``y`` [N] holds integers (-1 for unlabelled) or text.
    """
    shape, kind = adjacency.shape, adjacency.dtype
    if len(shape) != 2 or shape[0] != shape[1] or kind.kind not in "biuf":
        raise InputError(
            f"an adjacency matrix must be square [N, N] and hold numbers; got shape {shape} of "
            f"{kind}"
        )
    if is_frame(x):
        table = open_table(x)
        x, _ = encode_columns(table.frame(table.columns), table.what)
    elif x is not None and not isinstance(x, Tensor):
        with one_sentence("x must hold numbers [N, D]; got others"):
            array = np.asarray(x.toarray() if hasattr(x, "toarray") else x, dtype=np.float32)
        x = torch.from_numpy(array)
    data = Data(x=x, num_nodes=shape[0])
    data.edge_index, weight = edges_of(adjacency)
    if weight is not None:
        data.edge_weight = weight
    labels = y if isinstance(y, Tensor) else np.asarray(y)
    if isinstance(labels, Tensor) or y is None:
        data.y = y
    elif labels.dtype.kind in "biu":
        data.y = torch.from_numpy(labels.astype(np.int64))
    else:
        data.y, data.class_names = encode_labels(labels.reshape(-1), "y")
    return data


def from_dgl(graph: Any) -> Data:
    """Turn a DGL graph of one kind of node and edge into a ``Data``, not yet checked."""
    if not getattr(graph, "is_homogeneous", True):
        raise InputError(
            "a DGL graph must have one kind of nodes and edges (see dgl.to_homogeneous); got "
            f"nodes {', '.join(graph.ntypes)} and edges {', '.join(graph.etypes)}"
        )
    data = Data(edge_index=torch.stack(graph.edges()).long(), num_nodes=int(graph.num_nodes()))
    for name, called in DGL_FIELDS.items():
        found = next((graph.ndata[key] for key in called if key in graph.ndata), None)
        if found is not None:  # DGL keeps some masks as 0 and 1
            data[name] = found.bool() if name.endswith("_mask") else found
        elif name == "x":
            raise InputError(
                f"ndata of a DGL graph must have features, called {', '.join(called)}; got "
                f"{', '.join(map(str, graph.ndata)) or 'nothing'}"
            )
    weight = next((graph.edata[key] for key in DGL_WEIGHTS if key in graph.edata), None)
    if weight is not None:
        data.edge_weight = weight
    return data
