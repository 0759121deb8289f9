"""What a graph, given or learned, says about labels: homophily, and how alike neighbourhoods are.

Everything is a function of label weights W [N, C]: W_uc is the weight of the edges from u to
*other* nodes of class c. For a learned graph, given by two factors, W is one propagation of one-hot
labels, less what comes back to the node itself: never N x N.

"The learned graph" can mean the two-step graph of messages, from node to pivots to node (Eq. 11),
or the one-step graph from nodes to pivots, which the learner infers (Eq. 9). The paper does not
say which it measured; rows have both.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.gnn.propagation import Structure
from graphglow.graph.graph import undirected_edges
from graphglow.paper.pivots import EPS, BlendedStructure, PivotStructure


def edge_label_weights(data: Data) -> Tensor:
    """Label weights over edges, both directions of each, no loops: [N, C] in float64."""
    given = data.get("edge_weight")
    low, high, weight = undirected_edges(data.edge_index, given, int(data.num_nodes))
    weight = torch.ones(len(low)) if weight is None else weight
    here, there = torch.cat([low, high]).long(), torch.cat([high, low]).long()
    labels = one_hot(data.y)
    messages = weight.repeat(2)[:, None] * labels[there]
    return torch.zeros_like(labels).index_add_(0, here, messages)


@torch.no_grad()
def latent_label_weights(latent: Structure, y: Tensor) -> Tensor:
    """Label weights over a learned graph as its messages weigh (Eq. 11): [N, C] in float64."""
    if isinstance(latent, BlendedStructure):
        parts = [latent_label_weights(one, y) for one in (latent.current, latent.first)]
        return torch.lerp(parts[1], parts[0], latent.eta)
    assert isinstance(latent, PivotStructure)
    gamma, labels = latent.gamma().double(), one_hot(y.to(latent.q.device))  # [N, P], [N, C]
    to_pivots = gamma / gamma.sum(1, keepdim=True).clamp_min(EPS)
    to_nodes = gamma / gamma.sum(0).clamp_min(EPS)
    itself = (to_pivots * to_nodes).sum(1, keepdim=True)
    return (to_pivots @ (to_nodes.T @ labels) - itself * labels).clamp_min(0)


@torch.no_grad()
def pivot_label_weights(latent: Structure, pivots: Tensor, y: Tensor) -> Tensor:
    """Label weights of the pivots [P] alone, in the node-pivot graph (Eq. 9): [N, C]."""
    graph = latent.current if isinstance(latent, BlendedStructure) else latent
    assert isinstance(graph, PivotStructure)
    gamma, pivots = graph.gamma().double(), pivots.to(graph.q.device)  # [N, P]
    gamma[pivots, torch.arange(len(pivots), device=pivots.device)] = 0
    return gamma @ one_hot(y.to(gamma.device))[pivots]


def one_hot(y: Tensor) -> Tensor:
    """Turn labels into rows in float64; that of an unlabelled node (-1) is zero: [N] -> [N, C]."""
    return F.one_hot(y + 1)[:, 1:].double()


def edge_homophily(weights: Tensor, y: Tensor) -> float:
    """Return the share of the weight between labelled nodes that joins nodes of one class."""
    known = y >= 0
    return float(weights[known, y[known]].sum() / weights[known].sum())


def class_homophily(weights: Tensor, y: Tensor) -> float:
    """Homophily of Lim et al. (NeurIPS 2021), the paper's; 0 where labels and edges disagree.

    The mean over classes of how far the class's share of its own weights exceeds its share of the
    nodes, with one class less in the divisor::

        1 / (C - 1)  sum_c  max(0, h_c - n_c / n),   h_c = sum_{u in c} W_uc / sum_{u in c} W_u.

    A class without edges has h_c = 0. Classes without a node do not count.
    """
    known = y >= 0
    labels = one_hot(y)[known]  # [n, C]
    size = labels.sum(0)  # [C]
    mixed = labels.T @ weights[known]  # [C, C]
    inside = mixed.diagonal() / mixed.sum(1).clamp_min(torch.finfo(weights.dtype).tiny)
    excess = (inside - size / size.sum()).clamp_min(0)
    return float(excess.sum() / (int((size > 0).sum()) - 1))


def neighbourhood_variance(weights: Tensor, y: Tensor) -> float:
    """Return how far nodes of one class differ in the labels around them.

    A node's neighbourhood distribution is its row of W as shares; nodes without edges do not
    count. The variance of a class is the mean squared distance from the mean of its nodes, and
    classes count by their size; the paper does not say whether it sums or averages over classes.
    """
    total = weights.sum(1)
    counted = (y >= 0) & (total > 0)
    labels = one_hot(y)[counted]  # [n, C]
    shares = weights[counted] / total[counted, None]  # [n, C]
    mean = labels.T @ shares / labels.sum(0).clamp_min(1)[:, None]  # [C, C], a row per class
    return float((shares - labels @ mean).square().sum(1).mean())


def structure_metrics(weights: Tensor, y: Tensor) -> dict[str, float]:
    """Return all three by the names that they have in rows."""
    return {
        "homophily": class_homophily(weights, y),
        "edge_homophily": edge_homophily(weights, y),
        "neighbourhood_variance": neighbourhood_variance(weights, y),
    }


def observed_metrics(latent: Structure, pivots: Tensor, y: Tensor) -> dict[str, float]:
    """Return the metrics of a learned graph; those of its node-pivot graph begin with pivot_."""
    metrics = structure_metrics(latent_label_weights(latent, y).cpu(), y)
    of_pivots = structure_metrics(pivot_label_weights(latent, pivots, y).cpu(), y)
    return metrics | {f"pivot_{name}": value for name, value in of_pivots.items()}
