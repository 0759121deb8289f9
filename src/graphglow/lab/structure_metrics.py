"""What a graph, given or learned, says about labels: homophily, and how alike neighbourhoods are.

Everything is a function of the heard labels H [N, C]: H_uc is the weight of the edges from u to
*other* nodes of class c. For a learned graph, given by two factors, it is one propagation of
one-hot labels, less what comes back to the node itself: O(N P (W + C)), and never N x N.

"The learned graph" can mean the two-step graph of messages, from node to pivots to node (Eq. 11),
or the one-step graph from nodes to pivots, which is what the learner infers (Eq. 9). The paper does
not say which it measured; rows have both.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.gnn import Structure
from graphglow.graph.graph import undirected_edges
from graphglow.paper import BlendedStructure, PivotStructure
from graphglow.paper.pivots import BLOCK_ELEMENTS, EPS, row_blocks


class GraphFacts(NamedTuple):
    """Undirected edges without loops, and the share of them that join nodes of one class."""

    edges: int
    homophily: float | None


def graph_facts(data: Data) -> GraphFacts:
    """Count edges, each once whatever its directions, and homophily."""
    low, high, _ = undirected_edges(data.edge_index, data.get("edge_weight"), int(data.num_nodes))
    labels = data.y[low.long()], data.y[high.long()]
    labelled = (labels[0] >= 0) & (labels[1] >= 0)
    same = (labels[0] == labels[1])[labelled]
    return GraphFacts(len(low), float(same.double().mean()) if len(same) else None)


def heard_over_edges(data: Data) -> Tensor:
    """In a graph of edges, both directions of each, no loops: [N, C] in float64."""
    given = data.get("edge_weight")
    low, high, weight = undirected_edges(data.edge_index, given, int(data.num_nodes))
    labels = one_hot(data.y, torch.float64)
    heard = torch.zeros_like(labels)
    for here, there in ((low.long(), high.long()), (high.long(), low.long())):
        message = labels[there] if weight is None else weight[:, None] * labels[there]
        heard.index_add_(0, here, message)
    return heard


@torch.no_grad()
def heard_over_latent(latent: Structure, y: Tensor) -> Tensor:
    """In a learned graph, whose edges weigh as its messages do (Eq. 11): [N, C] in float64."""
    q = _node_pivot(latent).q
    labels = one_hot(y.to(q.device), q.dtype)
    heard = latent.propagate(labels).double()
    own = _own_weight(latent)[:, None] * labels.double()
    return (heard - own).clamp_min(0)


@torch.no_grad()
def heard_over_pivots(latent: Structure, pivots: Tensor, y: Tensor) -> Tensor:
    """Of the pivots [P] alone, in the learned node-pivot graph itself (Eq. 9): [N, C]."""
    graph = _node_pivot(latent)
    pivots = pivots.to(graph.q.device)
    labels = one_hot(y.to(graph.q.device), torch.float64)
    heard = []
    for block in _blocks(graph):
        nodes = torch.arange(block.start, block.stop, device=pivots.device)
        gamma = graph.gamma(block).double()  # [rows, P]
        heard.append(gamma.masked_fill(nodes[:, None] == pivots, 0) @ labels[pivots])
    return torch.cat(heard)


def one_hot(y: Tensor, dtype: torch.dtype) -> Tensor:
    """The row of an unlabelled node (-1) is zero: [N] -> [N, C]."""
    return F.one_hot(y + 1)[:, 1:].to(dtype)


def edge_homophily(heard: Tensor, y: Tensor) -> float:
    """The share of the weight between labelled nodes that joins nodes of one class."""
    known = y >= 0
    same = heard[known, y[known]].sum()
    return float(same / heard[known].sum())


def homophily(heard: Tensor, y: Tensor) -> float:
    """Lim et al. (NeurIPS 2021), the paper's metric; 0 where labels and edges do not agree.

    The mean over classes of how much more the class hears of its own than its share of the nodes,
    less one class in the divisor::

        1 / (C - 1)  sum_c  max(0, h_c - n_c / n),   h_c = sum_{u in c} H_uc / sum_{u in c} H_u.

    A class that hears nothing has h_c = 0. Classes without a node do not count.
    """
    known = y >= 0
    labels = one_hot(y, heard.dtype)[known]  # [n, C]
    size = labels.sum(0)  # [C]
    mixed = labels.T @ heard[known]  # [C, C]
    own = mixed.diagonal() / mixed.sum(1).clamp_min(torch.finfo(heard.dtype).tiny)
    excess = (own - size / size.sum()).clamp_min(0)
    return float(excess.sum() / (int((size > 0).sum()) - 1))


def neighbourhood_variance(heard: Tensor, y: Tensor) -> float:
    """How far nodes of one class differ in what they hear: the classes' variances, by their size.

    A node's neighbourhood distribution is its row of H as shares; nodes that hear nothing have none
    and do not count. The variance of a class is the mean squared distance from the mean of its
    nodes; the paper does not say whether it sums or averages over the C shares.
    """
    total = heard.sum(1)
    counted = (y >= 0) & (total > 0)
    labels = one_hot(y, heard.dtype)[counted]  # [n, C]
    shares = heard[counted] / total[counted, None]  # [n, C]
    mean = labels.T @ shares / labels.sum(0).clamp_min(1)[:, None]  # [C, C], a row per class
    return float((shares - labels @ mean).square().sum(1).mean())  # each node counts once


def structure_metrics(heard: Tensor, y: Tensor) -> dict[str, float]:
    """All three, by the names that they have in rows."""
    return {
        "homophily": homophily(heard, y),
        "edge_homophily": edge_homophily(heard, y),
        "neighbourhood_variance": neighbourhood_variance(heard, y),
    }


def _own_weight(latent: Structure) -> Tensor:
    """What a node hears of itself, by way of the pivots: the diagonal, [N]."""
    if isinstance(latent, BlendedStructure):
        eta = latent.eta
        assert isinstance(eta, float)  # one run, not a batch
        return eta * _own_weight(latent.current) + (1 - eta) * _own_weight(latent.first)
    graph = _node_pivot(latent)
    blocks = _blocks(graph)
    columns = torch.stack([graph.gamma(block).double().sum(0) for block in blocks]).sum(0)  # [P]
    inverse = columns.clamp_min(EPS).reciprocal()
    own = []
    for block in blocks:
        gamma = graph.gamma(block).double()  # [rows, P]
        own.append(gamma.square() @ inverse / gamma.sum(1).clamp_min(EPS))
    return torch.cat(own)


def _blocks(graph: PivotStructure) -> list[slice]:
    return list(row_blocks(len(graph.q), max(1, BLOCK_ELEMENTS // len(graph.k))))


def _node_pivot(latent: Structure) -> PivotStructure:
    """The factored graph itself, or the current one of a blend; of one run, not of a batch."""
    graph = latent.current if isinstance(latent, BlendedStructure) else latent
    assert isinstance(graph, PivotStructure)
    assert graph.q.ndim == 2
    return graph
