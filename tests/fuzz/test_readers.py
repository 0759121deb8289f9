"""Every reader, on files that are wrong in places: it returns, or says one sentence.

``benchmarks/fuzz.py`` does the same for hours; here are a few files of each kind.
"""

import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from fuzz_readers import READERS, Finding, Reader, outcome
from graphglow import cli
from graphglow.errors import InputError

QUICK = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
EXAMPLES = 30
CHOICES = st.randoms(use_true_random=False) | st.integers(0, 2**64).map(Random)


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_file_that_is_wrong_in_places(name, tmp_path):
    reader = READERS[name]
    path = tmp_path / f"input{reader.suffix}"

    @settings(QUICK, max_examples=3 if reader.slow else EXAMPLES)
    @given(CHOICES)
    def check(random: Random) -> None:
        path.write_bytes(reader.make(random))
        assert outcome(reader, path) in ("accepted", "refused")

    check()


@pytest.mark.parametrize("name", sorted(set(READERS) - {"report", "storage"}))
def test_a_file_of_any_bytes(name, tmp_path):
    reader = READERS[name]
    path = tmp_path / f"input{reader.suffix}"

    @settings(QUICK, max_examples=EXAMPLES)
    @given(st.binary(max_size=200))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        assert outcome(reader, path) in ("accepted", "refused")

    check()


@pytest.mark.parametrize("name", sorted(READERS))
def test_some_files_of_each_kind_are_good(name, tmp_path):
    """Or the fuzzers would knock at closed doors only."""
    reader = READERS[name]
    path = tmp_path / f"input{reader.suffix}"
    seen = set()
    for number in range(200):
        path.write_bytes(reader.make(Random(number)))
        seen.add(outcome(reader, path))
        if "accepted" in seen or name == "name":
            return
    pytest.fail("no file was accepted")


def raises(error: Exception):
    def read(path: Path) -> None:
        raise error

    return read


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), MemoryError(), SystemExit(1)])
def test_the_oracle_finds_what_it_is_for(error, tmp_path):
    with pytest.raises(Finding):
        outcome(Reader(".x", bytes, raises(error)), tmp_path)


def test_the_oracle_lets_one_sentence_pass(tmp_path):
    assert outcome(Reader(".x", bytes, raises(InputError("no"))), tmp_path) == "refused"


CONTROL = "\x1b[2J\x1b]0;owned\x07"
HOSTILE = {
    "people.csv": f"id,{CONTROL},label\n1,2,3\n1,2,3\n",
    f"{CONTROL}.csv": "x\n",
    "graph.graphml": "<!DOCTYPE g>",
    "graph.npz": "PK",
    "graph.pt": "PK",
    "learner.safetensors": "\x07" * 100,
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_the_command_line_says_one_harmless_line(name, tmp_path, capsys):
    path = tmp_path / name
    path.write_text(HOSTILE[name])
    flag = "--learner" if path.suffix == ".safetensors" else "--target"
    words = {"--learner": "universal", "--target": "wine", flag: str(path)}
    arguments = [word for pair in words.items() for word in pair]
    assert cli.main(["transfer", *arguments, "--epochs", "1"]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert said.startswith("graphglow: ")
    assert said.count("\n") == 1
    assert said.removesuffix("\n").isprintable()
