"""IDGL as the paper writes it, with N x N matrices and autograd alone, and small models of ours."""

import pytest
import torch
from small_fits import small_data
from torch.nn import functional

from graphglow.competitors.idgl import IDGL, IDGLAnchorConfig, IDGLConfig
from graphglow.graph import check_graph
from tiny_graphs import float64, keep_largest, row_norm

FLOAT64 = torch.float64
SETTINGS = {
    "hidden": 6, "num_heads": 3, "threshold": 0.1, "input_weight": 0.6, "structure_momentum": 0.3,
    "smoothness": 3.0, "connectivity": 0.2, "sparsity": 4.0, "refinements": 4, "tolerance": 0.0,
    "dropout": 0.0, "device": "cpu",
}  # fmt: skip
BOTH = pytest.mark.parametrize("kind", ["idgl", "anchor"])


def graph_with(*, sparse=False, num_nodes=24, **changes):
    data = small_data(num_nodes=num_nodes, **changes)
    if sparse:
        keep_largest(data, 0.15)
    graph = float64(check_graph(data))
    assert isinstance(graph.x, torch.Tensor) != sparse
    return graph


def built(kind, graph, **changes):
    if kind == "idgl":
        return IDGL.build(graph, IDGLConfig(**(SETTINGS | changes)))
    return IDGL.build(graph, IDGLAnchorConfig(**(SETTINGS | {"num_anchors": 9} | changes)))


def plain_similarity(model, v, heads):
    """The paper's formula, head by head, with what it is cut to."""
    total = 0
    for w in heads:
        unit = functional.normalize(v * w, dim=1, eps=1e-30)
        total = total + unit @ unit[model.anchors].T
    mean = total / len(heads)
    return torch.where(mean > model.config.threshold, mean, 0.0)


def operator(model, a):
    """f(A), or the two steps through the anchors, as an N x N matrix."""
    return row_norm(a) if type(model.config) is IDGLConfig else row_norm(a) @ row_norm(a.T)


def plain_penalty(model, a):
    c, x = model.config, model.graph.x.to_dense()
    if type(model.config) is IDGLAnchorConfig:
        x, a = x[model.anchors], a.T @ row_norm(a)
    n = len(a)
    smooth = (a * (x[:, None] - x[None, :]).square().sum(-1)).sum()
    degree = a.sum(1).clamp_min(1e-12).log().sum()
    squares = a.square().sum()
    alpha, beta, gamma = c.smoothness, c.connectivity, c.sparsity
    return alpha / (2 * n * n) * smooth - beta / n * degree + gamma / (n * n) * squares


def plain_rounds(model, steps):
    """(A^(t), logits, L_G) of each step, by N x N matrices and autograd alone."""
    c, x, adj = model.config, model.graph.x.to_dense(), model.graph.adj.to_dense()
    first = a = plain_similarity(model, x, model.heads_x)
    for t in range(steps):
        if t > 0:
            a = plain_similarity(model, z, model.heads_z)  # noqa: F821
        learned = c.structure_momentum * operator(model, a)
        learned = learned + (1 - c.structure_momentum) * operator(model, first)
        mixed = c.input_weight * adj + (1 - c.input_weight) * learned
        z = torch.relu(mixed @ x @ model.weight_in)
        yield a, mixed @ z @ model.weight_out, plain_penalty(model, a)


def plain_loss(model, steps):
    graph = model.graph
    losses = [
        functional.cross_entropy(logits[graph.train], graph.y[graph.train]) + penalty
        for _, logits, penalty in plain_rounds(model, steps)
    ]
    return losses[0] + sum(losses[1:]) / steps


def gradients(model, loss):
    return torch.autograd.grad(loss, list(model.parameters()))
