"""Trials of the search: settings that configs take, equal numbers, and nothing of test labels."""

import pytest
import torch

import search
from graphglow.competitors import METHODS
from graphglow.lab.config import config_of
from graphglow.settings import PaperConfig, PretrainConfig


def test_every_method_but_those_of_graphglow_has_a_space():
    assert list(search.SPACES) == [n for n, m in METHODS.items() if m.family != "graphglow"]


@pytest.mark.parametrize("name", search.SPACES)
def test_every_value_of_a_space_is_accepted(name):
    for setting, values in search.SPACES[name].items():
        assert len(set(values)) == len(values)
        for value in values:
            assert getattr(METHODS[name].config(**{setting: value}), setting) == value


@pytest.mark.parametrize("target", ["reed98", "cora"])
@pytest.mark.parametrize("number", range(12))
def test_lines_share_what_a_trial_draws_and_configs_take_it(target, number):
    drawn = {line: search.draw(line, target, number) for line in search.LINES}
    assert drawn["graphglow"] == drawn["random-theta"]
    assert drawn["graphglow"] | {"dimensions": 0} == drawn["equal-theta"] | {"dimensions": 0}
    found = {line: search.as_settings(line, settings) for line, settings in drawn.items()}
    assert config_of(PretrainConfig, found["graphglow"]["pretrain"]).num_pivots == 200
    assert config_of(PaperConfig, found["graphglow"]["transfer"]).input_weight < 1
    for line in search.LINES[1:]:
        config_of(METHODS[line].config, found[line])
    off = search.switched_off("equal-theta", found["gcn"])
    assert config_of(METHODS["equal-theta"].config, off).embedding_size == found["gcn"]["hidden"]


def row(line: str, trial: int, score: float, stage: int = 1, seed: int = 0) -> search.Job:
    made = {"line": line, "target": "cora", "trial": trial, "stage": stage, "seed": seed}
    return made | {"smooth_accuracy": score}


def test_lines_are_compared_over_the_trials_that_all_have():
    rows = [row("graphglow", number, number / 10) for number in range(3)]
    rows += [row("gcn", number, 0.5) for number in range(2)]
    trials = search.equal_trials(rows)
    assert [one["trial"] for one in trials["graphglow", "cora"]] == [0, 1]
    assert search.ranked(trials["graphglow", "cora"]) == [1, 0]


def test_trials_that_run_together_give_what_each_gives_alone(monkeypatch):
    monkeypatch.setitem(search.SPACES, "mlp", {})
    jobs = [
        {
            "line": line, "target": "synthetic-small", "seed": 0, "epochs": epochs,
            "settings": {}, "root": None, "device": "cpu",
        }
        for line, epochs in (("gcn", 3), ("mlp", 30))
    ]  # fmt: skip
    torch.manual_seed(0)
    both = search.run(jobs)
    for job, made in zip(jobs, both, strict=True):
        (alone,) = search.run([job])
        assert {**alone, "seconds": 0, "together": 2} == {**made, "seconds": 0}
        assert made["epochs_run"] == job["epochs"]
    data = search.blinded("synthetic-small", None)
    assert not data.test_mask.any()
    assert (data.y[~(data.train_mask | data.val_mask)] == -1).all()
