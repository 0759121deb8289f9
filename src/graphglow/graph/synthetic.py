"""Random graphs with classes, of any size, homophily and noise: for demos, tests and scaling."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least, in_unit_interval, rate
from graphglow.errors import InputError
from graphglow.graph.graph import Graph, undirected_edges
from graphglow.graph.split import split_in_parts

SCALE_HOMOPHILY = 0.8
SCALE_NOISE = 3.0


def synthetic_graph(
    *,
    num_nodes: int = 1000,
    num_classes: int = 5,
    num_features: int = 32,
    homophily: float = 0.8,
    average_degree: float = 8.0,
    feature_noise: float = 3.0,
    seed: int = 0,
) -> Data:
    """Draw a graph in which the share ``homophily`` of the edges joins nodes of one class.

    Edges are drawn uniformly from the pairs within classes and from the pairs across classes, so
    that the homophily is exact up to one edge. Time and memory are O(N D + E).

    Args:
        num_nodes: N, at least two per class; the classes have equal sizes, up to one.
        num_classes: C, at least 2.
        num_features: D.
        homophily: The share of edges within a class, in [0, 1].
        average_degree: 2 E / N; at most half of the pairs within or across classes can be edges.
        feature_noise: Standard deviation of the noise around the class centroids, which are
            themselves drawn from a unit normal.
        seed: Fixes everything.

    Shapes:
        x [N, D], y [N], edge_index [2, 2 E] with both directions of each edge
    """
    num_edges = _check_sizes(num_nodes, num_classes, num_features, average_degree)
    in_unit_interval("homophily", homophily)
    rate("feature_noise", feature_noise)
    within, across = _edge_counts(num_nodes, num_classes, num_edges, homophily)
    generator = torch.Generator().manual_seed(at_least("seed", seed, 0))
    y = torch.arange(num_nodes) % num_classes
    y = y[torch.randperm(num_nodes, generator=generator)]
    centroid = torch.randn(num_classes, num_features, generator=generator)
    noise = torch.randn(num_nodes, num_features, generator=generator)
    pairs = [
        _pairs(y, num_classes, count, same, generator)
        for count, same in ((within, True), (across, False))
    ]
    low, high = torch.cat(pairs, dim=1)  # [E], [E]
    edge_index = torch.stack([torch.cat([low, high]), torch.cat([high, low])])
    return Data(x=centroid[y] + feature_noise * noise, edge_index=edge_index, y=y)


def _pairs(
    y: Tensor, num_classes: int, count: int, same: bool, generator: torch.Generator
) -> Tensor:
    """Draw ``count`` distinct pairs ``low < high`` within a class or across classes: [2, count]."""
    num_nodes = len(y)
    by_class = y.argsort(stable=True)  # class c is by_class[start[c] : start[c] + size[c]]
    size = torch.bincount(y, minlength=num_classes)
    start = size.cumsum(0) - size
    keys = torch.empty(0, dtype=torch.int64)
    while len(keys) < count:
        draws = int(1.3 * (count - len(keys))) + 16
        u = torch.randint(num_nodes, (draws,), generator=generator)
        if same:
            target = y[u]
        else:
            shift = torch.randint(1, num_classes, (draws,), generator=generator)
            target = (y[u] + shift) % num_classes
        place = torch.rand(draws, generator=generator, dtype=torch.float64) * size[target]
        v = by_class[start[target] + place.long()]
        low, high = torch.minimum(u, v), torch.maximum(u, v)
        new = (low * num_nodes + high)[low < high]
        keys = torch.unique(torch.cat([keys, new]))
    keys = keys[torch.randperm(len(keys), generator=generator)[:count]]
    return torch.stack([keys // num_nodes, keys % num_nodes])


def _check_sizes(nodes: int, classes: int, features: int, degree: float) -> int:
    """Refuse sizes that no random graph of this package can have; else the number of edges."""
    at_least("num_classes", classes, 2)
    at_least("num_features", features, 1)
    if nodes < 2 * classes:
        raise InputError(f"num_nodes must be at least two per class ({2 * classes}); got {nodes}")
    if not 2 <= nodes * degree <= nodes * (nodes - 1):
        raise InputError(
            f"average_degree must give at least one edge and be below the number of nodes "
            f"({nodes}); got {degree}"
        )
    return round(nodes * degree / 2)


def _edge_counts(
    num_nodes: int, num_classes: int, num_edges: int, homophily: float
) -> tuple[int, int]:
    """How many edges lie within and across classes."""
    small, larger = divmod(num_nodes, num_classes)  # `larger` classes have one node more
    pairs_within = num_classes * small * (small - 1) // 2 + larger * small
    pairs_across = num_nodes * (num_nodes - 1) // 2 - pairs_within
    within = round(homophily * num_edges)
    across = num_edges - within
    # Up to half of the pairs: then few draws are lost to duplicates.
    if 2 * within > pairs_within or 2 * across > pairs_across:
        raise InputError(
            f"average_degree must use at most half of the pairs within and across the classes "
            f"({pairs_within}, {pairs_across}); got {within} and {across} edges"
        )
    return within, across


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

    The noise of the features has standard deviation 3. The seed fixes everything on one kind of
    ``device``, where the graph is drawn and stays.

    Shapes:
        x [N, D] dense float32; adj [N, N] with N + 2 E entries
    """
    num_edges = _check_sizes(num_nodes, num_classes, num_features, average_degree)
    generator = torch.Generator(device).manual_seed(seed)
    x = _scale_features(num_nodes, num_features, num_classes, generator)
    edges = _scale_edges(num_nodes, num_edges, num_classes, generator)
    order = torch.randperm(num_nodes, generator=generator, device=device)
    train, val, test = split_in_parts(order)
    low, high, _ = undirected_edges(edges, None, num_nodes)
    graph = Graph(
        name=f"scale-{num_nodes}",
        raw_x=x,
        low=low,
        high=high,
        weight=None,
        y=torch.arange(num_nodes, device=device) % num_classes,
        train=train,
        val=val,
        test=test,
        num_classes=num_classes,
    )
    vars(graph)["x"] = x  # of unit length as drawn
    return graph


def _scale_features(
    num_nodes: int, width: int, num_classes: int, generator: torch.Generator
) -> Tensor:
    """Centroid plus noise, scaled to unit length in place: [N, D]."""
    device = generator.device
    centroid = torch.randn(num_classes, width, generator=generator, device=device)
    x = torch.randn(num_nodes, width, generator=generator, device=device)
    x *= SCALE_NOISE
    whole = num_nodes - num_nodes % num_classes
    x[:whole].view(-1, num_classes, width).add_(centroid)  # no [N, D] of centroids
    x[whole:] += centroid[: num_nodes - whole]
    x /= torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min_(1e-12)
    return x


def _scale_edges(
    num_nodes: int, num_edges: int, num_classes: int, generator: torch.Generator
) -> Tensor:
    """Pairs of nodes, within a class with probability :data:`SCALE_HOMOPHILY`: [2, E]."""
    device = generator.device
    edges = torch.randint(num_nodes, (2, num_edges), generator=generator, device=device)
    u, v = edges
    shift = torch.randint(1, num_classes, (num_edges,), generator=generator, device=device)
    shift[torch.rand(num_edges, generator=generator, device=device) < SCALE_HOMOPHILY] = 0
    v -= v % num_classes  # v's block of one node per class; then the node of the class wanted
    v += shift.add_(u).remainder_(num_classes)
    v -= num_classes * (v >= num_nodes)  # the last block may be incomplete
    return edges
