"""Variants of GraphGLOW behind ``fit``: each is the transfer it claims to be."""

from dataclasses import fields, replace

import pytest
import torch
from graphglow.training.adam import Adam
from graphglow.training.loop import Loop
from graphglow.training.task import GraphTask, Trained

from graphglow.competitors import fit, fit_many
from graphglow.competitors.variants import VARIANTS
from graphglow.graph import check_graph, prepare, synthetic_graph
from graphglow.paper import StructureLearner
from graphglow.settings import LearnerConfig, ObjectiveConfig, PaperConfig
from graphglow.training import transfer
from graphglow.result import TransferResult

WITHOUT_WEIGHTS = {"weighted": False, "num_heads": 1}
LEARNERS = {
    "graphglow-dot": {"similarity": "dot", **WITHOUT_WEIGHTS},
    "graphglow-knn": {"neighbours": 3, **WITHOUT_WEIGHTS},
    "graphglow-cosine": WITHOUT_WEIGHTS,
    "graphglow-attention": {"similarity": "attention", "num_heads": 2},
    "graphglow-star": {"num_heads": 2},
    "random-theta": {"num_heads": 2},
}
TRAINED = ("graphglow-attention", "graphglow-star")
FIXED = [name for name in LEARNERS if name not in TRAINED]
SMALL = {"embedding_size": 6, "num_pivots": 10, "refinements": 2, "epochs": 4, "device": "cpu"}
OBJECTIVE = ObjectiveConfig(samples=2, probes=2, sketch=4)


def small_data(**changes):
    settings = {"num_nodes": 40, "num_classes": 3, "num_features": 8, "average_degree": 3.0}
    settings |= {"homophily": 0.7, "feature_noise": 0.5, "seed": 0}
    return check_graph(synthetic_graph(**(settings | changes)))


def settable(name):
    return {f.name for f in fields(VARIANTS[name].config) if f.init}


def config(name, **changes):
    settings = {**SMALL, "num_heads": 2, "neighbours": 3, "objective": OBJECTIVE, **changes}
    taken = {key: value for key, value in settings.items() if key in settable(name)}
    return VARIANTS[name].config(**taken)


def same_transfer(name, data, **changes):
    """The run that a variant stands for, by the door of the pre-trained learners."""
    settings = {k: v for k, v in (SMALL | changes).items() if k != "embedding_size"}
    learner = StructureLearner(
        LearnerConfig(embedding_size=6, **LEARNERS[name]), seed=changes.get("seed", 0)
    )
    return learner, transfer(data, learner, PaperConfig(**settings))


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("name", FIXED)
def test_a_variant_is_the_transfer_of_its_learner_to_the_bit(name, seed):
    data = small_data()
    result = fit(name, data, config(name, seed=seed))
    learner, expected = same_transfer(name, data, seed=seed)
    assert result.history == expected.history
    assert torch.equal(result.predict_proba(), expected.predict_proba())
    assert result.backbone == expected.config.backbone
    for before, after in zip(learner.parameters(), expected.learner.parameters(), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("name", TRAINED)
def test_a_trained_variant_is_the_loop_with_its_learner_along_to_the_bit(name):
    data, settings = small_data(), config(name, seed=3)
    learner = StructureLearner(LearnerConfig(embedding_size=6, **LEARNERS[name]), seed=3)
    before = learner.node_weight.detach().clone()
    along = Trained(Adam(learner.parameters(), settings.learner_learning_rate), OBJECTIVE)
    (history,) = Loop(GraphTask(prepare(data), learner, 6, [settings], trained=along), 4, 4).run()
    assert fit(name, data, settings).history == history
    assert not torch.equal(learner.node_weight, before)


@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_learner_is_untouched(name):
    task = VARIANTS[name].build(prepare(small_data()), [config(name, seed=3)])
    Loop(task, 3, 3).run()
    made = StructureLearner(LearnerConfig(embedding_size=6, **LEARNERS[name]), seed=3)
    assert task.learner.config == made.config
    for found, expected in zip(task.learner.parameters(), made.parameters(), strict=True):
        assert torch.equal(found, expected)
        assert not found.requires_grad
    assert len(task.weights) == 1  # the GNN's


@pytest.mark.parametrize("name", ["graphglow-dot", "graphglow-knn", "graphglow-cosine"])
def test_a_non_parametric_learner_has_nothing_to_train(name):
    task = VARIANTS[name].build(prepare(small_data()), [config(name)])
    assert list(task.learner.parameters()) == []


@pytest.fixture
def float64_weights():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", FIXED)
def test_a_batch_of_two_seeds_is_two_single_runs(name, float64_weights):
    graph = prepare(small_data()).to("cpu", torch.float64)
    both = [config(name, seed=1), config(name, seed=2, input_weight=0.4)]

    def trained(configs):
        task = VARIANTS[name].build(graph, configs)
        return Loop(task, 4, 4).run(), task.logits()

    histories, logits = trained(both)
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)
    for run, one in enumerate(both):
        history, alone = trained([one])
        torch.testing.assert_close(logits[run], alone)
        assert [e.loss for e in histories[run]] == pytest.approx([e.loss for e in history[0]])


def test_trained_learners_are_fitted_one_after_another():
    configs = [config("graphglow-star", seed=seed) for seed in (0, 1)]
    many = fit_many("graphglow-star", small_data(), configs)
    for result, alone in zip(many, configs, strict=True):
        assert result.history == fit("graphglow-star", small_data(), alone).history


@pytest.mark.parametrize("name", FIXED)
def test_the_refined_graph_is_the_operator_that_passed_the_messages(name, tmp_path):
    """With momentum, so that two structures are blended; and the same from a file."""
    data = small_data()
    _, result = same_transfer(name, data, structure_momentum=0.6)
    result.save(tmp_path / "result.safetensors")
    loaded = TransferResult.load(tmp_path / "result.safetensors")
    refined, again = result.refined_graph(top_k=40), loaded.refined_graph(top_k=40)
    assert torch.equal(refined.edge_index, again.edge_index)
    operator = torch.zeros(40, 40)
    operator[refined.edge_index[1], refined.edge_index[0]] = refined.edge_weight
    v = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    expected = 0.7 * (result.graph.adj @ v) + 0.3 * result.refinement.latent.propagate(v)
    torch.testing.assert_close(operator @ v, expected, rtol=1e-4, atol=1e-5)
    assert (refined.edge_latent_weight > 0).any()


@pytest.mark.parametrize("name", FIXED)
def test_a_variant_passes_its_messages_by_the_backend_it_names(name):
    assert same_transfer(name, small_data())[1].message_backend == "dense"


NOWHERE = {"train_learner"}
OF_A_BACKBONE = {"attention_heads": "gat", "teleport": "appnp", "steps": "appnp"}
NOT_OFFERED = {
    "graphglow-dot": {"num_heads", "neighbours", "objective", "learner_learning_rate"},
    "graphglow-cosine": {"num_heads", "neighbours", "objective", "learner_learning_rate"},
    "graphglow-knn": {"num_heads", "backend", "precision", "objective"},
    "graphglow-attention": {"neighbours"},
    "graphglow-star": {"neighbours"},
    "random-theta": {"neighbours", "objective", "learner_learning_rate"},
}


@pytest.mark.parametrize("name", LEARNERS)
def test_what_would_do_nothing_is_not_offered(name):
    assert not settable(name) & (NOWHERE | NOT_OFFERED[name])
    for setting in NOWHERE | NOT_OFFERED[name]:
        with pytest.raises(TypeError, match=setting):
            VARIANTS[name].config(**{setting: 1})


@pytest.mark.parametrize("name", LEARNERS)
def test_trials_of_the_search_space_are_one_program(name):
    space = VARIANTS[name].space
    assert 1.0 in space["input_weight"]  # the learned graph may be switched off
    of_shape = {"embedding_size", "refinements", "num_pivots"} & set(space)
    assert all(len(space[setting]) == 1 for setting in of_shape)


CHANGES = {
    "num_layers": 3,
    "encoder": "mlp",
    "input_weight": 0.2,
    "structure_momentum": 0.5,
    "num_pivots": 5,
    "redraw_pivots": False,
    "pivots_by_degree": True,
    "refinements": 3,
    "tolerance": 1.0,
    "backend": "eager",
    "precision": "bfloat16",
    "embedding_size": 5,
    "neighbours": 2,
    "num_heads": 3,
    "objective": replace(OBJECTIVE, entropy=1.0),
    "learner_learning_rate": 0.2,
    "learning_rate": 0.1,
    "weight_decay": 0.1,
    "dropout": 0.1,
    "seed": 5,
    "backbone": "linkx",
    "attention_heads": 1,
    "teleport": 0.5,
    "steps": 2,
    "delta": "affine",
}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_setting_that_is_offered_does_something(name):
    """Each, changed alone, changes the losses; a backend may change their last digits only."""
    data = small_data()

    def losses(**settings):
        history = fit(name, data, config(name, epochs=2, **settings)).history
        return [epoch.loss for epoch in history]

    plain = losses()
    elsewhere = {"epochs", "patience", "capture", "device", "backend"}
    for setting in settable(name) - elsewhere:
        under = {"backbone": OF_A_BACKBONE[setting]} if setting in OF_A_BACKBONE else {}
        before = losses(**under) if under else plain
        assert losses(**under, **{setting: CHANGES[setting]}) != before, setting


@pytest.mark.gpu
@pytest.mark.parametrize("name", LEARNERS)
def test_recording_on_a_gpu_does_not_change_a_bit(name):
    data = small_data(num_nodes=300)
    settings = {"device": "cuda", "epochs": 30, "num_pivots": 128, "embedding_size": 16}
    runs = [config(name, **settings, capture=capture) for capture in (True, False, True)]
    first, *others = (fit(name, data, run) for run in runs)
    for other in others:
        assert other.history == first.history
        assert torch.equal(other.logits, first.logits)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FIXED)
def test_a_batch_on_a_gpu_is_its_single_runs(name):
    data, seeds = small_data(num_nodes=300), (0, 1, 2)
    settings = {"device": "cuda", "epochs": 10, "num_pivots": 128, "embedding_size": 16}
    configs = [config(name, **settings, seed=seed) for seed in seeds]
    for result, alone in zip(fit_many(name, data, configs), configs, strict=True):
        losses = [epoch.loss for epoch in fit(name, data, alone).history]
        assert [epoch.loss for epoch in result.history] == pytest.approx(losses, rel=1e-3)
