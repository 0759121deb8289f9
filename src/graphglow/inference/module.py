"""A result as a module of PyTorch, for what asks for gradients or masks: PyG's explainers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import SimpleConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import remove_self_loops

from graphglow.errors import InputError

if TYPE_CHECKING:  # which imports this
    from graphglow.training.result import TransferResult


@dataclass(frozen=True, eq=False)
class Messages:
    """A normalised adjacency whose product is message passing, in a layer that PyG can mask."""

    backbone: str
    layer: nn.Module
    edge_index: Tensor
    edge_weight: Tensor

    def __matmul__(self, v: Tensor) -> Tensor:
        heard: Tensor = self.layer(v, self.edge_index, self.edge_weight)
        return heard

    def __getattr__(self, name: str) -> NoReturn:
        raise InputError(
            "a module needs a backbone that sees the graph by products with its normalised "
            f"adjacency alone, as gcn does; got {self.backbone}, which asks for its {name}"
        )


class ResultModule(nn.Module):
    """See :meth:`TransferResult.module`.

    Shapes:
        x [N, F], edge_index [2, E] both directions, edge_weight [E] or None -> [N, C]
    """

    def __init__(self, result: "TransferResult") -> None:
        super().__init__()
        self.result = result
        self.gnn = result.gnn
        self.layer = SimpleConv(aggr="sum")
        with torch.no_grad():  # what cannot be done is said now
            self(result.data.x.to(result.device), result.data.edge_index.to(result.device))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        shape = tuple(self.result.data.x.shape)
        if tuple(x.shape) != shape or bool((edge_index >= shape[0]).any()):
            raise InputError(
                f"a module needs the nodes and columns of training, x {shape} and edges between "
                "these nodes, since the learned graph is of them (result.predict_new takes new "
                f"ones); got x {tuple(x.shape)}"
            )
        edges, weight = remove_self_loops(edge_index, edge_weight)
        norm = gcn_norm(edges, weight, len(x), dtype=x.dtype)
        adj: Any = Messages(self.result.backbone, self.layer, *norm)
        unread = 0 * (adj @ x).sum(1, keepdim=True)  # gradients of 0 where lambda is 0
        graph = self.result.graph.with_matrices(x=F.normalize(x, dim=1), adj=adj)
        scores: Tensor = self.result.scores_on(graph) + unread
        return scores
