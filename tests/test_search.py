"""Every method has a space, whose values its config takes."""

import pytest

from graphglow.competitors import METHODS
from search import SPACES


def test_every_method_has_a_space():
    assert list(SPACES) == list(METHODS)


@pytest.mark.parametrize("name", SPACES)
def test_every_value_of_a_space_is_accepted(name):
    for setting, values in SPACES[name].items():
        assert len(set(values)) == len(values)
        for value in values:
            assert getattr(METHODS[name].config(**{setting: value}), setting) == value
