"""New nodes after training: the trained GNN runs once on the graph that they make.

Nothing is trained. The weights stay and, under the paper's learner, the pivots, which are old
nodes; an evidence learner refines the graph anew, in closed form. The adjacency is normalised with
the new edges, and features are scaled to unit length as in training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.gnn import backbones_that
from graphglow.graph import check_graph, write_predictions
from graphglow.graph.check import MASKS
from graphglow.graph.write import own_ids, prediction_frame
from graphglow.linalg.neighbours import nearest_to

if TYPE_CHECKING:  # which imports this
    from graphglow.result import TransferResult


@dataclass(frozen=True, eq=False)
class NewPredictions:
    """Predictions for M new nodes, whose ids and class names are in ``data``.

    ``result`` is that of the whole graph: ``result.explain(node)`` explains a new node.

    Shapes:
        probabilities [M, C]
    """

    data: Data
    probabilities: Tensor
    result: "TransferResult"

    def predict_proba(self) -> Tensor:
        """Class probabilities: [M, C]."""
        return self.probabilities

    def predict(self) -> Tensor:
        """The most probable class: [M]."""
        return self.probabilities.argmax(dim=1)

    def to_frame(self) -> Any:
        """``id``, ``predicted``, ``probability`` and all probabilities as a pandas DataFrame."""
        return prediction_frame(self.data, self.probabilities)

    def write(self, path: str | Path) -> None:
        """Write the frame as ``.csv`` or ``.parquet``; an existing file is replaced."""
        write_predictions(self.data, self.probabilities, path)


def predict_new(
    result: "TransferResult",
    x: Any,
    edges: Any,
    *,
    edge_weight: Any,
    node_id: Sequence[int | str] | None,
) -> NewPredictions:
    """Predict nodes that were added after training; see :meth:`TransferResult.predict_new`."""
    if not result.gnn.inductive:
        able = backbones_that(lambda kind: kind.inductive)
        raise InputError(
            f"{result.backbone} has a weight for each node of training, so it cannot predict new "
            f"ones. Train another backbone: {able}."
        )
    old, new_x = result.data, _tensor(x, "x")
    num_old, num_features = old.x.shape
    if new_x.shape[1:] == (0,) and num_features == 1:  # as nodes without features have it
        new_x = torch.ones(len(new_x), 1)
    if new_x.ndim != 2 or new_x.shape[1] != num_features:
        raise InputError(
            f"x must have a row per new node and the {num_features} columns of training; got "
            f"shape {tuple(new_x.shape)}"
        )
    count = len(new_x)
    if edges is None and edge_weight is not None:
        raise InputError("edge_weight must come with edges; got edge_weight alone")
    if edges is None and old.get("knn_graph", False) and count:
        k = min(10, num_old)  # as in training
        new = num_old + torch.arange(count).repeat_interleave(k)
        pairs = torch.stack([nearest_to(old.x, k, new_x).flatten(), new])
    else:
        pairs = _pairs([[], []] if edges is None else edges, num_old)
    old_ids = own_ids(old, num_old)
    first = max([num_old - 1, *(one for one in old_ids if isinstance(one, int))]) + 1
    ids = list(range(first, first + count) if node_id is None else node_id)
    if len(ids) != count:
        raise InputError(f"node_id must have one id per new node ({count}); got {len(ids)}")
    if taken := {*map(str, ids)} & {*map(str, old_ids)}:
        raise InputError(f"node_id must hold ids that no node has yet; got {min(taken)}")
    weight = None if edge_weight is None else _tensor(edge_weight, "edge_weight").flatten()
    whole = result.on_graph(grown_graph(old, new_x, pairs, weight, [*old_ids, *ids]))
    names = {} if old.get("class_names") is None else {"class_names": old.class_names}
    about = Data(num_nodes=count, node_id=ids, **names)
    return NewPredictions(about, whole.predict_proba()[num_old:], whole)


def grown_graph(
    old: Data, x: Tensor, pairs: Tensor, weight: Tensor | None, ids: list[int | str]
) -> Data:
    """Return a checked graph with new nodes behind the old ones, unlabelled and in no split.

    Shapes:
        x [M, F], pairs [2, E], weight [E] or None; ids of all N + M nodes
    """
    grown = Data(
        node_id=ids,
        class_names=old.get("class_names"),
        name=old.get("name", "graph"),
        x=torch.cat([old.x, x]),
        y=torch.cat([old.y, old.y.new_full((len(x),), -1)]),
        edge_index=torch.cat([old.edge_index, pairs], dim=1),
        knn_graph=old.get("knn_graph", False),
    )
    for mask in MASKS:
        grown[mask] = torch.cat([old[mask], old[mask].new_zeros(len(x))])
    known = old.get("edge_weight")
    if known is not None or weight is not None:
        known = torch.ones(old.edge_index.shape[1]) if known is None else known
        weight = torch.ones(pairs.shape[1]) if weight is None else weight
        grown.edge_weight = torch.cat([known, weight])
    return check_graph(grown, need_validation=False)


def _pairs(edges: Any, num_old: int) -> Tensor:
    pairs = _tensor(edges, "edges")
    if pairs.numel() == 0:
        return torch.empty(2, 0, dtype=torch.int64)
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        raise InputError(f"edges must have shape [2, E]; got {tuple(pairs.shape)}")
    among_old = (pairs < num_old).all(dim=0).nonzero()
    if len(among_old):
        u, v = pairs[:, int(among_old[0])].tolist()
        raise InputError(f"each edge must have a new end, {num_old} or above; got {u} - {v}")
    return pairs


def _tensor(value: Any, name: str) -> Tensor:
    """An array of PyTorch, NumPy, SciPy or pandas as a dense tensor on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().cpu().to_dense()
    try:
        return torch.from_numpy(np.array(value.toarray() if hasattr(value, "toarray") else value))
    except (TypeError, ValueError) as error:  # text, objects, ragged lists
        raise InputError(f"{name} must be an array of numbers; got {value!r:.60}") from error
