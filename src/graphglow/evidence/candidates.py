"""Candidates: the pairs of nodes that are looked at, about 40 per node instead of N.

Work is cut into *blocks*, of nodes whose nearest are looked for and of pairs that are scored. What
is known of the whole graph goes into every block, and a block's answer depends on nothing else.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.device import MapBlocks
from graphglow.evidence.channels import Channel
from graphglow.linalg.neighbours import Search

NEAREST = 8
"""k: neighbours of a node in each view."""
NODES, PAIRS = {"cpu": 2**15, "cuda": 2**20}, {"cpu": 2**17, "cuda": 2**20}
"""Nodes whose nearest are looked for, and pairs that are scored, in one block, by device."""
TIES, TIE_LENGTH = 8, 0.01
"""Columns that tell equal rows apart, and their deviation: they move a cosine by some 3e-4."""
JOINED = {"cpu": 2**13, "cuda": 2**20}  # nodes whose pairs are brought together at once


def node_blocks(rows: Tensor) -> list[range]:
    """Ranges of rows, one for each block: [N, D]."""
    step, end = NODES[rows.device.type], len(rows)
    return [range(start, min(start + step, end)) for start in range(0, end, step)]


def pair_blocks(pairs: Tensor) -> list[Tensor]:
    """Pairs [2, M] in blocks."""
    return list(torch.split(pairs, PAIRS[pairs.device.type], dim=1)) if pairs.shape[1] else []


def with_beliefs(views: list[Tensor], channels: list[Channel]) -> list[Tensor]:
    """Views [N, D], and the channels' class probabilities side by side as one more."""
    beliefs = torch.cat([c.probabilities.sqrt() for c in channels], 1)
    if beliefs.shape[1] == len(channels):  # one class
        return views
    return [*views, F.normalize(beliefs - beliefs.mean(0), dim=1)]


def find(known: Search, places: range) -> Tensor:
    """The nearest of some rows, each pair once: keys ``low N + high``, sorted."""
    pairs = known.nearest(places, NEAREST)
    keys: Tensor = torch.unique(pairs.amin(0) * known.many + pairs.amax(0))
    return keys


def candidate_pairs(
    views: list[Tensor], others: Tensor, map_blocks: MapBlocks, fresh: bool = False
) -> tuple[Tensor, str]:
    """Pairs ``u < v`` that are among the ``others`` or near in a view, each once, sorted.

    Also how the nearest were found. ``fresh`` leaves the others out. One view is searched after
    another, since the rows of a search are a copy.

    Shapes:
        views [N, D], others [2, K] as ``u < v`` -> [2, M] of the same type
    """
    nodes, how = len(views[0]), ""
    keys = others[0].long().mul_(nodes).add_(others[1])
    found = [keys if bool((keys.diff() > 0).all()) else torch.unique(keys)]
    del keys
    for view in views:
        known = Search.of(torch.cat([view, tie_columns(view)], 1))
        how = how or str(known)
        found += map_blocks(find, known, node_blocks(view))
    return _joined(found, nodes, others.dtype, fresh), how


def tie_columns(view: Tensor) -> Tensor:
    """Random columns so short that they only decide between equal rows; zero rows get zeros.

    Without them rounding would decide, and many equal rows would all have the same few nearest.

    Shapes:
        [N, D] -> [N, TIES]
    """
    generator = torch.Generator().manual_seed(view.shape[1])
    noise = torch.randn(len(view), TIES, generator=generator).to(view)
    there = view.any(1, keepdim=True) if view.shape[1] else view.new_zeros(len(view), 1)
    return noise * (TIE_LENGTH * there)


def _joined(found: list[Tensor], nodes: int, dtype: torch.dtype, fresh: bool) -> Tensor:
    """Merge sorted keys into pairs, each once, some nodes at a time so that sorts are small.

    ``fresh`` leaves the first keys out.

    Shapes:
        [K] each -> [2, M]
    """
    step, device = JOINED[found[0].device.type], found[0].device
    bounds = torch.arange(0, nodes + step, step, device=device) * nodes
    cuts = [torch.searchsorted(keys, bounds).tolist() for keys in found]
    pairs = []
    for i in range(len(bounds) - 1):
        some = [keys[cut[i] : cut[i + 1]] for keys, cut in zip(found, cuts, strict=True)]
        key = torch.unique(torch.cat(some))
        if fresh:
            new = torch.ones_like(key, dtype=torch.bool)
            new[torch.searchsorted(key, some[0])] = False
            key = key[new]
        low = key.div(nodes, rounding_mode="floor")
        pairs.append(torch.stack([low, key - low * nodes]).to(dtype))
    found.clear()
    return torch.cat(pairs, 1)
