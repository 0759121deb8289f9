"""Rows of a view, dense or sparse, and the few products that closed forms need of them."""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.ops.sparse import SparseMatrix

PADDING, CHUNK = 64, 256  # a GPU kernel is compiled for each width: keep to four of them
MANY = 2**17
"""Rows above which a product is made of few columns at once, and draws are made on a GPU."""
ROWS = 2**14  # of a Gram matrix at once
LEFT = 1e-6
"""Share of all squares that a low rank may leave out: what is beyond it moves no cosine."""
DEPENDENT = 1e-13  # squared length below which a column is the others' sum, over the mean


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Views of unit rows side by side, of unit rows again; never laid out as a whole.

    Shapes:
        parts [N, D_i], scale [N, 1] -> [N, sum of D_i]
    """

    parts: list[Tensor]
    scale: Tensor

    @classmethod
    def of(cls, parts: list[Tensor]) -> "SideBySide":
        lengths = [torch.linalg.vector_norm(part, dim=1, keepdim=True) for part in parts]
        whole = torch.linalg.vector_norm(torch.cat(lengths, 1), dim=1, keepdim=True)
        return cls(parts, whole.clamp_min(1e-9).reciprocal())

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.parts[0]), sum(part.shape[1] for part in self.parts)


Rows: TypeAlias = Tensor | SparseMatrix | SideBySide
"""One row per node: [N, D]."""


def unit(rows: Tensor) -> Tensor:
    """Scale rows to unit length (L2); zero rows stay zero. Shapes: [N, D] -> [N, D]."""
    return F.normalize(rows, dim=1, eps=1e-9)


def unit_(rows: Tensor) -> Tensor:
    """The same in their place."""
    return rows.div_(torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min_(1e-9))


def sparse_rows(row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> SparseMatrix:
    """A sparse matrix from entries of distinct places in any order: row, col, values [E]."""
    place = (row.long() * shape[1] + col.long()).argsort()
    return _in_order(row[place], col[place], values[place], shape)


def _in_order(row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> SparseMatrix:
    """Of entries that are sorted by row and column."""
    by_column = col.argsort(stable=True)
    return SparseMatrix(
        crow=starts(row, shape[0]),
        col=col.int(),
        values=values,
        crow_t=starts(col[by_column], shape[1]),
        col_t=row[by_column].int(),
        order=by_column.int(),
        shape=shape,
    )


def entries(matrix: SparseMatrix) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and value of each entry: [E], [E], [E]."""
    node = torch.arange(matrix.shape[0], device=matrix.crow.device)
    row = node.repeat_interleave(matrix.crow.diff().long(), output_size=matrix.col.numel())
    return row, matrix.col.long(), matrix.values


def times(rows: Rows, dense: Tensor) -> Tensor:
    """``rows @ dense``: [N, D], [D, F] -> [N, F]."""
    if isinstance(rows, Tensor):
        return rows @ dense
    if isinstance(rows, SideBySide):
        weights = torch.split(dense, [part.shape[1] for part in rows.parts])
        products = (part @ w for part, w in zip(rows.parts, weights, strict=True))
        return sum(products, dense.new_zeros(())) * rows.scale
    width = dense.shape[1]
    if dense.device.type == "cpu" or width == 0:
        return rows @ dense
    product = dense.new_empty(rows.shape[0], width)
    step = PADDING if len(product) > MANY else CHUNK
    parts = zip(torch.split(product, step, 1), torch.split(dense, step, 1), strict=True)
    for into, part in parts:
        padded = F.pad(part, (0, -part.shape[1] % PADDING)).contiguous()
        into.copy_((rows @ padded)[:, : part.shape[1]])
    return product


def transposed(rows: Rows) -> Rows:
    """[N, D] -> [D, N]."""
    if isinstance(rows, Tensor):
        return rows.T
    assert isinstance(rows, SparseMatrix)
    m = rows
    values = m.values if m.order is None else m.values[m.order.long()]
    order = None if m.order is None else m.order.long().argsort().int()
    return SparseMatrix(m.crow_t, m.col_t, values, m.crow, m.col, order, (m.shape[1], m.shape[0]))


def take(rows: Rows, nodes: Tensor) -> Rows:
    """The rows of some nodes: [N, D], [L] -> [L, D]."""
    if isinstance(rows, Tensor):
        return rows[nodes]
    if isinstance(rows, SideBySide):
        return rows.scale[nodes] * torch.cat([part[nodes] for part in rows.parts], 1)
    counts = rows.crow.diff().long()[nodes]
    position = torch.arange(len(nodes), device=nodes.device).repeat_interleave(counts)
    first = counts.cumsum(0) - counts
    entry = torch.arange(len(position), device=nodes.device) - first[position]
    entry += rows.crow[nodes].long()[position]
    return _in_order(position, rows.col[entry], rows.values[entry], (len(nodes), rows.shape[1]))


def as_dense(rows: Rows) -> Tensor:
    """For few rows or columns: [N, D]."""
    assert not isinstance(rows, SideBySide)
    return rows if isinstance(rows, Tensor) else rows.to_dense()


def low_rank(rows: Rows, width: int, generator: torch.Generator) -> Tensor:
    """``U diag(s)`` of a randomised SVD with two power iterations: [N, D] -> [N, <= width].

    Halko, Martinsson and Tropp, 2011. As few columns as leave out at most :data:`LEFT` of all
    squares, what the iterations missed among it. Narrow rows are returned as they are.
    """
    columns = rows.shape[1]
    if columns <= width:
        return as_dense(rows)
    assert not isinstance(rows, SideBySide)
    numbers = rows if isinstance(rows, Tensor) else rows.values
    device = numbers.device
    wide = min(width + 8, rows.shape[0], columns)
    back = transposed(rows)
    q = moved(rows, drawn((columns, wide), generator, device))
    for _ in range(2):
        q = moved(rows, moved(back, orthonormal(q)))
    q = orthonormal(orthonormal(q))
    z = times(back, q)  # [D, wide]; rows is about q z^T
    values, vectors = (found.flip(-1) for found in torch.linalg.eigh(gram(z).cpu()))
    del z
    total = torch.linalg.vector_norm(numbers, dtype=torch.float64).square().cpu()
    keep = min(width, 1 + int((total - values.cumsum(0) > LEFT * total).sum()))
    mixing: Tensor = vectors[:, :keep] * values[:keep].clamp_min(0).sqrt()
    return q @ mixing.to(q)


def drawn(shape: tuple[int, int], generator: torch.Generator, device: torch.device) -> Tensor:
    """Normal numbers [N, D]; many of them are drawn on a GPU, if that is where they go."""
    if device.type == "cpu" or shape[0] <= MANY:
        return torch.randn(shape, generator=generator).to(device)
    seed = int(torch.randint(2**62, (), generator=generator))
    there = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=there, device=device)


def moved(rows: Rows, columns: Tensor) -> Tensor:
    """``rows @ columns``; of square rows it takes the columns' place."""
    if rows.shape[0] != rows.shape[1]:
        return times(rows, columns)
    for part in torch.split(columns, PADDING, dim=1):
        part.copy_(times(rows, part.contiguous()))
    return columns


def orthonormal(columns: Tensor) -> Tensor:
    """Orthonormal columns of the same range, in the place of the columns: [N, D] -> [N, D].

    By a Cholesky factor of their Gram matrix in double precision; of columns that are nearly
    dependent, doing it twice makes them orthonormal to rounding (T. Fukaya and others, 2014).
    """
    square = gram(columns)
    square.diagonal().add_((DEPENDENT * square.diagonal().mean()).clamp_min(1e-30))
    factor, _ = torch.linalg.cholesky_ex(square, upper=True)  # no failure: the diagonal is raised
    eye = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
    mixing = torch.linalg.solve_triangular(factor, eye, upper=True)
    for part in torch.split(columns, ROWS):
        part.copy_(part.double() @ mixing)
    return columns


def gram(columns: Tensor) -> Tensor:
    """``columns^T columns`` in double precision: [N, D] -> [D, D]."""
    made = columns.new_zeros(columns.shape[1], columns.shape[1], dtype=torch.float64)
    for part in torch.split(columns, ROWS):
        double = part.double()
        made.addmm_(double.T, double)
    return made


def starts(ordered: Tensor, size: int) -> Tensor:
    """Where each of the numbers below ``size`` begins among sorted ones: [E] -> [size + 1]."""
    every = torch.arange(size + 1, dtype=ordered.dtype, device=ordered.device)
    return torch.searchsorted(ordered, every, out_int32=True)
