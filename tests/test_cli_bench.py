"""``graphglow bench`` through the command line's one entry point."""

import json

import pytest

from graphglow.commands.bench import COLUMNS, PARTS
from graphglow.lab.bench import measure, op, transfers

OP = ["bench", "op", "--nodes", "20", "30", "--pivots", "4", "--width", "8", "--features", "4"]
OP += ["--min-seconds", "0.005", "--device", "cpu"]
SMALL = ["--pivots", "8", "--refinements", "2", "--epochs", "2", "--repeats", "1", "--warm-up", "1"]


@pytest.fixture(autouse=True)
def small_ceilings(monkeypatch):
    monkeypatch.setitem(measure.MATMUL_SIDE, "cpu", 64)
    monkeypatch.setitem(measure.COPY_BYTES, "cpu", 2**16)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # other tests' way to run kernels here


def test_json_is_one_object_with_the_rows(run):
    facts = run(*OP, "--json").json
    assert (facts["command"], facts["benchmark"]) == ("bench", "op")
    assert {row["nodes"] for row in facts["rows"]} == {20, 30}
    assert all(row["provenance"]["versions"]["torch"] for row in facts["rows"])


def test_rows_are_added_to_the_file_and_shown(run, tmp_path):
    out = tmp_path / "new" / "bench_op.jsonl"
    shown = run(*OP, "--out", out)
    assert (shown.status, shown.err) == (0, "")
    assert "eager" in shown.out
    assert "bench_op.jsonl" in shown.out.replace("\n", "")
    first = out.read_text().splitlines()
    assert run(*OP, "--out", out, "--backends", "eager").status == 0
    lines = out.read_text().splitlines()
    assert lines[: len(first)] == first
    assert len(lines) == len(first) + 2
    row = json.loads(lines[-1])
    assert (row["benchmark"], row["backend"], row["device"]) == ("op", "eager", "cpu")
    assert str(tmp_path) not in row["provenance"]["command"]
    assert str(tmp_path.name) not in lines[-1]


@pytest.mark.parametrize("name", ["epoch", "batch"])
def test_benchmarks_that_train(run, name):
    graph = ["--targets", "synthetic-small"] if name == "epoch" else ["--target", "synthetic-small"]
    more = ["--compare"] if name == "epoch" else ["--seeds", "2"]
    words = ["bench", name, *graph, *SMALL, *more, "--no-capture", "--device", "cpu"]
    assert "synthetic-small" in run(*words).out


def test_stages_of_a_refinement_and_of_an_audit_beside_a_gcn(run, monkeypatch):
    monkeypatch.setattr(measure, "in_fresh_process", lambda step, *given: step(*given))
    words = ["bench", "refine", "--targets", "synthetic-small", "--nodes", "300", "--edges", "600"]
    rows = run(*words, "--gcn-epochs", "2", "--device", "cpu", "--json").json["rows"]
    stages = {"reading", "views", "channels", "candidates", "evidence", "scoring", "prediction",
              "other", "all"}  # fmt: skip
    for target in ("synthetic-small", "300"):
        mine = [row for row in rows if (row["target"], row["part"]) == (target, "refine")]
        assert {row["stage"] for row in mine} == stages
        assert all(row["seconds"] >= 0 for row in mine)
        assert sum(row["seconds"] for row in mine[:-1]) == pytest.approx(mine[-1]["seconds"])
        assert mine[-1]["search"] == "exact"
        assert ("audit", "all") in {(r["part"], r["stage"]) for r in rows if r["target"] == target}
    assert [row["ratio"] > 0 for row in rows if row["part"] == "gcn"] == [True]


def test_a_fit_is_said(run, monkeypatch):
    rows = [{"nodes": 10**5, "epoch_ms": 1.0, "backend": "auto"}]
    fit = {"kind": "fit", "exponent": 1.04, "fitted_nodes": [10**5, 10**6]}
    monkeypatch.setattr(transfers, "run_scale", lambda config: [*rows, fit])
    assert "nodes^1.04 from 100,000" in run("bench", "scale", "--device", "cpu").out


def test_what_did_not_fit_is_said(run, monkeypatch):
    row = {"nodes": 10**9, "epoch_ms": None, "peak_bytes": None, "out_of_memory": True}
    monkeypatch.setattr(transfers, "run_scale", lambda config: [row])
    assert "out of memory" in run("bench", "scale", "--device", "cpu").out


def test_every_benchmark_has_columns():
    assert PARTS.keys() == COLUMNS.keys()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "expected one of {op, epoch, batch, scale, refine}"),
        (["speed"], "unknown options: speed"),
        (["op", "--nodes", "many"], "bad value for --nodes; got 'many'"),
        (["op", "--nodes", "--device", "cpu"], "at least one case; got none"),
        (["op", "--out", "rows.csv"], "must end in .jsonl; got rows.csv"),
        (["epoch", "--targets", "corra"], "nearest: cora"),
        (["batch", "--seeds", "0"], "seeds must be >= 2; got 0"),
    ],
)
def test_bad_usage_is_one_line(run, argv, message):
    assert message in run("bench", *argv).refuses()


def test_a_file_that_cannot_be_written_is_found_before_measuring(run, tmp_path, monkeypatch):
    def never(config):
        raise AssertionError("measured")
        yield

    monkeypatch.setattr(op, "run_op", never)
    run(*OP, "--out", tmp_path).refuses()
    (tmp_path / "file").touch()
    assert "writable" in run(*OP, "--out", tmp_path / "file" / "rows.jsonl").refuses()
