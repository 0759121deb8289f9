"""H2GCN: a node and its near and farther neighbours, kept apart."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphglow.gnn.backbones.backbone import Backbone, Shape, glorot, vector
from graphglow.gnn.propagation import Dropout, Encoded, MixedPropagation, Structure, drop, encode
from graphglow.graph import Graph


@dataclass(frozen=True)
class TwoSteps:
    """Two steps over a latent structure, the counterpart of two hops on the input graph."""

    structure: Structure

    def propagate(self, v: Tensor) -> Tensor:
        return self.structure.propagate(self.structure.propagate(v))


class H2GCN(Backbone):
    """Beyond Homophily (Zhu et al., NeurIPS 2020): three designs in one.

    r^0 = relu(X W + b); in round k, r^k = [mix_1(r^(k-1)), mix_2(r^(k-1))], without weights or
    relu; logits = [r^0, .., r^K] W_out + b_out. mix_1 is lambda * one-hop + (1 - lambda) * latent,
    mix_2 is lambda * two-hop + (1 - lambda) * latent twice; no hop holds the node itself, and the
    two-hop neighbourhood holds no neighbour. K is L, the number of layers: 2 in the paper.

    The embeddings for the next structure are mix_1(X W) + b. Differs from the paper: the mixed
    neighbourhoods. The latent ones may hold the node itself.

    Shapes:
        r^k [N, 2^k D], so that W_out has (2^(K+1) - 1) D rows
    """

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__(shape, generator)
        self.weight = glorot(shape.num_features, shape.hidden, generator)
        self.bias = vector(shape.hidden)
        joined = (2 ** (shape.num_layers + 1) - 1) * shape.hidden
        self.weight_out = glorot(joined, shape.num_classes, generator)
        self.bias_out = vector(shape.num_classes)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        one, two = graph.hops
        encoded = encode(graph, self.weight, kind=self.shape.encoder, dropout=dropout)
        xw = encoded.cached[0]
        return Encoded(encoded.z0, (xw, one @ xw), (one, two))

    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        xw, spread = encoded.cached
        one, two = encoded.operators
        near = replace(mix, adj=one)
        far = MixedPropagation(
            two, None if mix.latent is None else TwoSteps(mix.latent), mix.input_weight
        )
        z = near(xw, input_part=spread) + self.bias  # [N, D]
        rounds = [torch.relu(xw + self.bias)]
        for _ in range(self.shape.num_layers):
            rounds.append(torch.cat([near(rounds[-1]), far(rounds[-1])], dim=-1))
        joined = drop(torch.cat(rounds, dim=-1), dropout)
        return z, joined @ self.weight_out + self.bias_out
