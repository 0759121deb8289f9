"""The table itself: every line can be read by the doors, the search and people."""

import math
from dataclasses import FrozenInstanceError
from typing import get_args

import pytest
from small_fits import EVERY, has

from graphglow.competitors import METHODS, method_named
from graphglow.competitors.method import Family
from graphglow.errors import InputError
from graphglow.gnn import BACKBONES
from graphglow.settings import RunConfig


@EVERY
def test_a_config_is_made_of_defaults_and_cannot_change(name):
    config = METHODS[name].config()
    assert isinstance(config, RunConfig)
    with pytest.raises(FrozenInstanceError):
        config.seed = 1


@EVERY
def test_every_setting_of_the_search_space_is_accepted(name):
    method = METHODS[name]
    assert method.space
    for setting, values in method.space.items():
        assert has(name, setting)
        assert len(set(values)) == len(values) >= 1
        for value in values:
            assert getattr(method.config(**{setting: value}), setting) == value


ABSURD = [
    ("epochs", 0),
    ("patience", 0),
    ("learning_rate", 0.0),
    ("learning_rate", math.nan),
    ("weight_decay", -1.0),
    ("dropout", 1.0),
    ("seed", -1),
    ("device", "tpu"),
    ("hidden", 0),
    ("num_layers", 0),
    ("teleport", 1.5),
    ("attention_heads", 0),
    ("steps", 0),
    ("estimator", "gcn"),
    ("adjacency", "dense"),
    ("propagations", 0),
    ("co_training", -1),
    ("pretrain_epochs", -1),
    ("num_heads", 0),
    ("refinements", 0),
    ("threshold", -0.1),
    ("input_weight", 1.1),
    ("structure_momentum", -0.1),
    ("smoothness", -1.0),
    ("connectivity", math.inf),
    ("sparsity", math.nan),
    ("tolerance", -1.0),
    ("metric_dropout", 1.0),
    ("num_anchors", 0),
    ("window", 0),
    ("inner_patience", 0),
    ("samples", 0),
    ("knn", 0),
    ("graph_learning_rate", 0.0),
    ("graph_decay", 1.5),
    ("eval_samples", 0),
    ("edge_probability", 1.0),
    ("other_probability", 0.0),
    ("temperature", 0.0),
    ("prior_temperature", -1.0),
    ("kl_weight", -0.1),
    ("posterior_learning_rate", 0.0),
    ("embedding_size", 0),
    ("neighbours", 0),
    ("delta", 0),
    ("learner_learning_rate", 0),
]


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [(n, s, v) for n in sorted(METHODS) for s, v in ABSURD if has(n, s)],
)
def test_absurd_settings_are_refused_by_name(name, setting, value):
    with pytest.raises(InputError, match=rf"{setting} must .*; got") as caught:
        METHODS[name].config(**{setting: value})
    assert "\n" not in str(caught.value)


@EVERY
def test_a_line_can_be_shown(name):
    method = METHODS[name]
    assert method.family in get_args(Family)
    assert method.summary
    assert method.summary.isascii()
    assert "\n" not in method.summary
    assert not method.summary.endswith(".")
    assert method.backbone is None or method.backbone in BACKBONES
    assert name == name.lower().strip()


@pytest.mark.parametrize(
    ("name", "near"), [("gnc", "gcn"), ("appn", "appnp"), ("linx", "linkx"), ("", None)]
)
def test_an_unknown_name_is_refused_with_the_nearest(name, near):
    with pytest.raises(InputError, match=r"method must be one of .*; got") as caught:
        method_named(name)
    assert ("nearest" in str(caught.value)) == (near is not None)
    assert near is None or near in str(caught.value).split("nearest")[1]
    assert "\n" not in str(caught.value)
