"""Views: unit rows, one per node, that are compared by their cosine."""

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
"""Columns of the views of features and of the adjacency, after a randomised SVD."""
FIRST = ("x", "ax", "aax", "diff", "link", "spectral", "role")
"""Features, their means over one and two hops, features minus those of the neighbourhood, adjacency
rows, their leading directions, and the structural role."""
SECOND = ("sx", "ssx")
"""Means of the features over one and two hops of the first round's graph."""
RANKS = (8, 16, 32)
"""Numbers of leading columns of ``link`` that the channel ``spectral`` chooses from."""
HIDDEN = 1024
"""Columns of a random hidden layer."""
ALL, AGAIN = ("x", "ax", "aax", "link"), ("x", "sx", "ssx", "aax", "link")
"""The views that the channels ``all`` and ``again`` read, side by side."""
ROLE_WAVES, ROLE_RATE = 64, 0.7
"""Number of random Fourier features of a role, and the deviation of their frequencies."""


def first_views(
    graph: Graph, generator: torch.Generator
) -> tuple[dict[str, Tensor], dict[str, LowRank]]:
    """Return the views of :data:`FIRST`, and the maps to ``x`` and ``link``, for new nodes.

    Without features or edges, the views of these have no columns, and every cosine is 0.

    Shapes:
        views [N, <= WIDTH]
    """
    x, x_map = _or_none(graph, graph.features, generator)
    link, link_map = _or_none(graph, link_rows(graph), generator)
    return views_of(graph, x, link), {"x": x_map, "link": link_map}


def views_of(graph: Graph, x: Tensor, link: Tensor) -> dict[str, Tensor]:
    """Compute the views of :data:`FIRST` from two of them."""
    ax = times(graph.adj, x)
    aax, diff = unit_(times(graph.adj, ax)), unit_(x - ax)
    spectral, role = leading(link, RANKS[1]), role_view(graph)
    return {
        "x": x, "ax": unit_(ax), "aax": aax, "diff": diff, "link": link, "spectral": spectral,
        "role": role,
    }  # fmt: skip


def hidden_layer(views: dict[str, Tensor], names: tuple[str, ...]) -> Rows:
    """Return a random hidden layer over views: [N, HIDDEN], or no columns."""
    rows = SideBySide.of([views[name] for name in names])
    return HiddenLayer.of(rows, HIDDEN) if rows.shape[1] else rows


def second_views(first: dict[str, Tensor], adjacency: SparseMatrix) -> dict[str, Tensor]:
    """Compute the views of :data:`SECOND` over a refined graph S."""
    sx = times(adjacency, first["x"])
    return {"ssx": unit_(times(adjacency, sx)), "sx": unit_(sx)}


def role_view(graph: Graph) -> Tensor:
    """Structural roles, such as hub, leaf or bridge: [N, 2 * ROLE_WAVES].

    Random Fourier features of log degrees: of the node, of its neighbours (mean and deviation) and
    of theirs. The cosine of two roles falls with the distance of these. No edges: no columns.
    """
    if len(graph.low) == 0:
        return torch.zeros(graph.num_nodes, 0, device=graph.device)
    degrees = role_degrees(graph)
    return role_waves(degrees, degrees.mean(0), degrees.std(0))


def role_degrees(graph: Graph) -> Tensor:
    """Log degrees: of a node, the mean over neighbours, over theirs, the deviation: [N, 4]."""
    own = graph.degree.log1p()[:, None]
    pattern = graph.links
    row, _, _ = entries(pattern)
    mean = pattern.with_values(graph.degree.reciprocal()[row])
    once = times(mean, own)
    spread = (times(mean, own.square()) - once.square()).clamp_min(0).sqrt()
    return torch.cat([own, once, times(mean, once), spread], 1)


def role_waves(degrees: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Random Fourier features of log degrees: [N, 4], [4], [4] -> [N, 2 * ROLE_WAVES]."""
    part = (degrees - mean) / deviation.clamp_min(1e-6)
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
    """Return ``(D + tau)^-1/2 A (D + tau)^-1/2``, where tau is the mean degree.

    Without tau, each small component would have a leading singular vector of its own.
    """
    if len(graph.low) == 0:
        return None
    pattern = graph.links
    row, col, _ = entries(pattern)
    scale = (graph.degree + graph.degree.mean()).rsqrt()
    return pattern.with_values(scale[row] * scale[col])
