"""Every reader, on files that are wrong in places: it returns, or says one sentence.

``GRAPHGLOW_FUZZ=5000 pytest tests/fuzz/test_readers.py`` reads so many files of each kind; without
it there are a few, enough to see that nothing is broken. A failure names the seed of its file.
"""

import os
import time
import warnings
from pathlib import Path
from random import Random

import pytest
from damage import MAKERS, NODES

import graphglow
from graphglow import cli
from graphglow.errors import InputError, InputWarning
from graphglow.graph import load_graph
from graphglow.graph.formats import apply_split_file
from graphglow.graph.tables import read_new_nodes

COUNT = int(os.environ.get("GRAPHGLOW_FUZZ", "60"))
SECONDS = 10
"""Of computing, for one file: a busy machine is no finding."""
PEOPLE = "id,label,a,b\n" + "".join(f"{i},{'ab'[i % 2]},{i},{'uv'[i % 2]}\n" for i in range(NODES))


READERS = {
    "split": lambda path: apply_split_file(load_graph(path.with_name("people.csv")), path),
    "edges": lambda path: load_graph((path.with_name("people.csv"), path)),
    "new_nodes": lambda path: read_new_nodes(
        path, None, load_graph(path.with_name("people.csv")), 1
    ),
    "learner": graphglow.StructureLearner.load,
}
"""Kind -> reader; else it is a graph."""


def outcome(read, path: Path) -> str:
    """``accepted`` or ``refused``; anything else fails: a traceback, a foreign warning, a wait."""
    start = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            read(path)
            found = "accepted"
        except InputError as error:
            found = "refused" if "\n" not in str(error) else "said in several lines"
    for one in said:
        assert issubclass(one.category, InputWarning | ResourceWarning), one
    assert time.process_time() - start < SECONDS
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_files_that_are_wrong_in_places(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suffix, make = MAKERS[kind]
    path, seen = tmp_path / f"input{suffix}", set()
    (tmp_path / "people.csv").write_text(PEOPLE)

    def graph(path: Path) -> object:
        return load_graph(path, need_labels=path.stat().st_size % 4 != 0)

    for seed in range(COUNT):
        path.write_bytes(make(Random(f"{kind} {seed}")))
        try:
            seen.add(outcome(READERS.get(kind, graph), path))
        except Exception as error:
            raise AssertionError(f"{kind} of seed {seed}") from error
    assert seen == {"accepted", "refused"}  # or the fuzzer would knock at closed doors only


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_files_of_any_bytes(kind, tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE)
    path = tmp_path / f"input{MAKERS[kind][0]}"
    for seed in range(COUNT // 2):
        path.write_bytes(Random(seed).randbytes(seed * 3))
        outcome(READERS.get(kind, load_graph), path)


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
