"""GPR-GNN: an MLP whose logits are propagated with learned step weights."""

import torch
from torch import Tensor, nn

from graphglow.gnn.backbones.backbone import LastLayer, Shape
from graphglow.gnn.backbones.propagated_mlp import PropagatedMLP
from graphglow.gnn.dropout import Dropout, drop
from graphglow.gnn.latent_gnn import Encoded, MixedPropagation
from graphglow.graphs import Graph


class GPR(PropagatedMLP):
    """Generalised PageRank (Chien et al., ICLR 2021): sum_k gamma_k mix^k(h0), k = 0 .. K.

    gamma starts as personalised PageRank, so that an untrained GPR-GNN is APPNP, and may turn
    negative where neighbours differ. h0 is dropped too, as in the paper. Differs from it: the steps
    run on the mixed structure, and the weight decay also holds for gamma.
    """

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        alpha, steps = self.settings.teleport, self.settings.steps
        gamma = [alpha * (1 - alpha) ** k for k in range(steps)] + [(1 - alpha) ** steps]
        self.gamma = nn.Parameter(torch.tensor(gamma))  # [K + 1]

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        encoded = super().encode(graph, dropout)
        xw, axw, h0 = encoded.cached
        return encoded._replace(cached=(xw, axw, drop(h0, dropout)))

    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        gamma = self.gamma[..., None, None].movedim(-3, 0)  # [K + 1, .., 1, 1]
        h, total = h0, gamma[0] * h0
        for step in range(1, self.settings.steps + 1):
            h = mix(h)
            total = total + gamma[step] * h
        return total

    def last_layer(self, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
        """All K steps end in a propagation, which is linear: mix(sum_k gamma_k h^(k-1))."""
        h0 = h = encoded.cached[-1]
        said = torch.zeros_like(h0)
        for step in range(1, self.settings.steps + 1):
            said = said + self.gamma[step] * h
            h = mix(h)
        return LastLayer(mix.adj, said, self.gamma[0] * h0, h0.new_zeros(h0.shape[1]))
