"""Random graphs whose edges and features are informative to any degree."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.graph.graph import normalised_adjacency
from graphglow.linalg.rows import times


def random_graph(generator: torch.Generator, max_nodes: int = 3000) -> Data:
    """Draw a graph of 300 to ``max_nodes`` nodes, 2 to 16 classes and mean degree 1.5 to 80.

    Edges depend on *groups* of nodes. In a third of the graphs there are more groups than classes,
    of uneven sizes, like communities. In the others a group is a class, with random homophily, on a
    ring of classes, or with a random mixing matrix. Half have heavy-tailed degrees, a quarter
    labels that are diffused over the graph, a sixth a rare class. A fifth have no features; the
    others have Gaussian or word features, informative or not, diffused or not.

    Shapes:
        x [N, D] or None, edge_index [2, E], y [N]
    """

    def draw(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    nodes = int(math.exp(draw(5.7, math.log(max_nodes))))
    classes = int(draw(2, 10.99) if draw(0, 1) < 0.8 else draw(2, 16.99))
    share = torch.rand(classes, generator=generator) + draw(0.05, 1.0)
    if draw(0, 1) < 0.17:  # a rare class, as fraud is
        classes = 2
        rare = draw(0.03, 0.15)
        share = torch.tensor([1 - rare, rare])
    group_class = torch.arange(classes)
    communities = draw(0, 1) < 0.33
    if communities:
        many = int(classes * draw(1, 5.99))
        group_class = torch.cat([group_class, torch.randint(classes, (many,), generator=generator)])
        share = share[group_class] * torch.rand(len(group_class), generator=generator) ** draw(0, 2)
        share += 0.02 * share.mean()
    group = torch.multinomial(share, nodes, replacement=True, generator=generator)
    mixing = _mixing(len(group_class), draw(0.4, 1) if communities else None, generator)
    degree = min(math.exp(draw(0.4, 4.4)), nodes / 12)
    edge_index = _edges(group, mixing, int(nodes * degree / 2), draw(0, 1) < 0.5, generator)
    y = group_class[group]
    if draw(0, 1) < 0.25:  # labels follow the graph
        field = torch.randn(nodes, classes, generator=generator)
        y = _diffused(edge_index, field, int(draw(2, 8))).argmax(1)
    x = None if draw(0, 1) < (0.5 if communities else 0.1) else _features(y, edge_index, generator)
    return Data(x=x, edge_index=edge_index, y=y, num_nodes=nodes, name="random")


def _mixing(groups: int, homophily: float | None, generator: torch.Generator) -> Tensor:
    """Draw the probabilities of edges between groups: [G, G]."""
    kind, strength = torch.rand(2, generator=generator).tolist()
    eye = torch.eye(groups)
    if homophily is not None or kind < 0.45:
        strength = strength if homophily is None else homophily
        return eye.mul(strength).add((1 - strength) / groups)
    if kind < 0.55:  # a ring of classes
        ring: Tensor = (eye.roll(1, 1) + eye.roll(-1, 1)) / 2
        return ring.mul(strength).add((1 - strength) / groups)
    power = 1 + 5 * float(torch.rand((), generator=generator))
    return torch.rand(groups, groups, generator=generator).pow(power)


def _edges(
    y: Tensor, mixing: Tensor, count: int, heavy: bool, generator: torch.Generator
) -> Tensor:
    """Draw edges: a first end by weight, a group by its row of ``mixing``, an end in the group."""
    nodes, classes = len(y), len(mixing)
    weight = torch.ones(nodes)
    if heavy:
        weight = torch.rand(nodes, generator=generator).clamp_min(1e-3) ** -0.5
    first = torch.multinomial(weight, count, replacement=True, generator=generator)
    row = mixing[y[first]] + 1e-6
    partner = torch.multinomial(row, 1, generator=generator)[:, 0]
    second = torch.randint(nodes, (count,), generator=generator)
    for c in range(classes):
        members, wanted = (y == c).nonzero()[:, 0], (partner == c).nonzero()[:, 0]
        if len(members) and len(wanted):
            drawn = torch.multinomial(
                weight[members], len(wanted), replacement=True, generator=generator
            )
            second[wanted] = members[drawn]
    return torch.stack([first, second])


def _features(y: Tensor, edge_index: Tensor, generator: torch.Generator) -> Tensor:
    def draw(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    nodes, classes = len(y), int(y.max()) + 1
    signal = draw(0, 1) ** 2 * 2 if draw(0, 1) < 0.8 else 0.0  # a fifth say nothing
    if draw(0, 1) < 0.5:
        width = int(torch.tensor(draw(1.6, 5.5)).exp())
        clusters = int(draw(1, 3.99))  # of one class: several centres
        centre = torch.randn(classes * clusters, width, generator=generator)
        member = y * clusters + torch.randint(clusters, (nodes,), generator=generator)
        x = signal * centre[member] + torch.randn(nodes, width, generator=generator)
        if draw(0, 1) < 0.4:
            x = x + draw(0.5, 3) * _diffused(edge_index, x, int(draw(1, 4)))
        return x
    width = int(draw(200, 1000))
    popularity = torch.rand(width, generator=generator) ** 3
    topic = torch.rand(classes, width, generator=generator) ** 4 * 5 * signal
    rate = popularity * draw(0.02, 0.1) * (1 + topic[y])
    return (torch.rand(nodes, width, generator=generator) < rate.clamp_max(0.4)).float()


def _diffused(edge_index: Tensor, field: Tensor, steps: int) -> Tensor:
    """Smooth a field over the graph, and standardise its columns."""
    adj = normalised_adjacency(edge_index, None, len(field))
    for _ in range(steps):
        field = times(adj, field)
    return F.normalize(field - field.mean(0), dim=0) * math.sqrt(len(field))
