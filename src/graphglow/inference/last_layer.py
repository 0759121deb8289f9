"""The last propagation of a GNN, taken apart: what each node said, and what did not travel.

Where nothing nonlinear stands behind the last propagation, the logits of node u are a sum over
nodes, with M = lambda A + (1 - lambda) L as in :mod:`graphglow.inference.refined_graph`::

    logits_u = sum_v M_uv said_v + own_u + bias
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.errors import InputError
from graphglow.gnn import Backbone, Encoded, MixedPropagation
from graphglow.gnn.backbones import APPNP, BACKBONES, GAT, GCN, GPR, SAGE
from graphglow.gnn.backbones.gat import Edges
from graphglow.ops.sparse import SparseMatrix


class LastLayer(NamedTuple):
    """The parts of the sum above. ``adj`` is A as this backbone has it in its last layer.

    Shapes:
        adj [N, N]; said [N, C]; own [N, C]; bias [C]
    """

    adj: SparseMatrix
    said: Tensor
    own: Tensor
    bias: Tensor


@torch.no_grad()
def last_layer(gnn: Backbone, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
    """Take the last propagation of an evaluation pass apart; refuse where it is no sum."""
    parts = PARTS.get(type(gnn))
    if parts is None:
        names = {kind: name for name, kind in BACKBONES.items()}
        able = ", ".join(sorted(names[kind] for kind in PARTS))
        raise InputError(
            "explaining needs a backbone whose scores are a sum over neighbours "
            f"({able}); got {names.get(type(gnn), type(gnn).__name__)}"
        )
    return parts(gnn, encoded, mix)


def _gcn(gnn: GCN, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
    hidden, _ = gnn(encoded, mix, None)
    said = torch.relu(hidden) @ gnn.weights[-1]
    return LastLayer(mix.adj, said, torch.zeros_like(said), gnn.biases[-1])


def _sage(gnn: SAGE, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
    hidden = torch.relu(gnn(encoded, mix, None)[0])
    (mean,) = encoded.operators
    own = hidden @ gnn.self_weights[-1]
    return LastLayer(mean, hidden @ gnn.neighbour_weights[-1], own, gnn.biases[-1])


def _gat(gnn: GAT, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
    """The attention counts as given: it too depends on what the nodes say."""
    hidden, _ = gnn(encoded, mix, None)
    said = F.elu(hidden) @ gnn.weights[-1]
    *_, target, source = encoded.cached
    (pattern,) = encoded.operators
    last = gnn.shape.num_layers - 1
    attention = gnn.attention(last, said, Edges(target, source, pattern))[:, 0]  # one head: [E]
    adj = pattern.with_values(attention)
    return LastLayer(adj, said, torch.zeros_like(said), gnn.biases[-1])


def _appnp(gnn: APPNP, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
    """The last of K steps: h^K = (1 - alpha) mix(h^(K-1)) + alpha h^0."""
    h0, alpha = encoded.cached[-1], gnn.shape.teleport
    h = h0
    for _ in range(gnn.shape.steps - 1):
        h = (1 - alpha) * mix(h) + alpha * h0
    return LastLayer(mix.adj, (1 - alpha) * h, alpha * h0, h0.new_zeros(h0.shape[1]))


def _gpr(gnn: GPR, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
    """All K steps end in a propagation, which is linear: mix(sum_k gamma_k h^(k-1))."""
    h0, gamma = encoded.cached[-1], gnn.gamma
    h, said = h0, torch.zeros_like(h0)
    for step in range(1, gnn.shape.steps + 1):
        said = said + gamma[step] * h
        h = mix(h)
    return LastLayer(mix.adj, said, gamma[0] * h0, h0.new_zeros(h0.shape[1]))


PARTS: dict[type[Backbone], Callable[[Any, Encoded, MixedPropagation], LastLayer]] = {
    APPNP: _appnp,
    GAT: _gat,
    GCN: _gcn,
    GPR: _gpr,
    SAGE: _sage,
}
"""Backbones whose logits are such a sum; behind the last propagation of the others is a relu, or
there are two kinds of neighbourhoods."""
