"""Views: unit rows, one per node, compared by their cosine; candidates: pairs that are near.

About 40 pairs per node are looked at instead of N. Work is cut into *blocks*, of nodes whose
nearest are looked for and of pairs that are scored. What is known of the whole graph goes into
every block, and a block's answer depends on nothing else.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.device import MapBlocks
from graphglow.evidence.channels import Channel
from graphglow.graph.graph import Graph
from graphglow.linalg.neighbours import Search
from graphglow.linalg.rows import (
    HiddenLayer,
    LowRank,
    Rows,
    SideBySide,
    entries,
    leading_map,
    low_rank_map,
    times,
    unit_,
)
from graphglow.linalg.sparse import SparseMatrix

WIDTH = 192
"""Columns of the views of features and of the adjacency, after a randomised SVD."""
FIRST = ("x", "ax", "aax", "diff", "link", "spectral", "role")
"""Features, their means over one and two hops, features minus those of the neighbourhood, adjacency
rows, their leading directions, and the structural role."""
SECOND = ("sx", "ssx")
"""Means of the features over one and two hops of the first round's graph."""
HIDDEN_F = ("x", "fx", "ffx", "aax", "link")
"""The views that the channel ``hidden_f`` reads."""
PPR_STEPS, PPR_TELEPORT = 8, 0.1
RANKS = (8, 16, 32)
"""Numbers of leading columns of ``link`` that the channel ``spectral`` chooses from."""
HIDDEN = 1024
"""Columns of a random hidden layer."""
ALL, AGAIN = ("x", "ax", "aax", "link"), ("x", "sx", "ssx", "aax", "link")
"""The views that the channels ``all`` and ``again`` read, side by side."""
ROLE_WAVES, ROLE_RATE = 64, 0.7
"""Number of random Fourier features of a role, and the deviation of their frequencies."""
NEAREST = 8
"""k: neighbours of a node in each view."""
NODES, PAIRS = {"cpu": 2**15, "cuda": 2**20}, {"cpu": 2**17, "cuda": 2**20}
"""Nodes whose nearest are looked for, and pairs that are scored, in one block, by device."""
TIES, TIE_LENGTH = 8, 0.01
"""Columns that tell equal rows apart, and their deviation: they move a cosine by some 3e-4."""


def first_views(
    graph: Graph, generator: torch.Generator
) -> tuple[dict[str, Tensor], dict[str, LowRank]]:
    """Return the views of :data:`FIRST`, and the maps to ``x`` and ``link``, for new nodes.

    Without features or edges, the views of these have no columns, and every cosine is 0.

    Shapes:
        views [N, <= WIDTH]
    """
    views, maps = [], []
    for rows in (graph.features, link_rows(graph)):
        if rows is None:
            view, way = torch.zeros(graph.num_nodes, 0, device=graph.device), LowRank(None)
        elif isinstance(rows, Tensor) and rows.shape[1] <= WIDTH:
            view, way = rows, LowRank(None)  # unit rows already
        else:
            view, way = low_rank_map(rows, WIDTH, generator)
        views.append(view)
        maps.append(way)
    return views_of(graph, *views), dict(zip(("x", "link"), maps, strict=True))


def views_of(graph: Graph, x: Tensor, link: Tensor) -> dict[str, Tensor]:
    """Compute the views of :data:`FIRST` from two of them."""
    ax = times(graph.adj, x)
    aax, diff = unit_(times(graph.adj, ax)), unit_(x - ax)
    degrees, leading = role_degrees(graph), leading_map(link, RANKS[1])
    return {
        "x": x, "ax": unit_(ax), "aax": aax, "diff": diff, "link": link,
        "spectral": leading(link), "role": role_view(degrees, degrees),
    }  # fmt: skip


def link_rows(graph: Graph) -> SparseMatrix | None:
    """Return ``(D + tau)^-1/2 A (D + tau)^-1/2``, where tau is the mean degree.

    Without tau, each small component would have a leading singular vector of its own.
    """
    if len(graph.low) == 0:
        return None
    row, col, _ = entries(graph.links)
    scale = (graph.degree + graph.degree.mean()).rsqrt()
    return graph.links.with_values(scale[row] * scale[col])


def role_degrees(graph: Graph) -> Tensor:
    """Log degrees: of a node, the mean over neighbours, over theirs, the deviation: [N, 4].

    A graph without edges has no columns.
    """
    own = graph.degree.log1p()[:, None]
    if len(graph.low) == 0:
        return own[:, :0]
    row, _, _ = entries(graph.links)
    mean = graph.links.with_values(graph.degree.reciprocal()[row])
    once = times(mean, own)
    spread = (times(mean, own.square()) - once.square()).clamp_min(0).sqrt()
    return torch.cat([own, once, times(mean, once), spread], 1)


def role_view(degrees: Tensor, known: Tensor) -> Tensor:
    """Structural roles, such as hub, leaf or bridge: [M, 2 * ROLE_WAVES].

    Random Fourier features of log degrees [M, 4], in units of those of the whole graph [N, 4]. The
    cosine of two roles falls with the distance of these.
    """
    if known.shape[1] == 0:
        return degrees[:, :0]
    part = (degrees - known.mean(0)) / known.std(0).clamp_min(1e-6)
    fixed = torch.Generator().manual_seed(0)  # the same waves on every graph
    waves = ROLE_RATE * torch.randn(part.shape[1], ROLE_WAVES, generator=fixed)
    phase = part @ waves.to(part)
    rows: Tensor = torch.cat([phase.cos(), phase.sin()], 1) / ROLE_WAVES**0.5
    return rows


def hop_means(adjacency: SparseMatrix, x: Tensor, letter: str) -> dict[str, Tensor]:
    """Compute feature means over one and two hops of a refined graph: ``sx`` and ``ssx``, say."""
    mean = times(adjacency, x)
    return {2 * letter + "x": unit_(times(adjacency, mean)), letter + "x": unit_(mean)}


def page_rank(adjacency: SparseMatrix, x: Tensor) -> Tensor:
    """Personalised PageRank, ``sum_k a (1 - a)^k S^k x`` (Gasteiger et al., 2019): [N, D]."""
    rank = x
    for _ in range(PPR_STEPS):
        rank = times(adjacency, rank).mul_(1 - PPR_TELEPORT).add_(x, alpha=PPR_TELEPORT)
    return rank


def hidden_layer(views: dict[str, Tensor], names: tuple[str, ...]) -> Rows:
    """Return a random hidden layer over views: [N, HIDDEN], or no columns."""
    rows = SideBySide.of([views[name] for name in names])
    return HiddenLayer.of(rows, HIDDEN) if rows.shape[1] else rows


def belief_view(channels: list[Channel]) -> Tensor:
    """Place the channels' class probabilities side by side: [N, V C]; none of one class."""
    beliefs = torch.cat([channel.probabilities.sqrt() for channel in channels], 1)
    if beliefs.shape[1] == len(channels):
        return beliefs[:, :0]
    return F.normalize(beliefs - beliefs.mean(0), dim=1)


def candidate_pairs(
    views: list[Tensor], others: Tensor, map_blocks: MapBlocks
) -> tuple[Tensor, str]:
    """Find pairs ``u < v`` that are among the ``others`` or near in a view, each once, sorted.

    Also return how the nearest were found. Columns of noise, so short that they only decide between
    equal rows, keep many equal rows from having the same few nearest.

    Shapes:
        views [N, D], others [2, K] as ``u < v`` -> [2, M] of the same type
    """
    nodes, how = len(views[0]), ""
    key = others[0].long() * nodes + others[1]
    for view in views:
        generator = torch.Generator().manual_seed(view.shape[1])
        noise = torch.randn(nodes, TIES, generator=generator).to(view)
        noise *= TIE_LENGTH * view.any(1, keepdim=True)  # zero rows are near to none
        search = Search.of(torch.cat([view, noise], 1))
        how = how or str(search)
        step = NODES[view.device.type]
        blocks = [range(start, min(start + step, nodes)) for start in range(0, nodes, step)]
        key = torch.unique(torch.cat([key, *map_blocks(nearest_keys, search, blocks)]))
    low = key.div(nodes, rounding_mode="floor")
    return torch.stack([low, key - low * nodes]).to(others.dtype), how


def nearest_keys(search: Search, places: range) -> Tensor:
    """Find the nearest of some rows, each pair once: keys ``low N + high``."""
    pairs = search.nearest(places, NEAREST)
    keys: Tensor = torch.unique(pairs.amin(0) * search.many + pairs.amax(0))
    return keys


def pair_blocks(pairs: Tensor) -> list[Tensor]:
    """Split pairs [2, M] into blocks, at least one."""
    return list(torch.split(pairs, PAIRS[pairs.device.type], dim=1))
