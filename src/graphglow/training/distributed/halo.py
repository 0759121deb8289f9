"""The rows of a sparse matrix that one rank owns, times values that are spread over all ranks.

A rank owns a stretch of the nodes. Its rows of the matrix name columns of its own nodes and of
others', its halo. A product first swaps the halo's values, rows that some shard needs and no
others, and is then a local one. Backwards the halo's gradients travel home and are added there.
"""

from dataclasses import dataclass, field, fields, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.ops.sparse import SparseMatrix
from graphglow.training.distributed.graph_arrays import Array, distinct
from graphglow.training.distributed.ranks import Ranks


@dataclass(frozen=True, eq=False)
class Halo:
    """Which rows a rank sends to each other one, and how many it gets.

    Shapes:
        rows [S] local rows in the order they are sent; sends, receives: [R] counts
    """

    ranks: Ranks
    rows: Tensor
    sends: tuple[int, ...]
    receives: tuple[int, ...]

    def __call__(self, v: Tensor) -> Tensor:
        """The values of the halo's nodes: v [N_r, F] of the own ones -> [H, F]."""
        return self.ranks.swap(v.index_select(0, self.rows), self.sends, self.receives)

    @property
    def size(self) -> int:
        """H: nodes of others that the own rows name."""
        return sum(self.receives)

    @property
    def sent(self) -> int:
        """S: rows sent in one product."""
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class HaloMatrix(SparseMatrix):
    """A rank's rows of an ``[N, N]`` matrix: its columns are the own nodes, then the halo.

    ``@`` takes and gives what belongs to the own nodes, like that of the whole matrix: a backbone
    that only multiplies by the adjacency need not know of shards.

    Shapes:
        [N_r, N_r + H];  v [N_r, F] -> [N_r, F]
    """

    halo: Halo = field(kw_only=True)

    def __matmul__(self, dense: Tensor) -> Tensor:
        assert dense.ndim == 2  # one run
        if self.halo.ranks.size == 1:
            return super().__matmul__(dense)
        return super().__matmul__(torch.cat([dense, self.halo(dense)]))

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "HaloMatrix":
        halo = replace(self.halo, rows=self.halo.rows.to(device))
        return _with_halo(super().to(device, dtype), halo)


def halo_matrix(
    crow: Array,
    col: Array,
    values: Array,
    starts: Array,
    ranks: Ranks,
) -> HaloMatrix:
    """Lay out this rank's rows and agree with the others on what to send; on the rank's device.

    Args:
        crow: Row pointers of the own rows.
        col: Columns, as numbers of the whole matrix.
        values: Entries.
        starts: Rank s owns the nodes ``starts[s] .. starts[s + 1] - 1``.
        ranks: This rank and the others.

    Shapes:
        crow [N_r + 1], col [E_r], values [E_r], starts [R + 1]
    """
    begin, end = int(starts[ranks.rank]), int(starts[ranks.rank + 1])
    away = (col < begin) | (col >= end)
    halo = distinct(col[away])  # sorted, so by owner
    receives = np.diff(np.searchsorted(halo, starts))
    ones = [1] * ranks.size
    counts = ranks.swap(torch.from_numpy(receives).to(ranks.device), ones, ones)
    sends = counts.tolist()
    wanted = ranks.swap(torch.from_numpy(halo).to(ranks.device), receives.tolist(), sends)
    local = np.where(away, end - begin + np.searchsorted(halo, col), col - begin)
    shape = (end - begin, end - begin + len(halo))
    matrix = SparseMatrix.from_scipy(sp.csr_array((values, local, crow), shape=shape))
    rows = wanted - begin
    exchange = Halo(ranks, rows, tuple(sends), tuple(int(n) for n in receives))
    return _with_halo(matrix.to(ranks.device), exchange)


def _with_halo(matrix: SparseMatrix, halo: Halo) -> HaloMatrix:
    parts = {f.name: getattr(matrix, f.name) for f in fields(SparseMatrix)}
    return HaloMatrix(**parts, halo=halo)
