"""Write a graph, in the format that the suffix names, whole or not at all."""

import difflib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph.check import SPLITS
from graphglow.graph.formats import EDGE_VALUES, LISTS
from graphglow.graph.tables import require_pyarrow
from graphglow.storage import atomic_path

TABLES = (".csv", ".parquet")
NUMBER = r"0|[1-9][0-9]{0,15}"


def write_graph(data: Data, path: str | Path) -> None:
    """Write ``data`` to ``path``; an existing file is replaced only by a complete one.

    ``.pt``, ``.npz`` and ``.graphml`` hold the whole graph and load back by ``load_graph``.
    ``.csv`` and ``.parquet`` hold the edges, in the user's own node ids (:func:`edge_frame`).
    """
    path = Path(os.path.expanduser(path))
    if path.suffix.lower() not in WRITERS:
        raise InputError(f"a graph file must be one of {', '.join(WRITERS)}; got {path}")
    _check_is_graph(data)
    with atomic_path(path) as temporary:
        WRITERS[path.suffix.lower()](data, temporary)


def _check_is_graph(data: object) -> None:
    if not isinstance(data, Data) or not isinstance(data.edge_index, Tensor):
        raise InputError(f"a graph to write must be a Data with edge_index; got {data!r:.80}")


def write_predictions(data: Data, probabilities: Tensor, path: str | Path) -> None:
    """Write :func:`prediction_frame` as ``.csv`` or ``.parquet``; an old file is replaced."""
    write_table(prediction_frame(data, probabilities), path, "a predictions file")


def prediction_frame(data: Data, probabilities: Tensor) -> pd.DataFrame:
    """Make a table of one row per node, with the user's own ids and classes.

    Columns: ``id``, ``predicted``, ``probability``, ``p_<class>`` of each class and, where the
    graph has them, ``label`` (the known class or a blank) and ``split``.

    Shapes:
        probabilities [N, C]
    """
    array, y = _array(probabilities), data.get("y")
    known = 0 if y is None or not len(y) else int(y.max()) + 1
    names = own_classes(data, max(array.shape[1], known))
    columns: dict[str, Any] = {
        "id": own_ids(data, len(array)),
        "predicted": [names[c] for c in array.argmax(axis=1)],
        "probability": array.max(axis=1),
    }
    columns |= {f"p_{name}": array[:, c] for c, name in enumerate(names[: array.shape[1]])}
    if y is not None:
        labels = [None if c < 0 else names[c] for c in y.tolist()]
        columns["label"] = pd.Series(labels, dtype=object).convert_dtypes()  # whole beside blanks
    if (split := split_names(data)) is not None:
        columns["split"] = split
    return pd.DataFrame(columns)


def write_table(frame: pd.DataFrame, path: str | Path, what: str) -> None:
    """Write a table, ``what`` in errors, as ``.csv`` or ``.parquet``, whole or not at all."""
    path = Path(os.path.expanduser(path))
    suffix = path.suffix.lower()
    if suffix not in TABLES:
        raise InputError(f"{what} must be {' or '.join(TABLES)}; got {path}")
    if suffix == ".parquet":
        require_pyarrow()
    with atomic_path(path) as temporary:
        write = frame.to_csv if suffix == ".csv" else frame.to_parquet
        write(temporary, index=False)


def split_names(data: Data) -> list[str] | None:
    """``train``, ``val``, ``test`` or a blank for each node; None where there is no split."""
    masks = {name: data.get(f"{name}_mask") for name in SPLITS}
    given = {name: _array(mask) for name, mask in masks.items() if mask is not None}
    return np.select(list(given.values()), list(given), "").tolist() if given else None


def own_ids(data: Data, num_nodes: int) -> list[Any]:
    """The user's own ids, all of one type; the indices where there are none."""
    ids = data.get("node_id")
    if ids is None:
        return list(range(num_nodes))
    plain = [own.item() if hasattr(own, "item") else own for own in ids]
    return plain if len(set(map(type, plain))) <= 1 else [str(own) for own in plain]


def own_classes(data: Data, count: int) -> list[Any]:
    """The classes by their own names, as numbers where every name is one."""
    given = data.get("class_names")
    if given is None or len(given) < count:
        return list(range(count))
    names = [str(name) for name in given]
    return [int(n) for n in names] if all(re.fullmatch(NUMBER, n) for n in names) else names


def class_names(data: Data, count: int) -> list[str]:
    """The first ``count`` of :func:`own_classes`, as text."""
    return [str(name) for name in own_classes(data, count)[:count]]


def node_places(data: Data, num_nodes: int, nodes: Iterable[Any]) -> NDArray[np.int64]:
    """Return the indices of nodes, given by id, or by index where the graph has no ids: [n].

    A number and its text are the same.
    """
    given = [str(node.item() if hasattr(node, "item") else node) for node in nodes]
    names = pd.Index([str(name) for name in own_ids(data, num_nodes)])
    places = names.get_indexer(given)
    if (places >= 0).all():
        return np.asarray(places, dtype=np.int64)
    got = given[int((places < 0).argmax())]
    if data.get("node_id") is None:
        raise InputError(f"node must be an index in [0, {num_nodes - 1}]; got {got}")
    bare = {name.lower().lstrip("0"): name for name in names[:20_000]}  # a zero may be lost
    near = difflib.get_close_matches(got.lower().lstrip("0"), bare, n=3, cutoff=0.5)
    nearest = ", ".join([bare[name] for name in near] or names[:3])
    raise InputError(f"node must be the id of a node (nearest: {nearest}); got {got!r}")


def node_place(data: Data, num_nodes: int, node: Any) -> int:
    """Return the index of one node."""
    return int(node_places(data, num_nodes, [node])[0])


def _write_pt(data: Data, path: Path) -> None:
    with path.open("wb") as file:  # given a name, torch hides why it cannot write
        torch.save(Data.from_dict(data.clone().detach().cpu().to_dict()), file)


def _write_npz(data: Data, path: Path) -> None:
    arrays = {f"edge_{name}": values for name, values in _edge_values(data).items()}
    for name in ("edge_index", "x", "y", *LISTS):
        if data.get(name) is not None:
            arrays[name] = np.asarray(data[name])
    for name in SPLITS:
        if data.get(f"{name}_mask") is not None:
            arrays[name] = np.flatnonzero(_array(data[f"{name}_mask"]))
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def edge_frame(data: Data) -> pd.DataFrame:
    """Make a table of the edges as they are listed, in the user's own ids."""
    ids = pd.Series(own_ids(data, int(data.num_nodes or 0))).to_numpy()
    source, target = _array(data.edge_index)
    return pd.DataFrame({"source": ids[source], "target": ids[target], **_edge_values(data)})


def _write_graphml(data: Data, path: Path) -> None:
    """GraphML knows no lists: features are JSON text, exact for float32."""
    import networkx as nx

    graph = to_networkx(data)
    for _, attributes in graph.nodes(data=True):
        if "x" in attributes:
            attributes["x"] = f"[{','.join(f'{v:.9g}' for v in attributes['x'])}]"
    nx.write_graphml_xml(graph, path)


def to_networkx(data: Data) -> Any:
    """Turn a graph into a NetworkX one, whose nodes are called by the user's own ids.

    A ``Graph`` where both directions of every edge are there with the same numbers, else a
    ``DiGraph``; of duplicates the one with the largest weight. Node attributes: ``x`` (a list),
    ``y`` (the class by its own name; unlabelled nodes have none) and ``split``. Edge attributes:
    ``weight`` and the probabilities and parts of it that the graph has. ``load_graph`` takes it
    back.
    """
    import networkx as nx

    _check_is_graph(data)
    ids = own_ids(data, int(data.num_nodes or 0))
    u, v = _array(data.edge_index)
    edges = pd.DataFrame({"u": u, "v": v, **_edge_values(data)})
    edges = edges.sort_values(["u", "v", "weight"], ascending=[True, True, False], kind="stable")
    edges = edges.drop_duplicates(["u", "v"])
    back = edges.rename(columns={"u": "v", "v": "u"})[edges.columns].sort_values(["u", "v"])
    both_ways = np.array_equal(edges.to_numpy(), back.to_numpy())
    graph = nx.Graph() if both_ways else nx.DiGraph()
    graph.add_nodes_from(ids)
    for node, name in zip(ids, split_names(data) or (), strict=False):
        graph.nodes[node].update({"split": name} if name else {})
    if data.get("y") is not None:
        names = own_classes(data, int(data.y.max()) + 1)
        for node, label in zip(ids, data.y.tolist(), strict=True):
            graph.nodes[node].update({"y": names[label]} if label >= 0 else {})
    if data.get("x") is not None:
        nx.set_node_attributes(graph, dict(zip(ids, data.x.tolist(), strict=True)), "x")
    kept = edges[edges.u <= edges.v] if both_ways else edges
    values = kept.drop(columns=["u", "v"]).astype(object).to_dict("records")
    graph.add_edges_from(
        (ids[a], ids[b], c) for a, b, c in zip(kept.u, kept.v, values, strict=True)
    )
    return graph


def _edge_values(data: Data) -> dict[str, np.ndarray]:
    """The weights of each edge by name, of which ``weight`` is always there: [E] each."""
    values = {"weight": np.ones(data.edge_index.shape[1], dtype=np.float32)}
    for name in EDGE_VALUES:
        if data.get(f"edge_{name}") is not None:
            values[name] = _array(data[f"edge_{name}"]).reshape(-1)
    return values


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().numpy()
    return array


def _write_edges(data: Data, path: Path) -> None:
    write_table(edge_frame(data), path, "a table of edges")


WRITERS: dict[str, Callable[[Data, Path], None]] = {
    ".pt": _write_pt,
    ".npz": _write_npz,
    ".csv": _write_edges,
    ".parquet": _write_edges,
    ".graphml": _write_graphml,
}
