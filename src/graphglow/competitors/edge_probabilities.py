"""A Bernoulli probability for every pair of nodes, and graphs drawn from them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graphglow.linalg.sparse import SparseMatrix

BLOCKS, LEAST_ROWS = 16, 64
"""Blocks of rows that the upper triangle is cut into, and the fewest rows of one but the last."""

Sample = SparseMatrix | Tensor
"""A drawn graph, symmetric, no self-loops: sparse on a CPU; dense bool, of fixed size, on a GPU."""


class Block(NamedTuple):
    """Rows ``start`` to ``stop`` of a symmetric matrix, from column ``start`` on: [rows, W]."""

    start: int
    stop: int
    values: Tensor

    @property
    def square(self) -> Tensor:
        """The part that meets the diagonal: its lower half repeats what its upper half says."""
        return self.values[:, : self.stop - self.start]


class EdgeProbabilities:
    """theta of LDS: A_ij = A_ji ~ Ber(theta_ij) for each pair i < j; no self-loops.

    The upper triangle is stored once, as row blocks of one flat tensor, in place. An update is a
    matrix product per block that adds into it, so no gradient of size N x N ever exists.

    Args:
        edges: The pairs that start at 1, in any direction; all others start at 0.
        num_nodes: N.
        dtype: Of the probabilities.
        dense: Draw dense graphs, of a size that no data decides; by default on a GPU only.

    Shapes:
        edges [2, E]; flat [S], S about N^2 / 2; a drawn graph [N, N]
    """

    def __init__(
        self, edges: Tensor, num_nodes: int, dtype: torch.dtype, *, dense: bool | None = None
    ) -> None:
        self.num_nodes = num_nodes
        self.dense = edges.device.type != "cpu" if dense is None else dense
        self.flat = torch.zeros(stored_entries(num_nodes), dtype=dtype, device=edges.device)
        low, high = edges.min(0).values, edges.max(0).values
        for start, stop, values in self.blocks(self.flat):
            here = (low >= start) & (low < stop) & (low < high)
            values[low[here] - start, high[here] - start] = 1

    def blocks(self, flat: Tensor) -> Iterator[Block]:
        """Views of ``flat`` [S], which is laid out as the probabilities are."""
        offset = 0
        for start, stop, width in _layout(self.num_nodes):
            end = offset + (stop - start) * width
            yield Block(start, stop, flat[offset:end].view(stop - start, width))
            offset = end

    def draw(self, generator: torch.Generator) -> Sample:
        """One graph."""
        hits = []
        for block in self.blocks(self.flat):
            uniform = torch.empty_like(block.values).uniform_(generator=generator)
            hits.append(block._replace(values=uniform < block.values))
        if self.dense:
            return self._dense(hits)
        keys = torch.cat([self._keys(block, _places(block.values)) for block in hits])
        return self._sparse(_both_directions(keys, self.num_nodes)[0])

    def fixed_draws(self, uniform: Tensor, count: int) -> Iterator[Sample]:
        """``count`` graphs that are a function of theta and of the numbers ``uniform`` [S].

        Graph s has the pair where (u + s / count) mod 1 < theta: each is a draw from Ber(theta),
        and together they have every edge as often as they should, up to one. One pass over all
        pairs finds those that any of the graphs has.
        """
        if self.dense:
            for s in range(count):
                yield self._dense(
                    block._replace(values=(u.values + s / count).remainder_(1) < block.values)
                    for block, u in self._with(uniform)
                )
            return
        keys, numbers, thetas = [], [], []
        for block, u in self._with(uniform):
            near = _places((u.values * count).frac_() <= block.values * count)
            keys.append(self._keys(block, near))
            numbers.append(u.values.flatten()[near])
            thetas.append(block.values.flatten()[near])
        both, pair = _both_directions(torch.cat(keys), self.num_nodes)
        number, theta = torch.cat(numbers), torch.cat(thetas)
        for s in range(count):
            hit = (number + s / count).remainder_(1) < theta
            yield self._sparse(both[hit[pair]])

    def descend(self, left: Tensor, right: Tensor) -> None:
        """Subtract the gradient ``left @ right.T`` with respect to A, and project to [0, 1].

        A pair is both A_ij and A_ji: its gradient is the sum of the two. left, right [N, K].
        """
        rows, columns = torch.cat([left, right], 1), torch.cat([right, left], 1)  # [N, 2K]
        for block in self.blocks(self.flat):
            part = rows[block.start : block.stop]
            block.values.addmm_(part, columns[block.start :].T, alpha=-1).clamp_(0, 1)
            block.square.triu_(1)

    def _with(self, other: Tensor) -> Iterator[tuple[Block, Block]]:
        return zip(self.blocks(self.flat), self.blocks(other), strict=True)

    def _keys(self, block: Block, places: Tensor) -> Tensor:
        """Name the pairs (i, j) at these places of a block i * N + j: [E]."""
        width = block.values.shape[1]
        i, j = places // width, places % width
        return (i + block.start) * self.num_nodes + (j + block.start)

    def _sparse(self, keys: Tensor) -> SparseMatrix:
        """From the sorted keys of both directions."""
        crow = keys.new_zeros(self.num_nodes + 1)
        row, col = keys // self.num_nodes, keys % self.num_nodes
        crow[1:] = torch.bincount(row, minlength=self.num_nodes).cumsum(0)
        return SparseMatrix.symmetric(crow, col, self.flat.new_ones(len(keys)), self.num_nodes)

    def _dense(self, hits: Iterable[Block]) -> Tensor:
        """From the pairs drawn in each block."""
        size = (self.num_nodes, self.num_nodes)
        full = torch.empty(size, dtype=torch.bool, device=self.flat.device)
        for block in hits:
            start, stop, values = block
            full[start:stop, start:] = values
            full[stop:, start:stop] = values[:, stop - start :].T
            full[start:stop, start:stop] |= block.square.T
        return full


def stored_entries(num_nodes: int) -> int:
    """S: numbers that one per pair takes."""
    return sum((stop - start) * width for start, stop, width in _layout(num_nodes))


def block_rows(num_nodes: int) -> int:
    """Rows of a block: with 16 blocks, 1/16 more entries are stored than there are pairs."""
    return max(LEAST_ROWS, -(-num_nodes // BLOCKS))


def _layout(num_nodes: int) -> Iterator[tuple[int, int, int]]:
    """Start, stop and width of each block of rows."""
    height = block_rows(num_nodes)
    for start in range(0, num_nodes, height):
        yield start, min(start + height, num_nodes), num_nodes - start


def _places(hits: Tensor) -> Tensor:
    """Where a block is true, counted along its rows: [E]."""
    return hits.flatten().nonzero()[:, 0]


def _both_directions(keys: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """The sorted keys of (i, j) and (j, i), and for each which of ``keys`` it stands for."""
    back = keys % num_nodes * num_nodes + keys // num_nodes
    both, order = torch.cat([keys, back]).sort()
    return both, order % max(1, len(keys))
