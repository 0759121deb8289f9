"""Reproduction in several processes: killed, interrupted, or with one of them lost."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from reproducing import reproducing
from small_cells import cell, rows, run, slots

from graphglow.lab.runs.rows import read_rows
from graphglow.workers.executor import Processes, WorkerLost, result_of
from killed import members, until

CELLS = [cell(), cell("graphglow")]
SEEDS = 8
EPOCHS = 20
WORDS = ["--seeds", SEEDS, "--epochs", EPOCHS, "--json"]


def resumed(out, before):
    """Do the rest here; every run is there once, and those of before as they were."""
    assert 0 < len(before) < len(CELLS) * SEEDS
    outcome = run(CELLS, out, seeds=SEEDS, epochs=EPOCHS)
    assert outcome.made == len(CELLS) * SEEDS - len(before)
    assert rows(out)[: len(before)] == before
    assert set(Counter(slots(out)).values()) == {1}
    assert len(slots(out)) == len(CELLS) * SEEDS


@pytest.mark.slow
def test_killed_in_the_middle_only_what_was_in_flight_is_lost(tmp_path):
    with reproducing(tmp_path, *WORDS) as (process, out):
        until(lambda: len(rows(out)) >= 2, process)
        workers = len(members(process.pid)) - 1
        process.kill()
        process.wait()
        until(lambda: not members(process.pid))  # workers end with the one that started them
        assert workers >= 2
    found = read_rows(out)
    assert found.damaged == []
    assert all(row.test_accuracy is not None for row in found.rows)
    resumed(out, rows(out))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_ctrl_c_and_sigterm_end_cleanly_and_keep_what_is_done(tmp_path, sent, status, said):
    with reproducing(tmp_path, *WORDS) as (process, out):
        until(lambda: len(rows(out)) >= 2, process)
        os.killpg(process.pid, sent)  # to the workers too, as a terminal or a scheduler does
        stdout, stderr = process.communicate(timeout=60)
        until(lambda: not members(process.pid))
    assert (process.returncode, stdout) == (status, "")
    assert not any(row.error for row in rows(out))
    assert stderr == (
        f"graphglow: the rows written to {out} are kept; the same command goes on from there\n"
        f"graphglow: {said}\n"
    )
    resumed(out, rows(out))


@pytest.mark.slow
def test_a_block_ends_whatever_it_is_doing_and_a_lost_worker_is_said():
    with Processes(2) as workers:
        pid = result_of(workers.submit(os.getpid))
        begun = workers.submit(time.sleep, 100)
    assert begun.done()
    until(lambda: not Path(f"/proc/{pid}").exists() or _ended(pid))
    with Processes(2) as workers, pytest.raises(WorkerLost, match="a worker died; the same"):
        result_of(workers.submit(os._exit, 1))


def _ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True
