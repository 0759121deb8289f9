"""Algorithm 2: the order of visits, what is kept, and what is refused."""

import json

import pytest
import torch

from graphglow.errors import InputError
from graphglow.gnn.train import Loop
from graphglow.paper import StructureLearner
from graphglow.pretrain import pretrain
from tiny_graphs import learner, objective, pretrain_config, same_tensors, small_data

SOURCES = [small_data(seed=1), small_data(seed=2, num_nodes=30), small_data(seed=3)]


def test_sources_are_visited_in_turn_in_every_episode():
    seen = []
    config = pretrain_config(episodes=2, epochs=3, patience=3)
    pretrain(SOURCES, config, on_epoch=seen.append)
    expected = [
        (name, epoch)
        for _ in range(2)
        for name in ("small-1", "small-2", "small-3")
        for epoch in (1, 2, 3)
    ]
    assert [(e.graph, e.epoch) for e in seen] == expected


def test_a_visit_ends_when_its_source_no_longer_improves():
    seen = []
    config = pretrain_config(epochs=300, patience=2, learning_rate=0.1, dropout=0.5)
    pretrain(SOURCES[:2], config, on_epoch=seen.append)
    for name in ("small-1", "small-2"):
        visit = [e for e in seen if e.graph == name]
        best = max(visit, key=lambda e: (e.val_accuracy, -e.val_loss))
        assert len(visit) == best.epoch + 2 < 300


@pytest.mark.parametrize("supervision", ["nwgm", "gumbel", "reinforce"])
def test_theta_is_trained(supervision):
    config = pretrain_config(objective=objective(supervision=supervision))
    made = pretrain(SOURCES[:2], config)
    assert not same_tensors(made, StructureLearner(config.learner, seed=config.seed))
    assert all(p.isfinite().all() for p in made.parameters())
    assert made.config == config.learner


def test_the_same_seed_gives_the_same_learner():
    config = pretrain_config(dropout=0.5, episodes=2)
    one, again = pretrain(SOURCES, config), pretrain(SOURCES, config)
    other = pretrain(SOURCES, pretrain_config(dropout=0.5, episodes=2, seed=5))
    assert same_tensors(one, again)
    assert one.provenance == again.provenance
    assert not same_tensors(one, other)


def test_the_global_random_state_neither_matters_nor_changes():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = pretrain(SOURCES[:2], pretrain_config())
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert same_tensors(one, pretrain(SOURCES[:2], pretrain_config()))


def after_each_visit(monkeypatch, scores):
    """Make visit i write i into theta, and the score of all sources after it ``scores[i]``."""
    visits = []

    def visit(loop, on_epoch):
        visits.append(loop.task.graph.name)
        with torch.no_grad():
            loop.task.learner.node_weight.fill_(float(len(visits)))
        return [[]]

    monkeypatch.setattr(Loop, "run", visit)
    monkeypatch.setattr(GraphTask, "validate", lambda task: (0.0, scores[len(visits) - 1]))
    return visits


@pytest.mark.parametrize(
    ("scores", "best"),
    [([0.1, 0.9, 0.5, 0.2], {2}), ([0.9, 0.1, 0.1, 0.1], {1}), ([0.1, 0.2, 0.3, 0.4], {4})],
)
def test_the_theta_with_the_best_mean_score_over_all_sources_is_kept(monkeypatch, scores, best):
    visits = after_each_visit(monkeypatch, scores)
    made = pretrain(SOURCES[:2], pretrain_config(episodes=2))
    assert visits == ["small-1", "small-2"] * 2
    assert set(made.node_weight.flatten().tolist()) == best
    assert made.provenance["validation_accuracy"] == max(scores)
    assert made.provenance["visit_scores"] == pytest.approx(scores)


def test_every_source_has_weights_and_pivots_of_its_own(monkeypatch):
    tasks = []
    monkeypatch.setattr(Loop, "run", lambda loop, on_epoch: tasks.append(loop.task) or [[]])
    pretrain([SOURCES[0], SOURCES[0].clone()], pretrain_config())
    one, other = tasks
    assert not torch.equal(one.optimizer.flat, other.optimizer.flat)
    assert not torch.equal(one.pivots, other.pivots)
    assert one.trained.theta is other.trained.theta


def test_provenance_tells_how_it_was_made(tmp_path):
    config = pretrain_config(episodes=2)
    made = pretrain(SOURCES[:2], config)
    facts = made.provenance
    assert facts["trained"] is True
    assert facts["sources"] == ["small-1", "small-2"]
    assert len(facts["visit_scores"]) == 4
    assert facts["validation_accuracy"] == max(facts["visit_scores"])
    assert facts["config"]["learner"]["num_heads"] == config.learner.num_heads
    made.save(tmp_path / "l.safetensors")
    loaded = StructureLearner.load(tmp_path / "l.safetensors")
    assert same_tensors(loaded, made)
    assert loaded.provenance == json.loads(json.dumps(facts))


@pytest.mark.parametrize("sources", [[], ()])
def test_no_source_is_refused(sources):
    with pytest.raises(InputError, match="at least one source"):
        pretrain(sources, pretrain_config())


@pytest.mark.parametrize("sources", [["corra"], [None], small_data()])
def test_what_is_no_list_of_graphs_is_refused(sources):
    with pytest.raises(InputError, match=r"a graph must be|a list of source graphs"):
        pretrain(sources, pretrain_config())


def test_one_source_and_more_pivots_than_nodes_are_legal():
    made = pretrain(SOURCES[1:2], pretrain_config(num_pivots=1000))
    assert all(p.isfinite().all() for p in made.parameters())


def test_the_sources_are_not_changed():
    before = [data.clone() for data in SOURCES]
    pretrain(SOURCES, pretrain_config(epochs=1))
    for now, then in zip(SOURCES, before, strict=True):
        assert torch.equal(now.x, then.x)
        assert torch.equal(now.y, then.y)


def test_pretraining_separates_the_classes_better_than_chance():
    config = pretrain_config(epochs=40, patience=40, learning_rate=0.1, refinements=2)
    source = small_data(noise=0.2, homophily=0.95, num_nodes=60)
    made = pretrain([source], config)
    assert made.provenance["validation_accuracy"] >= 0.9
    assert not same_tensors(made, learner())
