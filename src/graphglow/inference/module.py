"""A result as a module of PyTorch, for what asks for gradients or masks: PyG's explainers."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import SimpleConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import remove_self_loops

from graphglow.errors import InputError
from graphglow.gnn import backbone_class, backbones_that

if TYPE_CHECKING:  # which imports this
    from graphglow.training.result import TransferResult


@dataclass(frozen=True, eq=False)
class Messages:
    """A normalised adjacency whose product is message passing, in a layer that PyG can mask."""

    layer: nn.Module
    edge_index: Tensor
    edge_weight: Tensor

    def __matmul__(self, v: Tensor) -> Tensor:
        heard: Tensor = self.layer(v, self.edge_index, self.edge_weight)
        return heard


class ResultModule(nn.Module):
    """See :meth:`TransferResult.module`.

    Shapes:
        x [N, F], edge_index [2, E] both directions, edge_weight [E] or None -> [N, C]
    """

    def __init__(self, result: "TransferResult") -> None:
        super().__init__()
        if not backbone_class(result.backbone).by_products:
            able = backbones_that(lambda kind: kind.by_products)
            raise InputError(
                "a module needs a backbone that sees the graph by its normalised adjacency alone "
                f"({able}); got {result.backbone}"
            )
        self.result = result
        self.gnns = nn.ModuleList([voice.gnn for voice in result.voices(result.graph)])
        self.layer = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        edges, weight = remove_self_loops(edge_index, edge_weight)
        adj: Any = Messages(self.layer, *gcn_norm(edges, weight, len(x), dtype=x.dtype))
        unread = 0 * (adj @ x).sum(1, keepdim=True)  # gradients of 0 where no GNN that counts reads
        graph = replace(self.result.graph, x=F.normalize(x, dim=1), adj=adj)
        scores: Tensor = self.result.scores_on(graph) + unread
        return scores
