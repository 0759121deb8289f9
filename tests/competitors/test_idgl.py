"""IDGL and IDGL-Anchor against a plain dense implementation, their limits, and by hand."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from plain_idgl import (
    BOTH,
    FLOAT64,
    built,
    gradients,
    graph_with,
    plain_loss,
    plain_penalty,
    plain_rounds,
    plain_similarity,
)
from small_fits import seeded, small_data

from graphglow.competitors.idgl import squared_distances
from graphglow.graph import check_graph
from tiny_graphs import float64, keep_largest


@BOTH
@pytest.mark.parametrize("sparse", [False, True])
def test_loss_and_gradients_match_a_plain_implementation(kind, sparse):
    model = built(kind, graph_with(sparse=sparse))
    loss, expected = model.loss(), plain_loss(model, 4)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(gradients(model, loss), gradients(model, expected), strict=True):
        assert theirs.abs().max() > 1e-6
        torch.testing.assert_close(ours, theirs)


@BOTH
def test_steps_and_predictions_match_a_plain_implementation(kind):
    model = built(kind, graph_with(sparse=True))
    expected = list(plain_rounds(model, 4))
    for (logits, learned), (a, plain, penalty) in zip(model.steps(None), expected, strict=True):
        torch.testing.assert_close(logits, plain)
        torch.testing.assert_close(learned.weights, a)
        torch.testing.assert_close(learned.penalty(model.distances, model.config), penalty)
    torch.testing.assert_close(model.logits(), expected[-1][1].detach())


@pytest.mark.parametrize("rates", [(3.0, 0.0, 0.0), (0.0, 0.2, 0.0), (0.0, 0.0, 4.0)])
@BOTH
def test_each_regulariser_is_the_double_sum_of_the_paper(kind, rates):
    alpha, beta, gamma = rates
    graph = graph_with()
    model = built(kind, graph, smoothness=alpha, connectivity=beta, sparsity=gamma)
    learned = model.latent(model.compare_features())
    ours = learned.penalty(model.distances, model.config)
    expected = plain_penalty(model, plain_similarity(model, graph.x, model.heads_x))
    torch.testing.assert_close(ours, expected)
    grad = torch.autograd.grad(ours, model.heads_x)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, model.heads_x))


@pytest.mark.parametrize("sparse", [False, True])
def test_with_all_nodes_as_anchors_r_is_a_and_a_message_takes_two_steps(sparse):
    """The sense in which "anchors = all nodes" is IDGL: what is learned, not how far it reaches."""
    graph = graph_with(sparse=sparse)
    model, whole = built("anchor", graph, num_anchors=99), built("idgl", graph)
    assert sorted(model.anchors.tolist()) == list(range(24))
    model.heads_x.data = whole.heads_x.data
    r, a = model.compare_features(), whole.compare_features()
    torch.testing.assert_close(r, a[:, model.anchors], rtol=0, atol=1e-14)
    v = torch.randn(24, 5, dtype=FLOAT64, generator=seeded())
    once = whole.latent(a)
    torch.testing.assert_close(model.latent(r).propagate(v), once.propagate(once.propagate(v)))


@BOTH
@pytest.mark.parametrize("changes", [{"input_weight": 1.0}, {"threshold": 1.0}, {"threshold": 1.5}])
def test_without_learned_edges_it_is_a_gcn_on_the_input_graph(kind, changes):
    graph = graph_with()
    model = built(kind, graph, **changes)
    adj = model.config.input_weight * graph.adj.to_dense()
    gcn = adj @ torch.relu(adj @ graph.x @ model.weight_in) @ model.weight_out
    torch.testing.assert_close(model.logits(), gcn.detach())
    assert all(grad.isfinite().all() for grad in gradients(model, model.loss()))


@BOTH
def test_eta_zero_passes_messages_over_the_first_graph_only(kind):
    graph = graph_with()
    one = built(kind, graph, structure_momentum=0.0, refinements=1)
    many = built(kind, graph, structure_momentum=0.0, refinements=5)
    torch.testing.assert_close(one.logits(), many.logits())
    with_eta = built(kind, graph, structure_momentum=0.5, refinements=5)
    assert not torch.allclose(one.logits(), with_eta.logits())


@BOTH
@pytest.mark.parametrize("counted", [2, 3, 4])
def test_stops_where_the_rule_says(kind, counted):
    """A tolerance between two changes: the first step below it is the last one."""
    graph = graph_with()
    matrices = [a.detach() for a, _, _ in plain_rounds(built(kind, graph), 5)]
    size = matrices[0].square().sum()
    changes = [float((b - a).square().sum() / size) for a, b in pairwise(matrices)]
    assert changes[0] > changes[1] > changes[2]  # of steps 2, 3 and 4
    model = built(kind, graph, refinements=8, tolerance=changes[counted - 2] * 1.01)
    assert len(list(model.steps(None))) == counted
    torch.testing.assert_close(model.loss(), plain_loss(model, counted))
    model.config = replace(model.config, tolerance=1e9)
    assert len(list(model.steps(None))) == 2  # a loose tolerance still refines once


@pytest.mark.parametrize("sparse", [False, True])
def test_a_node_without_features_is_similar_to_none(sparse):
    data = keep_largest(small_data(num_nodes=24), 0.15 if sparse else 1.0)
    data.x[3] = 0
    model = built("idgl", float64(check_graph(data)))
    weights = model.compare_features()
    assert weights[3].abs().max() == weights[:, 3].abs().max() == 0
    assert all(g.isfinite().all() for g in gradients(model, model.loss()))


def test_squared_distances():
    x = torch.randn(7, 4, dtype=FLOAT64, generator=seeded())
    torch.testing.assert_close(squared_distances(x), (x[:, None] - x[None]).square().sum(-1))


@BOTH
def test_dropout_is_drawn_from_its_generator_alone(kind):
    graph = graph_with()
    one, other = (built(kind, graph, dropout=0.5).loss() for _ in range(2))
    assert torch.equal(one, other)
    assert not torch.allclose(one, built(kind, graph).loss())


def test_anchors_never_make_a_square_matrix():
    model, seen = built("anchor", graph_with(num_nodes=26), refinements=6), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        model.loss()
    assert (26, 9) in seen
    assert (26, 26) not in seen
