"""APPNP: an MLP whose logits are smoothed by personalised PageRank."""

from torch import Tensor

from graphglow.gnn.backbones.propagated_mlp import PropagatedMLP
from graphglow.gnn.latent_gnn import MixedPropagation


class APPNP(PropagatedMLP):
    """Predict then Propagate (Gasteiger et al., ICLR 2019).

    K steps h <- (1 - alpha) mix(h) + alpha h0, from the logits h0 of an MLP.

    Differs from the paper: the steps run on the mixed structure, and no edges are dropped.
    """

    ALPHA = 0.1
    """Teleport probability; the paper's value for citation graphs."""
    STEPS = 10
    """K, as in the paper."""

    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        h = h0
        for _ in range(self.STEPS):
            h = (1 - self.ALPHA) * mix(h) + self.ALPHA * h0
        return h
