"""Random graphs with classes, of any size, homophily and noise: for demos, tests and scaling."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least, in_unit_interval, rate
from graphglow.errors import InputError


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
    at_least("num_classes", num_classes, 2)
    at_least("num_features", num_features, 1)
    if num_nodes < 2 * num_classes:
        least = 2 * num_classes
        raise InputError(f"num_nodes must be at least two per class ({least}); got {num_nodes}")
    if not 2 <= num_nodes * average_degree <= num_nodes * (num_nodes - 1):
        raise InputError(
            f"average_degree must give at least one edge and be below the number of nodes "
            f"({num_nodes}); got {average_degree}"
        )
    num_edges = round(num_nodes * average_degree / 2)
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
