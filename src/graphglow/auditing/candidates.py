"""Candidates: pairs without an edge that may be missing ones, some dozens per node instead of N."""

import torch
from torch import Tensor

from graphglow.auditing.ground import RANK, Ground
from graphglow.auditing.pairs import is_edge
from graphglow.evidence.candidates import NEAREST, nearest
from graphglow.evidence.rows import unit

TWO_HOPS = 16
"""Draws of a neighbour's neighbour, for each node."""
COMPARED = 16_384
"""Up to so many nodes, a node's nearest are looked for among all others; beyond, in its cell."""
CELL = 1024  # nodes that are compared with each other, on average


def missing_candidates(ground: Ground, generator: torch.Generator) -> Tensor:
    """Pairs ``u < v`` without an edge, each once, sorted: neighbours of neighbours, and the
    nearest nodes by features, by what surrounds them and by their place in the graph: [2, K].
    """
    nodes = ground.num_nodes
    views = [unit(ground.spectrum[0])]
    if ground.x.shape[1]:
        views += [ground.x, unit(ground.mean)]
    found = [_two_hops(ground, generator)]
    for view in views:
        found += _near(view, generator)
    pairs = torch.cat(found, 1)
    low, high = pairs.amin(0), pairs.amax(0)
    key = torch.unique((low * nodes + high)[low != high])
    low, high = key // nodes, key % nodes
    free = ~is_edge(ground, low, high)
    return torch.stack([low[free], high[free]])


def _two_hops(ground: Ground, generator: torch.Generator) -> Tensor:
    """Each end of an edge is as likely; a node of many neighbours is drawn no more often."""
    nodes, device = ground.num_nodes, ground.x.device
    node = torch.arange(nodes, device=device)[ground.degree > 0].repeat_interleave(TWO_HOPS)
    there = node
    for _ in range(2):
        step = torch.rand(len(node), generator=generator).to(device) * ground.degree[there]
        place = torch.minimum(step.long(), ground.degree[there].long() - 1)
        there = ground.neighbour[ground.crow[there] + place]
    return torch.stack([node, there])


def _near(view: Tensor, generator: torch.Generator) -> list[Tensor]:
    """The nearest nodes of each, exactly or within cells around random nodes."""
    nodes = len(view)
    if nodes <= COMPARED:
        return [nearest(view, NEAREST)]
    view = view[:, : min(RANK, view.shape[1])].contiguous()
    pivots = torch.randperm(nodes, generator=generator)[: nodes // CELL].to(view.device)
    blocks = torch.split(view, 2**16)
    cell = torch.cat([(block @ view[pivots].T).argmax(1) for block in blocks])
    order = cell.argsort()
    found = []
    for some in torch.split(order, 4 * CELL):
        found.append(some[nearest(unit(view[some]), NEAREST)])
    return found
