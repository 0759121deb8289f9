"""A refactoring gives the same answers; a change that is meant runs doors.py and says why."""

import json

import pytest
from doors import FILE, GRAPHS, answers

EXPECTED = json.loads(FILE.read_text())
MOVES_WITH_THE_CPU = {"real": 1e-2, "missing": 1e-2, "transfer": 2e-3}
"""An audit ranks among drawn pairs, a training adds up roundings; all else is within 2e-4."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GRAPHS)
def test_answers_are_those_on_file(name):
    found = answers(name)
    assert found.keys() == EXPECTED[name].keys()
    for what, values in EXPECTED[name].items():
        tolerance = MOVES_WITH_THE_CPU.get(what, 2e-4)
        assert found[what] == pytest.approx(values, abs=tolerance, rel=2e-4), what
