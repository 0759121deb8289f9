"""APPNP: an MLP whose logits are smoothed by personalised PageRank."""

from torch import Tensor

from graphglow.gnn.backbones.backbone import LastLayer
from graphglow.gnn.backbones.propagated_mlp import PropagatedMLP
from graphglow.gnn.latent_gnn import Encoded, MixedPropagation


class APPNP(PropagatedMLP):
    """Predict then Propagate (Gasteiger et al., ICLR 2019).

    K steps h <- (1 - alpha) mix(h) + alpha h0, from the logits h0 of an MLP.

    Differs from the paper: the steps run on the mixed structure, and no edges are dropped.
    """

    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        return self._after(self.settings.steps, h0, mix)

    def last_layer(self, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
        h0, alpha = encoded.cached[-1], self.settings.teleport
        before = self._after(self.settings.steps - 1, h0, mix)
        return LastLayer(mix.adj, (1 - alpha) * before, alpha * h0, h0.new_zeros(h0.shape[1]))

    def _after(self, steps: int, h0: Tensor, mix: MixedPropagation) -> Tensor:
        h, alpha = h0, self.settings.teleport
        for _ in range(steps):
            h = (1 - alpha) * mix(h) + alpha * h0
        return h
