"""Random graphs: sources of every kind of use and uselessness of edges and features."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.evidence.rows import times
from graphglow.graphs.graph import normalised_adjacency


def random_graph(generator: torch.Generator, max_nodes: int = 3000) -> Data:
    """A graph of 300 to ``max_nodes`` nodes, 2 to 10 classes and mean degree 1.5 to 80.

    Half of them are homophilous to a random degree, half have a random class-to-class matrix;
    degrees are heavy-tailed in half; a third have labels that are diffused over the graph instead
    of drawn before it. Features: Gaussian or words, of random signal, diffused or not.

    Shapes:
        x [N, D], edge_index [2, E], y [N]
    """

    def draw(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    nodes = int(torch.tensor(draw(5.7, torch.tensor(float(max_nodes)).log().item())).exp())
    classes = int(draw(2, 10.99))
    share = torch.rand(classes, generator=generator) + draw(0.05, 1.0)
    y = torch.multinomial(share, nodes, replacement=True, generator=generator)
    degree = min(torch.tensor(draw(0.4, 4.4)).exp().item(), nodes / 12)
    homophily = draw(0, 1)
    if draw(0, 1) < 0.5:
        mixing = torch.full((classes, classes), (1 - homophily) / classes)
        mixing += homophily * torch.eye(classes)
    else:
        mixing = torch.rand(classes, classes, generator=generator) ** draw(1, 6)
    edge_index = _edges(y, mixing, int(nodes * degree / 2), draw(0, 1) < 0.5, generator)
    if draw(0, 1) < 0.33:  # labels follow the graph
        field = torch.randn(nodes, classes, generator=generator)
        y = _diffused(edge_index, field, int(draw(2, 8))).argmax(1)
    x = _features(y, edge_index, generator)
    return Data(x=x, edge_index=edge_index, y=y, num_nodes=nodes, name="random")


def _edges(
    y: Tensor, mixing: Tensor, count: int, heavy: bool, generator: torch.Generator
) -> Tensor:
    """``count`` pairs: a first end by its weight, a class by the first's row of ``mixing``, and a
    second end of that class by its weight.
    """
    nodes, classes = len(y), len(mixing)
    weight = torch.ones(nodes)
    if heavy:
        weight = torch.rand(nodes, generator=generator).clamp_min(1e-3) ** -0.5
    first = torch.multinomial(weight, count, replacement=True, generator=generator)
    row = mixing[y[first]] + 1e-6
    there = torch.multinomial(row, 1, generator=generator)[:, 0]
    second = torch.randint(nodes, (count,), generator=generator)
    for c in range(classes):
        members, wanted = (y == c).nonzero()[:, 0], (there == c).nonzero()[:, 0]
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
    """A field smoothed over the graph, each column of mean 0 and deviation 1 again."""
    adj = normalised_adjacency(edge_index, None, len(field))
    for _ in range(steps):
        field = times(adj, field)
    return F.normalize(field - field.mean(0), dim=0) * math.sqrt(len(field))
