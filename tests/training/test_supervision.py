"""The losses of one refinement: where gradients go, and that sampled ones are right on average."""

import itertools

import pytest
import torch
from graphglow.training.task import LearnerLoss
from torch_geometric.data import Data

from graphglow.gnn import MixedPropagation, build_gnn
from graphglow.paper import BlendedStructure, SampledStructure
from graphglow.paper.objective import edge_probabilities, entropy_loss, log_probability
from tiny_graphs import dropout, float64, learner, objective, small_data, transfer_config

PIVOTS = torch.tensor([3, 0, 17, 9])


class Setting:
    """A graph with a GNN, a learner and the steps of one training pass, in float64."""

    def __init__(self, data, pivots, width=6, seed=0, **changes):
        self.config = transfer_config(**changes)
        self.runs = Runs.of([self.config])
        self.graph, self.pivots = float64(data), pivots
        generator = torch.Generator().manual_seed(seed)
        self.gnn = build_gnn(self.config, self.graph, width, generator).double()
        self.theta = learner(seed=seed, embedding_size=width).double()
        self.dropout = dropout(11, rate=self.config.dropout)
        (self.generator,) = self.dropout.generators
        self.labels = self.graph.y[self.graph.train]

    def steps(self):
        settings = self.graph, self.pivots, self.runs, self.dropout
        return list(refine(self.gnn, self.theta, *settings, wait=True))

    def loss(self, **changes):
        terms, features = objective(**changes), None
        if terms.smoothness > 0 or terms.sparsity > 0:
            features = self.graph.x.to_dense()[self.pivots]
        return LearnerLoss(self.theta, terms, self.pivots, features, self.generator)

    def supervised(self, loss, step):
        return loss.supervised(step, self.gnn, self.graph, self.runs, self.dropout)

    def gradients(self, value):
        """Of theta and of w; None where the value does not depend on them."""
        theta, w = list(self.theta.parameters()), list(self.gnn.parameters())
        found = torch.autograd.grad(value, theta + w, allow_unused=True, retain_graph=True)
        return found[: len(theta)], found[len(theta) :]


@pytest.fixture
def small():
    return Setting(small_data(), PIVOTS, refinements=3, input_weight=0.5)


def nonzero(gradients):
    return all(g is not None and (g != 0).any() and g.isfinite().all() for g in gradients)


@pytest.mark.parametrize(
    "weights",
    [
        {"smoothness": 0.2, "sparsity": 0.0, "entropy": 0.0},
        {"smoothness": 0.0, "sparsity": 0.2, "entropy": 0.0},
        {"smoothness": 0.0, "sparsity": 0.0, "entropy": 0.2},
        {"smoothness": 0.2, "sparsity": 0.2, "entropy": 0.2},
    ],
)
def test_the_regularisers_reach_theta_and_never_w(small, weights):
    loss = small.loss(**weights)
    for step in small.steps():
        theta, w = small.gradients(loss.regularisers(step))
        assert nonzero(theta)
        assert all(g is None for g in w)


@pytest.mark.parametrize("supervision", ["nwgm", "gumbel", "reinforce"])
def test_the_supervised_loss_reaches_theta_and_w(small, supervision):
    loss = small.loss(supervision=supervision)
    for step in small.steps():
        theta, w = small.gradients(small.supervised(loss, step))
        assert nonzero(theta)
        assert nonzero(w)


def test_regularisers_of_weight_zero_cost_and_change_nothing(small):
    loss = small.loss(smoothness=0.0, sparsity=0.0, entropy=0.0)
    state = small.generator.get_state()
    value = loss.regularisers(small.steps()[0])
    assert float(value) == 0
    assert not value.requires_grad
    assert torch.equal(state, small.generator.get_state())


def test_entropy_is_weighted_and_read_at_the_inferred_structure(small):
    step = small.steps()[1]
    value = small.loss(smoothness=0.0, sparsity=0.0, entropy=0.3).regularisers(step)
    expected = 0.3 * entropy_loss(edge_probabilities(step.structure.gamma()))
    torch.testing.assert_close(value, expected)


def test_nwgm_is_cross_entropy_at_the_expected_structure(small):
    step = small.steps()[2]
    expected = supervised_loss(step.logits, small.graph.train, small.labels)
    torch.testing.assert_close(small.supervised(small.loss(supervision="nwgm"), step), expected)


def test_without_a_prior_the_entropy_draws_nothing(small):
    loss, state = small.loss(smoothness=0.0, sparsity=0.0, entropy=0.3), small.generator.get_state()
    step = small.steps()[0]
    assert loss.features is None
    assert loss.regularisers(step) != 0
    assert torch.equal(state, small.generator.get_state())


@pytest.mark.parametrize("supervision", ["gumbel", "reinforce"])
def test_every_drawn_structure_meets_dropout_of_its_own(supervision):
    """Sampled losses drop hidden units as the loop itself does, from the same generator."""
    dropping = Setting(small_data(), PIVOTS, refinements=2, dropout=0.5)
    step, loss = dropping.steps()[1], dropping.loss(supervision=supervision)
    state = dropping.generator.get_state()
    found = dropping.supervised(loss, step)
    dropping.generator.set_state(state)
    dropping.dropout = dropout(0, rate=0.0)  # the same draws of the structure, nothing dropped
    assert not torch.equal(found, dropping.supervised(loss, step))


@pytest.mark.parametrize("supervision", ["gumbel", "reinforce"])
def test_sampled_supervision_follows_its_generator(small, supervision):
    step, loss = small.steps()[1], small.loss(supervision=supervision)
    state = small.generator.get_state()
    first = small.supervised(loss, step)
    second = small.supervised(loss, step)
    small.generator.set_state(state)
    assert torch.equal(first, small.supervised(loss, step))
    assert not torch.equal(first, second)


def tiny(**changes):
    """Four nodes and two pivots: 256 node-pivot graphs, all of which can be summed over."""
    data = Data(
        x=torch.randn(4, 3, generator=torch.Generator().manual_seed(2)),
        y=torch.tensor([0, 1, 1, 0]),
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]),
        train_mask=torch.tensor([True, True, True, False]),
        val_mask=torch.tensor([False, False, False, True]),
    )
    settings = {"dropout": 0.0, "input_weight": 0.2} | changes
    found = Setting(data, torch.tensor([0, 2]), width=3, seed=18, **settings)
    with torch.no_grad():
        for weight in found.gnn.weights:
            weight *= 3
    return found


def loss_on(setting, step, b):
    latent = SampledStructure(b)
    if isinstance(step.latent, BlendedStructure):
        latent = BlendedStructure(latent, step.latent.first, step.latent.eta)
    mix = MixedPropagation(setting.graph.adj, latent, setting.config.input_weight)
    _, logits = setting.gnn(step.encoded, mix, None)
    return supervised_loss(logits, setting.graph.train, setting.labels)


def exact_expected_loss(setting, step):
    alpha = edge_probabilities(step.structure.gamma())
    total = 0.0
    for bits in itertools.product([0.0, 1.0], repeat=alpha.numel()):
        b = torch.tensor(bits, dtype=torch.float64).reshape(alpha.shape)
        total = total + log_probability(b, alpha).exp() * loss_on(setting, step, b)
    return total


@pytest.mark.parametrize(
    ("changes", "which", "count"),
    [
        ({}, 0, 800),
        ({"structure_momentum": 0.5}, 1, 600),
    ],
    ids=["first step", "with structure momentum"],
)
def test_the_mean_reinforce_gradient_is_the_exact_gradient(changes, which, count):
    setting = tiny(refinements=which + 1, **changes)
    step = setting.steps()[which]
    alpha = step.structure.gamma()
    assert ((alpha > 0) & (alpha < 1)).sum() >= 4
    parameters = [*setting.theta.parameters(), *setting.gnn.parameters()]

    def flat_gradient(value):
        found = torch.autograd.grad(value, parameters, retain_graph=True)
        return torch.cat([g.flatten() for g in found])

    exact_loss = exact_expected_loss(setting, step)
    exact = flat_gradient(exact_loss)
    loss = setting.loss(supervision="reinforce", samples=2)
    values = [setting.supervised(loss, step) for _ in range(count)]
    draws = torch.stack([flat_gradient(value) for value in values])
    standard_error = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - exact).abs() < 4 * standard_error + 1e-12).all()
    theta = slice(0, sum(p.numel() for p in setting.theta.parameters()))
    assert exact[theta].norm() > 0.1
    assert standard_error[theta].norm() < 0.17 * exact[theta].norm()
    found = torch.stack(values).detach()
    assert (found.mean() - exact_loss).abs() < 4 * found.std() / len(found) ** 0.5


def test_gumbel_at_low_temperature_has_the_expected_loss():
    setting = tiny(refinements=1)
    (step,) = setting.steps()
    loss = setting.loss(supervision="gumbel", temperature=0.001)
    with torch.no_grad():
        found = torch.stack([setting.supervised(loss, step) for _ in range(800)])
        exact = exact_expected_loss(setting, step)
    standard_error = found.std() / len(found) ** 0.5
    assert 1e-4 < standard_error < 0.05 * exact
    assert (found.mean() - exact).abs() < 4 * standard_error
