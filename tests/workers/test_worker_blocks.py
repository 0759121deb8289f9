"""Blocks by this process, by others and by Ray: the same results in order, whoever dies."""

import multiprocessing
import os
import pickle
import re
import signal
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from shared_steps import begun, fatal, slow_total, total
from torch_geometric.data import Data

from graphglow.errors import InputError, InputWarning, StoppedError
from graphglow.evidence import EvidenceLearner
from graphglow.evidence.context import FIRST_CONTEXT
from graphglow.evidence.pair_features import FIRST_EVIDENCE
from graphglow.training.checkpoint import Parts
from graphglow.workers import blocks as workers_blocks
from graphglow.workers import executor
from graphglow.workers.blocks import Blocks, Stored, loaded, mapped
from killed import killing, ray_workers

NUMBERS = torch.arange(40_000.0)
PIECES = [range(start, start + 5000) for start in range(0, 40_000, 5000)]
SUMS = [float(NUMBERS[piece.start : piece.stop].sum()) for piece in PIECES]
RUN = {"graph": "a", "device": "cpu"}


def sums(folder, how, step=total, parts=None, pieces=PIECES):
    with Blocks(*how, device="cpu", parts=parts) as each:
        return [float(x) for x in each("add up", step, (NUMBERS, str(folder)), pieces)]


def children():
    return [child.pid for child in multiprocessing.active_children()]


# What travels


def test_a_tree_of_tensors_goes_and_comes_back():
    learner = EvidenceLearner()
    sparse = torch.eye(5).to_sparse()
    tree = {"a": [torch.ones(2), (1, "b")], "data": Data(x=sparse, y=torch.arange(5)), "l": learner}
    there = loaded(mapped(tree, torch.Tensor, Stored.of))
    assert torch.equal(there["a"][0], torch.ones(2))
    assert there["a"][1] == (1, "b")
    assert torch.equal(there["data"].x.to_dense(), torch.eye(5))
    assert torch.equal(there["data"].y, torch.arange(5))
    evidence, context = (torch.randn(3, len(part)) for part in (FIRST_EVIDENCE, FIRST_CONTEXT))
    said = [one.pair_scores(0, evidence, context[0]) for one in (learner, there["l"])]
    assert torch.equal(*said)
    assert isinstance(tree["l"].vote, torch.nn.Module)  # the original is as it was


def test_a_tensor_that_occurs_twice_is_sent_to_ray_once(monkeypatch):
    sent = []
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(put=sent.append))
    monkeypatch.setattr(workers_blocks.Blocks, "_workers", None, raising=False)
    Blocks()._job(total, [NUMBERS, {"again": NUMBERS}])
    assert NUMBERS.nbytes < len(pickle.dumps(sent)) < 1.5 * NUMBERS.nbytes


# Parts, in this process


def test_only_what_is_not_there_is_done(tmp_path):
    with Parts(tmp_path / "parts") as parts:
        parts.begin(RUN)
        assert sums(tmp_path, (1,), parts=parts) == SUMS
        assert not parts.resumed
    (tmp_path / "parts" / "part-add-up-000003.safetensors").unlink()
    (tmp_path / "parts" / "part-add-up-000005.safetensors").write_bytes(b"damaged")
    (tmp_path / "done").unlink()
    with Parts(tmp_path / "parts") as parts:
        parts.begin(RUN)
        with pytest.warns(InputWarning, match="is done again"):
            assert sums(tmp_path, (1,), parts=parts) == SUMS
        assert parts.resumed
        parts.remove()
    assert begun(tmp_path) == [15_000, 25_000]
    assert not (tmp_path / "parts").exists()


def test_a_part_of_another_block_is_not_taken(tmp_path):
    with Parts(tmp_path / "parts") as parts:
        parts.begin(RUN)
        sums(tmp_path, (1,), parts=parts)
    one, other = (tmp_path / "parts" / f"part-add-up-00000{n}.safetensors" for n in (1, 2))
    other.write_bytes(one.read_bytes())
    with Parts(tmp_path / "parts") as parts:
        parts.begin(RUN)
        assert sums(tmp_path, (1,), parts=parts) == SUMS


def test_parts_of_another_job_are_refused(tmp_path):
    with Parts(tmp_path / "parts") as parts:
        parts.begin(RUN)
        sums(tmp_path, (1,), parts=parts)
    with Parts(tmp_path / "parts") as parts:
        parts.begin(RUN | {"graph": "b"})
        with pytest.raises(InputError, match=re.escape("differs in graph (a there, b here)")):
            sums(tmp_path, (1,), parts=parts)
    with (
        pytest.raises(InputError, match="must begin without parts of an unfinished one"),
        Parts(tmp_path / "parts", resume=False),
    ):
        pass
    assert len(list((tmp_path / "parts").glob("part-*"))) == len(PIECES)


def test_a_part_that_cannot_be_written_is_no_reason_to_stop(tmp_path, monkeypatch):
    def full(*_, **__):
        raise InputError("the output path must be writable; got x (No space left on device)")

    monkeypatch.setattr("graphglow.training.checkpoint.save_tensors", full)
    with Parts(tmp_path / "parts") as parts:
        parts.begin(RUN)
        with pytest.warns(InputWarning) as said:
            assert sums(tmp_path, (1,), parts=parts) == SUMS
    assert len(said) == 1
    assert "a part was not written" in str(said[0].message)


def test_a_full_disk_under_what_workers_share_is_one_sentence(monkeypatch):
    def full(*_):
        raise OSError("40000 requested and 0 written")  # numpy's, without a number or a word

    monkeypatch.setattr(np, "save", full)
    with (
        Blocks(1, device="cpu") as each,
        pytest.raises(StoppedError, match=r"must fit in .*; got too little room \(TMPDIR names"),
    ):
        each._stored(NUMBERS)


# By others


submit = executor.Processes.submit


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_processes_start_ends_the_job_and_them(monkeypatch, sent):
    def interrupt(pool, job):
        os.kill(os.getpid(), sent)
        time.sleep(0.01)
        return submit(pool, job)

    usual = signal.signal(sent, signal.default_int_handler)
    monkeypatch.setattr(executor.Processes, "submit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        executor.Processes(2)
    assert not children()
    assert signal.signal(sent, usual) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.slow
def test_processes_do_not_hear_ctrl_c():
    with executor.Processes(2) as pool:
        assert signal.SIGINT in pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()


@pytest.mark.slow
def test_a_killed_process_costs_only_its_blocks(tmp_path, monkeypatch):
    with killing(children, lambda: len(begun(tmp_path)) >= 3) as killed:
        assert sums(tmp_path, (2,), slow_total) == SUMS
    assert len(killed) == 1
    again = begun(tmp_path)
    assert set(again) == {piece.start for piece in PIECES}
    assert len(again) <= len(PIECES) + workers_blocks.AHEAD * 2
    monkeypatch.setattr(workers_blocks, "RETRIES", 0)
    with pytest.raises(StoppedError, match=r"add up must end before its workers; got some that"):
        sums(tmp_path, (2,), fatal, pieces=PIECES[:1])
    assert not children()


@pytest.mark.slow
def test_ray_gives_a_killed_workers_block_to_another(cluster, tmp_path, monkeypatch):
    with killing(ray_workers, lambda: len(begun(tmp_path)) >= 3):
        assert sums(tmp_path, (2, "auto"), slow_total) == SUMS
    for tasks in (1, 7):
        assert sums(tmp_path, (tasks, "auto")) == SUMS
    monkeypatch.setattr(executor, "RETRIES", 0)
    with pytest.raises(StoppedError, match="add up must end before its workers"):
        sums(tmp_path, (2, "auto"), fatal, pieces=PIECES[:1])


def test_without_ray_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'pip install "graphglow\[ray\]"'):
        sums(tmp_path, (1, "auto"))
