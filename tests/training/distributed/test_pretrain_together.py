"""All sources in every step: ranks share them, and give the learner of one process."""

from dataclasses import replace

import pytest
import torch
from dying_runs import assert_same_learner, eager, killed
from hypothesis import given, settings
from hypothesis import strategies as st
from two_ranks import in_ranks

from graphglow.errors import InputError
from graphglow.graphs import prepare
from graphglow.structure import StructureLearner
from graphglow.training import pretrain
from graphglow.training.adam import Adam
from graphglow.training.distributed import Ranks, pretrain_together
from graphglow.training.distributed.pretrain import balanced
from graphglow.training.task import GraphTask, Trained
from tiny_graphs import pretrain_config, small_data

SOURCES = [small_data(seed=1, num_nodes=50), small_data(seed=2, num_nodes=30), small_data(seed=3)]
CONFIG = pretrain_config(
    schedule="together", episodes=2, epochs=3, patience=6, dropout=0.5, redraw_pivots=True
)
STOPPED = pretrain_config(
    schedule="together", episodes=2, epochs=50, patience=2, dropout=0.5, learning_rate=0.1
)


def both(ranks):
    """Learner and epochs of a whole run and of one that stops early."""
    found = []
    for config in (CONFIG, STOPPED):
        epochs = []
        made = pretrain_together(SOURCES, config, ranks, on_epoch=epochs.append)
        found.append((made.state_dict(), made.provenance, [tuple(epoch) for epoch in epochs]))
    return found


@pytest.fixture(scope="module")
def runs():
    return both(Ranks()), in_ranks(both, 2)


@pytest.mark.parametrize("run", [0, 1])
def test_two_ranks_make_the_learner_of_one_process(runs, run):
    one, pair = runs
    weights, provenance, epochs = one[run]
    for rank in pair:
        for name, weight in rank[run][0].items():
            torch.testing.assert_close(weight, weights[name], rtol=1e-5, atol=1e-6)
        assert rank[run][1]["visit_scores"] == pytest.approx(provenance["visit_scores"])
        assert rank[run][1]["sources"] == provenance["sources"] == ["small-1", "small-2", "small-3"]
        assert len(rank[run][2]) == len(epochs)
    first, second = (rank[run][0] for rank in pair)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_every_source_is_heard_in_every_step_until_patience_ends(runs):
    (_, _, epochs), (_, stopped, _) = runs[0]
    assert [(e[0], e[1]) for e in epochs] == [
        (f"small-{i}", step) for step in range(1, 7) for i in (1, 2, 3)
    ]
    scores = stopped["visit_scores"]
    assert len(scores) < 100
    assert max(scores) == stopped["validation_accuracy"]
    assert scores[-1] <= stopped["validation_accuracy"]


def test_one_step_moves_theta_by_the_mean_gradient_of_the_sources():
    config = pretrain_config(schedule="together", episodes=1, epochs=1, patience=1)
    made = pretrain_together(SOURCES, config, Ranks())
    gradients = []
    for i, data in enumerate(SOURCES):
        theta = StructureLearner(config.learner, seed=config.seed)
        adam = Adam(theta.parameters(), config.learner_learning_rate)
        task = GraphTask(
            prepare(data),
            theta,
            config.learner.embedding_size,
            [config],
            seeds=[config.seed + 1000 * i],
            trained=Trained(adam, config.objective),
        )
        task.train_step()
        gradients.append([p.grad.clone() for p in adam.parameters])
    expected = StructureLearner(config.learner, seed=config.seed)
    adam = Adam(expected.parameters(), config.learner_learning_rate)
    for parts, parameter in zip(zip(*gradients, strict=True), adam.parameters, strict=True):
        parameter.grad = torch.stack(parts).mean(0)
    adam.step()
    for name, weight in expected.state_dict().items():
        torch.testing.assert_close(made.state_dict()[name], weight)


def test_the_costliest_come_first_and_go_where_least_is_to_do():
    assert balanced([5, 1, 4, 3, 3], 2) == [[0, 4], [1, 2, 3]]
    assert balanced([1, 1], 3) == [[0], [1], []]
    assert balanced([2, 1, 3], 1) == [[0, 1, 2]]


@settings(max_examples=50, deadline=None)
@given(costs=st.lists(st.integers(1, 100), min_size=1, max_size=12), parts=st.integers(1, 5))
def test_every_job_has_one_place_and_no_part_is_far_over_its_share(costs, parts):
    shares = balanced(costs, parts)
    assert sorted(job for share in shares for job in share) == list(range(len(costs)))
    loads = [sum(costs[job] for job in share) for share in shares]
    lower = max(max(costs), sum(costs) / parts)  # no sharing does better
    assert max(loads) <= sum(costs) / parts + max(costs)
    assert max(loads) <= 2 * lower


def test_a_loss_that_is_not_finite_ends_it_with_a_sentence(monkeypatch):
    def diverged(self):
        return torch.tensor(float("nan")), torch.tensor(1)

    monkeypatch.setattr(GraphTask, "train_step", lambda self: diverged(self))
    monkeypatch.setattr(
        "graphglow.training.distributed.pretrain.SharedTheta.step_together", lambda *a: None
    )
    with pytest.raises(
        InputError, match=r"the loss must stay finite; got nan .* step 1 on small-1"
    ):
        pretrain_together(SOURCES, CONFIG, Ranks())


@pytest.mark.parametrize("config", [CONFIG, STOPPED])
@pytest.mark.parametrize("after", [1, 4])
def test_in_one_process_too_a_run_goes_on_where_it_was(tmp_path, config, after):
    heard, again = [], []
    whole = pretrain(SOURCES, config, on_epoch=heard.append)
    assert killed(lambda dying: pretrain(SOURCES, config, checkpoints=dying), tmp_path / "c", after)
    checkpoints = eager(tmp_path / "c")
    resumed = pretrain(SOURCES, config, on_epoch=again.append, checkpoints=checkpoints)
    assert checkpoints.resumed
    assert_same_learner(resumed, whole)
    assert again == heard
    other = replace(config, seed=config.seed + 1)
    with pytest.raises(InputError, match=r"checkpoints must be of the same run; .*config\.seed"):
        pretrain(SOURCES, other, checkpoints=checkpoints)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(InputError, match="schedule must be one of in turn, together"):
        pretrain_config(schedule="apart")
