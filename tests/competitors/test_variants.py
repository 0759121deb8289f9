"""Variants of GraphGLOW behind ``fit``: each is the transfer it claims to be."""

from dataclasses import fields, replace

import pytest
import torch

from graphglow.competitors import fit
from graphglow.competitors.variants import VARIANTS, EqualConfig, equal_dimensions
from graphglow.graph import check_graph, prepare
from graphglow.paper.learner import StructureLearner
from graphglow.settings import LearnerConfig, ObjectiveConfig, PaperConfig
from graphglow.transfer import transfer
from tiny_graphs import raw_data

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


def small_data():
    return check_graph(raw_data())


def settable(name):
    return {f.name for f in fields(VARIANTS[name].config) if f.init}


def config(name, **changes):
    settings = {**SMALL, "num_heads": 2, "neighbours": 3, "objective": OBJECTIVE, **changes}
    taken = {key: value for key, value in settings.items() if key in settable(name)}
    return VARIANTS[name].config(**taken)


def learner_of(name, seed):
    return StructureLearner(LearnerConfig(embedding_size=6, **LEARNERS[name]), seed=seed)


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("name", FIXED)
def test_a_variant_is_the_transfer_of_its_learner_to_the_bit(name, seed):
    data = small_data()
    result = fit(name, data, config(name, seed=seed))
    settings = {k: v for k, v in SMALL.items() if k != "embedding_size"}
    expected = transfer(data, learner_of(name, seed), PaperConfig(**settings, seed=seed))
    assert result.history == expected.history
    assert torch.equal(result.predict_proba(), expected.predict_proba())


@pytest.mark.parametrize("name", LEARNERS)
def test_only_trained_variants_change_their_learner(name):
    task = VARIANTS[name].build(prepare(small_data()), config(name, seed=3))
    made = learner_of(name, 3)
    assert task.learner.config == made.config
    for _ in range(3):
        task.train_step()
    pairs = list(zip(task.learner.parameters(), made.parameters(), strict=True))
    assert [torch.equal(one, other) for one, other in pairs] == [name not in TRAINED] * len(pairs)
    has_weights = name in (*TRAINED, "random-theta")
    assert bool(pairs) == has_weights


OF_A_BACKBONE = {"attention_heads": "gat", "teleport": "appnp", "steps": "appnp"}
NOT_OFFERED = {
    "graphglow-dot": {"num_heads", "neighbours", "objective", "learner_learning_rate"},
    "graphglow-cosine": {"num_heads", "neighbours", "objective", "learner_learning_rate"},
    "graphglow-knn": {"num_heads", "objective", "learner_learning_rate"},
    "graphglow-attention": {"neighbours"},
    "graphglow-star": {"neighbours"},
    "random-theta": {"neighbours", "objective", "learner_learning_rate"},
}
CHANGES = {
    "num_layers": 3, "encoder": "mlp", "input_weight": 0.2, "structure_momentum": 0.5,
    "num_pivots": 5, "redraw_pivots": False, "pivots_by_degree": True, "refinements": 3,
    "tolerance": 1.0, "embedding_size": 5, "neighbours": 2, "num_heads": 3,
    "objective": replace(OBJECTIVE, entropy=1.0), "learner_learning_rate": 0.2,
    "learning_rate": 0.1, "weight_decay": 0.1, "dropout": 0.1, "seed": 5, "backbone": "linkx",
    "attention_heads": 1, "teleport": 0.5, "steps": 2, "tied": False,
}  # fmt: skip


@pytest.mark.parametrize("name", LEARNERS)
def test_every_setting_that_is_offered_does_something_and_no_other_is(name):
    """Each, changed alone, changes the losses."""
    assert not settable(name) & NOT_OFFERED[name]
    data = small_data()

    def losses(**settings):
        history = fit(name, data, config(name, epochs=2, **settings)).history
        return [epoch.loss for epoch in history]

    plain = losses()
    elsewhere = {"epochs", "patience", "capture", "device"}
    for setting in settable(name) - elsewhere:
        under = {"backbone": OF_A_BACKBONE[setting]} if setting in OF_A_BACKBONE else {}
        before = losses(**under) if under else plain
        assert losses(**under, **{setting: CHANGES[setting]}) != before, setting


def test_equal_dimensions_are_plain_cosines_of_the_first_k():
    data = small_data()
    cosine, every, two = (
        [epoch.loss for epoch in fit(name, data, dimensions, **SMALL).history]
        for name, dimensions in (
            ("graphglow-cosine", None),
            ("equal-theta", EqualConfig(dimensions=6)),
            ("equal-theta", EqualConfig(dimensions=2)),
        )
    )
    assert every == pytest.approx(cosine, rel=1e-5)
    assert two != pytest.approx(cosine, rel=1e-3)
    z = torch.tensor([[1.0, 0.0, 5.0], [1.0, 1.0, -5.0]])
    learner = equal_dimensions(LearnerConfig(embedding_size=3, num_heads=2, tied=False), 2)
    gamma = learner.structure(z, torch.tensor([0, 1])).gamma()
    assert gamma.flatten().tolist() == pytest.approx([1, 0.5**0.5, 0.5**0.5, 1])


@pytest.mark.gpu
@pytest.mark.parametrize("name", LEARNERS)
def test_recording_on_a_gpu_does_not_change_a_bit(name):
    settings = {"device": "cuda", "epochs": 30, "num_pivots": 20, "embedding_size": 16}
    first, other = (
        fit(name, small_data(), config(name, **settings, capture=c)) for c in (True, False)
    )
    assert other.history == first.history
    assert torch.equal(other.logits, first.logits)
