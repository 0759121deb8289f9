"""Graph objects of other libraries: NetworkX (and GraphML through it), SciPy and DGL.

None of them is imported unless the object, or the file, needs it.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph.features import encode_columns, encode_labels, numbers_of
from graphglow.graph.files import OF_EDGES, edges_of, one_sentence
from graphglow.graph.table_file import is_frame, open_table
from graphglow.graph.tables import Columns, Roles, add_masks

LABELS = ("y", "class", "label")
"""Where a graph has several, the first: programs for drawing put the node's name in ``label``."""
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
        return from_networkx(source, name=name, columns=columns, need_labels=need_labels)
    if type(source).__module__.split(".")[0] == "dgl" and hasattr(source, "ndata"):
        return from_dgl(source)
    raise InputError(
        f"A {type(source).__name__} is no graph. Give a name, a path, a pair of tables, a "
        "torch_geometric Data, or a NetworkX graph, DGL graph or SciPy sparse matrix."
    )


def read_graphml(path: Path, need_labels: bool = True, columns: Columns | None = None) -> Data:
    """Read a graph, not yet checked, from a GraphML file."""
    import networkx as nx

    with (
        one_sentence(f"{path} cannot be read as GraphML; it is damaged or foreign"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # NetworkX's of what it passes over
        graph = nx.read_graphml(path)
    return from_networkx(graph, name=str(path), columns=columns, need_labels=need_labels)


def from_networkx(
    graph: Any, *, name: str, columns: Columns | None = None, need_labels: bool = True
) -> Data:
    """Turn a NetworkX graph into a ``Data``, not yet checked.

    Node attributes: ``y``, ``class`` or ``label`` (missing: unlabelled), optionally ``split``, and
    ``x`` (a list of numbers, or its JSON text) or any attributes that the columns of a table could
    be. ``columns`` names others as label, split and weight, and those to leave out.

    Edge attributes: ``weight`` (missing: 1) and, where they are numbers at every edge, the others
    that :func:`~graphglow.graph.write.to_networkx` writes. Undirected edges come in both
    directions.
    """
    import pandas as pd

    nodes = list(graph.nodes)
    if not nodes:
        raise InputError(f"{name} has no nodes. Add at least one.")
    attributes = [graph.nodes[node] for node in nodes]
    keys = set().union(*attributes)
    roles = Roles.of(columns, ("label", "split", "weight"))
    named = {*roles.leave_out, *roles.category, *roles.chosen.values()}
    if missing := named - keys - {roles.chosen.get("weight")}:
        raise InputError(
            f"Nodes of {name} have no attribute {', '.join(sorted(missing))}, which columns names; "
            f"they have {', '.join(sorted(map(str, keys))) or 'none'}."
        )
    keys -= {*roles.leave_out}
    label = roles.chosen.get("label") or next((key for key in LABELS if key in keys), None)
    if label is None and need_labels:
        found = ", ".join(sorted(map(str, keys))) or "no attributes"
        raise InputError(
            f"Nodes of {name} have no attribute {', '.join(LABELS)}, but {found}. Say which is the "
            "label: --columns label=NAME (in Python columns={'label': 'NAME'})."
        )
    split = roles.chosen.get("split", "split")

    def column(key: Any) -> Any:
        return pd.Series([a.get(key) for a in attributes], dtype=object, name=str(key))

    y, class_names = encode_labels(column(label), f"{label} of {name}")
    data = Data(y=y, class_names=class_names, name=name)
    if "x" in keys:
        data.x = _vectors(attributes, name)
    else:
        others = sorted(keys - NOT_FEATURES - {label, split}, key=str)
        frame = pd.DataFrame({str(key): column(key) for key in others}, index=range(len(nodes)))
        data.x, encoded = encode_columns(frame.infer_objects(), name, roles.category)
        data.feature_columns = {"columns": encoded}
    data.node_id = nodes if all(type(node) is int for node in nodes) else [str(n) for n in nodes]
    if split in keys:
        add_masks(data, column(split), f"{split} of {name}")
    _add_edges(data, graph, nodes, name, roles.chosen.get("weight", "weight"))
    return data


def _add_edges(data: Data, graph: Any, nodes: list[Any], name: str, weight: str) -> None:
    import pandas as pd

    position = {node: i for i, node in enumerate(nodes)}
    edges = list(graph.edges(data=True))
    ends = [(position[u], position[v]) for u, v, _ in edges]
    edge_index = torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    both = not graph.is_directed()
    data.edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1) if both else edge_index
    for key in OF_EDGES:
        own = weight if key == "weight" else key
        given = pd.Series([attributes.get(own) for _, _, attributes in edges], dtype=object)
        if key == "weight":
            given = given.where(given.notna(), 1.0) if given.notna().any() else given
        elif not pd.api.types.is_numeric_dtype(given.infer_objects()):
            continue
        if not len(given) or given.isna().any():
            continue
        given = given.infer_objects().rename(own)
        values = torch.from_numpy(numbers_of(given, f"the edges of {name}").astype(np.float32))
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


def from_scipy(adjacency: Any, *, x: Any, y: Any) -> Data:
    """Make a graph, not yet checked; entries other than 1 are weights, zeros are no edges.

    ``x`` [N, D] is absent, an array, a SciPy sparse matrix, a tensor, or a DataFrame, whose columns
    are encoded as those of a nodes table; ``y`` [N] holds integers (-1 for unlabelled) or text.
    """
    shape, kind = adjacency.shape, adjacency.dtype
    if len(shape) != 2 or shape[0] != shape[1] or kind.kind not in "biuf":
        raise InputError(
            f"An adjacency matrix of shape {shape} and type {kind} is no graph. Give a square one "
            "of numbers."
        )
    if is_frame(x):
        table = open_table(x)
        x, _ = encode_columns(table.read(table.columns, ()), table.what)
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
            "A DGL graph of several kinds of nodes or edges cannot be read. Make it one kind: "
            "dgl.to_homogeneous(graph)."
        )
    data = Data(edge_index=torch.stack(graph.edges()).long(), num_nodes=int(graph.num_nodes()))
    for name, called in DGL_FIELDS.items():
        found = next((graph.ndata[key] for key in called if key in graph.ndata), None)
        if found is not None:  # DGL keeps some masks as 0 and 1
            data[name] = found.bool() if name.endswith("_mask") else found
    weight = next((graph.edata[key] for key in DGL_WEIGHTS if key in graph.edata), None)
    if weight is not None:
        data.edge_weight = weight
    return data
