import re

import pytest
import torch

from graphglow.errors import InputError
from graphglow.lab.bench import measure, transfers
from graphglow.lab.bench.transfers import ScaleBench, exponent, run_scale

SMALL = {"pivots": 8, "features": 4, "degree": 6.0, "min_seconds": 0.005, "device": "cpu"}


@pytest.fixture
def here(monkeypatch):
    """Measure in this process, which is much faster."""
    monkeypatch.setattr(measure, "in_fresh_process", lambda function, *args: function(*args))


@pytest.mark.parametrize(("backend", "delta"), [("auto", "truncate"), ("linear", "affine")])
def test_one_row_per_size(here, backend, delta):
    config = ScaleBench(nodes=(100, 300), backend=backend, delta=delta, **SMALL)
    rows = list(run_scale(config))
    assert [row["nodes"] for row in rows] == [100, 300]  # no fit: both are small
    for row in rows:
        assert row["edges"] == pytest.approx(3 * row["nodes"], rel=0.15)
        assert row["epoch_ms"] > 0
        assert row["peak_bytes"] > 0
        assert (row["refinements"], row["backend"], row["delta"]) == (2, backend, delta)
        assert 0 <= row["val_accuracy"] <= 1


def test_the_last_row_is_the_fit(monkeypatch, here):
    def measured(config, nodes):
        return {"epoch_ms": 0.5 * nodes**1.03 if nodes >= 100_000 else 7.0}

    monkeypatch.setattr(transfers, "epoch_at", measured)
    *rows, fit = run_scale(ScaleBench(nodes=(10_000, 100_000, 1_000_000), **SMALL))
    assert len(rows) == 3
    assert fit["kind"] == "fit"
    assert fit["exponent"] == pytest.approx(1.03)
    assert fit["fitted_nodes"] == [100_000, 1_000_000]


def test_exponent_needs_two_large_sizes():
    assert exponent([(10_000, 1.0), (20_000, 2.0)]) is None
    assert exponent([(10_000, 1.0), (200_000, 2.0)]) is None
    assert exponent([(200_000, 2.0), (200_000, 2.1)]) is None
    assert exponent([(100_000, 1.0), (1_000_000, 100.0)]) == pytest.approx(2.0)


def test_what_does_not_fit_is_a_row(monkeypatch):
    monkeypatch.setattr(measure, "in_fresh_process", lambda *_: None)
    (row,) = run_scale(ScaleBench(nodes=(100,), **SMALL))
    assert row["out_of_memory"]
    assert row["epoch_ms"] is None


@pytest.mark.parametrize("error", [InputError, torch.OutOfMemoryError])
def test_only_want_of_memory_is_no_failure(error):
    def broken():
        raise error("average_degree must be small")

    if error is torch.OutOfMemoryError:
        assert measure._unless_out_of_memory(broken, (), {}) is None
        return
    with pytest.raises(InputError, match="average_degree"):
        measure._unless_out_of_memory(broken, (), {})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nodes": (9,)}, "nodes must be >= 10; got 9"),
        ({"min_seconds": -1.0}, "min_seconds must be > 0 and"),
        ({"pivots": 0}, "num_pivots must be >= 1; got 0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=re.escape(message)):
        ScaleBench(**settings)


@pytest.mark.gpu
def test_on_the_gpu():
    (row,) = run_scale(ScaleBench(nodes=(20_000,), **SMALL | {"device": "cuda"}))
    assert row["epoch_ms"] > 0
    assert row["graph_bytes"] > 1_000_000
    assert row["peak_bytes"] > row["graph_bytes"]
