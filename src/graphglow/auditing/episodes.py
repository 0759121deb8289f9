"""Episodes of the auditor: source graphs with hidden and false edges, the truth known."""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence.episodes import neighbourhood
from graphglow.graph.graph import FeatureEncoder, undirected_edges
from graphglow.linalg.neighbours import Search
from graphglow.linalg.rows import low_rank, unit

KINDS = ("random", "degree", "across", "attack", "near", "two hops")
"""False edges: any two nodes; ends drawn by degree; two classes; what harms a GNN most; nodes of
near features; neighbours of a neighbour."""
KIND_WEIGHTS = (0.24, 0.2, 0.17, 0.25, 0.07, 0.07)
COUNTED = {"random", "degree", "across", "attack"}
"""Kinds whose share can be told; pairs of the other two look like real edges."""
NEAR = 20  # nearest nodes that a false edge leads to
ATTACKED = 4096  # nodes at most: the attack looks at all pairs
WAVES = 8  # of an attack: gradients are computed anew for each


@dataclass(frozen=True, eq=False)
class Damaged:
    """A graph with false edges among its own, and with some of its own hidden.

    Shapes:
        data: x, edge_index [2, M] once each as ``low < high``, y, train_mask; real [M] of bool;
        hidden [2, H]
    """

    data: Data
    real: Tensor
    hidden: Tensor
    kinds: tuple[str, ...] = ()
    """Of false edges, if there are any."""


def draw_damaged(source: Data, generator: torch.Generator, max_nodes: int) -> Damaged:
    """Damage a part of a source: up to 60 % false edges, up to 40 % of the edges hidden, with or
    without features and labels.
    """

    def draw() -> float:
        return float(torch.rand((), generator=generator))

    data = neighbourhood(source, generator, max_nodes)
    x = None if data.x is None or draw() < 0.15 else data.x
    part = Data(x=x, edge_index=data.edge_index, y=data.y, num_nodes=len(data.y))
    count = 1 if draw() < 0.8 else 2
    drawn = torch.multinomial(torch.tensor(KIND_WEIGHTS), count, generator=generator)
    kinds = [KINDS[i] for i in drawn.tolist()]
    share = 0.0 if draw() < 0.12 else 0.6 * draw()
    hidden = 0.0 if draw() < 0.4 else 0.4 * draw()
    episode = damaged(part, generator, kinds=kinds, false_share=share, hidden_share=hidden)
    known = 0.0 if draw() < 0.6 else draw() ** 2
    episode.data.train_mask = torch.rand(len(data.y), generator=generator) < known
    return episode


def damaged(
    data: Data,
    generator: torch.Generator,
    *,
    kinds: list[str],
    false_share: float,
    hidden_share: float = 0.0,
) -> Damaged:
    """Hide a share of the edges, then add false ones until they are ``false_share`` of all.

    False edges are of the ``kinds`` in equal parts, and never real ones, hidden or not. No node
    has a label; ``data.y`` is only read for false edges across classes.
    """
    nodes = int(data.num_nodes)
    low, high, _ = undirected_edges(data.edge_index, None, nodes)
    edges = torch.stack([low.long(), high.long()])
    kept = torch.rand(edges.shape[1], generator=generator) >= hidden_share
    hidden, real = edges[:, ~kept], edges[:, kept]
    wanted = int(real.shape[1] * false_share / (1 - false_share))
    taken, new = edges[0] * nodes + edges[1], [edges.new_empty(0)]
    for kind in kinds:
        if (count := wanted // len(kinds)) == 0:
            break
        drawn = _false_pairs(kind, data, edges, kept, count, generator)
        key = drawn.amin(0) * nodes + drawn.amax(0)
        free = (drawn[0] != drawn[1]) & ~torch.isin(key, taken)
        key = torch.unique(key[free])
        key = key[torch.randperm(len(key), generator=generator)[:count]]
        taken = torch.cat([taken, key])
        new.append(key)
    key = torch.cat([real[0] * nodes + real[1], *new])
    order = key.argsort()
    truth = torch.arange(len(key)) < real.shape[1]
    index = torch.stack([key // nodes, key % nodes])[:, order]
    out = Data(x=data.x, edge_index=index, y=data.y, num_nodes=nodes)
    out.train_mask = torch.zeros(nodes, dtype=torch.bool)
    return Damaged(out, truth[order], hidden, tuple(kinds) if wanted else ())


def _false_pairs(
    kind: str, data: Data, every: Tensor, kept: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    """Draw more than ``count`` pairs of a kind, some of them edges; by an attack, none of them."""
    if kind == "attack":
        return attack(data, every, count, generator)
    nodes, edges, count = int(data.num_nodes), every[:, kept], 4 * count + 64
    if kind == "near":
        return near_pairs(data, count, generator)
    if kind == "two hops" and edges.shape[1]:
        return two_step_pairs(edges, nodes, count, generator)
    if kind == "degree" and edges.shape[1]:
        ends = edges.flatten()
        return ends[torch.randint(len(ends), (2, count), generator=generator)]
    pairs = torch.randint(nodes, (2, 2 * count), generator=generator)
    if kind == "across":
        known = data.y[pairs]
        pairs = pairs[:, (known >= 0).all(0) & (known[0] != known[1])]
    return pairs[:, :count]


def two_step_pairs(edges: Tensor, nodes: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw random edges, each with a random neighbour of its second end: [2, count]."""
    row, col = torch.cat([edges, edges.flip(0)], 1)
    order = row.argsort()
    row, col = row[order], col[order]
    degree = torch.bincount(row, minlength=nodes)
    start = degree.cumsum(0) - degree
    first = torch.randint(len(row), (count,), generator=generator)
    middle = col[first]
    step = (torch.rand(count, generator=generator) * degree[middle]).long()
    return torch.stack([row[first], col[start[middle] + step]])


def near_pairs(data: Data, count: int, generator: torch.Generator) -> Tensor:
    """Draw nodes with one of their NEAR nearest by features; any pairs if there are no features."""
    nodes = int(data.num_nodes)
    rows = FeatureEncoder.fit(data.x, nodes)[0]
    pairs = torch.randint(nodes, (2, count), generator=generator)
    if rows is None:
        return pairs
    near = Search.of(unit(low_rank(rows, 64, generator))).nearest(range(nodes), NEAR)
    if near.shape[1] == 0:
        return pairs
    return near[:, torch.randint(near.shape[1], (count,), generator=generator)]


def attack(data: Data, edges: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Choose pairs without an edge that harm a GNN most: [2, <= count].

    In the manner of metattack (Zuegner and Guennemann, 2019): by the gradient of the loss on
    unlabelled nodes with respect to A, through the training itself. Differs from the paper: the GNN
    is ``A^2 X W`` with W of a ridge regression on a tenth of the labels, in closed form; edges are
    only added, in WAVES, of each at most a few to a node.
    """
    nodes = int(data.num_nodes)
    if nodes > ATTACKED:
        raise InputError(f"a graph to attack must have at most {ATTACKED} nodes; got {nodes}")
    rows = FeatureEncoder.fit(data.x, nodes)[0]
    x = torch.randn(nodes, 32, generator=generator)
    if rows is not None:
        x = low_rank(rows, 32, generator)[:, :32]
    known = (data.y >= 0).nonzero()[:, 0]
    known = known[torch.randperm(len(known), generator=generator)]
    train, rest = known[: len(known) // 10 + 1], known[len(known) // 10 + 1 :]
    target = F.one_hot(data.y.clamp_min(0)).float()
    most = int(torch.randint(1, 6, (), generator=generator))  # of a node in one wave
    adj = torch.eye(nodes)
    adj[edges[0], edges[1]] = adj[edges[1], edges[0]] = 1
    chosen: list[tuple[int, int]] = []
    for wave in range(WAVES):
        a = adj.clone().requires_grad_()
        with torch.enable_grad():
            scale = a.sum(1).rsqrt()
            h = x
            for _ in range(2):
                h = scale[:, None] * (a @ (scale[:, None] * h))
            h = unit(h)
            ridge = h[train].T @ h[train] + 0.01 * len(train) * torch.eye(h.shape[1])
            logits = 10 * h @ torch.linalg.solve(ridge, h[train].T @ target[train])
            loss = F.cross_entropy(logits[rest], data.y[rest])
        (slope,) = torch.autograd.grad(loss, a)
        harm = (slope + slope.T).masked_fill_(adj > 0, 0).triu_(1).flatten()
        room = (count * (wave + 1)) // WAVES - len(chosen)
        best = harm.topk(min(len(harm), 20 * room))
        used: Counter[int] = Counter()
        for place in best.indices[best.values > 0].tolist():
            pair = divmod(place, nodes)
            if room and used[pair[0]] < most and used[pair[1]] < most:
                used.update(pair)
                chosen.append(pair)
                adj[pair] = adj[pair[::-1]] = 1
                room -= 1
    return torch.tensor(chosen, dtype=torch.int64).reshape(-1, 2).T
