"""Nothing that is read runs code, and what is no file is not waited for."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from graphglow.errors import InputError
from graphglow.graph import load_graph
from graphglow.graph.formats import read_npz_arrays
from graphglow.pretrained import load_learner


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".csv", ".csv.gz", ".graphml", ".parquet"])
def test_a_pipe_and_a_device_are_not_waited_for(suffix, tmp_path):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
    (tmp_path / f"loop{suffix}").symlink_to(tmp_path / f"loop{suffix}")
    for name in ("pipe", "zero", "loop"):
        with pytest.raises(InputError):
            load_graph(tmp_path / f"{name}{suffix}")


@pytest.mark.parametrize("read", [load_learner, lambda p: read_npz_arrays(p, "it")])
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
