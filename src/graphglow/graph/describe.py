"""What a graph is like, in numbers."""

from typing import Any

import torch
from scipy.sparse.csgraph import connected_components
from torch_geometric.utils import degree, homophily, subgraph, to_scipy_sparse_matrix

from graphglow.errors import InputError
from graphglow.graph.check import checked_edges, checked_labels, edges_were_made
from graphglow.graph.graph import undirected_edges
from graphglow.graph.load import as_graph
from graphglow.graph.write import own_classes


def describe(data: Any) -> dict[str, Any]:
    """Count nodes, edges, degrees and classes, and say how alike neighbours are.

    ``edges`` counts each undirected edge once, and no self-loop, as all counts for people do.
    ``homophily`` is the share of edges within a class; ``homophily_over_chance`` is 0 where classes
    are joined as chance would and 1 where all edges are within (class-insensitive edge homophily).
    Both are over all nodes whose label is known, test nodes too, and None where no edge joins two
    such nodes or they have one class.

    Args:
        data: A ``Data``, or anything else that :func:`graphglow.load_graph` takes.
    """
    data = as_graph(data, need_labels=False, split=False)
    count, x, y = int(data.num_nodes or 0), data.get("x"), data.get("y")
    if count == 0:
        raise InputError("a graph to describe must have at least one node; got none")
    edges, weight = checked_edges(data.edge_index, data.get("edge_weight"), count)
    low, high, _ = undirected_edges(edges, weight, count)
    both = torch.stack([torch.cat([low, high]), torch.cat([high, low])]).long().cpu()
    degrees = degree(both[0], count, torch.float64)
    y = torch.full((count,), -1) if y is None else checked_labels(y, count, None, False)
    known = y >= 0
    among, _ = subgraph(known, both, relabel_nodes=True, num_nodes=count)
    alike = {"homophily": "edge", "homophily_over_chance": "edge_insensitive"}
    told = among.numel() > 0 and len(torch.unique(y[known])) > 1
    names = own_classes(data, int(y.max()) + 1)
    return {
        "name": str(data.get("name") or "graph"),
        "nodes": count,
        "edges": len(low),
        "made_of_nearest_neighbours": edges_were_made(data),
        "features": 0 if x is None else int(x.shape[1]),
        "labelled": int(known.sum()),
        "classes": {name: int((y == code).sum()) for code, name in enumerate(names)},
        "mean_degree": float(degrees.mean()),
        "median_degree": float(degrees.median()),
        "largest_degree": int(degrees.max()),
        "isolated": int((degrees == 0).sum()),
        "components": int(connected_components(to_scipy_sparse_matrix(both, num_nodes=count))[0]),
        **{
            name: float(homophily(among, y[known], method=method)) if told else None
            for name, method in alike.items()
        },
    }
