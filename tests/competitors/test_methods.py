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


POSITIVE = (
    "epochs patience hidden num_layers attention_heads steps propagations num_heads refinements "
    "num_anchors window inner_patience samples eval_samples embedding_size neighbours "
    "learning_rate graph_learning_rate posterior_learning_rate learner_learning_rate temperature "
    "prior_temperature edge_probability other_probability graph_decay"
)
NOT_NEGATIVE = (
    "weight_decay seed co_training pretrain_epochs threshold structure_momentum smoothness "
    "connectivity sparsity tolerance kl_weight"
)
ABSURD = [
    *((setting, 0) for setting in POSITIVE.split()),
    *((setting, -1) for setting in NOT_NEGATIVE.split()),
    ("learning_rate", math.nan),
    ("sparsity", math.inf),
    ("dropout", 1.0),
    ("edge_probability", 1.0),
    ("graph_decay", 1.5),
    ("teleport", 1.5),
    ("input_weight", "0.5"),
    ("device", "tpu"),
    ("estimator", "gcn"),
    ("adjacency", "dense"),
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
