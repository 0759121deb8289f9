"""Which rank gets which node: parts of equal cost, with few edges between them."""

import importlib
import importlib.util
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from graphglow.errors import InputError
from graphglow.training.distributed.graph_arrays import BLOCK, Array

Partition = Literal["auto", "metis", "near", "given"]
PARTITIONS: tuple[str, ...] = get_args(Partition)

NODE_COST = 64
"""A node's dense work and memory, features and pivots, count as much as so many edges."""
IN_MEMORY = 200_000_000
"""``auto`` reorders graphs of up to so many edges; larger ones stay in the order given."""


def partition(edges: Array, num_nodes: int, parts: int, method: Partition = "auto") -> Array:
    """Say for each node which part it belongs to; every part has a node at least.

    ``metis`` minimises edges between parts (needs the package pymetis). ``near`` cuts a
    Cuthill-McKee order, in which neighbours stand close, into stretches of equal cost; ``given``
    does so with the order the nodes have, looking at a block of edges at a time. ``auto`` takes
    the first that can be: the former two hold all edges in memory.

    Shapes:
        edges [2, E], in memory or mapped -> [N], int32
    """
    if method not in PARTITIONS:
        raise InputError(f"partition must be one of {', '.join(PARTITIONS)}; got {method!r}")
    if not 1 <= parts <= num_nodes:
        raise InputError(f"parts must lie in [1, {num_nodes}], the number of nodes; got {parts}")
    has_metis = importlib.util.find_spec("pymetis") is not None
    if method == "auto":
        small = edges.shape[1] <= IN_MEMORY
        method = "given" if not small else "metis" if has_metis else "near"
    if method == "metis" and not has_metis:
        raise InputError("partition metis must have the package pymetis; got none installed")
    if parts == 1:
        return np.zeros(num_nodes, dtype=np.int32)
    if method == "given":
        return _stretches(np.arange(num_nodes), _costs(edges, num_nodes), parts)
    pattern = _pattern(edges, num_nodes)
    cost = np.diff(pattern.indptr) + NODE_COST
    if method == "metis":
        pymetis = importlib.import_module("pymetis")  # an optional dependency
        _, part = pymetis.part_graph(
            parts, xadj=pattern.indptr, adjncy=pattern.indices, vweights=cost.tolist()
        )
        return _never_empty(np.asarray(part, dtype=np.int32), parts)
    order = reverse_cuthill_mckee(pattern, symmetric_mode=True)
    return _stretches(order, cost, parts)


def _pattern(edges: Array, num_nodes: int) -> Any:
    """Both directions of every edge but self-loops, as a scipy matrix without duplicates."""
    row, col = (np.asarray(part, dtype=np.int64) for part in edges)
    apart = row != col
    row, col = row[apart], col[apart]
    ones = np.ones(2 * len(row), dtype=np.int8)
    both = (np.concatenate([row, col]), np.concatenate([col, row]))
    pattern = sp.coo_matrix((ones, both), shape=(num_nodes, num_nodes)).tocsr()
    pattern.sum_duplicates()
    return pattern


def _costs(edges: Array, num_nodes: int) -> Array:
    """Edges of each node, counted as they stand, and :data:`NODE_COST`: [N]."""
    cost = np.full(num_nodes, NODE_COST, dtype=np.int64)
    for start in range(0, edges.shape[1], BLOCK):
        for ends in np.asarray(edges[:, start : start + BLOCK], dtype=np.int64):
            cost += np.bincount(ends, minlength=num_nodes)
    return cost


def _stretches(order: Array, cost: Array, parts: int) -> Array:
    """Cut an order of the nodes where a part has its share of the cost: [N], [N] -> [N]."""
    done = np.cumsum(cost[order])
    middle = done - cost[order] / 2
    part = np.empty(len(order), dtype=np.int32)
    part[order] = np.minimum(middle * parts / done[-1], parts - 1).astype(np.int32)
    return _never_empty(part, parts)


def _never_empty(part: Array, parts: int) -> Array:
    """Give each part without a node one of the largest part's."""
    sizes = np.bincount(part, minlength=parts)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        part[np.flatnonzero(part == largest)[-1]] = empty
        sizes[largest] -= 1
        sizes[empty] += 1
    return part
