"""IDGL and IDGL-Anchor against a plain dense implementation, their limits, and by hand."""

from itertools import pairwise

import pytest
import torch
from plain_idgl import (
    BOTH,
    FLOAT64,
    built,
    gradients,
    graph_with,
    nothing_dropped,
    plain_loss,
    plain_penalty,
    plain_rounds,
    plain_similarity,
    seeded,
)
from small_fits import float64, small_data

from graphglow.competitors import METHODS
from graphglow.competitors.feature_similarity import FeatureSimilarity, cut_similarity
from graphglow.competitors.idgl import IDGLAnchorConfig, IDGLConfig, LearnedGraph
from graphglow.gnn import Dropout
from graphglow.graph import check_graph


@BOTH
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
def test_loss_and_gradients_match_a_plain_implementation(kind, sparse, recompute):
    model = built(kind, graph_with(sparse=sparse))
    model.recompute = recompute
    loss, expected = model.loss(nothing_dropped()), plain_loss(model, 4)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(gradients(model, loss), gradients(model, expected), strict=True):
        assert theirs.abs().max() > 1e-6
        torch.testing.assert_close(ours, theirs)


@BOTH
def test_steps_and_predictions_match_a_plain_implementation(kind):
    model = built(kind, graph_with(sparse=True))
    expected = list(plain_rounds(model, 4))
    for step, (_, logits, penalty) in zip(model.rounds(None), expected, strict=True):
        torch.testing.assert_close(step.logits, logits)
        torch.testing.assert_close(step.penalty, penalty)
    torch.testing.assert_close(model.logits(), expected[-1][1])


@pytest.mark.parametrize("rates", [(3.0, 0.0, 0.0), (0.0, 0.2, 0.0), (0.0, 0.0, 4.0)])
@BOTH
def test_each_regulariser_is_the_double_sum_of_the_paper(kind, rates):
    alpha, beta, gamma = rates
    graph = graph_with()
    model = built(kind, graph, smoothness=alpha, connectivity=beta, sparsity=gamma)
    similarity = model.features(model.heads_x, model.config.cut)
    learned = model.latent(similarity)
    ours = learned.penalty(model.distances, model.config)
    a = plain_similarity(model, graph.x, model.heads_x)
    expected = plain_penalty(model, a)
    torch.testing.assert_close(ours, expected)
    grad = torch.autograd.grad(ours, model.heads_x)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, model.heads_x))


@pytest.mark.parametrize("sparse", [False, True])
def test_with_all_nodes_as_anchors_r_is_a_and_a_message_takes_two_steps(sparse):
    """The sense in which "anchors = all nodes" is IDGL: what is learned, not how far it reaches."""
    graph = graph_with(sparse=sparse)
    model, whole = built("anchor", graph, num_anchors=99), built("idgl", graph)
    assert sorted(model.anchors.tolist()) == list(range(24))
    r = model.features(whole.heads_x, 0.1)
    a = whole.features(whole.heads_x, 0.1)
    torch.testing.assert_close(r, a[:, model.anchors], rtol=0, atol=1e-14)
    v = torch.randn(24, 5, dtype=FLOAT64, generator=seeded(0))
    once = whole.latent(a)
    torch.testing.assert_close(model.latent(r).propagate(v), once.propagate(once.propagate(v)))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_feature_is_dropped_on_both_sides_of_the_comparison(sparse):
    graph = graph_with(sparse=sparse)
    model, whole = built("anchor", graph), built("idgl", graph)
    r, a = (m.features(whole.heads_x, 0.1, Dropout((0.5,), (seeded(3),))) for m in (model, whole))
    torch.testing.assert_close(r, a[:, model.anchors], rtol=0, atol=1e-14)
    similar = a.diagonal() > 0
    torch.testing.assert_close(a.diagonal()[similar], torch.ones(24, dtype=FLOAT64)[similar])
    assert not torch.allclose(a, whole.features(whole.heads_x, 0.1))


@BOTH
def test_lambda_one_is_a_plain_gcn(kind):
    graph = graph_with()
    model = built(kind, graph, input_weight=1.0)
    adj = graph.adj.to_dense()
    gcn = adj @ torch.relu(adj @ graph.x @ model.weight_in) @ model.weight_out
    torch.testing.assert_close(model.logits(), gcn)


@BOTH
def test_eta_zero_passes_messages_over_the_first_graph_only(kind):
    graph = graph_with()
    one = built(kind, graph, structure_momentum=0.0, refinements=1)
    many = built(kind, graph, structure_momentum=0.0, refinements=5)
    torch.testing.assert_close(one.logits(), many.logits())
    with_eta = built(kind, graph, structure_momentum=0.5, refinements=5)
    assert not torch.allclose(one.logits(), with_eta.logits())


@BOTH
@pytest.mark.parametrize("threshold", [1.0, 1.5])
def test_a_threshold_from_one_on_leaves_no_learned_edge_and_no_nan(kind, threshold):
    graph = graph_with()
    model = built(kind, graph, threshold=threshold)
    adj = 0.6 * graph.adj.to_dense()
    gcn = adj @ torch.relu(adj @ graph.x @ model.weight_in) @ model.weight_out
    torch.testing.assert_close(model.logits(), gcn)
    grads = gradients(model, model.loss(nothing_dropped()))
    assert all(grad.isfinite().all() for grad in grads)
    assert grads[2].abs().max() == grads[3].abs().max() == 0  # nothing to learn for the heads


@BOTH
@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("counted", [2, 3, 4])
def test_stops_where_the_rule_says(kind, wait, counted):
    """A tolerance between two changes: the first step below it is the last one."""
    graph = graph_with()
    model = built(kind, graph, refinements=4)
    matrices = [a.detach() for a, _, _ in plain_rounds(model, 5)]
    size = matrices[0].square().sum()
    changes = [float((b - a).square().sum() / size) for a, b in pairwise(matrices)]
    assert changes[0] > changes[1] > changes[2]  # of steps 2, 3 and 4
    tolerance = changes[counted - 2] * 1.01
    model = built(kind, graph, refinements=8, tolerance=tolerance)
    model.wait = wait
    steps = list(model.rounds(None))
    assert sum(step.active is None or bool(step.active) for step in steps) == counted
    assert len(steps) == (counted if wait else 8)
    torch.testing.assert_close(model.loss(nothing_dropped()), plain_loss(model, counted))
    torch.testing.assert_close(model.logits(), list(plain_rounds(model, counted))[-1][1])


def test_a_loose_tolerance_still_refines_once():
    model = built("idgl", graph_with(), tolerance=1e9)
    assert len(list(model.rounds(None))) == 2


@pytest.mark.parametrize("sparse", [False, True])
def test_a_node_without_features_is_similar_to_none(sparse):
    data = small_data(num_nodes=24)
    data.x = torch.where(data.x > data.x.quantile(0.85 if sparse else 0.0), data.x, 0.0)
    data.x[3] = 0
    model = built("idgl", float64(check_graph(data)))
    weights = model.features(model.heads_x, 0.1)
    assert weights[3].abs().max() == weights[:, 3].abs().max() == 0
    assert all(g.isfinite().all() for g in gradients(model, model.loss(nothing_dropped())))


def test_gradcheck_of_messages_and_penalty_on_a_cut_graph():
    generator = seeded(1)
    q = torch.randn(5, 3, dtype=FLOAT64, generator=generator, requires_grad=True)
    v = torch.randn(5, 2, dtype=FLOAT64, generator=generator, requires_grad=True)
    distances = torch.rand(5, 5, dtype=FLOAT64, generator=generator)
    assert ((q @ q.T).abs() > 1e-3).all()  # away from the jump at the cut

    def used(q, v):
        graph = LearnedGraph(cut_similarity(q, q, 0.0))
        rates = IDGLConfig(smoothness=3.0, connectivity=2.0, sparsity=1.0)
        return graph.propagate(graph.propagate(v)), graph.penalty(distances, rates)

    assert torch.autograd.gradcheck(used, (q, v))


@pytest.mark.parametrize("sparse", [False, True])
def test_distances_between_features(sparse):
    graph = graph_with(sparse=sparse)
    keys = torch.tensor([5, 0, 17])
    x = graph.x.to_dense()[keys]
    expected = (x[:, None] - x[None]).square().sum(-1)
    torch.testing.assert_close(FeatureSimilarity(graph.x, keys).distances(), expected)


@BOTH
def test_dropout_is_drawn_from_its_generator_alone(kind):
    graph = graph_with()
    losses = []
    for recompute in (False, True):
        model = built(kind, graph)
        model.recompute = recompute
        loss = model.loss(Dropout((0.5,), (seeded(3),)))
        losses.append((loss, *gradients(model, loss)))
    for one, other in zip(*losses, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)
    assert not torch.allclose(losses[0][0], built(kind, graph).loss(nothing_dropped()))


def saved_matrices(model, columns):
    """How many different [N, columns] matrices wait for the backward pass."""
    seen = {}

    def pack(tensor):
        if tensor.shape == (model.graph.num_nodes, columns):
            seen[tensor.data_ptr()] = tensor  # kept, so that no other takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.loss(nothing_dropped())
    return len(seen)


def test_no_matrix_is_kept_twice_nor_at_all_where_it_is_made_again():
    model = built("idgl", graph_with(num_nodes=26), refinements=6)
    assert saved_matrices(model, 26) == 6
    model.recompute = True
    assert saved_matrices(model, 26) == 1


def test_anchors_never_make_a_square_matrix():
    model = built("anchor", graph_with(num_nodes=26), refinements=6)
    assert saved_matrices(model, 9) == 2 * 6  # R, and R over Delta for the penalty
    assert saved_matrices(model, 26) == 0


class Sizes:
    """A graph of which only sizes are read."""

    def __init__(self, num_nodes, num_features=100):
        self.num_nodes, self.num_features = num_nodes, num_features
        self.x = torch.empty(num_nodes, num_features, device="meta")


def test_memory_grows_with_the_square_of_the_nodes_and_not_with_anchors():
    config, anchors = IDGLConfig(), IDGLAnchorConfig(num_anchors=500)
    small, large = Sizes(20_000), Sizes(40_000)
    of, of_anchors = METHODS["idgl"].memory, METHODS["idgl-anchor"].memory
    assert 3.9 < of(large, config) / of(small, config) <= 4
    assert 1.9 < of_anchors(large, anchors) / of_anchors(small, anchors) < 2.1
    matrix = 4 * 20_000**2
    assert 5 * matrix < of(small, config) < 9 * matrix
    assert of(Sizes(3000), config) > 12 * 4 * 3000**2  # ten graphs kept
    assert of(small, IDGLConfig(smoothness=0.0)) == of(small, config) - matrix
