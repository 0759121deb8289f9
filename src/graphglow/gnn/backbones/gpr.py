"""GPR-GNN: an MLP whose logits are propagated with learned step weights."""

import torch
from torch import Tensor, nn

from graphglow.gnn.backbones.backbone import BackboneShape
from graphglow.gnn.backbones.propagated_mlp import PropagatedMLP
from graphglow.gnn.latent_gnn import MixedPropagation


class GPR(PropagatedMLP):
    """Generalised PageRank (Chien et al., ICLR 2021): sum_k gamma_k mix^k(h0), k = 0 .. K.

    gamma starts as personalised PageRank, so that an untrained GPR-GNN is APPNP, and may turn
    negative where neighbours differ. Differs from the paper: the steps run on the mixed
    structure, the weight decay also holds for gamma, and h0 is not dropped once more.
    """

    ALPHA = 0.1
    """Of the PageRank that gamma starts from; the paper searches {0.1, 0.2, 0.5, 0.9}."""
    STEPS = 10
    """K, as in the paper."""

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        shape: BackboneShape,
        generator: torch.Generator,
    ) -> None:
        super().__init__(num_features, num_classes, shape, generator)
        gamma = [self.ALPHA * (1 - self.ALPHA) ** k for k in range(self.STEPS)]
        self.gamma = nn.Parameter(torch.tensor([*gamma, (1 - self.ALPHA) ** self.STEPS]))  # [K + 1]

    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        gamma = self.gamma[..., None, None].movedim(-3, 0)  # [K + 1, .., 1, 1]
        h, total = h0, gamma[0] * h0
        for step in range(1, self.STEPS + 1):
            h = mix(h)
            total = total + gamma[step] * h
        return total
