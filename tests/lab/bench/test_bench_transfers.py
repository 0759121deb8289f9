"""Benchmarks that train on a graph by name: epoch and batch."""

import gc
import re

import pytest
import torch

from graphglow.errors import InputError
from graphglow.lab.bench import measure
from graphglow.lab.bench.measure import Ceilings
from graphglow.lab.bench.transfers import (
    BatchBench,
    EpochBench,
    run_batch,
    run_epoch,
)
from graphglow.ops import available_backends

CEILINGS = Ceilings(1e12, 1e10)
SMALL = {"refinements": 2, "pivots": 8, "epochs": 2, "warm_up": 1, "repeats": 1, "device": "cpu"}


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch):
    monkeypatch.setattr(measure, "ceilings", lambda *_, **__: CEILINGS)


def test_epoch_compares_with_eager_in_the_same_run():
    config = EpochBench(
        targets=("synthetic-small", "wine"), compare=True, backend="chunked", **SMALL
    )
    rows = list(run_epoch(config, None))
    assert [(row["target"], row["backend"]) for row in rows] == [
        ("synthetic-small", "eager"),
        ("synthetic-small", "chunked"),
        ("wine", "eager"),
        ("wine", "chunked"),
    ]
    for eager, chunked in (rows[:2], rows[2:]):
        assert eager["speedup_over_eager"] == 1.0
        assert chunked["speedup_over_eager"] == eager["train_seconds"] / chunked["train_seconds"]
        assert chunked["val_accuracy"] == pytest.approx(eager["val_accuracy"], abs=0.05)
    row = rows[0]
    assert row["epoch_ms"] == pytest.approx(1e3 * row["train_seconds"] / 2)
    assert (row["nodes"], row["edges"], row["refinements"], row["pivots"]) == (200, 800, 2, 8)
    assert row["peak_bytes"] is None  # a process does not know the peak of a part of it


def test_epoch_alone_has_no_ratio():
    (row,) = run_epoch(EpochBench(targets=("synthetic-small",), **SMALL), None)
    assert row["speedup_over_eager"] is None
    assert row["backend"] == "auto"
    assert row["picked"] in available_backends(torch.device("cpu"))
    u, x64, x3 = (2 * 200 * 8 * width for width in (256, 64, 3))
    flop = 2 * 4 * (u + 2 * x64 + 2 * x3)  # 2 refinements; forward, 2 x backward, validation
    assert row["gflop"] == pytest.approx(flop / 1e9)
    roof = max(flop / 1e12, row["least_bytes"] / 1e10)
    assert row["roof_share"] == pytest.approx(1e3 * roof / row["epoch_ms"])


def test_affine_runs_linear():
    config = EpochBench(targets=("synthetic-small",), backend="linear", delta="affine", **SMALL)
    (row,) = run_epoch(config, None)
    assert (row["backend"], row["picked"], row["delta"]) == ("linear", "linear", "affine")


def test_batch_against_single_runs():
    (row,) = run_batch(BatchBench(target="synthetic-small", seeds=3, **SMALL), None)
    assert row["ratio"] == row["batch_seconds"] / row["single_seconds"]
    assert 0 <= row["greatest_accuracy_difference"] < 0.05
    assert row["mean_accuracy_difference"] <= row["greatest_accuracy_difference"]


@pytest.mark.parametrize(
    ("bench", "settings", "message"),
    [
        (EpochBench, {"refinements": 0}, "refinements must be >= 1; got 0"),
        (EpochBench, {"epochs": 0}, "epochs must be >= 1; got 0"),
        (EpochBench, {"repeats": 0}, "repeats must be >= 1; got 0"),
        (EpochBench, {"backend": "linear"}, "backend linear must go with a learner whose delta is"),
        (EpochBench, {"delta": "hard"}, "delta must be one of truncate, affine"),
        (BatchBench, {"seeds": 1}, "seeds must be >= 2; got 1"),
        (BatchBench, {"backend": "x"}, "backend must be one of auto, eager"),
    ],
)
def test_bad_settings(bench, settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        bench(**settings)


def test_unknown_graphs():
    for run, config in (
        (run_epoch, EpochBench(targets=("synthetic-small", "corra"))),
        (run_batch, BatchBench(target="corra")),
    ):
        with pytest.raises(InputError, match="nearest: cora"):
            next(run(config, None))


@pytest.mark.gpu
def test_on_the_gpu():
    small = SMALL | {"device": "cuda", "epochs": 20, "warm_up": 10}
    gc.collect()
    before = torch.cuda.memory_allocated()  # what other tests have left: workspaces of libraries
    auto, *_ = reversed(list(run_epoch(EpochBench(compare=True, **small), None)))
    assert auto["picked"] in available_backends(torch.device("cuda"))
    assert before < auto["peak_bytes"] < before + 2e9
    (row,) = run_batch(BatchBench(seeds=3, **small), None)
    assert row["peak_bytes"] > 0
