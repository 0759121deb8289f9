"""APPNP: an MLP whose logits are smoothed by personalised PageRank."""

from torch import Tensor

from graphglow.gnn.backbones.propagated_mlp import PropagatedMLP
from graphglow.gnn.latent_gnn import MixedPropagation


class APPNP(PropagatedMLP):
    """Predict then Propagate (Gasteiger et al., ICLR 2019).

    K steps h <- (1 - alpha) mix(h) + alpha h0, from the logits h0 of an MLP.

    Differs from the paper: the steps run on the mixed structure, and no edges are dropped.
    """

    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        h, alpha = h0, self.shape.teleport
        for _ in range(self.shape.steps):
            h = (1 - alpha) * mix(h) + alpha * h0
        return h
