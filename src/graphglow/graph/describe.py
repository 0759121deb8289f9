"""What a graph is like, in numbers."""

from typing import Any

import torch
from scipy.sparse.csgraph import connected_components
from torch_geometric.utils import homophily, subgraph, to_scipy_sparse_matrix

from graphglow.graph.check import edges_were_made
from graphglow.graph.graph import graph_of
from graphglow.graph.load import as_graph
from graphglow.graph.write import own_classes
from graphglow.linalg.rows import entries


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
    graph = graph_of(data)
    y, known = graph.y, graph.y >= 0
    pairs = torch.stack([graph.links.col, entries(graph.links)[0].int()]).long()
    among, _ = subgraph(known, pairs, relabel_nodes=True, num_nodes=graph.num_nodes)
    alike = {"homophily": "edge", "homophily_over_chance": "edge_insensitive"}
    told = among.numel() > 0 and int(y[known].min()) < int(y[known].max())
    names = own_classes(data, int(y.max()) + 1)
    x = data.get("x")
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": len(graph.low),
        "made_of_nearest_neighbours": edges_were_made(data),
        "features": 0 if x is None else int(x.shape[1]),
        "labelled": int(known.sum()),
        "classes": {name: int((y == code).sum()) for code, name in enumerate(names)},
        "mean_degree": float(graph.degree.double().mean()),
        "median_degree": float(graph.degree.median()),
        "largest_degree": int(graph.degree.max()),
        "isolated": int((graph.degree == 0).sum()),
        "components": int(
            connected_components(to_scipy_sparse_matrix(pairs, num_nodes=graph.num_nodes))[0]
        ),
        **{
            name: float(homophily(among, y[known], method=method)) if told else None
            for name, method in alike.items()
        },
    }
