"""The immutable value that flows through training: a graph, checked, normalised and sparse."""

from dataclasses import dataclass, replace

import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.adjacency import normalised_adjacency
from graphglow.graphs.check import check_graph
from graphglow.graphs.sparse import SparseMatrix

DENSE_ABOVE = 0.2
"""Features with a larger share of non-zeros are kept as a dense matrix: it multiplies faster."""


@dataclass(frozen=True, eq=False)
class Graph:
    """What a model sees of a graph. Nothing in it is ever N x N dense.

    Shapes:
        x [N, D] row-normalised; adj [N, N] = D^-1/2 (A + I) D^-1/2; y [N];
        train, val, test: node indices
    """

    name: str
    x: SparseMatrix | Tensor
    adj: SparseMatrix
    y: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    num_classes: int

    @property
    def num_nodes(self) -> int:
        return int(self.y.shape[0])

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Graph":
        return replace(
            self,
            x=self.x.to(device, dtype or torch.float32),
            adj=self.adj.to(device, dtype),
            y=self.y.to(device),
            train=self.train.to(device),
            val=self.val.to(device),
            test=self.test.to(device),
        )


def prepare(data: Data, *, split_seed: int = 0) -> Graph:
    """Check ``data`` and turn it into the :class:`Graph` that models train on."""
    return graph_of(check_graph(data, split_seed=split_seed))


def graph_of(data: Data) -> Graph:
    """Turn a graph that :func:`check_graph` has passed into what models train on.

    One rule more than for a graph that is only loaded: training nodes of at least two classes.
    """
    seen = data.y[data.train_mask].unique()
    if len(seen) < 2:
        raise InputError(f"training nodes must have at least two classes; got only {int(seen[0])}")
    return Graph(
        name=str(data.get("name", "graph")),
        x=normalised_features(data.x),
        adj=normalised_adjacency(data.edge_index, data.get("edge_weight"), data.x.shape[0]),
        y=data.y,
        train=data.train_mask.nonzero()[:, 0],
        val=data.val_mask.nonzero()[:, 0],
        test=data.test_mask.nonzero()[:, 0],
        num_classes=int(data.y.max()) + 1,
    )


def normalised_features(x: Tensor) -> SparseMatrix | Tensor:
    """Scale each row to unit length (L2) (zero rows stay zero); sparse where that pays."""
    scale = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(1e-12)  # [N, 1]
    if int(torch.count_nonzero(x)) > DENSE_ABOVE * x.numel():
        dense: Tensor = x / scale
        return dense
    row, col = x.nonzero(as_tuple=True)
    values = x[row, col] / scale[row, 0]
    shape = (x.shape[0], x.shape[1])
    coo = sp.coo_array((values.numpy(), (row.numpy(), col.numpy())), shape=shape)
    return SparseMatrix.from_scipy(coo)
