"""The suite's settings are those that were chosen, and its page shows the rows that there are."""

import json

import pytest

import open_world
from graphglow.lab.open_world.methods import SETTINGS
from marked_page import ROOT


def test_the_page_is_not_stale():
    assert open_world.main(["--docs", "--check"]) == 0, "python benchmarks/open_world.py --docs"


@pytest.mark.parametrize("method", SETTINGS)
def test_a_setting_is_the_one_that_was_chosen(method):
    rows = open_world.read(ROOT / "results" / "open_world_settings.jsonl")
    line = open_world.settings_table([row for row in rows if row["method"] == method])
    best = line.split("**")[1]
    chosen = SETTINGS[method]
    tried = next(one for one in open_world.TRIED[method] if one.items() <= chosen.items())
    said = [f"{open_world.SHORT.get(name, name)} {value:g}" for name, value in tried.items()]
    assert best.startswith(", ".join(said) + ":"), json.dumps(dict(chosen))
