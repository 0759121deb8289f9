"""Features of any kind as unit rows that can be compared by their cosine."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.linalg.rows import Rows, sparse_rows, unit_
from graphglow.linalg.sparse import SparseMatrix


@dataclass(frozen=True, eq=False)
class FeatureEncoder:
    """Which columns count and how they are scaled, fitted on a graph's features.

    Non-negative features of which most are zero are words: present or not, weighed by their inverse
    document frequency. Columns that fewer than two nodes have, or all, are left out: they say
    nothing about a pair. Other features are numbers, standardised; constant ones are left out.

    Shapes:
        kept [D] of F columns; table [1, D]: idf of words, or [3, D]: the largest magnitude, then
        mean and deviation over it, of numbers
    """

    words: bool
    width: int
    """F, the columns that were given."""
    kept: Tensor
    table: Tensor

    @classmethod
    def fit(
        cls, x: Tensor | None, num_nodes: int, device: torch.device | str = "cpu"
    ) -> tuple[Rows | None, "FeatureEncoder | None"]:
        """Unit rows of ``x`` [N, F], dense or sparse, and their encoder; None without features."""
        if x is None or x.numel() == 0:
            return None, None
        if x.ndim != 2 or x.shape[0] != num_nodes:
            raise InputError(f"x must have one row per node ({num_nodes}); got {tuple(x.shape)}")
        x = finite_float(x).to(device)
        width = x.shape[1]
        values = x if x.layout == torch.strided else x.values()
        if values.numel() == 0:
            return None, cls(True, width, *torch.zeros(2, 0, device=device).long())
        if bool((values >= 0).all()) and int(torch.count_nonzero(values)) < 0.5 * x.numel():
            row, col = _present(x)
            count = torch.bincount(col, minlength=width)
            kept = ((count >= 2) & (count < num_nodes)).nonzero()[:, 0]
            encoder = cls(True, width, kept, (num_nodes / count[kept].float()).log()[None])
            return encoder.word_rows(row, col, num_nodes), encoder
        dense = x if x.layout == torch.strided else x.to_dense()
        largest = dense.abs().amax(0).clamp_min(1e-30)
        dense = dense / largest
        mean = dense.mean(0)
        spread = dense.sub_(mean).square_().mean(0).sqrt()
        kept = (spread > 1e-6).nonzero()[:, 0]
        encoder = cls(False, width, kept, torch.stack([largest, mean, spread])[:, kept])
        return encoder.rows(x), encoder

    def rows(self, x: Tensor) -> Rows | None:
        """Unit rows of other nodes with the same columns; None if none counts: [M, F] -> [M, D]."""
        if len(self.kept) == 0:
            return None
        x = finite_float(x).to(self.kept.device)
        if self.words:
            return self.word_rows(*_present(x), x.shape[0])
        largest, mean, spread = self.table
        dense = (x if x.layout == torch.strided else x.to_dense())[:, self.kept]
        return unit_((dense / largest).sub_(mean).div_(spread))

    def word_rows(self, row: Tensor, col: Tensor, num_nodes: int) -> SparseMatrix | None:
        """Unit rows of nodes whose words are listed: row, col [E] -> [M, D]."""
        if len(self.kept) == 0:
            return None
        place = self.kept.new_full((self.width,), -1)
        place[self.kept] = torch.arange(len(self.kept), device=self.kept.device)
        row, col = row[place[col] >= 0], place[col]
        col = col[col >= 0]
        values = self.table[0][col]
        total = torch.zeros(num_nodes, device=row.device).index_add_(0, row, values.square())
        return sparse_rows(row, col, values / total.sqrt()[row], (num_nodes, len(self.kept)))


def finite_float(x: Tensor) -> Tensor:
    """Finite real numbers as float32; coalesced if they are sparse: [N, F]."""
    if x.is_complex():
        raise InputError(f"x must hold real numbers; got {x.dtype}")
    x = x.float() if x.layout == torch.strided else x.to_sparse().coalesce().float()
    values = x if x.layout == torch.strided else x.values()
    # the smallest and the largest entry are NaN if any is
    if values.numel() and not math.isfinite(sum(torch.stack(values.aminmax()).tolist())):
        raise InputError("x must be finite; got NaN or infinity")
    return x


def _present(x: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of each entry that is not zero: [E], [E]."""
    if x.layout == torch.strided:
        row, col = x.nonzero(as_tuple=True)
        return row, col
    x = x.to_sparse().coalesce()
    row, col = x.indices()[:, x.values() != 0]
    return row, col
