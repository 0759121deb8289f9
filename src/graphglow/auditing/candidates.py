"""Candidates: pairs without an edge that may be missing ones, some dozens per node instead of N."""

import torch
from torch import Tensor

from graphglow.auditing.pair_inputs import PairInputs
from graphglow.evidence.candidates import candidate_pairs
from graphglow.linalg.pairs import is_edge
from graphglow.linalg.rows import unit
from graphglow.parallel import MapBlocks, map_blocks

PAIRS = 2**20  # looked up at once
TWO_HOPS = 16
"""Draws of a neighbour's neighbour, for each node."""


def missing_candidates(
    inputs: PairInputs, generator: torch.Generator, map_blocks: MapBlocks = map_blocks
) -> Tensor:
    """Pairs ``u < v`` without an edge, each once, sorted: neighbours of neighbours, and the
    nearest nodes by features, by what surrounds them and by their place in the graph: [2, K].
    """
    views = [unit(inputs.spectrum[0])]
    if inputs.x.shape[1]:
        views += [inputs.x, unit(inputs.mean)]
    near_by = _two_hops(inputs, generator).sort(0).values
    pairs, _ = candidate_pairs(views, near_by, map_blocks)
    blocks = torch.split(pairs, PAIRS, 1)
    free = [(some[0] != some[1]) & ~is_edge(inputs.links, some) for some in blocks]
    return pairs[:, torch.cat(free)]


def _two_hops(inputs: PairInputs, generator: torch.Generator) -> Tensor:
    """Each end of an edge is as likely; a node of many neighbours is drawn no more often."""
    nodes, device = inputs.num_nodes, inputs.x.device
    node = torch.arange(nodes, device=device)[inputs.degree > 0].repeat_interleave(TWO_HOPS)
    there = node
    for _ in range(2):
        step = torch.rand(len(node), generator=generator).to(device) * inputs.degree[there]
        place = torch.minimum(step.long(), inputs.degree[there].long() - 1)
        there = inputs.links.col[inputs.links.crow[there] + place].long()
    return torch.stack([node, there])
