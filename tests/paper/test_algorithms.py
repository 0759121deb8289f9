"""The paper's algorithms: a forward pass, one training step, pre-training and transfer."""

import copy
import itertools
import json

import pytest
import torch

import graphglow
from graphglow.errors import InputError
from graphglow.gnn.backbones import BACKBONES
from graphglow.gnn.train import Loop, accuracy
from graphglow.paper.algorithms import by_weight, last_refinement, over_refinements, refinements
from graphglow.paper.learner import StructureLearner
from graphglow.paper.objective import edge_probabilities, entropy_loss
from graphglow.paper.pivots import BlendedStructure
from graphglow.pretrain import pretrain
from graphglow.transfer import transfer
from tiny_graphs import (
    WIDTH,
    computing_in_float64,
    float64,
    learner,
    objective,
    pretrain_config,
    relabelled,
    same_tensors,
    small_data,
    task,
    transfer_config,
)

PIVOTS = torch.tensor([3, 0, 17, 9, 30])
DATA = small_data()
SOURCES = [small_data(seed=1), small_data(seed=2, num_nodes=30)]


# Algorithm 1: a forward pass


def gnn(graph, config, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return BACKBONES[config.backbone](config, graph, WIDTH, generator).double()


def steps(config, data=DATA):
    graph = float64(data)
    with torch.no_grad():
        return list(
            refinements(gnn(graph, config), learner().double(), graph, PIVOTS, config)
        ), graph


def changes_of(full):
    z = [step.z for step in full]
    return [float((b - a).square().sum() / a.square().sum()) for a, b in itertools.pairwise(z)]


def test_refining_stops_once_the_embeddings_settle():
    full, _ = steps(transfer_config(refinements=12, tolerance=0.0))
    change = changes_of(full)
    assert change[4] < min(change[:4])
    found, _ = steps(transfer_config(refinements=12, tolerance=(change[4] + min(change[:4])) / 2))
    assert len(found) == 5
    torch.testing.assert_close(found[-1].logits, full[4].logits)


@pytest.mark.parametrize("eta", [0.0, 0.6, 1.0])
def test_momentum_mixes_with_the_first_structure(eta):
    found, graph = steps(transfer_config(refinements=4, structure_momentum=eta))
    v = torch.eye(graph.num_nodes, dtype=torch.float64)
    first = found[0].structure
    assert found[0].latent is first
    for step in found[1:]:
        assert isinstance(step.latent, BlendedStructure) == (eta < 1)
        expected = eta * step.structure.propagate(v) + (1 - eta) * first.propagate(v)
        torch.testing.assert_close(step.latent.propagate(v), expected)


@pytest.mark.parametrize("changes", [{}, {"delta": "affine"}, {"similarity": "rbf"}])
@pytest.mark.parametrize("tolerance", [0.0, 1e-3])
def test_relabelling_the_nodes_relabels_a_whole_pass(changes, tolerance):
    config = transfer_config(
        refinements=4, tolerance=tolerance, structure_momentum=0.7, num_layers=3
    )
    order = torch.randperm(40, generator=torch.Generator().manual_seed(5))
    graph, moved = float64(DATA), float64(relabelled(DATA, order))
    model, theta = gnn(graph, config), learner(**changes).double()
    before = last_refinement(model, theta, graph, PIVOTS, config)
    after = last_refinement(model, theta, moved, order.argsort()[PIVOTS], config)
    torch.testing.assert_close(after.logits, before.logits[order])
    assert not torch.allclose(after.logits, before.logits)
    assert not after.logits.requires_grad


def test_steps_after_settling_count_for_nothing():
    losses = [torch.tensor(value) for value in (3.0, 4.0, 6.0, 100.0)]
    active = [torch.tensor(flag) for flag in (True, True, True, False)]
    loss, count = over_refinements(losses, active)
    assert (float(loss), int(count)) == (3 + (4 + 6) / 2, 3)
    loss, count = over_refinements(losses[:1], active[:1])
    assert (float(loss), int(count)) == (3, 1)
    loss, count = over_refinements(losses, [active[0], *[active[3]] * 3])
    assert (float(loss), int(count)) == (3, 1)


# One training step


def config(**changes):
    return transfer_config(**({"redraw_pivots": False} | changes))


def test_theta_moves_only_where_it_is_trained():
    frozen, moving = task(config()), task(config(), objective=objective())
    for made in (frozen, moving):
        before = copy.deepcopy(made.gnn)
        made.train_step()
        assert not same_tensors(made.gnn, before)
    assert same_tensors(frozen.learner, learner())
    assert not same_tensors(moving.learner, learner())


def test_both_gradients_are_zeroed_in_every_step():
    made = task(config(), objective=objective(smoothness=0.0, sparsity=0.0, entropy=0.1))
    for optimizer in (made.optimizer, made.theta):
        optimizer.param_groups[0]["lr"] = 0.0
    found = []
    for _ in range(2):
        made.train_step()
        both = [*made.learner.parameters(), *made.gnn.parameters()]
        found.append([parameter.grad.clone() for parameter in both])
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second)
        assert (first != 0).any()


def test_pivots_are_redrawn_every_epoch_or_kept():
    fixed, moving = task(config()), task(config(redraw_pivots=True))
    assert fixed.training_pivots() is fixed.pivots
    before = moving.pivots.clone()
    drawn = [moving.training_pivots() for _ in range(3)]
    assert not torch.equal(drawn[0].sort()[0], drawn[1].sort()[0])
    assert all(len(d.unique()) == 10 for d in drawn)
    assert torch.equal(moving.pivots, before)


@pytest.mark.parametrize("by_degree", [False, True])
def test_nodes_are_pivots_alike_or_in_proportion_to_their_degree(by_degree):
    made = task(config(num_pivots=1, redraw_pivots=True, pivots_by_degree=by_degree))
    drawn = torch.cat([made.training_pivots() for _ in range(4000)])
    share = torch.bincount(drawn, minlength=40) / 4000
    chance = made.degree / made.degree.sum() if by_degree else torch.full((40,), 1 / 40)
    assert ((share - chance).abs() < 4.5 * (chance * (1 - chance) / 4000).sqrt()).all()


def test_a_draw_without_repetition_has_the_chances_of_one_after_the_other():
    weight = torch.tensor([1.0, 2.0, 3.0])
    uniform = torch.rand(20000, 3, generator=torch.Generator().manual_seed(0))
    first, second = by_weight(uniform, weight).topk(2).indices.unbind(1)
    chance = (3 / 6) * (2 / 3)  # node 2, then node 1 out of 0 and 1
    found = ((first == 2) & (second == 1)).float().mean()
    assert float(found) == pytest.approx(chance, abs=4.5 * (chance * (1 - chance) / 20000) ** 0.5)


@pytest.mark.parametrize(("asked", "used"), [(1, 1), (39, 39), (41, 40), (10**6, 40)])
def test_more_pivots_than_nodes_means_all_nodes(asked, used):
    made = task(config(num_pivots=asked, redraw_pivots=True))
    assert len(made.pivots.unique()) == len(made.training_pivots()) == used


def test_evaluation_is_a_function_of_weights_and_graph():
    made = task(config(dropout=0.5, redraw_pivots=True))
    made.train_step()
    first, state = made.logits(), made.generator.get_state()
    assert torch.equal(first, made.logits())
    assert torch.equal(state, made.generator.get_state())


@pytest.mark.parametrize("similarity", ["cosine", "dot", "rbf", "attention"])
def test_theta_knows_no_embedding_dimension_by_its_place(similarity):
    """Theta and the GNN's units in another order, alike: the same run, training included.

    A new GNN draws its units independently and alike. So theta with its columns in any other
    order does as well on average: "What theta can carry over" in docs/paper_notes.md.
    """
    order = torch.randperm(WIDTH, generator=torch.Generator().manual_seed(3))
    with computing_in_float64():
        settings = transfer_config(dropout=0.0, refinements=3)
        made, moved = (task(settings, theta=learner(similarity=similarity)) for _ in range(2))
        with torch.no_grad():
            for theta, weight in zip(
                moved.learner.parameters(), made.learner.parameters(), strict=True
            ):
                theta.copy_(weight[:, order])  # [H, D], or [H, D, D / H]
            assert not torch.allclose(made.logits(), moved.logits())
            moved.gnn.weights[0].copy_(made.gnn.weights[0][:, order])
            moved.gnn.weights[1].copy_(made.gnn.weights[1][order])
        for _ in range(10):
            torch.testing.assert_close(made.train_step()[0], moved.train_step()[0])
        torch.testing.assert_close(made.logits(), moved.logits())


# The losses of one refinement: where gradients go, and that sampled ones are right on average


class Setting:
    """The steps of one training pass, in float64."""

    def __init__(self, data=DATA, width=WIDTH, seed=0, **changes):
        with computing_in_float64():
            settings = transfer_config(**({"dropout": 0.0} | changes))
            theta = learner(seed=seed, embedding_size=width)
            self.task = task(settings, data=data, theta=theta, objective=objective())
        self.pivots = self.task.pivots

    def steps(self):
        made = self.task
        return list(
            refinements(made.gnn, made.learner, made.graph, self.pivots, made.config, made.dropout)
        )

    def regularisers(self, step, **changes):
        self.task.objective = objective(**changes)
        return self.task.regularisers(step, self.pivots, self.task.pivot_features(self.pivots))

    def gradients(self, value):
        """Of theta and of w; None where the value does not depend on them."""
        theta, w = list(self.task.learner.parameters()), list(self.task.gnn.parameters())
        found = torch.autograd.grad(value, theta + w, allow_unused=True, retain_graph=True)
        return found[: len(theta)], found[len(theta) :]


def nonzero(gradients):
    return all(g is not None and (g != 0).any() and g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("name", ["smoothness", "sparsity", "entropy"])
def test_the_regularisers_reach_theta_and_never_w(name):
    setting = Setting(refinements=3)
    terms = {"smoothness": 0.0, "sparsity": 0.0, "entropy": 0.0} | {name: 0.2}
    for step in setting.steps():
        theta, w = setting.gradients(setting.regularisers(step, **terms))
        assert nonzero(theta)
        assert all(g is None for g in w)


def test_terms_without_weight_cost_and_draw_nothing():
    setting = Setting(refinements=2)
    step, state = setting.steps()[1], setting.task.generator.get_state()
    nothing = setting.regularisers(step, smoothness=0.0, sparsity=0.0, entropy=0.0)
    assert float(nothing) == 0
    assert not nothing.requires_grad
    entropy = setting.regularisers(step, smoothness=0.0, sparsity=0.0, entropy=0.3)
    expected = 0.3 * entropy_loss(edge_probabilities(step.structure.gamma()))
    torch.testing.assert_close(entropy, expected)
    assert torch.equal(state, setting.task.generator.get_state())


# Algorithm 2


def test_a_pre_training_follows_its_seed_and_no_global_one():
    settings = {"dropout": 0.5, "episodes": 2}
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = pretrain(SOURCES, pretrain_config(**settings))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    again = pretrain(SOURCES, pretrain_config(**settings))
    assert same_tensors(one, again)
    assert one.provenance == again.provenance
    assert not same_tensors(one, pretrain(SOURCES, pretrain_config(seed=5, **settings)))


@pytest.mark.parametrize(
    ("scores", "best"),
    [([0.1, 0.9, 0.5, 0.2], 2), ([0.9, 0.1, 0.1, 0.1], 1), ([0.1, 0.2, 0.3, 0.4], 4)],
)
def test_the_theta_with_the_best_mean_score_over_all_sources_is_kept(monkeypatch, scores, best):
    visits = []

    def visit(loop, on_epoch, **how):
        visits.append(loop.task.graph.name)
        with torch.no_grad():
            loop.task.learner.node_weight.fill_(float(len(visits)))
        return []

    monkeypatch.setattr(Loop, "run", visit)
    monkeypatch.setattr(
        "graphglow.paper.algorithms.PaperTask.validate", lambda task: (0.0, scores[len(visits) - 1])
    )
    made = pretrain(SOURCES, pretrain_config(episodes=2))
    assert visits == ["small-1", "small-2"] * 2
    assert set(made.node_weight.flatten().tolist()) == {best}
    assert made.provenance["visit_scores"] == pytest.approx(scores)


def test_provenance_tells_how_it_was_made(tmp_path):
    made = pretrain(SOURCES, pretrain_config(episodes=2))
    facts = made.provenance
    assert facts["sources"] == ["small-1", "small-2"]
    assert len(facts["visit_scores"]) == 4
    assert facts["validation_accuracy"] == max(facts["visit_scores"])
    made.save(tmp_path / "l.safetensors")
    loaded = StructureLearner.load(tmp_path / "l.safetensors")
    assert same_tensors(loaded, made)
    assert loaded.provenance == json.loads(json.dumps(facts))


def test_pre_training_separates_the_classes_better_than_chance():
    settings = pretrain_config(epochs=40, patience=40, learning_rate=0.1, refinements=2)
    made = pretrain([small_data(noise=0.2, homophily=0.95, num_nodes=60)], settings)
    assert made.provenance["validation_accuracy"] >= 0.9


@pytest.mark.parametrize(
    ("kind", "settings"), [("evidence", {"on_epoch": print}), ("auditor", {"workers": 2})]
)
def test_what_belongs_to_another_kind_of_learner_is_refused(kind, settings):
    with pytest.raises(InputError, match="must go with kind"):
        pretrain(SOURCES, kind=kind, **settings)


# Algorithm 3


def losses(result):
    return [epoch.loss for epoch in result.history]


def separable_data():
    return small_data(num_nodes=60, noise=0.2, homophily=0.95)


def test_the_callers_learner_and_graph_are_never_touched():
    theta, data = learner(), small_data()
    before, given = copy.deepcopy(theta), data.clone()
    result = transfer(data, theta, transfer_config(epochs=10))
    assert same_tensors(theta, before)
    assert same_tensors(result.learner, theta)
    assert not any(p.requires_grad for p in result.learner.parameters())
    assert all(p.requires_grad and p.grad is None for p in theta.parameters())
    assert torch.equal(data.x, given.x)
    assert torch.equal(data.edge_index, given.edge_index)


def test_a_transfer_follows_its_seed_and_no_global_one():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = transfer(DATA, learner(), transfer_config(dropout=0.5, seed=3))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    again = transfer(DATA, learner(), transfer_config(dropout=0.5, seed=3))
    assert one.history == again.history
    assert torch.equal(one.predict_proba(), again.predict_proba())
    other = transfer(DATA, learner(), transfer_config(dropout=0.5, seed=4))
    assert losses(one) != losses(other)
    assert not torch.equal(one.pivots, other.pivots)


def test_a_learner_that_is_trained_along_separates_the_classes():
    """GraphGLOW*: the learner is trained on the target."""
    settings = transfer_config(learning_rate=0.1, refinements=2)
    made = task(settings, data=separable_data(), objective=objective())
    history = Loop(made, 30, 30).run()
    assert float(accuracy(made.logits(), made.graph.test, made.graph.y[made.graph.test])) >= 0.9
    assert not same_tensors(made.learner, learner())
    assert history[-1].loss < 0.7 * history[0].loss


def test_theta_returns_to_the_same_epoch_as_the_gnn():
    made = task(transfer_config(dropout=0.5, learning_rate=0.1), objective=objective())
    history = Loop(made, 25, 25).run()
    best = max(history, key=lambda e: (e.val_accuracy, -e.val_loss))
    loss, share = made.validate()
    assert (float(loss), float(share)) == (best.val_loss, best.val_accuracy)


@pytest.mark.parametrize(
    "changes",
    [
        {"similarity": "rbf"},
        {"similarity": "attention"},
        {"similarity": "dot"},
        {"delta": "affine"},
        {"threshold": 0.5},
        {"tied": True},
        {"embedding_size": 1},
        {"neighbours": 3},
    ],
)
def test_every_learner_trains(changes):
    made = task(transfer_config(), theta=learner(**changes), objective=objective())
    assert all(made.train_step()[0].isfinite() for _ in range(3))
    result = transfer(DATA, learner(**changes), transfer_config(dropout=0.3))
    torch.testing.assert_close(result.predict_proba().sum(1), torch.ones(40))


def test_labels_outside_the_masks_do_not_matter_and_their_nodes_do():
    data = small_data()
    data.test_mask = torch.zeros_like(data.test_mask)
    spare = ~(data.train_mask | data.val_mask)
    hidden, moved = data.clone(), data.clone()
    hidden.y = torch.where(spare, -1, data.y)
    moved.x[spare] *= -1
    one, same, other = (
        transfer(d, learner(), transfer_config(dropout=0.5)) for d in (data, hidden, moved)
    )
    assert losses(one) == losses(same) != losses(other)
    assert one.test_accuracy is None


@pytest.mark.parametrize("stranger", [None, "univers", torch.nn.Linear(2, 2)])
def test_only_a_learner_is_transferred(stranger):
    with pytest.raises(InputError, match=r"learner must be .*; got"):
        transfer(DATA, stranger, transfer_config())


def test_a_config_of_the_other_kind_of_learner_is_refused():
    with pytest.raises(InputError, match="config must be a PaperConfig"):
        transfer(DATA, learner(), graphglow.TransferConfig())
    with pytest.raises(InputError, match="config must be a TransferConfig"):
        transfer(DATA, "universal", transfer_config())


def test_an_observed_transfer_is_the_same_and_seen_as_it_is():
    settings, looked = transfer_config(epochs=4, patience=None, refinements=2), {}

    def look(task, epoch):
        looked[epoch] = task.evaluate().latent

    watched = transfer(DATA, learner(), settings, look=look)
    assert watched.history == transfer(DATA, learner(), settings).history
    assert [*looked] == [0, 1, 2, 3, 4]
    stepped = task(settings, data=DATA)
    for epoch in range(5):
        expected = stepped.evaluate().latent.gamma()
        torch.testing.assert_close(looked[epoch].gamma(), expected)
        stepped.train_step()


def test_a_look_needs_the_papers_learner():
    with pytest.raises(InputError, match="must go with a learner of the paper's kind"):
        transfer(DATA, look=lambda task, epoch: None)


# On a GPU


GPU = {"device": "cuda", "epochs": 30, "dropout": 0.5, "refinements": 4, "tolerance": 4e-5}


@pytest.mark.gpu
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_pivots": 1000},
        {"structure_momentum": 0.6},
        {"tolerance": 0.03},
        {"patience": 3, "learning_rate": 0.1},
    ],
)
def test_recording_changes_little(changes, sparse):
    """The library's own products may add in another order."""
    data = small_data(noise=2.0, sparse_features=sparse)
    one, other = (
        transfer(data, learner(), transfer_config(**(GPU | changes), capture=capture))
        for capture in (True, False)
    )
    torch.testing.assert_close(one.predict_proba(), other.predict_proba(), rtol=1e-2, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_a_gpu_gives_what_a_cpu_gives(tolerance):
    """Where nothing is drawn on the device: no dropout, the same pivots in every epoch."""
    settings = {"dropout": 0.0, "redraw_pivots": False, "epochs": 10, "tolerance": tolerance}
    gpu, cpu = (
        transfer(DATA, learner(), transfer_config(**(GPU | settings | {"device": device})))
        for device in ("cuda", "cpu")
    )
    assert losses(gpu) == pytest.approx(losses(cpu), rel=1e-3)
    assert [e.refinements for e in gpu.history] == [e.refinements for e in cpu.history]


@pytest.mark.gpu
def test_pre_training_runs_on_a_gpu():
    settings = {"device": "cuda", "episodes": 2, "epochs": 15, "patience": 15, "dropout": 0.5}
    made = pretrain(SOURCES, pretrain_config(**settings))
    assert len(made.provenance["visit_scores"]) == 4
