"""The messages of one layer as edges: a layer multiplies by ``M = lambda A + (1 - lambda) L``.

M[u, v] is the weight that u gives to what v sends. Under the paper's learner
``L = RowNorm(Gamma) RowNorm(Gamma^T)`` is dense, so blocks [rows, N] of it are formed; under an
evidence learner L, and so M, is sparse.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.checks import at_least
from graphglow.gnn import FixedStructure, Structure
from graphglow.linalg.sparse import SparseMatrix, csr_tensor
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


class Messages:
    """M in its two parts, lambda A and (1 - lambda) L; without a ``latent`` lambda is 1."""

    @torch.no_grad()
    def __init__(self, adj: SparseMatrix, latent: Structure | None, input_weight: float) -> None:
        self.adj, self.input_weight = adj, 1.0 if latent is None else input_weight
        self.sparse = latent.matrix if isinstance(latent, FixedStructure) else None
        dense = latent is not None and self.sparse is None and self.input_weight < 1
        self.factors = _factors(latent) if dense else []  # L = sum of left @ right.T

    @torch.no_grad()
    def rows(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Weights that some nodes give to all nodes, by input and by learned edges: [rows, N]."""
        learned = self.adj.values.new_zeros(rows.stop - rows.start, self.adj.shape[1])
        for left, right in self.factors:
            learned += left[rows] @ right.T
        if self.sparse is not None:
            learned += _dense_rows(self.sparse, rows)
        return _dense_rows(self.adj, rows) * self.input_weight, learned * (1 - self.input_weight)

    @torch.no_grad()
    def strongest(self, top_k: int, *, self_loops: bool = True) -> WeightedEdges:
        """Return each node's ``top_k`` strongest incoming edges; zero entries are no edges."""
        at_least("top_k", top_k, 1)
        if not self.factors:
            return self._strongest_sparse(top_k, self_loops=self_loops)
        nodes = self.adj.shape[0]
        step, blocks = max(1, BLOCK_ELEMENTS // nodes), []
        for start in range(0, nodes, step):
            given, learned = self.rows(slice(start, min(start + step, nodes)))
            total = given + learned
            place = torch.arange(len(total), device=total.device)
            if not self_loops:
                total[place, place + start] = 0
            weight, source = total.topk(min(top_k, nodes), dim=1)
            kept = weight > 0
            target = (place + start)[:, None].expand_as(source)
            pairs = torch.stack([source[kept], target[kept]])
            parts = (part.gather(1, source)[kept] for part in (given, learned))
            blocks.append(WeightedEdges(pairs, weight[kept], *parts))
        return WeightedEdges(*(torch.cat(part, dim=-1) for part in zip(*blocks, strict=True)))

    def _strongest_sparse(self, top_k: int, *, self_loops: bool) -> WeightedEdges:
        import pandas as pd

        given = self.input_weight * to_scipy(self.adj)
        learned = (
            0 * given if self.sparse is None else (1 - self.input_weight) * to_scipy(self.sparse)
        )
        total = (given + learned).tocoo()
        target, source = total.coords
        frame = pd.DataFrame({"source": source, "target": target, "weight": total.data})
        frame = frame[(frame.weight > 0) & (self_loops | (frame.source != frame.target))]
        frame = frame.sort_values(["target", "weight"], ascending=[True, False], kind="stable")
        frame = frame.groupby("target").head(top_k)
        pairs = frame[["source", "target"]].to_numpy(np.int64).T
        parts = [np.asarray(part[pairs[1], pairs[0]]) for part in (given, learned)]
        arrays = (torch.tensor(array) for array in (pairs, frame.weight.to_numpy(), *parts))
        return WeightedEdges(*(array.to(self.adj.values.device) for array in arrays))


def to_scipy(matrix: SparseMatrix) -> sp.csr_array:
    parts = (part.cpu().numpy() for part in (matrix.values, matrix.col, matrix.crow))
    return sp.csr_array(tuple(parts), shape=matrix.shape, copy=True)


def _factors(latent: Structure | None) -> list[tuple[Tensor, Tensor]]:
    """L of a pivot structure, or of a blend of two, as products left @ right.T: [N, P] each."""
    if isinstance(latent, BlendedStructure):
        sides = ((latent.current, latent.eta), (latent.first, 1 - latent.eta))
        return [(share * a, b) for side, share in sides for a, b in _factors(side)]
    assert isinstance(latent, PivotStructure)
    gamma = latent.gamma()
    left, right = (gamma / gamma.sum(d, keepdim=True).clamp_min(EPS) for d in (1, 0))
    return [(left, right)]


def _dense_rows(matrix: SparseMatrix, rows: slice) -> Tensor:
    """A block of rows of a sparse matrix: [rows, N]."""
    begin, end = int(matrix.crow[rows.start]), int(matrix.crow[rows.stop])
    crow = matrix.crow[rows.start : rows.stop + 1] - begin
    shape = (rows.stop - rows.start, matrix.shape[1])
    return csr_tensor(crow, matrix.col[begin:end], matrix.values[begin:end], shape).to_dense()
