"""The messages of one layer as edges: a layer multiplies by ``M = lambda A + (1 - lambda) S``.

M[u, v] is the weight that u gives to what v sends. Under an evidence learner S is sparse. Under the
paper's learner ``S = RowNorm(Gamma) RowNorm(Gamma^T)`` is dense, and M is formed in blocks of rows.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.checks import at_least
from graphglow.gnn import FixedStructure, Structure
from graphglow.linalg.sparse import SparseMatrix
from graphglow.paper.pivots import EPS, BlendedStructure, PivotStructure

BLOCK_ELEMENTS = 16_000_000
"""Entries of the largest block in memory (64 MB in float32)."""


class WeightedEdges(NamedTuple):
    """Edges sorted by target and falling weight, where weight = input_part + latent_part.

    Shapes:
        pairs [2, E] (source, target); weight, input_part, latent_part [E]
    """

    pairs: Tensor
    weight: Tensor
    input_part: Tensor
    latent_part: Tensor


@torch.no_grad()
def strongest_messages(
    adj: SparseMatrix,
    latent: Structure,
    input_weight: float,
    top_k: int,
    *,
    self_loops: bool = True,
) -> WeightedEdges:
    """Return each node's ``top_k`` strongest incoming edges; entries up to zero are no edges."""
    at_least("top_k", top_k, 1)
    given = input_weight * adj.to_scipy()
    if input_weight == 1:
        return _strongest(given, 0 * given, top_k, self_loops)
    if isinstance(latent, FixedStructure):
        learned = (1 - input_weight) * latent.matrix.to_scipy()
        return _strongest(given, learned, top_k, self_loops)
    nodes, blocks = adj.shape[0], []
    factors, step = _factors(latent), max(1, BLOCK_ELEMENTS // nodes)
    for start in range(0, nodes, step):
        rows = slice(start, min(start + step, nodes))
        dense = torch.from_numpy(given[rows].toarray()).to(adj.values.device)
        by_pivots = sum((a[rows] @ b.T for a, b in factors), torch.zeros_like(dense))
        by_pivots = by_pivots * (1 - input_weight)
        total, place = dense + by_pivots, torch.arange(len(dense), device=dense.device)
        if not self_loops:
            total[place, place + start] = 0
        weight, source = total.topk(min(top_k, nodes), dim=1)
        kept, target = weight > 0, (place + start)[:, None].expand_as(source)
        pairs = torch.stack([source[kept], target[kept]])
        parts = (part.gather(1, source)[kept] for part in (dense, by_pivots))
        blocks.append(WeightedEdges(pairs, weight[kept], *parts))
    return WeightedEdges(*(torch.cat(part, dim=-1) for part in zip(*blocks, strict=True)))


def _strongest(
    given: sp.csr_array, learned: sp.csr_array, top_k: int, self_loops: bool
) -> WeightedEdges:
    """The strongest edges of the sum of two sparse matrices."""
    import pandas as pd

    total = (given + learned).tocoo()
    target, source = total.coords
    frame = pd.DataFrame({"source": source, "target": target, "weight": total.data})
    frame = frame[(frame.weight > 0) & (self_loops | (frame.source != frame.target))]
    frame = frame.sort_values(["target", "weight"], ascending=[True, False], kind="stable")
    frame = frame.groupby("target").head(top_k)
    pairs = frame[["source", "target"]].to_numpy(np.int64).T
    parts = [np.asarray(part[pairs[1], pairs[0]]) for part in (given, learned)]
    return WeightedEdges(*map(torch.tensor, (pairs, frame.weight.to_numpy(), *parts)))


def _factors(latent: Structure) -> list[tuple[Tensor, Tensor]]:
    """S of a pivot structure, or of a blend of two, as products left @ right.T: [N, P] each."""
    if isinstance(latent, BlendedStructure):
        sides = ((latent.current, latent.eta), (latent.first, 1 - latent.eta))
        return [(share * a, b) for side, share in sides for a, b in _factors(side)]
    assert isinstance(latent, PivotStructure)
    gamma = latent.gamma()
    left, right = (gamma / gamma.sum(d, keepdim=True).clamp_min(EPS) for d in (1, 0))
    return [(left, right)]
