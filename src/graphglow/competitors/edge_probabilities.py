"""A Bernoulli probability for every pair of nodes, and graphs drawn from them."""

from collections.abc import Iterator

import torch
from torch import Tensor

from graphglow.linalg.sparse import SparseMatrix

BLOCKS, LEAST_ROWS = 16, 64
"""Blocks of rows that the upper triangle is cut into, and the fewest rows of one but the last."""


class EdgeProbabilities:
    """theta of LDS: A_ij = A_ji ~ Ber(theta_ij) for each pair i < j; no self-loops.

    The upper triangle is stored once, as blocks of rows of one flat tensor, in place. An update is
    a matrix product per block that adds into it, so no gradient of size N x N ever exists.

    Args:
        edges: The pairs that start at 1, in any direction; all others start at 0.
        num_nodes: N.
        dtype: Of the probabilities.

    Shapes:
        edges [2, E]; flat [S], S about N^2 / 2; a drawn graph [N, N]
    """

    def __init__(self, edges: Tensor, num_nodes: int, dtype: torch.dtype) -> None:
        self.num_nodes = num_nodes
        height = max(LEAST_ROWS, -(-num_nodes // BLOCKS))
        self.starts = range(0, num_nodes, height)
        self.shapes = [(min(height, num_nodes - start), num_nodes - start) for start in self.starts]
        size = sum(rows * columns for rows, columns in self.shapes)
        self.flat = torch.zeros(size, dtype=dtype, device=edges.device)
        low, high = edges.min(0).values, edges.max(0).values
        for start, values in self.blocks(self.flat):
            inside = (low >= start) & (low < start + len(values)) & (low < high)
            values[low[inside] - start, high[inside] - start] = 1

    def blocks(self, flat: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The first row (and column) of each block, and a view of it, of ``flat`` [S]."""
        parts = torch.split(flat, [rows * columns for rows, columns in self.shapes])
        for start, part, shape in zip(self.starts, parts, self.shapes, strict=True):
            yield start, part.view(shape)

    def draw(self, generator: torch.Generator) -> SparseMatrix:
        """One graph."""
        drawn = []
        for start, theta in self.blocks(self.flat):
            uniform = torch.empty_like(theta).uniform_(generator=generator)
            drawn.append(self._pairs(start, uniform < theta))
        return self._graph(torch.cat(drawn))

    def fixed_draws(self, uniform: Tensor, count: int) -> Iterator[SparseMatrix]:
        """``count`` graphs that are a function of theta and of the numbers ``uniform`` [S].

        Graph s has the pair where (u + s / count) mod 1 < theta: each is a draw from Ber(theta),
        and together they have every edge as often as they should, up to one. One pass over all
        pairs finds those that any of the graphs has.
        """
        pairs, numbers, thetas = [], [], []
        for (start, theta), (_, u) in zip(
            self.blocks(self.flat), self.blocks(uniform), strict=True
        ):
            near = (u * count).frac() <= theta * count
            pairs.append(self._pairs(start, near))
            numbers.append(u[near])
            thetas.append(theta[near])
        pair, number, theta = torch.cat(pairs), torch.cat(numbers), torch.cat(thetas)
        for s in range(count):
            yield self._graph(pair[(number + s / count).remainder(1) < theta])

    def descend(self, left: Tensor, right: Tensor) -> None:
        """Subtract the gradient ``left @ right.T`` with respect to A, and project to [0, 1].

        A pair is both A_ij and A_ji: its gradient is the sum of the two. left, right [N, K].
        """
        rows, columns = torch.cat([left, right], 1), torch.cat([right, left], 1)  # [N, 2K]
        for start, theta in self.blocks(self.flat):
            part = rows[start : start + len(theta)]
            theta.addmm_(part, columns[start:].T, alpha=-1).clamp_(0, 1)
            theta[:, : len(theta)].triu_(1)

    def _pairs(self, start: int, hits: Tensor) -> Tensor:
        """Name the pairs (i, j) where a block is true i * N + j: [E]."""
        i, j = hits.nonzero().unbind(1)
        return (i + start) * self.num_nodes + (j + start)

    def _graph(self, pairs: Tensor) -> SparseMatrix:
        """From the names of its pairs, to which the other direction is added."""
        n = self.num_nodes
        both = torch.cat([pairs, pairs % n * n + pairs // n]).sort().values
        crow = torch.zeros(n + 1, dtype=torch.int64, device=pairs.device)
        crow[1:] = torch.bincount(both // n, minlength=n).cumsum(0)
        return SparseMatrix.symmetric(crow, both % n, self.flat.new_ones(len(both)), n)
