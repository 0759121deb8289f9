"""A refactoring gives the same answers; a change that is meant runs doors.py and says why."""

import json

import pytest
from doors import FILE, GRAPHS, answers

EXPECTED = json.loads(FILE.read_text())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GRAPHS)
def test_answers_are_those_on_file(name):
    found = answers(name)
    assert found.keys() == EXPECTED[name].keys()
    for what, values in EXPECTED[name].items():
        assert found[what] == pytest.approx(values, abs=2e-4, rel=2e-4), what
