"""APPNP and GPR-GNN: an MLP on the features, whose logits travel over the mixed structure."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from graphglow.gnn.backbones.backbone import Backbone, LastLayer, Shape, glorots, vectors
from graphglow.gnn.propagation import Dropout, Encoded, MixedPropagation, drop, encode
from graphglow.graph import Graph


class PropagatedMLP(Backbone):
    """What APPNP and GPR-GNN share: the MLP h0 = W^(L-1) relu(.. relu(X W^0 + b^0) ..) + b^(L-1).

    Only logits are propagated, and those are C wide. The embeddings for the next structure are
    mix(X W^0) + b^0: the MLP's first layer, before its relu, after one step over the structure.
    """

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        self.weights = glorots(shape.layers, generator)
        self.biases = vectors(shape.layers)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        weights, biases = list(self.weights), list(self.biases)
        encoded = encode(graph, weights[0], kind=self.shape.encoder, dropout=dropout)
        xw, axw = encoded.cached
        h0 = xw + biases[0]
        for weight, bias in zip(weights[1:], biases[1:], strict=True):
            h0 = drop(torch.relu(h0), dropout) @ weight + bias
        return Encoded(encoded.z0, (xw, axw, h0))  # h0 [N, C]

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        xw, axw, h0 = encoded.cached
        z = mix(xw, input_part=axw) + self.biases[0]  # [N, D]
        return z, self.propagate(h0, mix)

    @abstractmethod
    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        """Send the MLP's logits over the structure: [N, C] -> [N, C]."""


class APPNP(PropagatedMLP):
    """Predict then Propagate (Gasteiger et al., ICLR 2019).

    K steps h <- (1 - alpha) mix(h) + alpha h0, from the logits h0 of an MLP.

    Differs from the paper: the steps run on the mixed structure, and no edges are dropped.
    """

    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        return self._after(self.shape.steps, h0, mix)

    def last_layer(self, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
        h0, alpha = encoded.cached[-1], self.shape.teleport
        before = self._after(self.shape.steps - 1, h0, mix)
        return LastLayer(mix.adj, (1 - alpha) * before, alpha * h0, h0.new_zeros(h0.shape[1]))

    def _after(self, steps: int, h0: Tensor, mix: MixedPropagation) -> Tensor:
        h, alpha = h0, self.shape.teleport
        for _ in range(steps):
            h = (1 - alpha) * mix(h) + alpha * h0
        return h


class GPR(PropagatedMLP):
    """Generalised PageRank (Chien et al., ICLR 2021): sum_k gamma_k mix^k(h0), k = 0 .. K.

    gamma starts as personalised PageRank, so that an untrained GPR-GNN is APPNP, and may turn
    negative where neighbours differ. h0 is dropped too, as in the paper. Differs from it: the steps
    run on the mixed structure, and the weight decay also holds for gamma.
    """

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        alpha, steps = self.shape.teleport, self.shape.steps
        gamma = [alpha * (1 - alpha) ** k for k in range(steps)] + [(1 - alpha) ** steps]
        self.gamma = nn.Parameter(torch.tensor(gamma))  # [K + 1]

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        encoded = super().encode(graph, dropout)
        xw, axw, h0 = encoded.cached
        return encoded._replace(cached=(xw, axw, drop(h0, dropout)))

    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        h, total = h0, self.gamma[0] * h0
        for step in range(1, self.shape.steps + 1):
            h = mix(h)
            total = total + self.gamma[step] * h
        return total

    def last_layer(self, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
        """All K steps end in a propagation, which is linear: mix(sum_k gamma_k h^(k-1))."""
        h0 = h = encoded.cached[-1]
        said = torch.zeros_like(h0)
        for step in range(1, self.shape.steps + 1):
            said = said + self.gamma[step] * h
            h = mix(h)
        return LastLayer(mix.adj, said, self.gamma[0] * h0, h0.new_zeros(h0.shape[1]))
