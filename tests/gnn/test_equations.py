"""Each backbone against its equation, dense; and its limits, by hand."""

import pytest
import torch
import torch.nn.functional as F
from gnn_graphs import (
    HIDDEN,
    built,
    evaluated,
    fresh,
    latent_structure,
    raw_adjacency,
    small_data,
    training,
)
from torch_geometric.data import Data

from graphglow import METHODS, LearnerConfig, PaperConfig, StructureLearner, fit, transfer
from graphglow.errors import InputError
from graphglow.gnn.backbones import APPNP, GAT, GCN, GCNII, GPR, H2GCN, SAGE, MixedLINKX
from graphglow.gnn.propagation import drop
from graphglow.graph import prepare
from tiny_graphs import dense_latent, float64, hubs

GRAPH, STRUCTURE = float64(small_data()), latent_structure()
EYE = torch.eye(20, dtype=torch.float64)
MIXTURES = pytest.mark.parametrize("input_weight", [0.0, 0.4, 1.0])
DEPTHS = pytest.mark.parametrize("num_layers", [2, 3])
V = torch.randn(20, HIDDEN, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def mixed(matrix, input_weight=0.4):
    """lambda times a matrix, plus (1 - lambda) RowNorm(Gamma) RowNorm(Gamma^T)."""
    return input_weight * matrix + (1 - input_weight) * dense_latent(STRUCTURE)


def operator(input_weight=0.4):
    return mixed(GRAPH.adj.to_dense(), input_weight)


def mlp(model):
    h = GRAPH.x.to_dense()
    for layer, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
        h = (torch.relu(h) if layer else h) @ weight + bias
    return h


def close(found, *expected, **bounds):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **bounds)


# GCN


@pytest.mark.parametrize("encoder", ["gcn", "mlp"])
@pytest.mark.parametrize("sparse", [True, False])
@MIXTURES
@pytest.mark.parametrize("num_layers", [2, 4])
def test_gcn_is_algorithm_1_with_biases(num_layers, input_weight, sparse, encoder):
    """Z^(l+1) = sigma((lambda A + (1 - lambda) A_hat) Z^(l) W^(l) + b^(l)), no sigma at the end."""
    graph = float64(small_data(sparse_features=sparse))
    model = built(GCN, num_layers, encoder=encoder)
    z, h = None, graph.x.to_dense()
    for layer, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
        z, h = h, operator(input_weight) @ (torch.relu(h) if layer else h) @ weight + bias
    close(evaluated(model, graph, STRUCTURE, input_weight), z, h)
    assert (z < 0).any()


def test_the_generator_decides_the_initial_weights_and_biases_are_zero():
    first, again, other = (fresh(GCN, 3, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first.weights, again.weights, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first.weights, other.weights, strict=True))
    assert all((bias == 0).all() for bias in first.biases)


# SAGE


@MIXTURES
@DEPTHS
def test_sage(num_layers, input_weight):
    model, adjacency = built(SAGE, num_layers), raw_adjacency(GRAPH)
    mean = adjacency / adjacency.sum(1, keepdim=True).clamp_min(1)
    z, h = None, GRAPH.x.to_dense()
    layers = zip(model.self_weights, model.neighbour_weights, model.biases, strict=True)
    for layer, (own, neighbour, bias) in enumerate(layers):
        r = torch.relu(h) if layer else h
        z, h = h, r @ own + mixed(mean, input_weight) @ r @ neighbour + bias
    bounds = {"rtol": 1e-5, "atol": 1e-6}  # A_norm, from which the mean is taken, is float32
    close(evaluated(model, GRAPH, STRUCTURE, input_weight), z, h, **bounds)


def tiny(edges, num_nodes, **more):
    part = torch.arange(num_nodes) // 2
    masks = {name: part == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    y = torch.arange(num_nodes) % 2
    return prepare(
        Data(x=torch.eye(num_nodes), y=y, edge_index=torch.tensor(edges), **masks, **more)
    )


def test_the_mean_of_sage_weighs_edges_as_the_graph_does():
    """Node 0 hears of 1 and 2 at 1 : 3; nodes 3 and 4 have nobody."""
    mean = tiny([[0, 0], [1, 2]], 5, edge_weight=torch.tensor([1.0, 3.0])).neighbour_mean
    expected = torch.zeros(5, 5)
    expected[0, 1], expected[0, 2], expected[1, 0], expected[2, 0] = 0.25, 0.75, 1.0, 1.0
    torch.testing.assert_close(mean.to_dense(), expected)
    v = torch.randn(5, 2, requires_grad=True)
    (mean @ v).square().sum().backward()
    torch.testing.assert_close(v.grad, expected.T @ (2 * expected @ v.detach()))


# GAT


def edges_of(graph):
    return graph.entries


def dense_attention(model, v, layer, head):
    """The softmax over each row of A + I, [N, N]."""
    width = v.shape[1] // model.heads[layer]
    part = slice(head * width, (head + 1) * width)
    by_source, by_target = (v[:, part] @ a[layer][part] for a in (model.sources, model.targets))
    score = F.leaky_relu(by_source[None, :] + by_target[:, None], 0.2)
    return score.masked_fill(raw_adjacency(GRAPH) + EYE == 0, -torch.inf).softmax(1)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_attention_is_a_softmax_over_each_nodes_entries(scale):
    """At the larger scale, scores differ by more than an exponential can hold."""
    model = built(GAT, attention_heads=2)
    found = model.attention(0, scale * V, edges_of(GRAPH))  # [E, H]
    assert model.heads == [2, 1]
    for head in range(2):
        dense = torch.zeros(20, 20, dtype=torch.float64)
        dense[GRAPH.entries] = found[:, head].detach()
        torch.testing.assert_close(dense, dense_attention(model, scale * V, 0, head).detach())


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (4, 2), (5, 1), (8, 2), (12, 6)])
def test_heads_divide_what_was_asked_for_and_the_width(asked, given):
    assert built(GAT, 3, attention_heads=asked).heads == [given, given, 1]


@MIXTURES
@DEPTHS
def test_gat(num_layers, input_weight):
    model = built(GAT, num_layers)
    before = GRAPH.x.to_dense()
    for layer in range(num_layers):
        z, h = before, F.elu(before) if layer else before
        v = h @ model.weights[layer]
        parts = enumerate(v.chunk(model.heads[layer], dim=1))
        spread = torch.cat([dense_attention(model, v, layer, i) @ part for i, part in parts], dim=1)
        latent = dense_latent(STRUCTURE) @ v
        before = input_weight * spread + (1 - input_weight) * latent + model.biases[layer]
    found = evaluated(model, GRAPH, STRUCTURE, input_weight)
    close(found, z, before)
    gradients = [
        torch.autograd.grad(logits.sum(), list(model.parameters()), materialize_grads=True)
        for logits in (found[1].square(), before.square())
    ]
    close(gradients[0], *gradients[1])


# APPNP and GPR


@DEPTHS
def test_appnp_that_only_teleports_is_the_mlp(num_layers):
    model = built(APPNP, num_layers, teleport=1.0)
    torch.testing.assert_close(evaluated(model, GRAPH, STRUCTURE)[1], mlp(model))


@MIXTURES
def test_many_steps_of_appnp_solve_personalised_pagerank(input_weight):
    """alpha (I - (1 - alpha) M)^-1 h0; the operators' norm is at most one."""
    model = built(APPNP, steps=200, teleport=0.2)
    z = operator(input_weight) @ GRAPH.x.to_dense() @ model.weights[0] + model.biases[0]
    inverse = torch.linalg.inv(EYE - 0.8 * operator(input_weight))
    close(evaluated(model, GRAPH, STRUCTURE, input_weight), z, 0.2 * inverse @ mlp(model))


@pytest.mark.parametrize("settings", [{}, {"teleport": 0.5, "steps": 3}, {"teleport": 1.0}])
def test_gpr_starts_as_appnp(settings):
    gpr, appnp = built(GPR, **settings), built(APPNP, seed=1, **settings)
    appnp.load_state_dict({n: t for n, t in gpr.state_dict().items() if n != "gamma"})
    expected = evaluated(appnp, GRAPH, STRUCTURE)
    close(evaluated(gpr, GRAPH, STRUCTURE), *expected, rtol=1e-6, atol=1e-7)  # gamma was float32


def test_gpr_is_the_polynomial_of_the_mixed_operator():
    model = built(GPR)
    with torch.no_grad():
        model.gamma.copy_(torch.linspace(-1, 1, 11, dtype=torch.float64))
    powers = [torch.linalg.matrix_power(operator(), k) @ mlp(model) for k in range(11)]
    expected = sum(g * p for g, p in zip(model.gamma, powers, strict=True))
    torch.testing.assert_close(evaluated(model, GRAPH, STRUCTURE)[1], expected)


# GCNII


@pytest.mark.parametrize("num_layers", [2, 5])
def test_gcnii(num_layers):
    model = built(GCNII, num_layers)
    h = first = torch.relu(GRAPH.x.to_dense() @ model.weight_in + model.bias_in)
    for layer, weight in enumerate(model.weights, start=1):
        beta = torch.log(torch.tensor(0.5 / layer + 1, dtype=torch.float64))
        identity = torch.eye(len(weight), dtype=torch.float64)
        before = (0.9 * operator() @ h + 0.1 * first) @ ((1 - beta) * identity + beta * weight)
        h = torch.relu(before)
    logits = h @ model.weight_out + model.bias_out
    close(evaluated(model, GRAPH, STRUCTURE), before, logits)


# H2GCN


def test_the_hops_of_a_tiny_graph():
    """A triangle 0-1-2 with a tail 2-3-4, and 5 alone."""
    one, two = tiny([[0, 0, 1, 2, 3, 3], [1, 2, 2, 3, 4, 3]], 6).hops
    near = {(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)}
    far = {(0, 3), (1, 3), (2, 4)}  # the triangle's nodes are one step apart, not two
    degrees = [2, 2, 3, 2, 1, 0], [1, 1, 1, 2, 1, 0]
    for found, pairs, degree in ((one, near, degrees[0]), (two, far, degrees[1])):
        expected = torch.zeros(6, 6)
        for u, v in pairs:
            expected[u, v] = expected[v, u] = (degree[u] * degree[v]) ** -0.5
        torch.testing.assert_close(found.to_dense(), expected)


@MIXTURES
@pytest.mark.parametrize("num_rounds", [2, 3])
def test_h2gcn(num_rounds, input_weight):
    model, (one, two) = built(H2GCN, num_rounds), (hop.to_dense() for hop in GRAPH.hops)
    latent, near = dense_latent(STRUCTURE), mixed(one, input_weight)
    far = input_weight * two + (1 - input_weight) * latent @ latent
    xw = GRAPH.x.to_dense() @ model.weight
    rounds = [torch.relu(xw + model.bias)]
    for _ in range(num_rounds):
        rounds.append(torch.cat([near @ rounds[-1], far @ rounds[-1]], dim=1))
    logits = torch.cat(rounds, dim=1) @ model.weight_out + model.bias_out
    close(evaluated(model, GRAPH, STRUCTURE, input_weight), near @ xw + model.bias, logits)


def test_a_crowded_second_hop_is_a_dense_matrix():
    """The leaves of a star are all two steps apart; those of a path are not."""
    for edges, crowded in (([[0] * 19, range(1, 20)], True), ([range(19), range(1, 20)], False)):
        data = small_data(num_nodes=20)
        data.edge_index = torch.tensor([list(ends) for ends in edges])
        _, two = float64(data).hops
        assert isinstance(two, torch.Tensor) == crowded
        dense = two if crowded else two.to_dense()
        scale = (dense > 0).sum(1).clamp_min(1).double().rsqrt()
        torch.testing.assert_close(dense, scale[:, None] * scale * (dense > 0))


# LINKX, with the learned structure mixed in


@pytest.mark.parametrize("encoder", ["gcn", "mlp"])
@DEPTHS
def test_mixed_linkx(num_layers, encoder):
    model = built(MixedLINKX, num_layers, encoder=encoder)
    rows = F.normalize(raw_adjacency(GRAPH), dim=1)
    h_a = rows @ model.weight_adj + model.bias_adj
    h_x = GRAPH.x.to_dense() @ model.weight_x + model.bias_x
    first = h = h_a + h_x + torch.cat([h_a, h_x], dim=1) @ model.weight_both
    for weight, bias in zip(model.weights, model.biases, strict=True):
        h = first + operator() @ torch.relu(h) @ weight + bias
    logits = torch.relu(h) @ model.weight_out + model.bias_out
    close(evaluated(model, GRAPH, STRUCTURE), h, logits)
    z0 = model.encode(GRAPH, None).z0
    torch.testing.assert_close(z0, GRAPH.adj.to_dense() @ first if encoder == "gcn" else first)


def test_dropped_rows_have_the_gradient_of_what_stayed():
    """An edge may be dropped in one direction only: the pattern is symmetric, its values not."""
    dropped, v = drop(GRAPH.neighbour_rows, training(1)), V.clone().requires_grad_()
    dense = dropped.to_dense()
    assert not torch.equal(dense, dense.T)
    (found,) = torch.autograd.grad((dropped @ v).square().sum(), v)
    torch.testing.assert_close(found, 2 * dense.T @ dense @ V)


def test_linkx_knows_which_neighbours_a_node_has_where_gcn_cannot():
    data = hubs()
    settings = {"epochs": 60, "dropout": 0.0, "device": "cpu"}
    learner = StructureLearner(LearnerConfig(embedding_size=8), seed=0)
    alone = PaperConfig(backbone="linkx", input_weight=1.0, refinements=1, **settings)
    gcn = fit("gcn", data, METHODS["gcn"].config(hidden=8, **settings))
    assert transfer(data, learner, alone).test_accuracy == 1.0
    assert gcn.test_accuracy == 0.5


def test_linkx_belongs_to_a_graph_of_its_size():
    with pytest.raises(InputError, match="graph it was built for, of 19 nodes; got one of 20"):
        built(MixedLINKX, num_nodes=19).encode(GRAPH, None)
