"""CPGNN: its start by hand, its equations dense, its limits, and what it is for."""

import math

import pytest
import torch
from graphglow.training.loop import Loop
from graphglow.training.task import accuracy
from small_fits import float64, relabelled, shuffled, small_data
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data

from graphglow.competitors.cpgnn import (
    METHOD,
    SMOOTHING,
    CPGNNConfig,
    row_sum_penalty,
    sinkhorn,
    weighted_neighbours,
)
from graphglow.competitors.gnns import CONTROLS, MLPConfig
from graphglow.graph import prepare, synthetic_graph

BOTH = pytest.mark.parametrize("estimator", ["mlp", "cheb"])
EACH = pytest.mark.parametrize("adjacency", ["raw", "symmetric", "mean"])
FAST = {"hidden": 8, "epochs": 6, "pretrain_epochs": 5, "dropout": 0.3, "device": "cpu"}


def config(**changes):
    return CPGNNConfig(**(FAST | changes))


def built(graph=None, **changes):
    """A task in float64, before its first step."""
    return METHOD.build(graph or float64(small_data()), [config(**changes)])


def trained(graph, settings, method=METHOD):
    task = method.build(graph, [settings])
    history = Loop(task, settings.epochs, settings.epochs).run()[0]
    return task, history


def drawn(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def set_compatibility(model, values):
    with torch.no_grad():
        model.compatibility.copy_(values)


def centred(size):
    """A matrix whose rows and columns sum to zero."""
    values = drawn(size, size, seed=3)
    return values - values.mean(0) - values.mean(1, keepdim=True) + values.mean()


def path_of_four():
    """0 - 1 - 2 - 3; 0 and 1 are training nodes of class 0 and 1."""
    train = torch.tensor([True, True, False, False])
    masks = {"train_mask": train, "val_mask": ~train, "test_mask": train & ~train}
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    return Data(x=torch.eye(4), y=torch.tensor([0, 1, 0, 1]), edge_index=edges, **masks)


def test_compatibility_starts_by_hand_on_a_path():
    """Node 0 (class 0) sees node 1 (class 1); node 1 sees node 0 (class 0) and what 2 may be.

    The scaling of [[a, b], [c, d]] has sqrt(ad) / (sqrt(ad) + sqrt(bc)) on its diagonal.
    """
    task = built(float64(path_of_four()))
    with torch.no_grad():  # all weights zero: node 2's belief is its bias's
        for parameter in task.model.estimator.parameters():
            parameter.zero_()
        task.model.estimator.bias_out[1] = math.log(0.7 / 0.3)
    task.model.start_compatibility()
    (a, b), (c, d) = (torch.tensor([[0.0, 1.0], [1.3, 0.7]]).double() + SMOOTHING * 0.75).tolist()
    own = math.sqrt(a * d) / (math.sqrt(a * d) + math.sqrt(b * c)) - 0.5
    expected = torch.tensor([[own, -own], [-own, own]], dtype=torch.float64)
    torch.testing.assert_close(task.model.compatibility.detach(), expected)
    assert own < 0  # neighbours differ


def test_no_label_but_the_training_nodes_is_read():
    data = small_data()
    other = data.clone()
    other.y = torch.where(data.train_mask, data.y, 2 - data.y)
    one, two = (built(float64(d)) for d in (data, other))
    for task in (one, two):
        task.train_step()
    assert all(torch.equal(a, b) for a, b in zip(one.weights, two.weights, strict=True))


@pytest.mark.parametrize("size", [2, 3, 7, 15])
def test_sinkhorn_is_doubly_stochastic_and_a_scaling(size):
    counts = drawn(size, size, seed=size) + 5 * torch.eye(size)
    scaled = sinkhorn(counts)
    ones = torch.ones(size, dtype=torch.float64)
    torch.testing.assert_close(scaled.sum(0), ones)
    torch.testing.assert_close(scaled.sum(1), ones)
    assert (scaled > 0).all()
    ratio = (scaled / (counts + SMOOTHING * counts.mean())).log()  # log r_i + log c_j
    rank_one = ratio.mean(1, keepdim=True) + ratio.mean(0) - ratio.mean()
    torch.testing.assert_close(ratio, rank_one)


def test_sinkhorn_of_zeros_of_an_absent_class_and_without_total_support():
    torch.testing.assert_close(sinkhorn(torch.zeros(4, 4)), torch.full((4, 4), 0.25).double())
    absent = torch.tensor([[3.0, 1.0, 0.2], [1.0, 2.0, 0.1], [0.0, 0.0, 0.0]])
    for counts in (absent, torch.tensor([[1.0, 1.0], [0.0, 1.0]])):
        scaled = sinkhorn(counts)
        assert (scaled.sum(1) - 1).abs().max() < 1e-12
        assert (scaled.sum(0) - 1).abs().max() < 1e-2


@EACH
def test_adjacency_is_weighed_as_said(adjacency):
    graph = float64(small_data())
    dense = graph.neighbours.to_dense()
    here = dense.sum(1, keepdim=True).clamp_min(1)
    expected = dense / {"raw": 1, "symmetric": (here * here.T).sqrt(), "mean": here}[adjacency]
    weighed = weighted_neighbours(graph, adjacency)
    torch.testing.assert_close(weighed.to_dense(), expected)
    v = drawn(45, 2).requires_grad_()
    (weighed @ v).pow(2).sum().backward()
    torch.testing.assert_close(v.grad, 2 * expected.T @ expected @ v.detach())


@EACH
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_propagation_equals_the_dense_equation(steps, adjacency):
    task = built(propagations=steps, adjacency=adjacency)
    model, matrix = task.model, task.model.weighing.to_dense()
    compatibility = drawn(3, 3) - 0.4
    set_compatibility(model, compatibility)
    prior = 4 * drawn(45, 3, seed=1)
    start = prior.softmax(1) - 1 / 3
    expected, power = start, start
    for _ in range(steps):  # sum_k A^k B0 H^k
        power = matrix @ power @ compatibility
        expected = expected + power
    torch.testing.assert_close(model.propagate(prior), expected)


def test_centred_beliefs_sum_to_zero_through_all_steps():
    for steps in (1, 2, 3):
        model = built(propagations=steps, adjacency="raw").model
        set_compatibility(model, centred(3))
        beliefs = model.propagate(4 * drawn(45, 3))
        torch.testing.assert_close(beliefs.sum(1), torch.zeros(45, dtype=torch.float64))
        assert (beliefs.abs().amax(1) > 1e-3).all()


def test_without_compatibility_it_is_the_estimator_alone():
    task = built()
    prior = task.model.estimator(None)
    torch.testing.assert_close(task.logits(), prior.softmax(1) - 1 / 3)
    assert torch.equal(task.logits().argmax(1), prior.argmax(1))


@pytest.mark.parametrize(("estimator", "maps"), [("mlp", 1), ("cheb", 3)])
def test_estimator_equals_the_dense_equation(estimator, maps):
    """Polynomials of the Laplacian's eigenvalues: T_k(cos t) = cos(k t)."""
    task = built(estimator=estimator)
    model = task.model.estimator
    with torch.no_grad():
        model.bias_in.copy_(drawn(8) - 0.5)
    adjacency = task.graph.neighbours.to_dense()
    scale = adjacency.sum(1).clamp_min(1).rsqrt()
    values, vectors = torch.linalg.eigh(-scale[:, None] * adjacency * scale)
    angle = values.clamp(-1, 1).acos()

    def layer(h, weight):
        parts = enumerate(weight.chunk(maps, dim=1))
        return sum(((k * angle).cos() * vectors) @ vectors.T @ h @ w for k, w in parts)

    hidden = torch.relu(layer(task.graph.x.to_dense(), model.weight_in) + model.bias_in)
    torch.testing.assert_close(model(None), layer(hidden, model.weight_out))


def test_penalty_is_the_absolute_row_sums():
    compatibility = torch.tensor([[1.0, 2.0], [-4.0, 1.5]])
    assert row_sum_penalty(compatibility).item() == 3.0 + 2.5
    assert row_sum_penalty(centred(4)).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("eta", [0.0, 0.7])
def test_loss_is_final_plus_prior_plus_penalty(eta):
    task = built(co_training=eta, dropout=0.0)
    model, graph = task.model, task.graph
    set_compatibility(model, drawn(3, 3))
    prior, nodes = model.estimator(None), graph.train
    final, before = (
        torch.nn.functional.cross_entropy(logits[nodes], graph.y[nodes])
        for logits in (model.propagate(prior), prior)
    )
    expected = final + eta * before + row_sum_penalty(model.compatibility)
    torch.testing.assert_close(model.loss(task.dropout), expected)


@BOTH
def test_gradients_of_every_weight(estimator):
    task = built(estimator=estimator, dropout=0.0, hidden=4)
    set_compatibility(task.model, centred(3) + 0.1 * drawn(3, 3))
    task.model.loss(task.dropout).backward()
    for seed, weight in enumerate(task.model.parameters()):
        way = drawn(*weight.shape, seed=seed) - 0.5
        losses = []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                weight += step * way
                losses.append(task.model.loss(task.dropout))
        with torch.no_grad():
            weight += 1e-6 * way
        slope = (losses[0] - losses[1]) / 2e-6
        torch.testing.assert_close(slope, (weight.grad * way).sum(), rtol=1e-5, atol=1e-7)


def test_pretraining_moves_the_estimator_alone_and_then_sets_the_compatibility():
    task, same = built(), built(pretrain_epochs=0)
    for _ in range(5):
        same._pretrain_step()
    assert (same.model.compatibility == 0).all()
    for one in (task, same):
        one.train_step()
    assert all(torch.equal(a, b) for a, b in zip(task.weights, same.weights, strict=True))
    before = task.model.compatibility.clone()
    task.train_step()  # no second pre-training: one Adam step moves nothing by more than its size
    assert (task.model.compatibility - before).abs().max() < 2 * config().learning_rate


@BOTH
def test_follows_the_nodes_names(estimator):
    data, order = small_data(), shuffled()
    settings = config(estimator=estimator, dropout=0.0)
    one, _ = trained(float64(data), settings)
    other, _ = trained(float64(relabelled(data, order)), settings)
    torch.testing.assert_close(other.logits(), one.logits()[order])


def test_learns_that_neighbours_differ_and_beats_the_mlp():
    data = synthetic_graph(
        num_nodes=600, num_classes=3, homophily=0.1, average_degree=12.0, feature_noise=4.0
    )
    graph = prepare(data).to("cpu")
    settings = {"hidden": 32, "epochs": 60, "weight_decay": 5e-4, "device": "cpu"}
    own = {"estimator": "mlp", "adjacency": "raw", "pretrain_epochs": 40}
    task, _ = trained(graph, CPGNNConfig(**settings, **own))
    plain, _ = trained(graph, MLPConfig(**settings), CONTROLS["mlp"])
    ours, theirs = (accuracy(t.logits(), graph.test, graph.y[graph.test]) for t in (task, plain))
    assert ours > theirs + 0.05
    compatibility = task.model.compatibility.detach()
    off = ~torch.eye(3, dtype=torch.bool)
    assert compatibility.diagonal().max() < 0 < compatibility[off].min()


@EACH
def test_hubs_do_not_overflow(adjacency):
    """A star of 2,000 leaves, three steps: 2,000^2 beliefs are added up."""
    leaves = torch.arange(1, 2001)
    edges = torch.stack([torch.zeros_like(leaves), leaves])
    data = Data(x=drawn(2001, 4).float(), y=torch.arange(2001) % 2, edge_index=edges)
    settings = config(adjacency=adjacency, propagations=3, epochs=10)
    task, history = trained(prepare(data).to("cpu"), settings)
    assert all(math.isfinite(epoch.loss) for epoch in history)
    assert task.logits().isfinite().all()


@EACH
@BOTH
def test_isolated_nodes_and_classes_without_training_nodes(estimator, adjacency):
    data = path_of_four()
    data.edge_index, data.y = torch.tensor([[0], [1]]), torch.tensor([0, 1, 2, 1])
    settings = config(adjacency=adjacency, estimator=estimator)
    assert trained(prepare(data).to("cpu"), settings)[0].logits().isfinite().all()


class Largest(TorchDispatchMode):
    """The most entries of any tensor that is made."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
                self.entries = max(self.entries, leaf.numel())
        return out


@BOTH
def test_nothing_grows_with_the_square_of_the_nodes(estimator):
    graph = prepare(small_data(num_nodes=600)).to("cpu")
    with Largest() as largest:
        task = METHOD.build(graph, [config(estimator=estimator)])
        task.train_step()
        task.validate()
    assert 600 * 8 <= largest.entries <= 600 * 8 * 3


@pytest.mark.gpu
@BOTH
def test_recording_does_not_change_the_first_epochs(estimator):
    """Later ones drift apart where the library adds in another order."""
    graph = prepare(small_data()).to("cuda")
    settings = {"estimator": estimator, "epochs": 30, "pretrain_epochs": 20}
    recorded, first = trained(graph, config(**settings, capture=True))
    plain, second = trained(graph, config(**settings, capture=False))
    for one, other in zip(first[:4], second[:4], strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-2)
        assert one.val_loss == pytest.approx(other.val_loss, rel=1e-2)
    assert recorded.logits().shape == plain.logits().shape
