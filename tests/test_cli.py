"""The command line, through its one entry point: help, success, refusals, files, endings."""

import errno
import io
import os
import signal
import subprocess
import sys
import warnings
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import graphglow
from command_line import SPLIT_SAID, Outcome, ring_arrays
from graphglow import cli, settings, training
from graphglow.cli import main
from graphglow.commands import COMMANDS, terminal
from graphglow.commands.flags import GraphFlags, ManyGraphFlags
from graphglow.commands.options import table
from graphglow.errors import InputError, InputWarning
from graphglow.graph.write import WRITERS
from graphglow.storage import claimed

SHORT = ["--epochs", "2", "--device", "cpu"]
FAST = [*SHORT, "--num-pivots", "8", "--refinements", "2"]
UNTRAINED = ["transfer", "--learner", "untrained"]
FIT = ["fit", "--method", "mlp", "--target", "wine", "--device", "cpu", "--epochs"]


def transfer_words(home, *more):
    return ["transfer", "--learner", home / "learner.st", "--target", home / "g.npz", *FAST, *more]


def refine_words(home, *more):
    return ["refine", *transfer_words(home, *more)[1:]]


def process(*words, **environment):
    """A run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "graphglow", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


# Help


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_names_every_command_with_an_example(run, argv):
    outcome = run(*argv)
    assert (outcome.status, outcome.err) == (0, "")
    for name, what in COMMANDS.items():
        assert f"  {name} " in outcome.out
        assert what in " ".join(outcome.out.split())
    assert "graphglow transfer --target" in outcome.out


def test_version(run):
    assert run("--version") == (0, f"graphglow {graphglow.__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_begins_with_what_the_list_says(run, name):
    outcome = run(name, "--help")
    assert (outcome.status, outcome.err) == (0, "")
    assert COMMANDS[name] in " ".join(outcome.out.split())


def flags_by_heading(words):
    found = {}
    for one in table()[words].options:
        found.setdefault(one.heading, []).append(one.usual_name)
    return found


@pytest.mark.parametrize(
    ("words", "config"),
    [
        ("pretrain --kind paper", settings.PretrainConfig),
        ("transfer --learner paper", settings.PaperConfig),
        ("fit --method graphglow-star", graphglow.METHODS["graphglow-star"].config),
    ],
)
def test_settings_stand_under_headings(words, config):
    shown = flags_by_heading(words)
    settings = {field.name.replace("_", "-") for field in fields(config) if field.init}
    titles = {"", "reading", "model", "structure", "optimiser", "compute"}
    beside = {config.__name__.removesuffix("Config").lower(), "objective"}
    own = {"pretrain": {*beside, "learner", "checkpoints"}, "transfer": {"checkpoints"}}
    assert set(shown) == titles | own.get(words.split()[0], beside)
    assert settings <= {flag.split(".")[0] for flags in shown.values() for flag in flags}
    assert "learning-rate" in shown["optimiser"]
    assert "num-pivots" in shown["structure"]
    assert "capture" in shown["compute"]


def test_the_default_learner_has_flags_of_its_own():
    shown = flags_by_heading("transfer")
    assert set(shown) == {"", "reading", "transfer", "model", "optimiser", "compute", "checkpoints"}
    flags = {flag.replace("-", "_") for flags in shown.values() for flag in flags}
    assert {field.name for field in fields(settings.TransferConfig)} <= flags
    assert "checkpoints" not in flags_by_heading("pretrain")


@pytest.mark.slow
def test_a_transfer_in_one_process_loads_nothing_that_it_does_not_need():
    words = [*UNTRAINED, "--target", "wine", "--no-controls", *SHORT]
    code = f"""
import sys
from graphglow.cli import main
assert main({words}) == 0
loaded = {{name for name in sys.modules if name.startswith("graphglow.")}}
assert len(loaded) <= 95, len(loaded)
rooms = {{name.split(".")[1] for name in loaded}}
assert not rooms & {{"experiments", "report", "baselines"}}, rooms
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Success


def test_transfer_prints_one_json_object(run, home):
    outcome = run(*transfer_words(home, "--json", "--seed", "3"))
    assert outcome.err == ""
    facts = outcome.json
    assert (facts["target"], facts["method"], facts["backbone"]) == ("g", "graphglow", "gcn")
    assert 0 <= facts["test_accuracy"] <= 1
    assert 0 <= facts["val_accuracy"] <= 1
    assert 0 < facts["train_seconds"] <= facts["total_seconds"]
    assert facts["peak_memory_bytes"] > 0
    assert (facts["epochs"], facts["device"], facts["seed"]) == (2, "cpu", 3)
    assert (facts["split"], facts["out"]) == ("random seed 0", None)


def test_transfer_needs_a_target_alone(run, home):
    words = ["transfer", "--target", home / "g.npz", *SHORT, "--json"]
    facts = run(*words).json
    assert (facts["learner"], facts["method"], facts["epochs"]) == ("universal", "evidence", 2)
    assert facts["target_was_source"] is False
    facts = run(*words, "--learner", "untrained", "--input-weight", "0.25").json
    assert (facts["learner"], facts["method"]) == ("untrained", "untrained")
    assert facts["input_weight"] == pytest.approx(0.25)


def test_summary_for_people(run, home):
    outcome = run(*transfer_words(home))
    assert (outcome.status, outcome.err) == (0, "")  # and no progress bar, since nobody watches
    assert "test accuracy" in outcome.out
    assert "delta" not in outcome.out


def test_the_split_is_named(run, home, tmp_path):
    split = {"train": np.arange(10), "val": np.arange(10, 20), "test": np.arange(20, 30)}
    np.savez(tmp_path / "split.npz", **split)
    np.savez(tmp_path / "own.npz", **ring_arrays(), **split)
    words, small = [*UNTRAINED, *SHORT, "--json", "--target"], home / "g.npz"
    assert run(*words, small, "--split-seed", "7").json["split"] == "random seed 7"
    facts = run(*words, small, "--split-file", tmp_path / "split.npz").json
    assert facts["split"] == f"file:{tmp_path / 'split.npz'}"
    assert run(*words, tmp_path / "own.npz").json["split"] == "own"
    data, _ = GraphFlags(split_file=tmp_path / "split.npz").read(str(small))
    assert data.train_mask.nonzero()[:, 0].tolist() == split["train"].tolist()
    assert ManyGraphFlags(split_seed=7).read("wine")[1] == "random seed 7"
    with pytest.raises(InputError, match=r"split_seed must lie in \[0, .*; got -1"):
        GraphFlags(split_seed=-1).read("wine")


def test_named_graph_under_a_data_root(run, data_root):
    facts = run(*UNTRAINED, "--target", "Cora", *SHORT, "--json", "--data-root", data_root).json
    assert (facts["target"], facts["split"]) == ("cora", "public")


def test_no_test_nodes_is_null(run, tmp_path):
    np.savez(tmp_path / "g.npz", **ring_arrays(), train=np.arange(20), val=np.arange(20, 40))
    facts = run(*UNTRAINED, "--target", tmp_path / "g.npz", *SHORT, "--json").json
    assert facts["test_accuracy"] is None


def test_flags_reach_the_configs(run, home, tmp_path):
    facts = run(
        *["pretrain", "--kind", "paper", "--sources", home / "g.npz", "synthetic-small"],
        *["--out", tmp_path / "l.safetensors", "--episodes", "1", *FAST],
        *["--learner.num-heads", "3", "--objective.samples", "2", "--input-weight", "0.25"],
        *["--seed", "5", "--json"],
    ).json
    assert facts["sources"] == ["g", "synthetic-small"]
    assert facts["seed"] == 5
    assert len(facts["visit_scores"]) == 2
    learner = graphglow.StructureLearner.load(tmp_path / "l.safetensors")
    assert learner.config.num_heads == 3
    made = learner.provenance["config"]
    assert (made["objective"]["samples"], made["input_weight"]) == (2, 0.25)


@pytest.mark.parametrize("suffix", WRITERS)
def test_refine_writes_every_format(run, home, tmp_path, suffix):
    out = tmp_path / f"refined{suffix}"
    facts = run(*refine_words(home, "--top-k", "3", "--no-self-loops", "--out", out, "--json")).json
    assert out.stat().st_size > 0
    assert 0 < facts["refined_edges"] <= 3 * 40
    assert facts["self_loops"] is False
    if suffix == ".npz":
        with np.load(out) as file:
            once = {tuple(sorted(pair)) for pair in file["edge_index"].T.tolist()}
            assert len(once) == facts["refined_edges"]
            assert (file["edge_index"][0] != file["edge_index"][1]).all()


def test_refine_of_a_saved_result_is_the_same(run, home, tmp_path):
    assert run(*transfer_words(home, "--out", tmp_path / "r.st")).status == 0
    assert run(*refine_words(home, "--out", tmp_path / "direct.npz")).status == 0
    assert run("refine", "--result", tmp_path / "r.st", "--out", tmp_path / "saved.npz").status == 0
    with np.load(tmp_path / "direct.npz") as direct, np.load(tmp_path / "saved.npz") as saved:
        np.testing.assert_array_equal(direct["edge_index"], saved["edge_index"])


def test_datasets_says_which_files_are_there(run, tmp_path):
    (tmp_path / "CiteSeer" / "raw").mkdir(parents=True)
    (tmp_path / "CiteSeer" / "raw" / "ind.citeseer.x").touch()
    facts = run("datasets", "--data-root", tmp_path, "--json").json
    rows = {row["name"]: row for row in facts["datasets"]}
    assert set(rows) == set(graphglow.graph.DATASETS)
    assert {name: rows[name]["found"] for name in ("cora", "citeseer", "pubmed", "wine")} == {
        "cora": True, "citeseer": True, "pubmed": False, "wine": True,
    }  # fmt: skip
    assert {name for name in ("cora", "citeseer", "wine") if rows[name]["needs_data"]} == {
        "citeseer"
    }
    shown = run("datasets", "--data-root", tmp_path / "absent").out
    assert "synthetic-heterophilous" in shown
    assert "missing" in shown


def test_progress_is_shown_on_a_terminal(run, home, monkeypatch):
    monkeypatch.setattr(terminal, "interactive", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the captured stream for a terminal
    outcome = run(*transfer_words(home, "--json"))
    assert "training" in outcome.err
    assert outcome.json["epochs"] == 2


def test_demo_writes_a_report_and_replaces_only_reports(run, tmp_path, monkeypatch):
    from graphglow.lab.demo import DEMO, Target

    small = replace(
        DEMO,
        targets=(Target("small", "synthetic-small", 5, false_edges=1.0, seeds=2),),
        drawn=0,
        gcn={"epochs": 2, "patience": 2, "hidden": 8},
        processes=1,
    )
    monkeypatch.setattr("graphglow.lab.demo.DEMO", small)
    monkeypatch.chdir(tmp_path)
    first = run("demo", "--picture", "around.svg")
    assert (first.status, first.err) == (0, "")
    assert str(tmp_path / "demo_report.html") in first.out
    assert "predict over the best of GCN, a bag of five and logistic regression:" in " ".join(
        first.out.split()
    )
    assert "of the injected edges" in " ".join(first.out.split())
    assert Path("around.svg").read_text().startswith("<svg")
    assert "--overwrite" in run("demo", "--picture", "around.svg").refuses()
    assert ".svg" in run("demo", "--picture", "around.png").refuses()
    again = run("demo", "--json", "--seed", "4").json
    assert {row["seed"] for row in again["rows"]} == {4, 5}
    assert again["refined"]["before"]["edges"] > 0
    Path("demo_report.html").write_text("my own page")
    assert "--overwrite" in run("demo").refuses()
    assert Path("demo_report.html").read_text() == "my own page"


# Bad command lines


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "colour"), [("utf-8", "1"), ("ascii", "0")])
def test_usage_errors_of_a_process(encoding, colour):
    """Tyro draws its boxes by the terminal's abilities; the line must not depend on them."""
    words = [*UNTRAINED, "--x"]
    line = process(*words, PYTHONIOENCODING=encoding, FORCE_COLOR=colour).refuses()
    assert line == (
        "graphglow: required options are missing: --target NAME|FILE; unknown option --x; "
        "see graphglow transfer --help-all\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tranfer", "got 'tranfer' (nearest: transfer); see"),
        ("--json transfer", "the command must be one of demo, "),
        ("transfer", "required options are missing: --target NAME|FILE"),
        ("transfer --learner", "--learner"),
        ("transfer --learner untrained --target wine extra", "unknown options: extra"),
        (
            "transfer --learner untrained --target wine --epochs x",
            "--epochs must be a whole number; got 'x'",
        ),
        ("transfer --learner untrained --target wine --device tpu", "'tpu'"),
        ("pretrain --out l.st", "--sources"),
        ("pretrain --sources --out l.st", "at least one source"),
        (
            "pretrain --sources wine --out l.st --split-file s.npz",
            "--split-file has no effect here",
        ),
        (
            "search --methods gcn --targets wine --split-file s.npz",
            "--split-file has no effect here",
        ),
        ("refine --learner untrained --out g.csv", "--target"),
        ("refine --target wine --result r.st --out g.csv --seed 3", "--target, --seed"),
        ("pretrain --kind nonsense --sources wine --out l.st", "--kind must be one of"),
        ("datasets --epochs 3", "--epochs"),
        ("demo --targets wine", "--targets"),
    ],
)
def test_bad_usage_is_one_line(run, monkeypatch, tmp_path, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in run(*words.split()).refuses()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "pretrain --sources wnie --out l.st",
        "pretrain --kind paper --sources wine wnie --out l.st",
        "search --methods gcn --targets wine wnie",
        "search --methods graphglow --sources wine wnie --targets digits",
    ],
)
def test_a_graph_that_nobody_knows_is_refused_before_another_is_read(run, monkeypatch, words):
    monkeypatch.setattr("graphglow.commands.flags.load_graph", None)
    line = run(*words.split()).refuses()
    assert "(nearest: wine)" in line


def test_no_edges_are_said_by_every_command(run, tmp_path):
    rows = [f"{n},{'ab'[n % 2]},{n % 2 + n / 99},{n % 5}" for n in range(30)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,f,g", *rows]))
    (tmp_path / "edges.csv").write_text("source,target\n")
    said = f"note: {tmp_path.name} has no edges of its own: those between nearest neighbours stand"
    out = tmp_path / "g.npz"
    for words in (
        ["audit"],
        ["refine", "--out", out],
        ["fit", "--method", "mlp", "--epochs", "1"],
        [*UNTRAINED, "--epochs", "1"],
    ):
        outcome = run(*words, "--target", tmp_path)
        assert (outcome.status, outcome.err.count(said)) == (0, 1), outcome


@pytest.mark.parametrize(
    "flags",
    [
        "--epochs 0",
        "--epochs -1",
        "--input-weight nan",
        "--input-weight 1.5",
        "--structure-momentum -0.1",
        "--learning-rate inf",
        "--learning-rate 1e400",
        "--weight-decay nan",
        "--dropout 1",
        "--num-pivots 0",
        "--refinements 0",
        "--num-layers 1",
        "--patience 0",
        "--seed -1",
        "--split-seed -1",
        "--split-seed 99999999999999999999",
        "--backbone nonsense",
        "--hidden 0",
    ],
)
def test_absurd_values_are_refused(run, home, flags):
    name, value = flags.split()
    kinds = {"universal": settings.TransferConfig, "paper": settings.PaperConfig}
    for learner, kind in kinds.items():
        known = {field.name for field in fields(kind)} | {"split_seed"}
        if name.removeprefix("--").replace("-", "_") in known:
            words = ["transfer", "--learner", learner, "--target", home / "g.npz"]
            line = run(*words, name, value).refuses()
            assert name.removeprefix("--").replace("-", "_") in line.replace("-", "_")
            assert "unknown option" not in line


def test_gpu_that_is_not_there(run, home):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "cuda" in run(*transfer_words(home, "--device", "cuda")).refuses()


# Bad files


@pytest.mark.parametrize(
    "target",
    ["no_such_graph", "wien", "empty.npz", "text.npz", "text.csv", "nan.npz", "range.npz", "."],
)
def test_bad_targets(run, tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    Path("empty.npz").touch()
    Path("text.npz").write_text("not an archive")
    Path("text.csv").write_text("a,b\n1,2\n")
    np.savez("nan.npz", **(ring_arrays() | {"x": np.full((40, 4), np.nan, np.float32)}))
    np.savez("range.npz", **(ring_arrays() | {"edge_index": np.array([[0], [99]])}))
    run(*UNTRAINED, "--target", target, *SHORT).refuses()


def test_bad_learners(run, home, tmp_path):
    target = ["--target", home / "g.npz", *SHORT]
    whole = (home / "learner.st").read_bytes()
    (tmp_path / "cut.st").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.st").write_text("hello")
    assert run(*transfer_words(home, "--out", tmp_path / "result.st")).status == 0
    assert "'absent'" in run("transfer", "--learner", "absent", *target).refuses()
    for name in ("cut.st", "text.st", "result.st", "."):
        run("transfer", "--learner", tmp_path / name, *target).refuses()


def test_control_characters_do_not_reach_the_terminal(run, capsys):
    assert "\x1b" not in run(*UNTRAINED, "--target", "a\x1b[31m\nb").refuses()
    terminal.tell("t\x1b[2J", {"\x1b[31mred": "\x1b[2J"}, json=False)
    assert "\x1b" not in capsys.readouterr().out


# Output files


def never(*args, **kwargs):
    raise AssertionError("training has begun")


OUTPUT_COMMANDS = {
    "pretrain": ["pretrain", "--sources", "wine"],
    "pretrain paper": ["pretrain", "--kind", "paper", "--sources", "wine"],
    "transfer": [*UNTRAINED, "--target", "wine"],
    "refine": ["refine", *UNTRAINED[1:], "--target", "wine"],
    "demo": ["demo"],
}


def test_an_output_is_never_one_of_the_inputs(run, home, tmp_path):
    learner, graph = tmp_path / "l.st", tmp_path / "g.npz"
    learner.write_bytes((home / "learner.st").read_bytes())
    graph.write_bytes((home / "g.npz").read_bytes())
    kept = learner.read_bytes(), graph.read_bytes()
    words = ["--learner", learner, "--target", graph, *FAST, "--overwrite"]
    assert "one of the inputs" in run("transfer", *words, "--out", learner).refuses()
    assert "one of the inputs" in run("refine", *words, "--out", graph).refuses()
    assert (learner.read_bytes(), graph.read_bytes()) == kept


def test_predictions_name_ids_classes_and_probabilities(run, home, tmp_path):
    out = tmp_path / "predictions.csv"
    assert run(*transfer_words(home, "--predictions", out)).status == 0
    header, *rows = out.read_text().splitlines()
    assert header.startswith("id,predicted,probability,p_")
    assert len(rows) == 40
    for row in rows:
        _, _, best, *shares, _, split = row.split(",")
        assert split in ("train", "val", "test")
        assert float(best) == max(map(float, shares))
        assert sum(map(float, shares)) == pytest.approx(1, abs=1e-5)
    assert "predictions file" in run(*transfer_words(home, "--predictions", "p.txt")).refuses()


@pytest.mark.parametrize("words", OUTPUT_COMMANDS.values(), ids=OUTPUT_COMMANDS)
def test_output_is_checked_before_training(run, tmp_path, monkeypatch, words):
    for name in ("pretrain", "transfer"):
        monkeypatch.setattr(training, name, never)
    monkeypatch.setattr("graphglow.lab.demo.run_demo", never)
    suffix = ".pt" if words[0] == "refine" else ".st"
    taken, folder = tmp_path / f"taken{suffix}", tmp_path / f"folder{suffix}"
    plain, link = tmp_path / "plain", tmp_path / f"link{suffix}"
    taken.write_text("mine")
    folder.mkdir()
    plain.touch()
    link.symlink_to(tmp_path / "gone.st")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.iterdir())
    assert "--overwrite" in run(*words, "--out", taken).refuses()
    assert "must not exist" in run(*words, "--out", link).refuses()
    assert "folder" in run(*words, "--out", folder).refuses()
    assert "folder" in run(*words, "--out", folder, "--overwrite").refuses()
    assert "writable" in run(*words, "--out", plain / f"below{suffix}").refuses()
    line = run(*words, "--out", tmp_path / "new" / f"a{suffix}").refuses()
    assert f"and there is no folder {tmp_path / 'new'}" in line
    assert "writable" in run(*words, "--out", tmp_path / f"{'n' * 250}{suffix}").refuses()
    for inside in ("a", "more/a"):
        line = run(*words, "--out", tmp_path / "loop" / f"{inside}{suffix}").refuses()
        assert "(Too many levels of symbolic links)" in line
    device = run(*words, "--out", "/dev/null", "--overwrite").refuses()
    assert "regular" in device or "must end in" in device
    if words[0] == "refine":
        assert ".graphml" in run(*words, "--out", tmp_path / "graph.xlsx").refuses()
    assert taken.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_another_run_writes_is_refused(run, home, tmp_path):
    out = tmp_path / "p.csv"
    words = ["fit", "--method", "mlp", "--target", home / "g.npz", "--epochs", "1"]
    with claimed(out):
        line = run(*words, "--predictions", out, "--overwrite").refuses()
        assert f"one run at a time must write a file; got {out}, which another writes" in line
    (tmp_path / ".p.csv.lock").touch()  # left behind by a process that was killed
    assert run(*words, "--predictions", out).status == 0
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_that_cannot_be_written_costs_no_other(run, home, tmp_path, monkeypatch):
    def full(*_):
        raise InputError("the output path must be writable") from OSError(errno.ENOSPC, "full")

    words = ["refine", "--target", home / "g.npz", "--device", "cpu"]
    words += ["--out", tmp_path / "r.csv", "--predictions", tmp_path / "p.csv"]
    writers = {"r.csv": "write_graph", "p.csv": "RefinedData.write_predictions"}
    for lost, place in writers.items():
        with monkeypatch.context() as patch:
            patch.setattr(
                f"graphglow.commands.results.{place}"
                if place == "write_graph"
                else f"graphglow.refine.{place}",
                full,
            )
            assert "must be writable" in run(*words, "--overwrite").refuses()
        assert [path.name for path in tmp_path.iterdir()] == [n for n in writers if n != lost]
        for path in tmp_path.iterdir():
            path.unlink()


def test_a_split_that_is_drawn_is_said(home, capsys):
    assert main(["fit", "--method", "mlp", "--target", str(home / "g.npz"), "--epochs", "1"]) == 0
    said = "g has no split of its own: 20 training, 10 validation and 10 test nodes are drawn"
    assert capsys.readouterr().err == f"graphglow: note: {said} (random seed 0)\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), 130),
        (RuntimeError("two\nlines"), 1),
        (MemoryError("1 TiB"), 2),
        (graphglow.InputError("bad"), 2),
    ],
)
def test_failure_leaves_what_was_there(run, home, tmp_path, monkeypatch, error, status):
    def fail(*args, **kwargs):
        raise error

    out = tmp_path / "graph.csv"
    out.write_text("old")
    for place in ("graphglow.transfer.transfer", "graphglow.graph.write._edge_values"):
        with monkeypatch.context() as patch:
            patch.setattr(place, fail)
            run(*refine_words(home, "--out", out, "--overwrite")).refuses(status)
        assert out.read_text() == "old"
        assert [path.name for path in tmp_path.iterdir()] == ["graph.csv"]


# Endings


@pytest.mark.slow
def test_exit_status_and_output_of_a_process(home, tmp_path):
    good = process(*transfer_words(home, "--json", "--out", tmp_path / "r.st"))
    assert SPLIT_SAID in good.err
    assert good.json["target"] == "g"
    process(*UNTRAINED, "--target", "absent").refuses()


def test_traceback_only_when_asked(monkeypatch, run, home):
    monkeypatch.setattr(training, "transfer", lambda *a, **k: 1 / 0)
    assert "ZeroDivisionError" in run(*transfer_words(home)).refuses(1)
    monkeypatch.setenv("GRAPHGLOW_DEBUG", "1")
    outcome = run(*transfer_words(home))
    assert outcome.status == 1
    assert "Traceback" in outcome.err


@pytest.mark.slow
def test_closed_pipe_is_quiet():
    command = f"{sys.executable} -m graphglow datasets | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_a_stream_that_cannot_show_a_letter_shows_its_number(monkeypatch):
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stderr", plain)
    assert main(["fit", "--method", "mlp", "--target", "M\u00fc.csv"]) == 2
    assert b"M\\xfc.csv" in plain.buffer.getvalue()


def test_sigterm_stays_ignored_where_it_is(monkeypatch):
    heard = []
    monkeypatch.setattr(cli, "_run", lambda *_: heard.append(signal.getsignal(signal.SIGTERM)))
    kept = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert main([]) == 0
    finally:
        signal.signal(signal.SIGTERM, kept)
    assert heard == [signal.SIG_IGN]


@pytest.mark.parametrize(("buffered", "json"), [(True, ["--json"]), (False, [])])
def test_standard_output_without_room_is_one_line_and_files_are_there(
    tmp_path, monkeypatch, capsys, buffered, json
):
    with open("/dev/full", "wb", buffering=0) as raw, monkeypatch.context() as patch:
        full = io.TextIOWrapper(io.BufferedWriter(raw) if buffered else raw)
        patch.setattr(sys, "stdout", full)
        assert main([*FIT, "2", "--predictions", str(tmp_path / "p.csv"), *json]) == 1
    assert capsys.readouterr().err.splitlines()[1:] == [
        "graphglow: standard output must be writable; got No space left on device"
    ]
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 179


class Full(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_note_without_room_stops_nothing(monkeypatch, capsys):
    def run(*_):
        warnings.warn(InputWarning("not all of it"), stacklevel=1)
        print("done")

    monkeypatch.setattr(cli, "_run", run)
    monkeypatch.setattr(sys, "stderr", Full())
    assert main([]) == 0
    assert capsys.readouterr().out == "done\n"
