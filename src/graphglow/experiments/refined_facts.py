"""What the refined graph of a transfer looks like beside its input graph."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from graphglow.training import TransferResult

NEW_EDGES_SHOWN = 8


class GraphFacts(NamedTuple):
    """Directed edges without loops, and the share of them that join nodes of one class."""

    edges: int
    homophily: float | None


class NewEdge(NamedTuple):
    """An edge of the refined graph that the input graph does not have."""

    source: str
    target: str
    weight: float
    same_class: bool | None


@dataclass(frozen=True)
class Refined:
    """What the refined graph of one target looks like."""

    target: str
    nodes: int
    top_k: int
    before: GraphFacts
    after: GraphFacts
    new_edges: list[NewEdge]


def describe_refined(result: TransferResult, top_k: int) -> Refined:
    """Compare the refined graph with the input graph, and list its strongest new edges."""
    graph = result.refined_graph(top_k, self_loops=False)
    num_nodes, y = result.graph.num_nodes, result.data.y
    known = to_undirected(result.data.edge_index)
    source, target = graph.edge_index
    new = ~torch.isin(source * num_nodes + target, known[0] * num_nodes + known[1])
    order = graph.edge_weight[new].argsort(descending=True, stable=True)[:NEW_EDGES_SHOWN]
    ids = result.data.get("node_id") or range(num_nodes)
    edges = []
    for u, v, weight in zip(
        source[new][order].tolist(),
        target[new][order].tolist(),
        graph.edge_weight[new][order].tolist(),
        strict=True,
    ):
        labelled = y[u] >= 0 and y[v] >= 0
        same = bool(y[u] == y[v]) if labelled else None
        edges.append(NewEdge(str(ids[u]), str(ids[v]), weight, same))
    return Refined(
        target=result.graph.name,
        nodes=num_nodes,
        top_k=top_k,
        before=graph_facts(result.data, undirected=True),
        after=graph_facts(graph),
        new_edges=edges,
    )


def graph_facts(data: Data, *, undirected: bool = False) -> GraphFacts:
    """Count edges and homophily; ``undirected`` adds both directions of each edge first."""
    edge_index = coalesce(remove_self_loops(data.edge_index)[0])
    if undirected:
        edge_index = to_undirected(edge_index)
    labels = data.y[edge_index]  # [2, E]
    labelled = (labels >= 0).all(dim=0)
    if not labelled.any():
        return GraphFacts(edge_index.shape[1], None)
    same = (labels[0] == labels[1])[labelled]
    return GraphFacts(edge_index.shape[1], float(same.double().mean()))
