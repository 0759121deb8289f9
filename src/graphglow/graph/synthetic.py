"""Random graphs with classes, of any size, homophily and noise; and seeded damage to graphs."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least, in_unit_interval, rate
from graphglow.errors import InputError
from graphglow.graph.check import without_edges
from graphglow.graph.graph import undirected_edges


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

    Edges are drawn uniformly from the pairs within classes and from those across. Time and memory
    are O(N D + E).

    Args:
        num_nodes: N, at least two per class; the classes have equal sizes, up to one.
        num_classes: C, at least 2.
        num_features: D.
        homophily: The share of edges within a class, in [0, 1], exact up to one edge.
        average_degree: 2 E / N; at most half of the pairs within or across classes can be edges.
        feature_noise: Standard deviation of the noise around the class centroids, which are
            themselves drawn from a unit normal.
        seed: Fixes everything.

    Shapes:
        x [N, D], y [N], edge_index [2, 2 E] with both directions of each edge
    """
    at_least("num_classes", num_classes, 2)
    at_least("num_features", num_features, 1)
    in_unit_interval("homophily", homophily)
    rate("feature_noise", feature_noise)
    if num_nodes < 2 * num_classes:
        least = 2 * num_classes
        raise InputError(f"num_nodes must be at least two per class ({least}); got {num_nodes}")
    if not 2 <= num_nodes * average_degree <= num_nodes * (num_nodes - 1):
        raise InputError(
            f"average_degree must give at least one edge and be below the number of nodes "
            f"({num_nodes}); got {average_degree}"
        )
    num_edges = round(num_nodes * average_degree / 2)
    within = round(homophily * num_edges)
    across = num_edges - within
    small, larger = divmod(num_nodes, num_classes)  # `larger` classes have one node more
    pairs_within = num_classes * small * (small - 1) // 2 + larger * small
    pairs_across = num_nodes * (num_nodes - 1) // 2 - pairs_within
    if 2 * within > pairs_within or 2 * across > pairs_across:  # or many draws are duplicates
        raise InputError(
            f"average_degree must use at most half of the pairs within and across the classes "
            f"({pairs_within}, {pairs_across}); got {within} and {across} edges"
        )
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


def _pair_keys(u: Tensor, v: Tensor, num_nodes: int) -> Tensor:
    """One number for each pair, whatever its direction: [E]."""
    return torch.minimum(u, v) * num_nodes + torch.maximum(u, v)


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
        keys = torch.unique(torch.cat([keys, _pair_keys(u, v, num_nodes)[u != v]]))
    keys = keys[torch.randperm(len(keys), generator=generator)[:count]]
    return torch.stack([keys // num_nodes, keys % num_nodes])


def delete_edges(data: Data, ratio: float, *, seed: int) -> Data:
    """Return a copy without the share ``ratio`` of its undirected edges, drawn at random.

    Both directions of an edge, and its duplicates, go together; self-loops count as none and stay.
    """
    generator, known = _generator(ratio, seed), _edge_keys(data)
    gone = round(ratio * len(known))
    if gone and gone == len(known):
        raise InputError(f"Deleting {gone} of {len(known)} edges leaves none. Lower the ratio.")
    drawn = torch.randperm(len(known), generator=generator)[:gone]
    u, v = data.edge_index
    return _with_edges(data, ~torch.isin(_pair_keys(u, v, int(data.num_nodes)), known[drawn]))


def add_edges(data: Data, ratio: float, *, seed: int) -> Data:
    """Return a copy with random edges more: the share ``ratio`` of the undirected ones it has.

    Pairs of different nodes that are no edge yet are drawn, each alike. Where edges weigh, new
    ones weigh what those of the graph do in the mean.
    """
    generator, num_nodes = _generator(ratio, seed, below=math.inf), int(data.num_nodes)
    known = _edge_keys(data)
    wanted, pairs = round(ratio * len(known)), num_nodes * (num_nodes - 1) // 2
    if 2 * (len(known) + wanted) > pairs and wanted:
        raise InputError(
            f"{len(known)} edges and {wanted} more would join over half of the {pairs} pairs of "
            "nodes. Lower the ratio."
        )
    new = known.new_empty(0)
    while len(new) < wanted:
        draws = int(1.3 * (wanted - len(new))) + 16  # some are edges already
        u, v = torch.randint(num_nodes, (2, draws), generator=generator)
        keys = _pair_keys(u, v, num_nodes)[u != v]
        new = torch.cat([new, keys[~torch.isin(keys, known)]])
        new = torch.tensor(list(dict.fromkeys(new.tolist())))  # each once, in the order they came
    low, high = new[:wanted] // num_nodes, new[:wanted] % num_nodes
    both = torch.stack([torch.cat([low, high]), torch.cat([high, low])])
    changed = _with_edges(data, torch.ones(data.num_edges, dtype=torch.bool))
    changed.edge_index = torch.cat([changed.edge_index, both], dim=1)
    if (weight := changed.get("edge_weight")) is not None:
        usual = weight.new_full((2 * wanted,), float(weight.mean()))
        changed.edge_weight = torch.cat([weight, usual])
    return changed


def shuffle_features(data: Data, ratio: float, *, seed: int) -> Data:
    """Return a copy in which the share ``ratio`` of the nodes has another node's features.

    The rows of nodes drawn at random are dealt out anew among them, so that none keeps its own.
    """
    generator, num_nodes = _generator(ratio, seed), int(data.num_nodes)
    nodes = torch.randperm(num_nodes, generator=generator)[: round(ratio * num_nodes)]
    changed = data.clone()
    changed.x[nodes] = data.x[nodes.roll(1)]
    return changed


PERTURBATIONS: dict[str, Callable[..., Data]] = {
    "delete": delete_edges,
    "add": add_edges,
    "shuffle": shuffle_features,
}
"""``(data, ratio, *, seed) -> Data``, by name."""


def _generator(ratio: float, seed: int, *, below: float = 1) -> torch.Generator:
    if not 0 <= ratio < below:
        raise InputError(f"ratio must lie in [0, {below}); got {ratio}")
    return torch.Generator().manual_seed(at_least("seed", seed, 0))


def _edge_keys(data: Data) -> Tensor:
    """Each undirected edge once, self-loops left out, as a sorted number: [M]."""
    low, high, _ = undirected_edges(data.edge_index, None, int(data.num_nodes))
    return low.long() * int(data.num_nodes) + high


def _with_edges(data: Data, kept: Tensor) -> Data:
    """A copy with the ``kept`` edges [E] of bool and their weights; other values of edges go."""
    changed = without_edges(data.clone())
    changed.edge_index = data.edge_index[:, kept]
    if data.get("edge_weight") is not None:
        changed.edge_weight = data.edge_weight[kept]
    return changed
