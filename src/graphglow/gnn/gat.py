"""GAT: attention over the input graph's edges, mixed with the learned structure."""

from math import gcd
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import softmax

from graphglow.gnn.backbone import Backbone, Outputs, glorots, vectors
from graphglow.gnn.propagation import Dropout, Encoded, MixedPropagation, drop, drop_features
from graphglow.graph import Graph
from graphglow.linalg.sparse import SparseMatrix


class Edges(NamedTuple):
    """The entries of A + I, each a message from source to target: [E], [E], [N, N]."""

    target: Tensor
    source: Tensor
    pattern: SparseMatrix


class GAT(Backbone):
    """Graph attention networks (Velickovic et al., ICLR 2018).

    In each of H heads, with v = h W and over the neighbours of u and u itself,

        a_uw = softmax_w(leaky_relu(s . v_w + t . v_u)),        MP_1(v)_u = sum_w a_uw v_w

    and h^(l+1) = elu(lambda MP_1(v) + (1 - lambda) latent(v) + b), heads side by side; the last
    layer has one head and no elu. The embeddings for the next structure are h^(L-1) before its elu.
    Differs from the paper: the mixed structure. Attention is on the pattern: it takes the place of
    edge weights.

    Shapes:
        sources and targets (s and t of every head, side by side): [D] each
    """

    SLOPE = 0.2
    """Of the leaky relu, as in the paper."""

    def make_weights(self, graph: Graph, hidden: int, generator: torch.Generator) -> None:
        heads = gcd(self.config.attention_heads, hidden)
        self.heads = [heads] * (self.config.num_layers - 1) + [1]
        self.weights, self.biases = glorots(self.widths, generator), vectors(self.widths)
        widths = [behind for _, behind in self.widths]
        self.sources, self.targets = (
            nn.ParameterList(map(_attention_vectors, self.heads, widths, [generator] * len(widths)))
            for _ in range(2)
        )

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        edges = Edges(*graph.entries, graph.looped)
        v = drop_features(graph.x, dropout) @ self.weights[0]  # [N, D]
        spread = self.attend(0, v, edges, dropout)
        return Encoded(spread if self.config.encoder == "gcn" else v, (v, spread, edges))

    def forward(self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None) -> Outputs:
        v, spread, edges = encoded.cached
        z = hidden = mix(v, input_part=spread) + self.biases[0]
        for layer in range(1, self.config.num_layers):
            v = drop(F.elu(hidden), dropout) @ self.weights[layer]
            spread = self.attend(layer, v, edges, dropout)
            z, hidden = hidden, mix(v, input_part=spread) + self.biases[layer]
        return z, hidden  # h^(L-1) before its elu [N, D], h^L [N, C]

    def attend(self, layer: int, v: Tensor, edges: Edges, dropout: Dropout | None) -> Tensor:
        """MP_1 of one layer: [N, D] -> [N, D]."""
        attention = drop(self.attention(layer, v, edges), dropout)  # [E, H]
        heads = v.view(len(v), self.heads[layer], -1).transpose(0, 1)  # [H, N, D / H]
        out: Tensor = _WeightedSum.apply(edges, attention.T, heads)  # type: ignore[no-untyped-call]
        return out.transpose(0, 1).flatten(1)

    def attention(self, layer: int, v: Tensor, edges: Edges) -> Tensor:
        """The a_uw of each entry of A + I and each head, summing to one over w: [E, H]."""
        heads = v.view(len(v), self.heads[layer], -1)  # [N, H, D / H]
        by_source = (heads * self.sources[layer].view(heads.shape[1:])).sum(-1)  # [N, H]
        by_target = (heads * self.targets[layer].view(heads.shape[1:])).sum(-1)
        score = F.leaky_relu(by_source[edges.source] + by_target[edges.target], self.SLOPE)
        attention: Tensor = softmax(score, edges.target, num_nodes=len(v))
        return attention


class _WeightedSum(torch.autograd.Function):
    """Sum of weighted sources at each target: a sparse product, differentiable in its values too.

    Messages along single edges are formed in the backward pass only, and never kept.

    Shapes:
        weight [H, E], v [H, N, F] -> [H, N, F]
    """

    @staticmethod
    def forward(ctx: Any, edges: Edges, weight: Tensor, v: Tensor) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(weight, v)
        return edges.pattern.with_values(weight) @ v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        (grad,), (weight, v), edges = grads, ctx.saved_tensors, ctx.edges
        received, sent = grad.index_select(1, edges.target), v.index_select(1, edges.source)
        transposed = weight.index_select(1, edges.pattern.order)  # the pattern is symmetric
        return None, (received * sent).sum(-1), edges.pattern.with_values(transposed) @ grad


def _attention_vectors(heads: int, width: int, generator: torch.Generator) -> nn.Parameter:
    """The attention vectors of all heads side by side, each with Glorot's values: [width]."""
    drawn = glorots([(width // heads, 1)] * heads, generator)
    return nn.Parameter(torch.cat([weight.detach()[:, 0] for weight in drawn]))
