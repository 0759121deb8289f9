"""The backbones: each is a class, an entry of ``BACKBONES`` and a name in the settings."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import scatter, softmax

from graphglow.errors import InputError
from graphglow.gnn.propagation import (
    Backbone,
    Dropout,
    Encoded,
    MixedPropagation,
    Outputs,
    Structure,
    drop,
    encode,
    glorot,
    glorots,
    vector,
)
from graphglow.graph import Graph

Edges = tuple[Tensor, Tensor]
"""The entries of A + I, each a message: its target [E], its source [E]."""


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
        super().make_weights(graph, hidden, generator)
        widths = [behind for _, behind in self.widths]
        self.sources, self.targets = (
            nn.ParameterList(map(_attention_vectors, self.heads, widths, [generator] * len(widths)))
            for _ in range(2)
        )

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        edges, v = graph.entries, drop(graph.x, dropout) @ self.weights[0]  # v [N, D]
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
        target, source = edges
        attention = drop(self.attention(layer, v, edges), dropout)  # [E, H]
        heads = v.view(len(v), self.heads[layer], -1)  # [N, H, D / H]
        messages = attention[:, :, None] * heads[source]
        out: Tensor = scatter(messages, target, dim_size=len(v))
        return out.flatten(1)

    def attention(self, layer: int, v: Tensor, edges: Edges) -> Tensor:
        """The a_uw of each entry of A + I and each head, summing to one over w: [E, H]."""
        heads = v.view(len(v), self.heads[layer], -1)  # [N, H, D / H]
        by_source = (heads * self.sources[layer].view(heads.shape[1:])).sum(-1)  # [N, H]
        by_target = (heads * self.targets[layer].view(heads.shape[1:])).sum(-1)
        target, source = edges
        score = F.leaky_relu(by_source[source] + by_target[target], self.SLOPE)
        attention: Tensor = softmax(score, target, num_nodes=len(v))
        return attention


def _attention_vectors(heads: int, width: int, generator: torch.Generator) -> nn.Parameter:
    """The attention vectors of all heads side by side, each with Glorot's values: [width]."""
    drawn = glorots([(width // heads, 1)] * heads, generator)
    return nn.Parameter(torch.cat([weight.detach()[:, 0] for weight in drawn]))


class GCN(Backbone):
    """Algorithm 1 with L layers: Z^(l+1) = relu(mix(Z^(l) W^(l)) + b^(l)), no relu at the end.

    Differs from Algorithm 1: there are biases, as in common GCNs, and the embeddings for the next
    structure are Z^(L-1) before its relu, as Z^0 is. Behind a relu, all cosines under tied weights
    are >= 0, so that a cut at 0 cuts nothing, and nodes whose attended units are all off have no
    similarity to anything.
    """

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        return encode(graph, self.weights[0], kind=self.config.encoder, dropout=dropout)

    def forward(self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None) -> Outputs:
        xw, axw = encoded.cached
        z = hidden = mix(xw, input_part=axw) + self.biases[0]  # [N, D]
        for weight, bias in zip(list(self.weights)[1:], list(self.biases)[1:], strict=True):
            z, hidden = hidden, mix(drop(torch.relu(hidden), dropout) @ weight) + bias
        return z, hidden  # Z^(L-1) before its relu [N, D], Z^(L) [N, C]


class SAGE(Backbone):
    """Mean aggregator of GraphSAGE (Hamilton et al., NeurIPS 2017).

    h^(l+1) = relu(h W_self + mix(h) W_neigh + b), no relu at the end; mix is
    lambda * mean over the neighbours without the node itself + (1 - lambda) * latent. The
    embeddings for the next structure are h^(L-1) before its relu. Differs from the paper: the
    mixed structure, all neighbours instead of a sample, and no scaling to unit length.
    """

    def make_weights(self, graph: Graph, hidden: int, generator: torch.Generator) -> None:
        self.self_weights = glorots(self.widths, generator)
        self.neighbour_weights = glorots(self.widths, generator)
        self.biases = nn.ParameterList([vector(behind) for _, behind in self.widths])

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        mean, x = graph.neighbour_mean, drop(graph.x, dropout)
        own, other = x @ self.self_weights[0], x @ self.neighbour_weights[0]  # [N, D]
        spread = mean @ other
        z0 = own + spread if self.config.encoder == "gcn" else own
        return Encoded(z0, (own, other, spread, mean))

    def forward(self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None) -> Outputs:
        own, other, spread, mean = encoded.cached
        mix = replace(mix, adj=mean)
        z = hidden = own + mix(other, input_part=spread) + self.biases[0]
        layers = zip(self.self_weights, self.neighbour_weights, self.biases, strict=True)
        for self_weight, neighbour_weight, bias in list(layers)[1:]:
            h = drop(torch.relu(hidden), dropout)
            z, hidden = hidden, h @ self_weight + mix(h @ neighbour_weight) + bias
        return z, hidden  # h^(L-1) before its relu [N, D], h^L [N, C]


class PropagatedMLP(Backbone):
    """The common part of APPNP and GPR-GNN: an MLP whose logits h0 [N, C] are propagated.

    h0 = W^(L-1) relu(.. relu(X W^0 + b^0) ..) + b^(L-1). The embeddings for the next structure are
    mix(X W^0) + b^0: the MLP's first layer, before its relu, after one step over the structure.
    """

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        encoded = encode(graph, self.weights[0], kind=self.config.encoder, dropout=dropout)
        h0 = encoded.cached[0] + self.biases[0]
        for weight, bias in zip(list(self.weights)[1:], list(self.biases)[1:], strict=True):
            h0 = drop(torch.relu(h0), dropout) @ weight + bias
        return Encoded(encoded.z0, (*encoded.cached, h0))

    def forward(self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None) -> Outputs:
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
        h, alpha = h0, self.config.teleport
        for _ in range(self.config.steps):
            h = (1 - alpha) * mix(h) + alpha * h0
        return h


class GPR(PropagatedMLP):
    """Generalised PageRank (Chien et al., ICLR 2021): sum_k gamma_k mix^k(h0), k = 0 .. K.

    gamma starts as personalised PageRank, so that an untrained GPR-GNN is APPNP, and may turn
    negative where neighbours differ. h0 is dropped too, as in the paper. Differs from it: the steps
    run on the mixed structure, and the weight decay also holds for gamma.
    """

    def make_weights(self, graph: Graph, hidden: int, generator: torch.Generator) -> None:
        super().make_weights(graph, hidden, generator)
        alpha, steps = self.config.teleport, self.config.steps
        gamma = [alpha * (1 - alpha) ** k for k in range(steps)] + [(1 - alpha) ** steps]
        self.gamma = nn.Parameter(torch.tensor(gamma))  # [K + 1]

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        encoded = super().encode(graph, dropout)
        xw, axw, h0 = encoded.cached
        return encoded._replace(cached=(xw, axw, drop(h0, dropout)))

    def propagate(self, h0: Tensor, mix: MixedPropagation) -> Tensor:
        h, total = h0, self.gamma[0] * h0
        for gamma in self.gamma[1:]:
            h = mix(h)
            total = total + gamma * h
        return total


class GCNII(Backbone):
    """Simple and Deep GCN (Chen et al., ICML 2020), between two dense layers.

    H^0 = relu(X W_in + b_in); for l = 1 .. L, with beta_l = log(theta / l + 1),

        S^l = (1 - alpha) mix(H^(l-1)) + alpha H^0
        H^l = relu((1 - beta_l) S^l + beta_l S^l W^l)

    and logits = H^L W_out + b_out. The embeddings for the next structure are H^L before its relu.
    Differs from the paper: the mixed structure, and one weight decay for all weights. L is the
    number of propagations and counts neither dense layer.
    """

    THETA = 0.5
    """How fast layers turn into the identity; the paper's value for Cora."""

    def make_weights(self, graph: Graph, hidden: int, generator: torch.Generator) -> None:
        self.weight_in, self.bias_in = glorot(graph.num_features, hidden, generator), vector(hidden)
        self.weights = glorots([(hidden, hidden)] * self.config.num_layers, generator)
        self.weight_out = glorot(hidden, graph.num_classes, generator)
        self.bias_out = vector(graph.num_classes)

    def beta(self, layer: int) -> float:
        """beta_l of layer l = 1 .. L."""
        return math.log(self.THETA / layer + 1)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        encoded = encode(graph, self.weight_in, kind=self.config.encoder, dropout=dropout)
        return Encoded(encoded.z0, (torch.relu(encoded.cached[0] + self.bias_in),))

    def forward(self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None) -> Outputs:
        (first,) = encoded.cached  # H^0 [N, D]
        hidden, before_relu, alpha = first, first, self.config.teleport
        for layer, weight in enumerate(self.weights, start=1):
            spread = (1 - alpha) * mix(drop(hidden, dropout)) + alpha * first
            before_relu = torch.lerp(spread, spread @ weight, self.beta(layer))
            hidden = torch.relu(before_relu)
        return before_relu, drop(hidden, dropout) @ self.weight_out + self.bias_out


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

    def make_weights(self, graph: Graph, hidden: int, generator: torch.Generator) -> None:
        self.weight, self.bias = glorot(graph.num_features, hidden, generator), vector(hidden)
        joined = (2 ** (self.config.num_layers + 1) - 1) * hidden
        self.weight_out = glorot(joined, graph.num_classes, generator)
        self.bias_out = vector(graph.num_classes)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        one, two = graph.hops
        encoded = encode(graph, self.weight, kind=self.config.encoder, dropout=dropout)
        xw = encoded.cached[0]
        return Encoded(encoded.z0, (xw, one @ xw, one, two))

    def forward(self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None) -> Outputs:
        xw, spread, one, two = encoded.cached
        near = replace(mix, adj=one)
        far = replace(mix, adj=two, latent=None if mix.latent is None else TwoSteps(mix.latent))
        z = near(xw, input_part=spread) + self.bias  # [N, D]
        rounds = [torch.relu(xw + self.bias)]
        for _ in range(self.config.num_layers):
            rounds.append(torch.cat([near(rounds[-1]), far(rounds[-1])], dim=-1))
        joined = drop(torch.cat(rounds, dim=-1), dropout)
        return z, joined @ self.weight_out + self.bias_out


class MixedLINKX(Backbone):
    """Large Scale Learning on Non-Homophilous Graphs (Lim et al., NeurIPS 2021), and mixing.

    h_A = A W_A + b_A and h_X = X W_X + b_X, where row u of A says which nodes u is joined to,
    scaled to unit length as features are; then

        h^0 = h_A + h_X + [h_A, h_X] W
        h^l = h^0 + mix(relu(h^(l-1)) W^l) + b^l        for l = 1 .. L - 1
        logits = relu(h^(L-1)) W_out + b_out

    Differs from the paper: there are no messages in LINKX; here the learned structure enters by
    the second line, beside h^0, which keeps a node's own row. The branches are single layers. A is
    the pattern, without weights or self-loops, and its entries are dropped like features; LINKX
    does not scale its rows. W_A [N, D] has a row per node, so a trained model belongs to its graph.
    """

    def make_weights(self, graph: Graph, hidden: int, generator: torch.Generator) -> None:
        layers = self.config.num_layers - 1
        self.weight_adj = glorot(graph.num_nodes, hidden, generator)
        self.weight_x = glorot(graph.num_features, hidden, generator)
        self.bias_adj, self.bias_x = vector(hidden), vector(hidden)
        self.weight_both = glorot(2 * hidden, hidden, generator)
        self.weights = glorots([(hidden, hidden)] * layers, generator)
        self.biases = nn.ParameterList([vector(hidden) for _ in range(layers)])
        self.weight_out = glorot(hidden, graph.num_classes, generator)
        self.bias_out = vector(graph.num_classes)

    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        if self.weight_adj.shape[0] != graph.num_nodes:
            raise InputError(
                "linkx must run on the graph it was built for, of "
                f"{self.weight_adj.shape[0]} nodes; got one of {graph.num_nodes}"
            )
        from_adj = drop(graph.neighbour_rows, dropout) @ self.weight_adj + self.bias_adj
        from_x = drop(graph.x, dropout) @ self.weight_x + self.bias_x
        both = torch.cat([from_adj, from_x], dim=-1)  # [N, 2 D]
        first = from_adj + from_x + both @ self.weight_both  # h^0
        return Encoded(graph.adj @ first if self.config.encoder == "gcn" else first, (first,))

    def forward(self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None) -> Outputs:
        (first,) = encoded.cached
        hidden = first
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = first + mix(drop(torch.relu(hidden), dropout) @ weight) + bias
        logits = drop(torch.relu(hidden), dropout) @ self.weight_out + self.bias_out
        return hidden, logits  # h^(L-1) [N, D], [N, C]


BACKBONES: dict[str, type[Backbone]] = {
    "appnp": APPNP,
    "gat": GAT,
    "gcn": GCN,
    "gcnii": GCNII,
    "gpr": GPR,
    "h2gcn": H2GCN,
    "linkx": MixedLINKX,
    "sage": SAGE,
}
