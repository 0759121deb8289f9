"""Rows of a view, dense or sparse, and the few products that closed forms need of them."""

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.linalg.sparse import SparseMatrix

PADDING, CHUNK = 64, 256  # a GPU kernel is compiled for each width: keep to four of them
MANY = 2**17
"""Rows above which a product is made of few columns at once, and draws are made on a GPU."""
ROWS = 2**12  # of a hidden layer or a Gram matrix at once
AT_ONCE = 2**24  # numbers of a hidden layer that are kept
LEFT = 1e-6
"""Share of all squares that a low rank may leave out: what is beyond it moves no cosine."""
ROUNDING = 1e-9  # eigenvalues below, over the largest, have vectors of rounding errors
ROUNDS, DEGREE, WORK = 4, 4, 4 * 10**9
"""Polynomials at most, their degree over the number of rounds, multiplications that bound them."""
REACH, ENOUGH = 1e11, 1e6
"""How far a polynomial may lift the largest singular vectors over those beyond the cut, and by how
much all polynomials need to lift the last one that is kept."""
RANGE = 1e-8  # of squared singular values that a polynomial tells apart
FLAT = 0.1
SHORT = 0.1
"""Rows shorter than this share of the mean after the SVD are not made longer: they are noise."""
DEPENDENT = 1e-13  # squared length, of 1, below which a column is a sum of the others


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


@dataclass(frozen=True, eq=False)
class HiddenLayer:
    """``relu(R W + b)`` less its mean, of unit rows: a hidden layer that nobody trained.

    Its cosines are near an arc-cosine kernel's (Cho and Saul, 2009), so that a ridge regression on
    it is a closed-form neural network. Rows are computed when they are asked for.

    Shapes:
        rows [N, D], weight [D, H], bias [H], mean [H] -> [N, H]
    """

    rows: "Rows"
    weight: Tensor
    bias: Tensor
    mean: Tensor
    made: Tensor | None = None
    """The result [N, H], on a small graph."""

    @classmethod
    def of(cls, rows: "Rows", width: int, mean: Tensor | None = None) -> "HiddenLayer":
        """Draw the nodes whose rows, with either sign, are the weights.

        So the layer does not depend on the axes that a view happens to have. On a small graph the
        result is computed at once. ``mean`` [H] is given where it is known already.
        """
        generator = torch.Generator().manual_seed(0)
        nodes = torch.randint(rows.shape[0], (width,), generator=generator)
        sign = 2.0 * torch.randint(2, (width,), generator=generator) - 1
        bias = torch.randn(width, generator=generator)
        part = rows.parts[0] if isinstance(rows, SideBySide) else rows
        device = part.values.device if isinstance(part, SparseMatrix) else part.device
        weight = unit(as_dense(take(rows, nodes.to(device)))).T
        weight = weight * (rows.shape[1] / 2 * sign.to(device))
        layer = cls(rows, weight, bias.to(device), torch.zeros(width, device=device))
        if mean is not None:
            return replace(layer, mean=mean)
        every = torch.arange(rows.shape[0], device=device)
        if rows.shape[0] * width <= AT_ONCE:
            raw = layer.raw(every)
            mean = raw.mean(0)
            return replace(layer, mean=mean, made=unit_(raw - mean))
        total = sum((layer.raw(some).sum(0) for some in torch.split(every, ROWS)), layer.mean)
        return replace(layer, mean=total / rows.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[0], self.weight.shape[1]

    @property
    def device(self) -> torch.device:
        return self.weight.device

    def raw(self, nodes: Tensor) -> Tensor:
        """Before the mean is taken off: [K] -> [K, H]."""
        return (as_dense(take(self.rows, nodes)) @ self.weight).add_(self.bias).relu_()

    def of_nodes(self, nodes: Tensor) -> Tensor:
        """[K] -> [K, H]."""
        return unit_(self.raw(nodes).sub_(self.mean)) if self.made is None else self.made[nodes]

    def of_rows(self, rows: "Rows") -> "HiddenLayer":
        """The same layer of other rows: [K, D] -> [K, H]."""
        return replace(self, rows=rows, made=None)


@dataclass(frozen=True, eq=False)
class LowRank:
    """The map that :func:`low_rank` has found, which can be used on other rows.

    Shapes:
        matrix [D, q], or None: rows stay as they are; rows [K, D] -> [K, q]
    """

    matrix: Tensor | None
    shortest: float = 0.0
    """Rows that come out shorter are not made longer than by this."""

    def __call__(self, rows: "Rows") -> Tensor:
        made = as_dense(rows) if self.matrix is None else times(rows, self.matrix)
        return unit_unless_short(made, self.shortest)


Rows: TypeAlias = Tensor | SparseMatrix | SideBySide | HiddenLayer
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
    rows, columns = (torch.arange(size + 1, device=row.device) for size in shape)
    return SparseMatrix(
        crow=torch.searchsorted(row, rows.to(row.dtype), out_int32=True),
        col=col.int(),
        values=values,
        crow_t=torch.searchsorted(col[by_column], columns.to(col.dtype), out_int32=True),
        col_t=row[by_column].int(),
        order=by_column.int(),
        shape=shape,
    )


def entries(matrix: SparseMatrix) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and value of each entry: [E], [E], [E]."""
    return matrix.row, matrix.col.long(), matrix.values


def times(rows: Rows, dense: Tensor) -> Tensor:
    """``rows @ dense``: [N, D], [D, F] -> [N, F]."""
    if isinstance(rows, Tensor):
        return rows @ dense
    if isinstance(rows, SideBySide):
        weights = torch.split(dense, [part.shape[1] for part in rows.parts])
        products = (part @ w for part, w in zip(rows.parts, weights, strict=True))
        return sum(products, dense.new_zeros(())) * rows.scale
    if isinstance(rows, HiddenLayer):
        if rows.made is not None:
            return rows.made @ dense
        nodes = torch.split(torch.arange(rows.shape[0], device=dense.device), ROWS)
        product = dense.new_empty(rows.shape[0], dense.shape[1])  # parts would split the heap
        for some, into in zip(nodes, torch.split(product, ROWS), strict=True):
            torch.mm(rows.of_nodes(some), dense, out=into)
        return product
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
    if isinstance(rows, HiddenLayer):
        return rows.of_nodes(nodes)
    counts = rows.crow.diff().long()[nodes]
    position = torch.arange(len(nodes), device=nodes.device).repeat_interleave(counts)
    first = counts.cumsum(0) - counts
    entry = torch.arange(len(position), device=nodes.device) - first[position]
    entry += rows.crow[nodes].long()[position]
    return _in_order(position, rows.col[entry], rows.values[entry], (len(nodes), rows.shape[1]))


def as_dense(rows: Rows) -> Tensor:
    """For few rows or columns: [N, D]."""
    assert isinstance(rows, Tensor | SparseMatrix)
    return rows if isinstance(rows, Tensor) else rows.to_dense()


def low_rank(rows: Rows, width: int, generator: torch.Generator) -> Tensor:
    """Columns of the leading singular vectors, unit rows: [N, D] -> [N, <= width]."""
    return low_rank_map(rows, width, generator)[0]


def low_rank_map(rows: Rows, width: int, generator: torch.Generator) -> tuple[Tensor, LowRank]:
    """:func:`low_rank`, and the map that gives the same row to a node of the same row.

    Randomised subspace iteration (Halko, Martinsson and Tropp, 2011) with half as many columns
    again as are kept, by Chebyshev polynomials of A A^T that stay small on the singular values
    beyond these columns (Zhou and others, 2006). Singular values are shrunk, ``s^2 - t s_cut^2``
    with s_cut the first that is left out: columns near the cut, which no iteration separates,
    hardly count, so that another draw gives the same cosines. t is 1, and 0.9 where all singular
    values are alike. Rows of which next to nothing is left stay short (:data:`SHORT`). Narrow rows
    are returned as they are.
    """
    columns = rows.shape[1]
    if columns <= width:
        return unit(as_dense(rows)), LowRank(None)
    assert isinstance(rows, Tensor | SparseMatrix)
    numbers = rows if isinstance(rows, Tensor) else rows.values
    wide = min(3 * width // 2, rows.shape[0], columns)
    back = transposed(rows)
    q = orthonormal(times(rows, drawn((columns, wide), generator, numbers.device)))
    q = times(rows, times(back, q))
    rounds, lifted = min(ROUNDS, max(1, WORK // (rows.shape[0] * wide**2))), 1.0
    for left in reversed(range(rounds + 1)):
        q = orthonormal(q)
        if last := left == 0 or lifted > ENOUGH:
            q = orthonormal(q)
        z = times(back, q)  # [D, wide]; rows is about q z^T
        values, vectors = (part.flip(-1) for part in torch.linalg.eigh(gram(z).cpu()))
        if last:
            break
        largest, kept, cut = values[[0, min(width, wide - 1), -1]].clamp_min(1e-30).tolist()
        cut = max(cut, RANGE * largest)
        reach, gain = (math.acosh(max(1.0, 2 * value / cut - 1)) for value in (largest, kept))
        degree = max(1, min(DEGREE * rounds, int(math.log(2 * REACH) / max(reach, 0.1))))
        lifted *= math.cosh(degree * gain)
        q = chebyshev(rows, back, q, z, vectors.to(q), degree, cut)
    del q
    total = torch.linalg.vector_norm(numbers, dtype=torch.float64).square().cpu()
    keep = min(width, 1 + int((total - values.cumsum(0) > LEFT * total).sum()))
    cut = values[keep] if keep < len(values) else values.new_zeros(())
    cut = cut * (1 - FLAT * cut / values[0].clamp_min(1e-30))
    shrunk = (values[:keep] - cut).clamp_min(0).sqrt() / values[:keep].clamp_min(1e-30)
    shrunk *= values[:keep] > ROUNDING * values[0]
    matrix: Tensor = z @ (vectors[:, :keep] * shrunk).to(z)
    del z
    made = times(rows, matrix)
    sign = made.pow(3).sum(0).sign()  # that of a singular vector is nobody's choice
    made *= sign
    matrix *= sign
    found = LowRank(matrix, short_length(made))
    return unit_unless_short(made, found.shortest), found


def chebyshev(
    rows: Rows, back: Rows, q: Tensor, z: Tensor, mix: Tensor, degree: int, cut: float
) -> Tensor:
    """Apply the polynomial ``T(2 A A^T / cut - 1)`` to ``q mix``, where ``z = A^T q``: [N, D]."""
    made = torch.empty_like(q)
    for into, some in zip(torch.split(made, PADDING, 1), torch.split(mix, PADDING, 1), strict=True):
        before = q @ some
        now = times(rows, z @ some).mul_(2 / cut).sub_(before)
        for _ in range(degree - 1):
            after = times(rows, times(back, now)).mul_(4 / cut).sub_(now, alpha=2).sub_(before)
            before, now = now, after
        into.copy_(now)
    return made


def short_length(rows: Tensor) -> float:
    """Of rows shorter than this next to nothing is left: [N, D]."""
    return SHORT * float(torch.linalg.vector_norm(rows)) / math.sqrt(max(1, len(rows)))


def unit_unless_short(rows: Tensor, shortest: float | None = None) -> Tensor:
    """Scale rows to unit length; those far shorter than the others are noise and stay short."""
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    shortest = short_length(rows) if shortest is None else shortest
    made: Tensor = rows / length.clamp_min_(max(shortest, 1e-9))
    return made


def leading_map(rows: Tensor, rank: int) -> LowRank:
    """The map to the first columns of :func:`low_rank`, shrunk at their own cut: D to R columns."""
    if rows.shape[1] <= rank:
        return LowRank(None, 1.0)
    energy = rows.square().mean(0)
    kept = 1 - (1 - FLAT) * energy[rank] / energy[:rank].clamp_min(1e-30)
    matrix = torch.diag(F.pad(kept.clamp_min(0).sqrt(), (0, rows.shape[1] - rank)))[:, :rank]
    return LowRank(matrix, short_length(rows @ matrix))


def drawn(shape: tuple[int, int], generator: torch.Generator, device: torch.device) -> Tensor:
    """Normal numbers [N, D]; many of them are drawn on a GPU, if that is where they go."""
    if device.type == "cpu" or shape[0] <= MANY:
        return torch.randn(shape, generator=generator).to(device)
    seed = int(torch.randint(2**62, (), generator=generator))
    there = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=there, device=device)


def orthonormal(columns: Tensor) -> Tensor:
    """Orthonormal columns of the same range, in the place of the columns: [N, D] -> [N, D].

    By a Cholesky factor of their Gram matrix in double precision; of columns that are nearly
    dependent, doing it twice makes them orthonormal to rounding (T. Fukaya and others, 2014).
    """
    square = gram(columns)
    scale = square.diagonal().clamp_min(1e-30).rsqrt()
    square = scale[:, None] * square * scale
    square.diagonal().add_(DEPENDENT)
    factor, _ = torch.linalg.cholesky_ex(square, upper=True)  # no failure: the diagonal is raised
    eye = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
    mixing = scale[:, None] * torch.linalg.solve_triangular(factor, eye, upper=True)
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
