"""Which settings the runs of a batch may have each their own way, and what is said of others."""

from dataclasses import fields

import pytest
import torch

from graphglow.errors import InputError
from graphglow.settings import PaperConfig, PretrainConfig
from tiny_graphs import learner, objective, pretrain_config, transfer_config

DIFFERENT = {  # a setting -> a value other than that of the tests' configs
    "backbone": "sage",
    "pivots_by_degree": True,
    "num_layers": 3,
    "attention_heads": 4,
    "teleport": 0.5,
    "steps": 3,
    "dropout": 0.25,
    "encoder": "mlp",
    "input_weight": 0.25,
    "structure_momentum": 0.25,
    "num_pivots": 7,
    "redraw_pivots": False,
    "refinements": 2,
    "tolerance": 0.125,
    "learning_rate": 0.5,
    "weight_decay": 0.25,
    "backend": "chunked",
    "precision": "bfloat16",
    "capture": False,
    "seed": 9,
    "device": "auto",
    "learner_learning_rate": 0.5,
    "epochs": 17,
    "patience": 11,
    "objective": objective(entropy=0.9),
    "learner": learner(num_heads=3).config,
    "episodes": 5,
}
KINDS = {PaperConfig: transfer_config, PretrainConfig: pretrain_config}
SETTINGS = [(make, field.name) for kind, make in KINDS.items() for field in fields(kind)]
ALLOWED = "seed, learning_rate, weight_decay, dropout, input_weight, structure_momentum"


def test_the_documented_settings_may_differ():
    assert ", ".join(MAY_DIFFER) == ALLOWED


@pytest.mark.parametrize(("make", "name"), SETTINGS)
def test_every_other_setting_is_refused_by_name(make, name):
    one, other = make(), make(**{name: DIFFERENT[name]})
    assert getattr(one, name) != getattr(other, name)
    if name in MAY_DIFFER:
        check_same_shape([one, other, one])
        assert Runs.of([one, other, one]).count == 3
        return
    for batch in ([one, other], [one, one, other]):
        with pytest.raises(InputError, match=rf"may differ in {ALLOWED} only; got {name} ") as e:
            Runs.of(batch)
        assert repr(DIFFERENT[name]) in str(e.value)
        assert "\n" not in str(e.value)


STACKED = ("input_weight", "structure_momentum", "learning_rate", "weight_decay")


@pytest.mark.parametrize("count", [1, 3])
def test_what_all_runs_share_stays_one_number(count):
    config = transfer_config(input_weight=1, structure_momentum=0, dropout=0.5)
    runs = Runs.of([config] * count)
    assert runs.count == count
    assert runs.shared is config
    assert runs.dropout == (0.5,) * count
    for name in STACKED:
        assert isinstance(getattr(runs, name), float)
        assert getattr(runs, name) == getattr(config, name)


@pytest.mark.parametrize("name", STACKED)
def test_what_differs_is_stacked_and_the_rest_is_not(name):
    runs = Runs.of([transfer_config(**{name: value}) for value in (0.25, 0.5, 0.25)])
    found = getattr(runs, name)
    assert found.shape == (3, 1, 1)
    assert found.flatten().tolist() == [0.25, 0.5, 0.25]
    assert all(isinstance(getattr(runs, n), float) for n in STACKED if n != name)


def test_each_run_has_a_dropout_of_its_own():
    runs = Runs.of([transfer_config(dropout=rate) for rate in (0.0, 0.5)])
    assert runs.dropout == (0.0, 0.5)


def test_the_stacked_settings_lie_on_the_device_asked_for():
    configs = [transfer_config(input_weight=value) for value in (0.25, 0.5)]
    runs = Runs.of(configs, torch.device("meta"))
    assert runs.input_weight.device.type == "meta"
