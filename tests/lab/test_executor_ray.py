"""Jobs on a Ray cluster: the rows of local runs, once each, though workers are killed."""

import logging
import os
import signal
import sys
from collections import Counter

import pytest
from reproducing import reproducing
from small_cells import cell, config, rows, run, slots
from small_search import drawn, found, work_in

from graphglow.cli import main
from graphglow.errors import InputError
from graphglow.lab.provenance import provenance
from graphglow.lab.runs.learners import load_with_split
from graphglow.lab.runs.reproduce import learner_folder
from graphglow.lab.search.space import SearchConfig
from graphglow.workers import executor
from graphglow.workers.executor import (
    RayWorkers,
    open_executor,
    ray_address,
    result_of,
)
from killed import killing, members, ray_workers, until

CELLS = [cell(), cell("graphglow"), cell("mlp")]
MEASURED = ("train_seconds", "total_seconds", "peak_memory_bytes", "pretrain_seconds")


@pytest.fixture(scope="module")
def cluster():
    """A Ray of two CPUs, to which all tests below are connected."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.CRITICAL
    )
    try:
        yield ray
    finally:
        ray.shutdown()


def plain(out):
    """Rows without what is measured, in the order of cells and seeds."""
    less = [
        {name: value for name, value in vars(row).items() if name not in (*MEASURED, "processes")}
        for row in rows(out)
    ]
    for row in less:
        row["provenance"] = {**row["provenance"], "date": ""}
    return sorted(less, key=lambda row: (row["cell"], row["seed"]))


# Without a cluster


def test_executors_are_local_ray_or_ray_with_an_address():
    assert ray_address("local") is None
    assert ray_address("ray") == ""
    assert ray_address("ray:auto") == "auto"
    assert ray_address("ray:ray://host:10001") == "ray://host:10001"
    for wrong in ("", "ray:", "ray: ", "rays", "local:2", "dask", "Ray"):
        with pytest.raises(InputError, match=r"must be local, ray or ray:ADDRESS; got"):
            config(executor=wrong)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--executor", "dask"], "executor must be local, ray or ray:ADDRESS; got 'dask'"),
        (["--executor", "ray", "--processes", "0"], "processes must be >= 1; got 0"),
    ],
)
def test_the_search_refuses_what_is_wrong_in_one_sentence(words, said, capsys, tmp_path):
    where = ["--storage", tmp_path / "t.db", "--settings", tmp_path / "settings.json"]
    status = main(["search", "--methods", "gcn", "--targets", "wine", *map(str, where), *words])
    assert (status, capsys.readouterr().err) == (2, f"graphglow: {said}\n")
    assert list(tmp_path.iterdir()) == []


def test_without_ray_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'pip install "graphglow\[ray\]"'):
        run(CELLS, tmp_path / "rows.jsonl", executor="ray")
    assert not (tmp_path / "rows.jsonl").exists()


# On a cluster


@pytest.mark.slow
def test_rows_are_those_of_local_runs_though_a_worker_is_killed(cluster, tmp_path):
    local, out = tmp_path / "local.jsonl", tmp_path / "ray.jsonl"
    run(CELLS, local, epochs=300)
    with killing(ray_workers, lambda: len(rows(out)) >= 2):
        outcome = run(CELLS, out, epochs=300, executor="ray", processes=2)
    assert outcome[:4] == (6, 0, 0, {})
    assert set(Counter(slots(out)).values()) == {1}
    assert plain(out) == plain(local)
    assert {row.processes for row in rows(out)} == {2}
    assert rows(out)[0].provenance.items() >= {"commit": provenance()["commit"]}.items()
    assert len(list(learner_folder(out).iterdir())) == 1
    more = [cell("graphglow", key="more", settings={"input_weight": 0.2})]
    assert run(more, out, executor="ray", processes=2).failed == 0  # the learner goes there
    assert len(list(learner_folder(out).iterdir())) == 1


@pytest.mark.slow
def test_a_run_that_kills_every_worker_is_a_row_that_says_so(cluster, monkeypatch, tmp_path):
    submit = RayWorkers.submit

    def fatal(self, fn, /, runs, *rest):
        if runs[0].cell.method == "mlp":
            return submit(self, os._exit, 1)
        return submit(self, fn, runs, *rest)

    monkeypatch.setattr(RayWorkers, "submit", fatal)
    monkeypatch.setattr(executor, "RETRIES", 1)
    outcome = run([cell(), cell("mlp")], tmp_path / "r.jsonl", executor="ray", processes=2, seeds=1)
    assert (outcome.made, outcome.failed) == (2, 1)
    assert outcome.errors == {"a run must end before its worker": 1}
    failed = next(row for row in rows(tmp_path / "r.jsonl") if row.error)
    assert (failed.method, failed.device) == ("mlp", "cpu")


@pytest.mark.slow
def test_errors_arrive_as_they_were_raised(cluster, tmp_path):
    with open_executor(1, "") as workers:
        assert (workers.device, workers.threads) == ("cpu", 2)
        with pytest.raises(InputError) as caught:
            result_of(workers.submit(load_with_split, "citeseer", tmp_path))
        assert type(caught.value) is InputError
        assert "\n" not in str(caught.value)
    assert cluster.is_initialized()  # it was so before


@pytest.mark.slow
def test_a_search_has_all_its_trials_though_a_worker_is_killed(cluster, tmp_path):
    budget = SearchConfig(trials=5, seeds_per_trial=2, epochs=300, device="cpu")
    alone = found(config=budget, **work_in(tmp_path / "alone"))
    with open_executor(2, "", device="cpu") as workers, killing(ray_workers, lambda: True):
        row = found(config=budget, **work_in(tmp_path / "ray"), executor=workers)
    assert row == alone  # the first draws know no scores
    assert drawn(work_in(tmp_path / "ray")) == drawn(work_in(tmp_path / "alone"))


@pytest.mark.slow
def test_the_command_starts_a_ray_of_its_own_and_ctrl_c_ends_it(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    words = ["--executor", "ray", "--seeds", "50", "--epochs", "300"]
    with reproducing(tmp_path, *words) as (process, out):
        until(lambda: len(rows(out)) >= 2, process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        stdout, stderr = process.communicate(timeout=60)
        until(lambda: not members(process.pid))
    assert (process.returncode, stdout) == (130, "")
    kept = len(rows(out))
    assert 2 <= kept < 100
    assert stderr == (
        f"graphglow: the rows written to {out} are kept; the same command goes on from there\n"
        "graphglow: interrupted\n"
    )
