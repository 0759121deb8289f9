"""GPR-GNN: an MLP whose logits are propagated with learned step weights."""

import torch
from torch import Tensor, nn

from graphglow.gnn.backbones.backbone import BackboneShape
from graphglow.gnn.backbones.propagated_mlp import PropagatedMLP
from graphglow.gnn.dropout import Dropout, drop
from graphglow.gnn.encoder import Encoded
from graphglow.gnn.latent_gnn import MixedPropagation
from graphglow.graphs import Graph


class GPR(PropagatedMLP):
    """Generalised PageRank (Chien et al., ICLR 2021): sum_k gamma_k mix^k(h0), k = 0 .. K.

    gamma starts as personalised PageRank, so that an untrained GPR-GNN is APPNP, and may turn
    negative where neighbours differ. h0 is dropped too, as in the paper. Differs from it: the steps
    run on the mixed structure, and the weight decay also holds for gamma.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        shape: BackboneShape,
        generator: torch.Generator,
    ) -> None:
        super().__init__(num_features, num_classes, shape, generator)
        alpha, steps = shape.teleport, shape.steps
        gamma = [alpha * (1 - alpha) ** k for k in range(steps)] + [(1 - alpha) ** steps]
        self.gamma = nn.Parameter(torch.tensor(gamma))  # [K + 1]

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        encoded = super().encode(graph, dropout)
        xw, axw, h0 = encoded.cached
        return encoded._replace(cached=(xw, axw, drop(h0, dropout)))

    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        gamma = self.gamma[..., None, None].movedim(-3, 0)  # [K + 1, .., 1, 1]
        h, total = h0, gamma[0] * h0
        for step in range(1, self.shape.steps + 1):
            h = mix(h)
            total = total + gamma[step] * h
        return total
