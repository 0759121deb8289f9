"""The table itself: every entry can be read by the doors, by a search and by people."""

import math
from dataclasses import FrozenInstanceError
from typing import get_args

import pytest
from small_fits import EVERY, has

from graphglow.competitors import METHODS, fit, method_named
from graphglow.competitors.method import Family
from graphglow.errors import InputError
from graphglow.gnn import BACKBONES
from graphglow.settings import RunConfig


@EVERY
def test_an_entry_can_be_shown_and_its_config_cannot_change(name):
    method = METHODS[name]
    assert method.family in get_args(Family)
    assert method.summary.isascii()
    assert "\n" not in method.summary
    assert method.backbone is None or method.backbone in BACKBONES
    assert method.lighter is None or method.lighter in METHODS
    config = method.config()
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
    ("input_weight", "0.5"),
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


@pytest.mark.parametrize(("setting", "value"), ABSURD)
def test_absurd_settings_are_refused_by_name(setting, value):
    methods = [name for name in METHODS if has(name, setting)]
    assert methods
    for name in methods:
        with pytest.raises(InputError, match=setting):
            METHODS[name].config(**{setting: value})


@pytest.mark.parametrize(("name", "near"), [("gnc", "gcn"), ("appn", "appnp"), (["gcn"], None)])
def test_an_unknown_name_is_refused_with_the_nearest(name, near):
    with pytest.raises(InputError, match="method must be one of") as caught:
        fit(name, None)
    assert near is None or near in str(caught.value).split("nearest")[1]


def test_graphglow_itself_is_no_competitor():
    with pytest.raises(InputError, match="transfer"):
        method_named("graphglow")
