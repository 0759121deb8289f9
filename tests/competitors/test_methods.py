"""The table itself: every entry can be read by the doors, by a search and by people."""

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest
from small_fits import EVERY

from graphglow.competitors import METHODS, fit, method_named
from graphglow.competitors.method import Family
from graphglow.errors import InputError
from graphglow.gnn.backbones import BACKBONES
from graphglow.settings import RunConfig


@EVERY
def test_an_entry_can_be_shown_and_its_config_cannot_change(name):
    method = METHODS[name]
    assert method.family in get_args(Family)
    assert method.summary.isascii()
    assert "\n" not in method.summary
    assert method.backbone is None or method.backbone in BACKBONES
    config = method.config()
    assert isinstance(config, RunConfig)
    with pytest.raises(FrozenInstanceError):
        config.seed = 1


@pytest.mark.parametrize(("name", "near"), [("gnc", "gcn"), ("appn", "appnp"), (["gcn"], None)])
def test_an_unknown_name_is_refused_with_the_nearest(name, near):
    with pytest.raises(InputError, match="method must be one of") as caught:
        fit(name, None)
    assert near is None or near in str(caught.value).split("nearest")[1]


def test_graphglow_itself_is_no_competitor():
    with pytest.raises(InputError, match="transfer"):
        method_named("graphglow")
