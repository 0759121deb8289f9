"""Write a graph, in the format that the suffix names, whole or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, is_undirected

from graphglow.errors import InputError
from graphglow.graphs.arrays import OWN_NAMES, SPLITS
from graphglow.storage import atomic_path


def write_graph(data: Data, path: str | Path) -> None:
    """Write ``data`` to ``path``; an existing file is replaced only by a complete one.

    ``.pt``, ``.npz`` and ``.graphml`` hold the whole graph and load back by ``load_graph``.
    ``.csv`` and ``.parquet`` hold the edges: ``source``, ``target``, ``weight``, in the user's own
    node ids, and ``input_weight``, ``latent_weight`` where the graph has them.

    Shapes:
        edge_index [2, E]; edge_weight, edge_input_weight, edge_latent_weight [E], all optional
    """
    path = Path(path).expanduser()
    if path.is_dir():
        raise InputError(f"the output path must be a file; got the folder {path}")
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise InputError(f"a graph file must be one of {', '.join(WRITERS)}; got {path}")
    if not isinstance(data, Data) or not isinstance(data.edge_index, Tensor):
        raise InputError(f"a graph to write must be a Data with edge_index; got {data!r:.80}")
    with atomic_path(path) as temporary:
        writer(data, temporary)


def write_predictions(data: Data, probabilities: Tensor, path: str | Path) -> None:
    """Write one row per node: its id, the predicted class, its probability, and all of them.

    Columns: ``id``, ``predicted``, ``probability``, then ``p_<class>`` for each class, with the
    user's own ids and class names where the graph has them. ``.csv`` or ``.parquet``.

    Shapes:
        probabilities [N, C]
    """
    import pandas as pd

    path = prediction_file(path)
    array = _array(probabilities)
    names = data.get("class_names") or list(range(array.shape[1]))
    best = array.argmax(axis=1)
    ids = data.get("node_id")
    columns: dict[str, Any] = {
        "id": range(len(array)) if ids is None else ids,
        "predicted": [names[c] for c in best],
        "probability": array.max(axis=1),
    }
    columns |= {f"p_{name}": array[:, c] for c, name in enumerate(names)}
    frame = pd.DataFrame(columns)
    with atomic_path(path) as temporary:
        if path.suffix.lower() == ".csv":
            frame.to_csv(temporary, index=False)
        else:
            frame.to_parquet(temporary, index=False)


def prediction_file(path: str | Path) -> Path:
    """Return ``path`` if predictions can be written in the format that its suffix names."""
    from graphglow.graphs.table_file import require_pyarrow

    path = Path(path).expanduser()
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"a predictions file must be .csv or .parquet; got {path}")
    if path.suffix.lower() == ".parquet":
        require_pyarrow()
    return path


def _write_pt(data: Data, path: Path) -> None:
    torch.save(data.clone().detach().cpu(), path)


def _write_npz(data: Data, path: Path) -> None:
    arrays = {"edge_index": _array(data.edge_index), "edge_weight": _weight(data)}
    for name in ("x", "y", "edge_input_weight", "edge_latent_weight"):
        if data.get(name) is not None:
            arrays[name] = _array(data[name])
    for name in SPLITS:
        if data.get(f"{name}_mask") is not None:
            arrays[name] = np.flatnonzero(_array(data[f"{name}_mask"]))
    for name in OWN_NAMES:
        if data.get(name) is not None:
            arrays[name] = np.asarray(data[name])
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _write_csv(data: Data, path: Path) -> None:
    _edge_table(data).to_csv(path, index=False)


def _write_parquet(data: Data, path: Path) -> None:
    from graphglow.graphs.table_file import require_pyarrow

    require_pyarrow()
    _edge_table(data).to_parquet(path, index=False)


def _edge_table(data: Data) -> Any:
    import pandas as pd

    source, target = _array(data.edge_index)
    ids = np.asarray(data.node_id) if data.get("node_id") is not None else None
    columns = {
        "source": source if ids is None else ids[source],
        "target": target if ids is None else ids[target],
        "weight": _weight(data),
    }
    for name in ("input_weight", "latent_weight"):
        if data.get(f"edge_{name}") is not None:
            columns[name] = _array(data[f"edge_{name}"])
    return pd.DataFrame(columns)


def _write_graphml(data: Data, path: Path) -> None:
    """Undirected where both directions are there with one weight; of duplicates the largest."""
    import networkx as nx

    edge_index, weight = coalesce(
        data.edge_index.cpu(), torch.from_numpy(_weight(data)), data.num_nodes, reduce="max"
    )
    undirected = is_undirected(edge_index, weight, data.num_nodes)
    graph = nx.Graph() if undirected else nx.DiGraph()
    ids = data.get("node_id") or list(range(int(data.num_nodes or 0)))
    graph.add_nodes_from(ids)
    for key, values in _node_attributes(data).items():
        for node, value in zip(ids, values, strict=True):
            if value is not None:
                graph.nodes[node][key] = value
    for u, v, w in zip(*edge_index.tolist(), weight.tolist(), strict=True):
        if not undirected or u <= v:
            graph.add_edge(ids[u], ids[v], weight=w)
    nx.write_graphml_xml(graph, path)


def _node_attributes(data: Data) -> dict[str, list[Any]]:
    attributes: dict[str, list[Any]] = {}
    if data.get("y") is not None:
        names = data.get("class_names")
        attributes["y"] = [
            None if c < 0 else (names[c] if names is not None else c) for c in data.y.tolist()
        ]
    if data.get("x") is not None:  # GraphML knows no lists: JSON text, exact for float32
        attributes["x"] = [f"[{','.join(f'{v:.9g}' for v in row)}]" for row in data.x.tolist()]
    split: list[Any] = [None] * int(data.num_nodes or 0)
    for name in SPLITS:
        if data.get(f"{name}_mask") is not None:
            attributes["split"] = split
            for node in np.flatnonzero(_array(data[f"{name}_mask"])):
                split[node] = name
    return attributes


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().numpy()
    return array


def _weight(data: Data) -> np.ndarray:
    if data.get("edge_weight") is None:
        return np.ones(data.edge_index.shape[1], dtype=np.float32)
    return _array(data.edge_weight).reshape(-1)


WRITERS: dict[str, Callable[[Data, Path], None]] = {
    ".pt": _write_pt,
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".graphml": _write_graphml,
}
