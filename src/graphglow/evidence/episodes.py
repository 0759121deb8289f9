"""Episodes: source graphs or random ones, with damaged edges, features and labels."""

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.graph.graph import normalised_adjacency, undirected_edges
from graphglow.linalg.rows import times

BUDGETS = (0, 1, 2, 3, 5, 6, 10, 20, 40, 0.05, 0.1, 0.2, 0.5, 0.75)
BUDGET_WEIGHTS = (0.04, 0.08, 0.08, 0.08, 0.08, 0.08, 0.1, 0.08, 0.08, 0.05, 0.05, 0.05, 0.08, 0.07)
MOST_CLASSES = 20


def draw_episode(source: Data, generator: torch.Generator, max_nodes: int) -> Data:
    """Draw a damaged part of a source graph, with ``train_mask`` and the true classes ``truth``.

    All labels ``y`` of the source are used, -1 is unknown.
    """
    draw = partial(_uniform, generator)
    data = neighbourhood(source, generator, max_nodes)
    y = _classes(data.y, generator, merge=draw() < 0.15)
    edges = _damaged_edges(data.edge_index, y, generator)
    x = _damaged_features(data.x, len(y), generator)
    mask = _label_mask(y, generator)
    labels = y.clone()
    if draw() < 0.12:  # some labels are wrong
        wrong = mask & (torch.rand(len(y), generator=generator) < 0.2 * draw())
        known = y[y >= 0]
        labels[wrong] = known[torch.randint(len(known), (int(wrong.sum()),), generator=generator)]
    return Data(x=x, edge_index=edges, y=labels, train_mask=mask, truth=y, num_nodes=len(y))


def neighbourhood(source: Data, generator: torch.Generator, max_nodes: int) -> Data:
    """Sample at most ``max_nodes`` nodes by breadth-first search from random nodes."""
    nodes = len(source.y)
    if nodes <= max_nodes:
        return source
    row, col = torch.cat([source.edge_index, source.edge_index.flip(0)], 1)
    inside = torch.zeros(nodes, dtype=torch.bool)
    inside[torch.randint(nodes, (max(1, max_nodes // 40),), generator=generator)] = True
    while True:
        ring = torch.zeros_like(inside)
        ring[col[inside[row]]] = True
        ring &= ~inside
        room = max_nodes - int(inside.sum())
        candidates = ring.nonzero()[:, 0]
        if room <= 0 or len(candidates) == 0:
            break
        order = torch.randperm(len(candidates), generator=generator)[:room]
        inside[candidates[order]] = True
    place = inside.cumsum(0) - 1
    kept = inside[source.edge_index].all(0)
    x = None if source.x is None else source.x.index_select(0, inside.nonzero()[:, 0])
    return Data(x=x, edge_index=place[source.edge_index[:, kept]], y=source.y[inside])


def _classes(y: Tensor, generator: torch.Generator, *, merge: bool) -> Tensor:
    """Number the classes from 0 in random order, some of them merged if ``merge``."""
    values = torch.unique(y[y >= 0])
    count = len(values)
    wanted = min(count, MOST_CLASSES)
    if merge and count > 3:
        wanted = int(torch.randint(2, wanted, (), generator=generator))
    group = torch.randperm(count, generator=generator) % wanted
    table = torch.full((int(y.max()) + 2,), -1)
    table[values] = group
    return table[y]  # -1 is the last one


def _damaged_edges(edge_index: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """Drop edges, add random ones, or attack: add edges across classes and drop others."""
    nodes = len(y)
    low, high, _ = undirected_edges(edge_index, None, nodes)
    edges = torch.stack([low.long(), high.long()])
    kind = _uniform(generator)
    if kind < 0.4 or edges.shape[1] == 0:
        return edges
    count = edges.shape[1]
    if kind < 0.6:  # lost, up to all
        lost = _uniform(generator) if _uniform(generator) < 0.85 else 1.0
        return edges[:, torch.rand(count, generator=generator) >= lost]
    if kind < 0.85:  # false ones, up to three times as many
        false = int(3 * _uniform(generator) * count)
        return torch.cat([edges, torch.randint(nodes, (2, false), generator=generator)], 1)
    strength = 0.5 * _uniform(generator)
    known = (y[edges] >= 0).all(0)
    within = known & (y[edges[0]] == y[edges[1]])
    kept = ~within | (torch.rand(count, generator=generator) >= 0.5 * strength)
    added = torch.randint(nodes, (2, 3 * int(strength * count)), generator=generator)
    across = added[:, y[added[0]] != y[added[1]]][:, : int(strength * count)]
    return torch.cat([edges[:, kept], across], 1)


def _damaged_features(x: Tensor | None, nodes: int, generator: torch.Generator) -> Tensor | None:
    """Keep the features (half of the time), swap them, add noise, or replace or drop them."""
    kind = _uniform(generator)
    if x is None or kind < 0.5:
        return x
    if kind < 0.64:  # some nodes have another's
        order = torch.arange(nodes)
        moved = (torch.rand(nodes, generator=generator) < _uniform(generator)).nonzero()[:, 0]
        order[moved] = moved[torch.randperm(len(moved), generator=generator)]
        return x.index_select(0, order)
    if kind < 0.78:
        return _with_noise(x, generator)
    if kind < 0.86:
        return torch.randn(nodes, int(8 + 120 * _uniform(generator)), generator=generator)
    return (torch.rand(nodes, 400, generator=generator) < 0.03).float() if kind < 0.9 else None


def _with_noise(x: Tensor, generator: torch.Generator) -> Tensor:
    """Drop entries of sparse features, or add Gaussian noise to dense ones."""
    if x.layout == torch.strided and float((x != 0).float().mean()) > 0.5:
        deviation = x.float().std(0, keepdim=True)
        noise = torch.randn(x.shape, generator=generator)
        return x + 3 * _uniform(generator) * deviation * noise
    entries = x.to_sparse().coalesce()
    kept = torch.rand(entries.values().numel(), generator=generator) < 0.05 + _uniform(generator)
    return torch.sparse_coo_tensor(
        entries.indices()[:, kept], entries.values()[kept], x.shape, check_invariants=False
    ).coalesce()


def _label_mask(y: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the labelled nodes: a random number per class, or a random share of all nodes."""
    weights = torch.tensor(BUDGET_WEIGHTS)
    budget = BUDGETS[int(torch.multinomial(weights, 1, generator=generator))]
    order = torch.randperm(len(y), generator=generator)
    order = order[y[order] >= 0]
    mask = torch.zeros(len(y), dtype=torch.bool)
    if isinstance(budget, float):
        mask[order[: int(budget * len(order))]] = True
        return mask
    for c in range(int(y.max()) + 1):
        members = order[y[order] == c]
        mask[members[: min(budget, len(members) // 2)]] = True
    return mask


def _uniform(generator: torch.Generator, low: float = 0.0, high: float = 1.0) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


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
    draw = partial(_uniform, generator)
    nodes = int(math.exp(draw(5.7, math.log(max_nodes))))
    classes = int(draw(2, 10.99) if draw() < 0.8 else draw(2, 16.99))
    share = torch.rand(classes, generator=generator) + draw(0.05, 1.0)
    if draw() < 0.17:  # a rare class, as fraud is
        classes = 2
        rare = draw(0.03, 0.15)
        share = torch.tensor([1 - rare, rare])
    group_class = torch.arange(classes)
    communities = draw() < 0.33
    if communities:
        many = int(classes * draw(1, 5.99))
        group_class = torch.cat([group_class, torch.randint(classes, (many,), generator=generator)])
        share = share[group_class] * torch.rand(len(group_class), generator=generator) ** draw(0, 2)
        share += 0.02 * share.mean()
    group = torch.multinomial(share, nodes, replacement=True, generator=generator)
    mixing = _mixing(len(group_class), draw(0.4, 1) if communities else None, generator)
    degree = min(math.exp(draw(0.4, 4.4)), nodes / 12)
    edge_index = _edges(group, mixing, int(nodes * degree / 2), draw() < 0.5, generator)
    y = group_class[group]
    if draw() < 0.25:  # labels follow the graph
        field = torch.randn(nodes, classes, generator=generator)
        y = _diffused(edge_index, field, int(draw(2, 8))).argmax(1)
    x = None if draw() < (0.5 if communities else 0.1) else _features(y, edge_index, generator)
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
    power = _uniform(generator, 1, 6)
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
    draw = partial(_uniform, generator)
    nodes, classes = len(y), int(y.max()) + 1
    signal = draw() ** 2 * 2 if draw() < 0.8 else 0.0  # a fifth say nothing
    if draw() < 0.5:
        width = int(torch.tensor(draw(1.6, 5.5)).exp())
        clusters = int(draw(1, 3.99))  # of one class: several centres
        centre = torch.randn(classes * clusters, width, generator=generator)
        member = y * clusters + torch.randint(clusters, (nodes,), generator=generator)
        x = signal * centre[member] + torch.randn(nodes, width, generator=generator)
        if draw() < 0.4:
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
