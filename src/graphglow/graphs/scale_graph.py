"""Random graphs for measuring scale: drawn on the device they are trained on, in seconds."""

import math

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs.adjacency import normalised_adjacency
from graphglow.graphs.graph import Graph
from graphglow.graphs.synthetic import check_sizes

HOMOPHILY = 0.8
FEATURE_NOISE = 3.0


def scale_graph(
    *,
    num_nodes: int,
    average_degree: float = 20.0,
    num_features: int = 32,
    num_classes: int = 5,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Graph:
    """Draw a graph like :func:`synthetic_graph`'s, ready to train on, without touching the host.

    What differs, for speed and memory: node u has class ``u mod C``; the ends of an edge are drawn
    independently, so the few duplicates and self-loops among ``N * average_degree / 2`` draws are
    lost, and homophily (0.8) holds in expectation only. Time and memory are O(N D + E).

    Args:
        num_nodes: N, at least two per class.
        average_degree: 2 E / N, up to lost draws.
        num_features: D; class centroids from a unit normal, and noise of standard deviation 3.
        num_classes: C, at least 2.
        seed: Fixes everything on one kind of device.
        device: Where to draw, and where the graph stays.

    Shapes:
        x [N, D] dense float32; adj [N, N] with N + 2 E entries
    """
    check_sizes(num_nodes, num_classes, num_features, FEATURE_NOISE)
    num_edges = num_nodes * average_degree / 2
    if not (math.isfinite(num_edges) and num_edges >= 1):
        raise InputError(f"average_degree must give at least one edge; got {average_degree}")
    if average_degree > num_nodes - 1:
        raise InputError(
            f"average_degree must be below the number of nodes ({num_nodes}); got {average_degree}"
        )
    generator = torch.Generator(device).manual_seed(seed)
    x = _features(num_nodes, num_features, num_classes, generator)
    edges = _edges(num_nodes, round(num_edges), num_classes, generator)
    adj = normalised_adjacency(edges, None, num_nodes)
    order = torch.randperm(num_nodes, generator=generator, device=device)
    half, quarter = num_nodes // 2, num_nodes // 4
    train, val, test = torch.tensor_split(order, [half, half + quarter])
    return Graph(
        name=f"scale-{num_nodes}",
        x=x,
        adj=adj,
        y=torch.arange(num_nodes, device=device) % num_classes,
        train=train.sort()[0],
        val=val.sort()[0],
        test=test.sort()[0],
        num_classes=num_classes,
    )


def _features(num_nodes: int, width: int, num_classes: int, generator: torch.Generator) -> Tensor:
    """Centroid plus noise, scaled to unit length in place: [N, D]."""
    device = generator.device
    centroid = torch.randn(num_classes, width, generator=generator, device=device)
    x = torch.randn(num_nodes, width, generator=generator, device=device)
    x *= FEATURE_NOISE
    whole = num_nodes - num_nodes % num_classes
    x[:whole].view(-1, num_classes, width).add_(centroid)  # no [N, D] of centroids
    x[whole:] += centroid[: num_nodes - whole]
    x /= torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min_(1e-12)
    return x


def _edges(num_nodes: int, num_edges: int, num_classes: int, generator: torch.Generator) -> Tensor:
    """Pairs of nodes, within a class with probability :data:`HOMOPHILY`: [2, E]."""
    device = generator.device
    edges = torch.randint(num_nodes, (2, num_edges), generator=generator, device=device)
    u, v = edges
    shift = torch.randint(1, num_classes, (num_edges,), generator=generator, device=device)
    shift[torch.rand(num_edges, generator=generator, device=device) < HOMOPHILY] = 0
    v -= v % num_classes  # v's block of one node per class; then the node of the class wanted
    v += shift.add_(u).remainder_(num_classes)
    v -= num_classes * (v >= num_nodes)  # the last block may be incomplete
    return edges
