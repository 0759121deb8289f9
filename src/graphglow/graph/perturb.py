"""Damage to a graph, seeded: edges deleted, random edges added, features dealt to wrong nodes."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least
from graphglow.errors import InputError
from graphglow.graph.check import MADE
from graphglow.graph.graph import undirected_edges


def delete_edges(data: Data, ratio: float, *, seed: int) -> Data:
    """Return a copy without the share ``ratio`` of its undirected edges, drawn at random.

    Both directions of an edge, and its duplicates, go together; self-loops count as none and stay.

    Shapes:
        edge_index [2, E] -> [2, E']
    """
    generator, known = _generator(ratio, seed), _edge_keys(data)
    gone = round(ratio * len(known))
    if gone and gone == len(known):
        raise InputError(f"Deleting {gone} of {len(known)} edges leaves none. Lower the ratio.")
    drawn = torch.randperm(len(known), generator=generator)[:gone]
    u, v = data.edge_index
    return _with_edges(data, ~torch.isin(_keys(u, v, int(data.num_nodes)), known[drawn]))


def add_edges(data: Data, ratio: float, *, seed: int) -> Data:
    """Return a copy with random edges more: the share ``ratio`` of the undirected ones it has.

    Pairs of different nodes that are no edge yet are drawn, each alike. Where edges weigh, new
    ones weigh what those of the graph do in the mean.

    Shapes:
        edge_index [2, E] -> [2, E + 2 * round(ratio * M)]
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
        keys = _keys(u, v, num_nodes)[u != v]
        new = torch.cat([new, keys[~torch.isin(keys, known)]])
        new = torch.tensor(list(dict.fromkeys(new.tolist())))  # each once, in the order they came
    low, high = new[:wanted] // num_nodes, new[:wanted] % num_nodes
    both = torch.stack([torch.cat([low, high]), torch.cat([high, low])])
    changed = _with_edges(data, torch.ones(data.edge_index.shape[1], dtype=torch.bool))
    changed.edge_index = torch.cat([changed.edge_index, both], dim=1)
    weight = changed.get("edge_weight")
    if weight is not None:
        usual = weight.new_full((2 * wanted,), float(weight.mean()))
        changed.edge_weight = torch.cat([weight, usual])
    return changed


def shuffle_features(data: Data, ratio: float, *, seed: int) -> Data:
    """Return a copy in which the share ``ratio`` of the nodes has another node's features.

    The rows of nodes drawn at random are dealt out anew among them, so that none keeps its own.

    Shapes:
        x [N, D] -> [N, D]
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


def _keys(u: Tensor, v: Tensor, num_nodes: int) -> Tensor:
    """One number for each pair, whatever its direction: [E]."""
    return torch.minimum(u, v) * num_nodes + torch.maximum(u, v)


def _edge_keys(data: Data) -> Tensor:
    """Each undirected edge once, self-loops left out, as a sorted number: [M]."""
    low, high, _ = undirected_edges(data.edge_index, None, int(data.num_nodes))
    return low.long() * int(data.num_nodes) + high


def _with_edges(data: Data, kept: Tensor) -> Data:
    """A copy with the ``kept`` edges [E] of bool and their weights; other attributes go."""
    changed = data.clone()
    for name in [name for name in data.keys() if data.is_edge_attr(name)]:  # noqa: SIM118
        if name in ("edge_index", "edge_weight"):
            changed[name] = data[name][..., kept]
        else:
            del changed[name]
    for name in MADE:
        changed.pop(name, None)
    return changed
