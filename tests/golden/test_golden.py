"""A refactoring gives the same losses; a change that is meant runs regenerate.py and says why."""

import json
from dataclasses import fields

import pytest
from regenerate import GOLDEN, HERE, LEARNER, OBJECTIVE, PRETRAIN, TRANSFER

from graphglow.settings import LearnerConfig, ObjectiveConfig, PaperConfig, PretrainConfig


@pytest.mark.parametrize("name", GOLDEN)
def test_losses_are_those_on_file(name):
    expected = json.loads((HERE / f"{name}.json").read_text())
    found = GOLDEN[name]()
    assert len(found) == len(expected) == 20
    for step, (got, want) in enumerate(zip(found, expected, strict=True), start=1):
        assert got == pytest.approx(want, rel=1e-4), f"step {step}"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (LearnerConfig, {*LEARNER}),
        (ObjectiveConfig, {*OBJECTIVE}),
        (PretrainConfig, {*PRETRAIN, "learner", "objective"}),
        (PaperConfig, {*TRANSFER}),
    ],
)
def test_every_setting_is_said_so_that_defaults_can_be_tuned(config, said):
    assert said == {field.name for field in fields(config)}
