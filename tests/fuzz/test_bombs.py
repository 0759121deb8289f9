"""Hostile files are refused before they are unpacked: at once, and without the memory they ask."""

import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from bombs import BOMBS, write_bombs

from graphglow.errors import InputError
from graphglow.graph import load_graph
from graphglow.graph.datasets import check_plain_pickle
from graphglow.graph.files import VARIABLE, read_npz_arrays
from graphglow.paper import StructureLearner

TOO_MUCH = "must unpack to at most"
REASONS = {
    "zeros_npz": TOO_MUCH,
    "npz_of_petabytes": TOO_MUCH,
    "expanded_pt": "must hold all its numbers",
    "sparse_pt": TOO_MUCH,
    "packed_pt": "stored, not compressed",
    "zeros_csv_gz": TOO_MUCH,
    "endless_header_csv_gz": TOO_MUCH,
    "repeated_parquet": TOO_MUCH,
    "long_parquet": TOO_MUCH,
    "laughing_graphml": "without a document type",
    "fetching_graphml": "without a document type",
}


@pytest.fixture(scope="session")
def read_bombs(tmp_path_factory) -> dict[str, dict]:
    """What a process with little memory made of them."""
    folder = tmp_path_factory.mktemp("bombs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's of sparse tensors that nobody checked
        write_bombs(folder)
    script = Path(__file__).with_name("bombs.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment[VARIABLE] = "0.05"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, folder],
        capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["name"]: row for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BOMBS))
def test_a_bomb_is_refused_at_once(name, read_bombs):
    found = read_bombs[name]
    assert found["said"].startswith("refused: ")
    assert REASONS.get(name, "") in found["said"]
    assert "\n" not in found["said"]
    assert len(found["said"]) < 1000
    assert found["seconds"] < 20  # on a busy machine
    assert found["megabytes"] < 300


def test_the_limit_can_be_raised(tmp_path, monkeypatch):
    monkeypatch.setattr("graphglow.graph.files.UNPACKED", 2**20)
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros((2**18, 2)))
    with pytest.raises(InputError, match=r"at most 1 MiB; got 4 MiB in a file of"):
        read_npz_arrays(path, "the file")
    monkeypatch.setenv(VARIABLE, "1")
    assert read_npz_arrays(path, "the file")["x"].shape == (2**18, 2)
    monkeypatch.setenv(VARIABLE, "much")
    with pytest.raises(InputError, match="must be a number of GiB; got 'much'"):
        read_npz_arrays(path, "the file")


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".csv", ".csv.gz", ".graphml", ".parquet"])
def test_a_pipe_and_a_device_are_not_waited_for(suffix, tmp_path):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
    (tmp_path / f"loop{suffix}").symlink_to(tmp_path / f"loop{suffix}")
    for name in ("pipe", "zero", "loop"):
        with pytest.raises(InputError):
            load_graph(tmp_path / f"{name}{suffix}")


@pytest.mark.parametrize("read", [StructureLearner.load, lambda p: read_npz_arrays(p, "it")])
def test_so_do_readers_that_take_only_files(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="must be a regular file"):
            read(path)


class Opens:
    """What unpickling would run."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("inside", ["plain", "torch", "old torch", "npz"])
def test_nothing_is_unpickled(inside, tmp_path):
    trace = tmp_path / "run"
    graph = {"x": torch.ones(4, 2), "y": torch.arange(4) % 2, "z": Opens(trace)}
    path = tmp_path / ("graph.npz" if inside == "npz" else "graph.pt")
    if inside == "npz":
        np.savez(path, x=np.array([Opens(trace)], dtype=object))
    elif inside == "plain":
        path.write_bytes(pickle.dumps(graph))
    else:
        torch.save(graph, path, _use_new_zipfile_serialization=inside == "torch")
    trace.unlink(missing_ok=True)
    with pytest.raises(InputError):
        load_graph(path)
    assert not trace.exists()


def test_raw_files_of_the_citation_graphs_may_be_plain_data_only(tmp_path):
    from scipy.sparse import csr_matrix

    path, trace = tmp_path / "ind.cora.x", tmp_path / "run"
    path.write_bytes(pickle.dumps(csr_matrix(np.eye(3)), protocol=3))
    check_plain_pickle(path)
    path.write_bytes(pickle.dumps({1: Opens(trace)}, protocol=3))
    with pytest.raises(InputError, match=r"must hold plain arrays; got something else \(io.open"):
        check_plain_pickle(path)
    assert not trace.exists()
    wild = csr_matrix(np.eye(3))
    wild.indices[0] = 10**6
    path.write_bytes(pickle.dumps(wild, protocol=3))
    with pytest.raises(InputError, match="must hold plain arrays"):
        check_plain_pickle(path)
