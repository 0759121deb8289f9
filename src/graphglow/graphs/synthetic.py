"""Random graphs with classes, of any size, homophily and noise: for demos, tests and scaling."""

import math
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.dataset_info import DatasetInfo


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
    check_sizes(num_nodes, num_classes, num_features, feature_noise)
    within, across = _edge_counts(num_nodes, num_classes, homophily, average_degree)
    generator = torch.Generator().manual_seed(seed)
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


def check_sizes(num_nodes: int, num_classes: int, num_features: int, feature_noise: float) -> None:
    """Refuse sizes that no random graph of this package can have."""
    if num_classes < 2:
        raise InputError(f"num_classes must be >= 2; got {num_classes}")
    if num_nodes < 2 * num_classes:
        raise InputError(
            f"num_nodes must be at least two per class ({2 * num_classes}); got {num_nodes}"
        )
    if num_features < 1:
        raise InputError(f"num_features must be >= 1; got {num_features}")
    if not (math.isfinite(feature_noise) and feature_noise >= 0.0):
        raise InputError(f"feature_noise must be finite and >= 0; got {feature_noise}")


def _edge_counts(
    num_nodes: int, num_classes: int, homophily: float, average_degree: float
) -> tuple[int, int]:
    """How many edges lie within and across classes."""
    if not 0.0 <= homophily <= 1.0:
        raise InputError(f"homophily must lie in [0, 1]; got {homophily}")
    small, larger = divmod(num_nodes, num_classes)  # `larger` classes have one node more
    pairs_within = num_classes * small * (small - 1) // 2 + larger * small
    pairs_across = num_nodes * (num_nodes - 1) // 2 - pairs_within
    if not (math.isfinite(average_degree) and num_nodes * average_degree >= 2.0):
        raise InputError(f"average_degree must give at least one edge; got {average_degree}")
    num_edges = round(num_nodes * average_degree / 2)
    within = round(homophily * num_edges)
    across = num_edges - within
    # Up to half of the pairs: then few draws are lost to duplicates.
    if 2 * within > pairs_within or 2 * across > pairs_across:
        raise InputError(
            f"average_degree must use at most half of the pairs within and across the classes "
            f"({pairs_within}, {pairs_across}); got {average_degree}, which needs {within} and "
            f"{across} edges"
        )
    return within, across


def _info(
    name: str,
    what: str,
    *,
    nodes: int,
    homophily: float,
    classes: int = 5,
    features: int = 32,
    degree: int = 8,
    noise: float = 3.0,
    seed: int,
) -> DatasetInfo:
    def read(root: Path, split_seed: int) -> Data:
        return synthetic_graph(
            num_nodes=nodes,
            num_classes=classes,
            num_features=features,
            homophily=homophily,
            average_degree=degree,
            feature_noise=noise,
            seed=seed,
        )

    return DatasetInfo(
        name=name,
        kind="synthetic",
        description=f"{what}; homophily {homophily}; random 50/25/25 split",
        nodes=nodes,
        edges=nodes * degree // 2,
        classes=classes,
        features=features,
        needs_data=False,
        read=read,
    )


SYNTHETIC = (
    _info("synthetic", "Random graph with helpful edges", nodes=1000, homophily=0.8, seed=0),
    _info("synthetic-small", "The same, small", nodes=200, homophily=0.8, classes=3, seed=1),
    _info("synthetic-noisy", "Most edges are wrong", nodes=1000, homophily=0.35, seed=2),
    _info(
        "synthetic-heterophilous", "Edges avoid the own class", nodes=1000, homophily=0.1, seed=3
    ),
)
