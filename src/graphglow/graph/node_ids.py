"""Nodes by the names that users call them."""

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph.write import own_ids


def node_places(data: Data, num_nodes: int, nodes: Iterable[Any]) -> NDArray[np.int64]:
    """Return the indices of nodes: [n]. This is the one rule of every door.

    A node is called by its id; by its index where the graph has no ids. A number and its text are
    the same.
    """
    import pandas as pd

    given = [one.item() if hasattr(one, "item") else one for one in nodes]
    called = [str(one) for one in given]
    names = pd.Index([str(own) for own in own_ids(data, num_nodes)])
    places = names.get_indexer(called)
    if (places >= 0).all():
        return np.asarray(places, dtype=np.int64)
    unknown = int((places < 0).argmax())
    got, text = given[unknown], called[unknown]
    if data.get("node_id") is None:
        raise InputError(f"node must be an index in [0, {num_nodes - 1}]; got {got!r}")
    bare = [name.lower().lstrip("0") for name in names[:20_000]]  # a zero or a case may be lost
    near = difflib.get_close_matches(text.lower().lstrip("0"), bare, n=3, cutoff=0.5)
    nearest = ", ".join([names[bare.index(one)] for one in near] or names[:3])
    raise InputError(f"node must be the id of a node (nearest: {nearest}); got {got!r}")


def node_place(data: Data, num_nodes: int, node: Any) -> int:
    """Return the index of one node."""
    return int(node_places(data, num_nodes, [node])[0])
