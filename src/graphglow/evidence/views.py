"""Views: unit rows in which any two nodes of any graph can be compared."""

import torch
from torch import Tensor

from graphglow.graph.graph import Graph
from graphglow.linalg.rows import (
    HiddenLayer,
    LowRank,
    Rows,
    SideBySide,
    entries,
    leading,
    low_rank_map,
    times,
    unit_,
)
from graphglow.linalg.sparse import SparseMatrix

WIDTH = 192
"""q: columns of the features and of the adjacency after a randomised SVD."""
FIRST = ("x", "ax", "aax", "diff", "link", "spectral", "role")
"""Features, their one- and two-hop means, what sets a node apart there, its neighbours, the leading
directions of these, and the part that it plays."""
SECOND = ("sx", "ssx")
"""One- and two-hop means over the graph of the first round."""
RANKS = (8, 16, 32)
"""Leading columns of ``link`` that a regression on few labels is better off with."""
HIDDEN = 1024
"""Columns of a random hidden layer."""
ALL, AGAIN = ("x", "ax", "aax", "link"), ("x", "sx", "ssx", "aax", "link")
"""What the channels of these names read side by side."""
ROLE_WAVES, ROLE_RATE = 64, 0.7
"""Random Fourier features of a node's part, and the deviation of their frequencies."""


def first_views(graph: Graph, generator: torch.Generator) -> dict[str, Tensor]:
    """The views of :data:`FIRST`.

    What is absent (no features, no edges) is a view without columns, and every cosine in it is 0.

    Shapes:
        each [N, <= WIDTH]
    """
    return mapped_views(graph, generator)[0]


def mapped_views(
    graph: Graph, generator: torch.Generator
) -> tuple[dict[str, Tensor], dict[str, LowRank]]:
    """:func:`first_views`, and the maps of features and of adjacency rows to ``x`` and ``link``."""
    x, x_map = _or_none(graph, graph.features, generator)
    link, link_map = _or_none(graph, link_rows(graph), generator)
    return views_of(graph, x, link), {"x": x_map, "link": link_map}


def views_of(graph: Graph, x: Tensor, link: Tensor) -> dict[str, Tensor]:
    """The views of :data:`FIRST` from two of them."""
    ax = times(graph.adj, x)
    aax, diff = unit_(times(graph.adj, ax)), unit_(x - ax)
    spectral, role = leading(link, RANKS[1]), role_view(graph)
    return {
        "x": x, "ax": unit_(ax), "aax": aax, "diff": diff, "link": link, "spectral": spectral,
        "role": role,
    }  # fmt: skip


def hidden_layer(views: dict[str, Tensor], names: tuple[str, ...]) -> Rows:
    """A random hidden layer over views side by side: [N, HIDDEN], or no columns."""
    rows = SideBySide.of([views[name] for name in names])
    return HiddenLayer.of(rows, HIDDEN) if rows.shape[1] else rows


def second_views(first: dict[str, Tensor], adjacency: SparseMatrix) -> dict[str, Tensor]:
    """The views of :data:`SECOND` over a refined graph S."""
    sx = times(adjacency, first["x"])
    ssx = unit_(times(adjacency, sx))
    return {"sx": unit_(sx), "ssx": ssx}


def role_view(graph: Graph) -> Tensor:
    """The part a node plays: hub, leaf, between hubs.

    Degrees of the node, of its neighbours (mean, deviation) and of theirs, on a log scale, as
    waves whose cosine falls with their distance, so that any level can be told from any
    other: [N, 2 * ROLE_WAVES] unit rows, or no columns without edges.
    """
    if len(graph.low) == 0:
        return torch.zeros(graph.num_nodes, 0, device=graph.device)
    part = role_degrees(graph)
    return role_waves(part, part.mean(0), part.std(0))


def role_degrees(graph: Graph) -> Tensor:
    """Log degrees: a node's, its neighbours' mean, that of their means, the deviation: [N, 4]."""
    own = graph.degree.log1p()[:, None]
    pattern = graph.links
    row, _, _ = entries(pattern)
    mean = pattern.with_values(graph.degree.reciprocal()[row])
    once = times(mean, own)
    spread = (times(mean, own.square()) - once.square()).clamp_min(0).sqrt()
    return torch.cat([own, once, times(mean, once), spread], 1)


def role_waves(part: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Rows of the role view: [N, 4], [4], [4] -> [N, 2 * ROLE_WAVES]."""
    part = (part - mean) / deviation.clamp_min(1e-6)
    fixed = torch.Generator().manual_seed(0)  # the same waves on every graph
    waves = ROLE_RATE * torch.randn(part.shape[1], ROLE_WAVES, generator=fixed)
    phase = part @ waves.to(part)
    rows: Tensor = torch.cat([phase.cos(), phase.sin()], 1) / ROLE_WAVES**0.5
    return rows


def _or_none(graph: Graph, rows: Rows | None, generator: torch.Generator) -> tuple[Tensor, LowRank]:
    if rows is None:
        return torch.zeros(graph.num_nodes, 0, device=graph.device), LowRank(None)
    if isinstance(rows, Tensor) and rows.shape[1] <= WIDTH:
        return rows, LowRank(None)  # unit rows already
    return low_rank_map(rows, WIDTH, generator)


def link_rows(graph: Graph) -> SparseMatrix | None:
    """``(D + tau)^-1/2 A (D + tau)^-1/2`` with tau the mean degree.

    Without tau each small component of a scattered graph is a leading singular vector of its own.
    """
    if len(graph.low) == 0:
        return None
    pattern = graph.links
    row, col, _ = entries(pattern)
    scale = (graph.degree + graph.degree.mean()).rsqrt()
    return pattern.with_values(scale[row] * scale[col])
