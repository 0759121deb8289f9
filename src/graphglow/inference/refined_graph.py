"""The learned message-passing graph as edges: the strongest of each node, found in blocks.

One layer of message passing multiplies by ``M = lambda A_norm + (1 - lambda) L``, with
``L = RowNorm(Gamma) RowNorm(Gamma^T)`` under the paper's learner and ``L = S`` under an evidence
learner. M[u, v] is how much u hears of v. With S, which is sparse, M is a sparse sum; of the
paper's L a block of rows is formed at a time: [rows, N] and never [N, N].
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least
from graphglow.gnn import FixedStructure, Structure
from graphglow.graph.check import MADE
from graphglow.linalg.sparse import SparseMatrix, csr_tensor
from graphglow.paper import BlendedStructure, PivotStructure
from graphglow.paper.pivots import EPS, row_blocks

if TYPE_CHECKING:  # which imports this
    from graphglow.training.result import TransferResult

BLOCK_ELEMENTS = 16_000_000
"""Entries of the largest block in memory (64 MB in float32)."""
OF_NODES = ("x", "y", "train_mask", "val_mask", "test_mask", "node_id", "class_names")
"""What a refined graph keeps whatever its size: PyG takes a list of length E for edges'."""


def refined_graph(result: "TransferResult", top_k: int, *, self_loops: bool) -> Data:
    """See :meth:`TransferResult.refined_graph`."""
    at_least("top_k", top_k, 1)
    latent, weight = result.message_graph
    edges = strongest_edges(result.graph.adj, latent, weight, top_k, self_loops=self_loops)
    refined = without_edges(result.data.clone())
    refined.edge_index = edges.pairs.cpu()
    refined.edge_weight = edges.weight.cpu()
    refined.edge_input_weight = edges.input_part.cpu()
    refined.edge_latent_weight = edges.latent_part.cpu()
    return refined


def without_edges(data: Data) -> Data:
    """Drop all that a graph says of its edges, in place: learned ones have nothing of the kind."""
    for name in list(data.keys()):
        of_edges = name.startswith("directed_edge_") or name in ("adj_t", *MADE)
        if of_edges or (name not in OF_NODES and data.is_edge_attr(name)):
            del data[name]
    return data


class WeightedEdges(NamedTuple):
    """Edges v -> u, sorted by target u and falling weight.

    Shapes:
        pairs [2, E] (source, target); weight, input_part, latent_part [E] with
        weight = input_part + latent_part
    """

    pairs: Tensor
    weight: Tensor
    input_part: Tensor
    latent_part: Tensor


@torch.no_grad()
def strongest_edges(
    adj: SparseMatrix,
    latent: Structure | None,
    input_weight: float,
    top_k: int,
    *,
    self_loops: bool = True,
    block_elements: int = BLOCK_ELEMENTS,
) -> WeightedEdges:
    """Return each node's ``top_k`` strongest incoming edges of M; zero entries are no edges."""
    if latent is None or isinstance(latent, FixedStructure):
        return _strongest_sparse(adj, latent, input_weight, top_k, self_loops=self_loops)
    num_nodes = adj.shape[0]
    operator = OperatorRows(adj, latent, input_weight, block_elements)
    found: list[WeightedEdges] = []
    for rows in row_blocks(num_nodes, max(1, block_elements // num_nodes)):
        given, learned = operator.parts(rows)
        total = learned + given
        here = torch.arange(len(total), device=total.device)
        if not self_loops:
            total[here, here + rows.start] = 0
        weight, source = total.topk(min(top_k, num_nodes), dim=1)
        kept = weight > 0
        target = (here + rows.start)[:, None].expand_as(source)
        found.append(
            WeightedEdges(
                torch.stack([source[kept], target[kept]]),
                weight[kept],
                given.gather(1, source)[kept],
                learned.gather(1, source)[kept],
            )
        )
    return WeightedEdges(*(torch.cat(part, dim=-1) for part in zip(*found, strict=True)))


def _strongest_sparse(
    adj: SparseMatrix,
    latent: FixedStructure | None,
    input_weight: float,
    top_k: int,
    *,
    self_loops: bool,
) -> WeightedEdges:
    """The same where both graphs are sparse, without a dense row."""
    parts = [(adj, 1.0 if latent is None else input_weight)]
    if latent is not None:
        parts.append((latent.matrix, 1 - input_weight))
    num_nodes = adj.shape[0]
    keys = [_row_of_entries(matrix) * num_nodes + matrix.col for matrix, _ in parts]
    key, place = torch.unique(torch.cat(keys), return_inverse=True)
    weights = adj.values.new_zeros(2, len(key))  # by the input graph, by the learned one
    for row, of, (matrix, share) in zip(
        weights, place.split([len(key) for key in keys]), parts, strict=False
    ):
        row[of] = share * matrix.values
    target, source, total = key // num_nodes, key % num_nodes, weights.sum(0)
    kept = (total > 0) & (self_loops | (source != target))
    order = kept.nonzero()[:, 0]
    order = order[total[order].argsort(descending=True, stable=True)]
    order = order[target[order].argsort(stable=True)]  # by node, the strongest first
    counts = torch.bincount(target[order], minlength=num_nodes)
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    order = order[torch.arange(len(order), device=order.device) - first < top_k]
    pairs = torch.stack([source[order], target[order]])
    return WeightedEdges(pairs, total[order], *weights[:, order])


def _row_of_entries(matrix: SparseMatrix) -> Tensor:
    """[E]."""
    rows = torch.arange(matrix.shape[0], device=matrix.crow.device)
    return rows.repeat_interleave(matrix.crow.diff())


class OperatorRows:
    """Rows of the two parts of M, lambda A and (1 - lambda) L, for any A and any block of rows.

    Without a ``latent``, which L is made of, lambda is 1. The largest temporary has
    ``block_elements`` entries.
    """

    @torch.no_grad()
    def __init__(
        self,
        adj: SparseMatrix,
        latent: Structure | None,
        input_weight: float,
        block_elements: int = BLOCK_ELEMENTS,
    ) -> None:
        self.adj, self.block_elements = adj, block_elements
        self.input_weight = 1.0 if latent is None else input_weight
        self.fixed = latent if isinstance(latent, FixedStructure) else None
        parts = [] if self.input_weight == 1 or self.fixed else _parts(latent)
        self.latent = [(part, weight, self._column_sum(part)) for part, weight in parts]

    def _blocks(self, structure: PivotStructure) -> Iterator[slice]:
        step = max(1, self.block_elements // structure.k.shape[0])
        return row_blocks(structure.q.shape[0], step)

    def _column_sum(self, structure: PivotStructure) -> Tensor:
        total = structure.q.new_zeros(structure.k.shape[0])  # [P]
        for block in self._blocks(structure):
            total += structure.gamma(block).sum(0)
        return total.clamp_min(EPS)

    @torch.no_grad()
    def parts(self, rows: slice) -> tuple[Tensor, Tensor]:
        """What the nodes in ``rows`` hear of all nodes, by input and by latent edges: [rows, N]."""
        count = rows.stop - rows.start
        learned = self.adj.values.new_zeros(count, self.adj.shape[1])
        for structure, weight, column_sum in self.latent:  # RowNorm(Gamma) RowNorm(Gamma^T)
            gamma = structure.gamma(rows)  # [rows, P]
            left = gamma / gamma.sum(1).clamp_min(EPS)[:, None] / column_sum * weight
            for block in self._blocks(structure):
                learned[:, block] += left @ structure.gamma(block).mT
        if self.fixed is not None:
            learned += _dense_rows(self.fixed.matrix, rows)
        learned *= 1 - self.input_weight
        return _dense_rows(self.adj, rows).mul_(self.input_weight), learned


def _dense_rows(matrix: SparseMatrix, rows: slice) -> Tensor:
    """A block of rows of a sparse matrix: [rows, N]."""
    begin, end = int(matrix.crow[rows.start]), int(matrix.crow[rows.stop])
    crow = matrix.crow[rows.start : rows.stop + 1] - begin
    shape = (rows.stop - rows.start, matrix.shape[1])
    return csr_tensor(crow, matrix.col[begin:end], matrix.values[begin:end], shape).to_dense()


def _parts(latent: Structure | None) -> list[tuple[PivotStructure, float]]:
    """Flatten a structure into weighted pivot structures."""
    if isinstance(latent, PivotStructure):
        return [(latent, 1.0)]
    assert isinstance(latent, BlendedStructure)
    assert isinstance(latent.eta, float)  # a result is one run, not a batch
    return [
        (part, weight * share)
        for side, share in ((latent.current, latent.eta), (latent.first, 1 - latent.eta))
        for part, weight in _parts(side)
    ]
