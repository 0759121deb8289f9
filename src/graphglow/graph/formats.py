"""Graphs in ``.npz``, ``.pt`` and GraphML files, and of NetworkX, SciPy and DGL.

Nothing is unpickled, and no library is imported unless the file or the object needs it.
"""

import json
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphglow.errors import InputError, did_you_mean, warn
from graphglow.graph.check import MASKS, SPLITS, mask_from
from graphglow.graph.features import encode_columns, encode_labels
from graphglow.graph.tables import Columns, one_sentence, open_table, read_tables, roles_of
from graphglow.storage import existing_file

EDGE_VALUES = ("weight", "probability", "in_input", "input_weight", "latent_weight")
"""What our own files say of each edge; the weight is how much it counts."""
TENSORS = ("x", "y", "edge_index", "adj_t", *(f"edge_{name}" for name in EDGE_VALUES))
LISTS = ("node_id", "class_names")
KNOWN = {*TENSORS, *LISTS, *SPLITS, *MASKS}
LABEL_KEYS = ("y", "class", "label")
"""Where a NetworkX graph has several, the first: drawing programs put names in ``label``."""
NOT_FEATURES = {*LABEL_KEYS, "x", "id", "node_id", "name"}
DGL_NAMES = {
    "x": ("feat", "x", "features"),
    "y": ("label", "y", "labels"),
    "edge_weight": ("weight", "w", "edge_weight"),
}
"""Our name -> what DGL's data sets and users call it in ``ndata`` and ``edata``."""


def read_npz_arrays(path: str | Path, what: str) -> dict[str, np.ndarray]:
    """Return the arrays of the file; ``what`` names it in errors, e.g. ``"the split file"``.

    Arrays of objects are refused if they are parts of a graph, else left out.
    """
    path, arrays = existing_file(path, what), {}
    rule = f"{what} {path} is no .npz file of plain arrays; it is damaged, foreign or holds objects"
    with one_sentence(rule), warnings.catch_warnings(), path.open("rb") as file:
        warnings.simplefilter("ignore")  # Python's about text in a header
        with np.load(file, allow_pickle=False) as archive:
            for name in archive.files:
                try:
                    arrays[name] = np.asarray(archive[name])
                except ValueError as error:
                    needed = name in {*KNOWN, "labels"} - {*LISTS}
                    if needed or name[:4] in ("adj_", "attr") or "allow_pickle" not in str(error):
                        raise
    return arrays


def apply_split_file(data: Data, path: str | Path) -> Data:
    """Return a copy of ``data`` with the masks of an ``.npz`` of indices train, val and test."""
    arrays = read_npz_arrays(path, "the split file")
    data = data.clone()
    for name in SPLITS:
        if name not in arrays:
            held = ", ".join(sorted(arrays)) or "nothing"
            raise InputError(f"{path} holds {held}. Save the arrays train, val and test.")
        num_nodes = int(data.num_nodes or 0)
        data[f"{name}_mask"] = mask_from(arrays[name], num_nodes, f"{name} of {path}")
    data.split = f"file:{path}"
    return data


def read_npz(path: Path) -> Data:
    """Read a graph as ``x``, ``y``, ``edge_index`` and so on, or in the field's sparse convention.

    That is ``adj_data``, ``adj_indices``, ``adj_indptr``, ``adj_shape`` of a CSR adjacency,
    ``attr_*`` of CSR features or a dense ``attr_matrix``, and ``labels``. Without attributes each
    node is a feature of its own, as is usual there.
    """
    arrays = read_npz_arrays(path, "the graph file")
    if arrays.keys().isdisjoint(("adj_data", "adj_indices", "adj_indptr")):
        return graph_from_fields(arrays, str(path))
    other = ("adj_", "attr_", "labels")
    fields: dict[str, Any] = {n: arrays[n] for n in arrays if not n.startswith(other)}
    adjacency, x = _csr(arrays, "adj", path), arrays.get("attr_matrix")
    if x is None and any(name.startswith("attr_") for name in arrays):
        x = _csr(arrays, "attr", path).astype(np.float32).toarray()
    elif x is None:
        warn(f"{path} holds no attributes: each node is a feature of its own")
        x = np.eye(adjacency.shape[0], dtype=np.float32)
    edges, weight = _listed_edges(adjacency)
    fields |= {"x": x, "y": arrays.get("labels"), "edge_index": edges, "edge_weight": weight}
    return graph_from_fields(fields, str(path))


def _csr(arrays: Mapping[str, np.ndarray], name: str, path: Path) -> sp.csr_array:
    parts = [f"{name}_{part}" for part in ("data", "indices", "indptr", "shape")]
    with one_sentence(f"{path} has no CSR matrix of numbers in {', '.join(parts)}"):
        *values, shape = (arrays[part] for part in parts)
        matrix = sp.csr_array(tuple(values), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)  # or its indices point anywhere
        if matrix.dtype.kind not in "biuf" or (name == "adj" and shape[0] != shape[1]):
            raise ValueError(f"{name} of type {matrix.dtype} and shape {matrix.shape}")
    return matrix


def _listed_edges(adjacency: Any) -> tuple[Tensor, Tensor | None]:
    """The entries of a sparse matrix: [2, E], and [E] where any of them is not 1."""
    entries = adjacency.tocoo()
    present = entries.data != 0  # NaN is, and is refused by the check
    ends = np.stack([entries.row[present], entries.col[present]]).astype(np.int64)
    weight = entries.data[present].astype(np.float64)
    return torch.from_numpy(ends), None if (weight == 1).all() else torch.from_numpy(weight)


def read_pt(path: Path) -> Data:
    """Read a PyG ``Data`` or a dict of tensors; anything that needs unpickling is refused."""
    path = existing_file(path, "the graph file")
    rule = f"{path} holds no torch_geometric Data and no dict of tensors"
    with (
        one_sentence(f"{rule}; it is damaged, foreign or holds other objects"),
        warnings.catch_warnings(),
        torch.serialization.safe_globals([GlobalStorage, DataTensorAttr, DataEdgeAttr]),
        torch.sparse.check_sparse_tensor_invariants(True),  # type: ignore[no-untyped-call]
    ):
        warnings.simplefilter("ignore")  # torch warns of foreign archives before it refuses
        content = torch.load(path, map_location="cpu", weights_only=True)
        fields = content.to_dict() if isinstance(content, Data) else content
    if not isinstance(fields, dict):
        raise InputError(f"{rule}, but a {type(content).__name__}.")
    return graph_from_fields(fields, str(path))


def graph_from_fields(fields: Mapping[str, object], what: str) -> Data:
    """Make a graph, not yet checked, from arrays or tensors by name; ``what`` names it in errors.

    Shapes:
        x [N, D], y [N] (integers, or text: then ``class_names`` is set), edge_index [2, E],
        edge_weight [E]; train, val, test: node indices or masks (``train_mask`` is accepted too)
    """
    for name in set(map(str, fields)) - KNOWN:  # a random split would be used in place of "tarin"
        if near := did_you_mean(name, KNOWN - set(fields), 0.75):
            raise InputError(f"{what} has {name!r}{near}, which is not read. Rename it.")
    if "x" not in fields:
        raise InputError(f"{what} must hold x; got {', '.join(sorted(map(str, fields))[:10])}")
    data = Data()
    for name in TENSORS:
        value = fields.get(name)
        if name == "y" and isinstance(value, np.ndarray) and value.dtype.kind in "USOf":
            text = np.char.decode(value, "utf-8", "replace") if value.dtype.kind == "S" else value
            data.y, data.class_names = encode_labels(text.reshape(-1), f"y of {what}")
        elif value is not None:
            data[name] = _tensor(value, f"{name} of {what}")
    for name in SPLITS:
        value, where = fields.get(name, fields.get(f"{name}_mask")), f"{name} of {what}"
        if value is not None:
            index = _tensor(value, where)
            if index.is_floating_point() or index.is_complex():  # NumPy does not know all of them
                raise InputError(f"{where} must hold node indices or booleans; got {index.dtype}")
            num_nodes = len(data.x) if data.x.ndim else 0
            data[f"{name}_mask"] = mask_from(index.numpy(), num_nodes, where)
    for name in LISTS:
        value = fields.get(name)
        value = value.tolist() if isinstance(value, np.ndarray | Tensor) else value
        if isinstance(value, list):
            data[name] = value
    if isinstance(fields.get("feature_columns"), dict):  # how a table was encoded
        data.feature_columns = fields["feature_columns"]
    return data


def _tensor(value: object, what: str) -> Tensor:
    if isinstance(value, Tensor):
        dense = value.layout == torch.strided or what.startswith("x of ")
        if not dense or value.is_quantized or value.is_nested or value.device.type != "cpu":
            raise InputError(f"{what} must be a dense tensor of plain numbers; got another kind")
        return value.detach()
    if not isinstance(value, np.ndarray):
        raise InputError(f"{what} must be an array; got {type(value).__name__}")
    try:
        return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), copy=False))
    except TypeError as error:  # text, objects, dates
        raise InputError(f"{what} must hold numbers; got {value.dtype}") from error


def is_networkx(source: object) -> bool:
    networkx = sys.modules.get("networkx")  # never imported: then it is no NetworkX graph
    return networkx is not None and isinstance(source, networkx.Graph)


def read_graphml(path: Path) -> Any:
    """Read a NetworkX graph from a GraphML file."""
    import networkx as nx

    rule = f"{path} cannot be read as GraphML; it is damaged or foreign"
    with one_sentence(rule), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NetworkX's about what it leaves out
        graph = nx.read_graphml(path)
    graph.name = ""
    return graph


def from_networkx(graph: Any, name: str, columns: Columns | None = None, **settings: Any) -> Data:
    """Turn a NetworkX graph into a ``Data``, not yet checked: its attributes are two tables.

    Node attributes: ``y``, ``class`` or ``label`` (missing: unlabelled), optionally ``split``, and
    ``x`` (a list of numbers, or its JSON text) or any attributes that the columns of a table could
    be. ``columns`` names others as label, split and weight, and those to leave out.

    Edge attributes: ``weight`` (missing: 1) and, where they are numbers at every edge, the others
    that :func:`~graphglow.graph.write.to_networkx` writes. Undirected edges come in both
    directions.
    """
    if not len(graph):
        raise InputError(f"{name} has no nodes. Add at least one.")
    chosen, leave_out, category = roles_of(columns)
    attributes = list(graph.nodes.values())
    keys = sorted(set().union(*attributes), key=str)
    read = [key for key in keys if key not in leave_out]
    label = chosen.get("label") or next((key for key in LABEL_KEYS if key in read), None)
    chosen = chosen if label is None else chosen | {"label": label}
    named = {*chosen.values(), "split", *category, *leave_out}
    kept = [key for key in keys if key in named or ("x" not in read and key not in NOT_FEATURES)]
    nodes = {str(key): pd.Series([a.get(key) for a in attributes], dtype=object) for key in kept}
    edges = _edge_frame(graph, chosen.get("weight", "weight"))
    data = read_tables(
        open_table(pd.DataFrame({"id": list(map(str, graph)), **nodes}).infer_objects(), name),
        open_table(edges, f"the edges of {name}"),
        columns={**chosen, "category": category, "leave_out": leave_out},
        **settings,
    )
    if "x" in read:
        rule = f"x of {name} must be a list of numbers, of one length, at every node"
        with one_sentence(rule), np.errstate(over="ignore"):  # infinity, which the check refuses
            given = [a["x"] for a in attributes]
            rows = [np.atleast_1d(json.loads(x) if isinstance(x, str) else x) for x in given]
            data.x = torch.from_numpy(np.stack(rows).astype(np.float32))
        del data.feature_columns
    for key in EDGE_VALUES[1:]:
        if key in edges and pd.api.types.is_numeric_dtype(edges[key]) and edges[key].notna().all():
            values = torch.from_numpy(edges[key].to_numpy(np.float32))
            data[f"edge_{key}"] = values.bool() if key == "in_input" else values
    return data


def _edge_frame(graph: Any, weight: str) -> pd.DataFrame:
    """Edges with their values, in both directions if the graph is undirected."""
    edges = list(graph.edges(data=True))
    frame = pd.DataFrame([(str(u), str(v)) for u, v, _ in edges], columns=["source", "target"])
    for key in (weight, *EDGE_VALUES[1:]):
        values = pd.Series([attributes.get(key) for *_, attributes in edges], dtype=object)
        if values.notna().any():
            frame[key] = values.where(values.notna(), 1.0) if key == weight else values
    frame = frame.infer_objects()
    if graph.is_directed():
        return frame
    return pd.concat([frame, frame.rename(columns={"source": "target", "target": "source"})])


def from_scipy(adjacency: Any, *, x: Any, y: Any) -> Data:
    """Make a graph, not yet checked; entries other than 1 are weights, zeros are no edges.

    ``x`` [N, D] is absent, an array, a SciPy sparse matrix, a tensor, or a DataFrame, whose columns
    are encoded as those of a nodes table; ``y`` [N] holds integers (-1 for unlabelled) or text.
    """
    shape, kind = adjacency.shape, adjacency.dtype
    if len(shape) != 2 or shape[0] != shape[1] or kind.kind not in "biuf":
        got = f"An adjacency matrix of shape {shape} and type {kind}"
        raise InputError(f"{got} is no graph. Give a square one of numbers.")
    if isinstance(x, pd.DataFrame):
        x, _ = encode_columns(x.set_axis(x.columns.map(str), axis=1), "the DataFrame")
    elif x is not None and not isinstance(x, Tensor):
        with one_sentence("x must hold numbers [N, D]; got others"):
            array = np.asarray(x.toarray() if hasattr(x, "toarray") else x, dtype=np.float32)
        x = torch.from_numpy(array)
    edges, weight = _listed_edges(adjacency)
    y = y if y is None or isinstance(y, Tensor) else np.asarray(y)
    fields = {"x": x, "y": y, "edge_index": edges, "edge_weight": weight}
    data = graph_from_fields(fields, "the arguments")
    data.num_nodes = shape[0]
    return data


def from_dgl(graph: Any) -> Data:
    """Turn a DGL graph of one kind of node and edge into a ``Data``, not yet checked."""
    if not getattr(graph, "is_homogeneous", True):
        raise InputError(
            "A DGL graph has several kinds. Make it one kind: dgl.to_homogeneous(graph)."
        )
    data = Data(edge_index=torch.stack(graph.edges()).long(), num_nodes=int(graph.num_nodes()))
    for name, theirs in DGL_NAMES.items():
        known = graph.edata if name == "edge_weight" else graph.ndata
        if found := [known[key] for key in theirs if key in known]:
            data[name] = found[0]
    for name in MASKS:
        if name in graph.ndata:
            data[name] = graph.ndata[name].bool()  # DGL keeps some masks as 0 and 1
    return data
