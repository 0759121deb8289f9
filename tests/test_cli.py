"""The command line, through its one entry point: help, success, refusals, files, endings."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import graphglow
from command_line import Outcome, ring_arrays
from graphglow.cli import COMMANDS, main
from graphglow.commands import output
from graphglow.graph.write import WRITERS

SHORT = ["--epochs", "2", "--device", "cpu"]
FAST = [*SHORT, "--num-pivots", "8", "--refinements", "2"]
UNTRAINED = ["transfer", "--learner", "untrained"]
FIT = ["fit", "--method", "mlp", "--device", "cpu", "--epochs", "1", "--target"]
TINY = ["--max-nodes", "300", "--steps", "3"]


def process(*words, **environment):
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "graphglow", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


# Help


def test_help_and_typos_do_not_wait_for_torch():
    lines = [["--help"], [], ["--version"], ["tranfer"], ["predict", "--target", "a", "--sed", "3"]]
    lines += [[name, "--help"] for name in COMMANDS]
    lines += [["pretrain", "--kind", kind, "--help"] for kind in ("auditor", "paper")]
    lines += [["transfer", "--learner", "paper", "--help"]]
    code = f"""
import sys
from graphglow.cli import main
print([main(words) for words in {lines!r}], file=sys.stderr)
sys.exit("torch was imported" if {{"torch", "numpy", "pandas"}} & {{*sys.modules}} else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    statuses = [0] * 3 + [2] * 2 + [0] * (len(lines) - 5)
    assert str(statuses) in done.stderr


def test_the_first_help_says_which_command_answers_which_question(run):
    for words in ([], ["--help"], ["help"]):
        outcome = run(*words)
        assert (outcome.status, outcome.err) == (0, "")
        assert all(f"  {name:<10} {what}\n" in outcome.out for name, (_, what) in COMMANDS.items())
    assert run("--version") == (0, f"graphglow {graphglow.__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(run, name):
    outcome = run(name, "--help")
    assert (outcome.status, outcome.err) == (0, "")
    assert "--json" in outcome.out
    assert outcome == run("help", name)


def test_kinds_have_settings_of_their_own(run):
    assert "--num-pivots" not in run("transfer", "--help").out
    assert "--num-pivots" in run("transfer", "--learner=paper", "--help").out
    assert "--learner.num-heads" in run("pretrain", "--kind", "paper", "--help").out
    assert "--random-episodes" in run("pretrain", "--kind", "auditor", "--help").out
    assert "--attention-heads" in run("fit", "--method", "gat", "--help").out


# Success


def test_transfer_prints_one_json_object(run, home):
    words = ["transfer", "--target", home / "g.npz", *SHORT, "--json"]
    outcome = run(*words, "--seed", "3")
    assert outcome.err == ""  # no progress bar, since nobody watches
    facts = outcome.json
    assert (facts["target"], facts["backbone"], facts["learner"]) == ("g", "gcn", "universal")
    assert 0 <= facts["test_accuracy"] <= 1
    assert 0 <= facts["val_accuracy"] <= 1
    assert 0 <= facts["metrics"]["balanced_accuracy"] <= 1
    assert 0 < facts["train_seconds"] <= facts["total_seconds"]
    assert facts["peak_memory_bytes"] > 0
    assert (facts["epochs"], facts["device"], facts["seed"]) == (2, "cpu", 3)
    assert (facts["split"], facts["out"]) == ("random seed 0", None)
    facts = run(*words, "--learner", "untrained", "--input-weight", "0.25").json
    assert (facts["learner"], facts["input_weight"]) == ("untrained", 0.25)


def test_a_learner_of_the_papers_kind_has_its_own_settings(run, home):
    words = ["transfer", "--learner", home / "learner.st", "--target", home / "g.npz", *FAST]
    outcome = run(*words)
    assert (outcome.status, outcome.err) == (0, "")
    assert "test accuracy" in outcome.out
    facts = run(*words, "--json").json
    assert facts["method"] == "graphglow"
    assert "--hidden" in run(*words, "--hidden", "8").refuses()


def test_the_split_is_named(run, home, tmp_path):
    split = {"train": np.arange(10), "val": np.arange(10, 20), "test": np.arange(20, 30)}
    np.savez(tmp_path / "split.npz", **split)
    np.savez(tmp_path / "own.npz", **ring_arrays(), **split)
    own, words = tmp_path / "own.npz", [*FIT, home / "g.npz", "--json"]
    assert run(*words, "--split-seed", "7").json["split"] == "random seed 7"
    facts = run(*words, "--split-file", tmp_path / "split.npz").json
    assert facts["split"] == f"file:{tmp_path / 'split.npz'}"
    assert run(*FIT, own, "--json").json["split"] == "own"
    assert "has one (own)" in run(*FIT, own, "--split-seed", "0").refuses()


def test_a_split_that_is_drawn_is_said(home, capsys):
    assert main([*map(str, [*FIT, home / "g.npz"])]) == 0
    said = "g has no split of its own: 20 training, 10 validation and 10 test nodes are drawn"
    assert capsys.readouterr().err == f"graphglow: note: {said} (random seed 0)\n"


def test_named_graph_under_a_data_root(run, data_root):
    facts = run(*FIT, "Cora", "--json", "--data-root", data_root).json
    assert (facts["target"], facts["split"]) == ("cora", "public")


def test_no_test_nodes_is_null(run, tmp_path):
    np.savez(tmp_path / "g.npz", **ring_arrays(), train=np.arange(20), val=np.arange(20, 40))
    assert run(*FIT, tmp_path / "g.npz", "--json").json["test_accuracy"] is None


def test_pretrain_trains_all_three_kinds(run, home, tmp_path):
    paper, evidence, auditor = (tmp_path / name for name in ("p.st", "e.st", "a.st"))
    words = ["pretrain", "--kind", "paper", "--sources", home / "g.npz", "synthetic-small"]
    words += ["--episodes", "1", *FAST, "--learner.num-heads", "3", "--seed", "5", "--json"]
    facts = run(*words, "--out", paper).json
    assert (facts["sources"], facts["seed"]) == (["g", "synthetic-small"], 5)
    learner = graphglow.StructureLearner.load(paper)
    assert (learner.config.num_heads, learner.provenance["config"]["num_pivots"]) == (3, 8)
    words = ["pretrain", "--sources", "wine", "--out", evidence, *TINY, "--nodes", "8", "--json"]
    words += [f"--{name}-episodes=1" for name in ("first", "vote", "second", "predict")]
    assert run(*words).json["kind"] == "evidence"
    words = ["refine", "--target", "wine", "--learner", evidence, "--out", tmp_path / "g.csv"]
    assert run(*words).status == 0
    words = ["pretrain", "--kind", "auditor", "--sources", "wine", "--out", auditor, *TINY]
    assert run(*words, "--episodes", "1", "--random-episodes", "1", "--json").json["sources"]
    assert run("audit", "--target", "wine", "--auditor", auditor, "--json").json["edges"] > 0


@pytest.mark.parametrize("suffix", WRITERS)
def test_refine_writes_every_format(run, tmp_path, suffix):
    out = tmp_path / f"refined{suffix}"
    facts = run("refine", "--target", "wine", "--top-k", "3", "--out", out, "--json").json
    assert out.stat().st_size > 0
    assert facts["edges_out"] == facts["edges_in"] + facts["added"] - facts["dropped"]
    assert 0 < facts["edges_out"] <= 3 * 178


def test_refine_takes_tables_without_labels_and_writes_the_users_own_ids(run, tmp_path):
    nodes = [f"n{i},{i % 2 + i / 99},{i % 5}" for i in range(30)]
    edges = [f"n{i},n{(i + 2) % 30}" for i in range(30)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,f,g", *nodes]))
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *edges]))
    out = tmp_path / "refined.csv"
    assert run("refine", "--target", tmp_path, "--out", out).status == 0
    table = pd.read_csv(out)
    assert list(table.columns) == ["source", "target", "weight", "probability", "in_input"]
    assert table.source.str.match(r"n\d+").all()
    line = run("refine", "--target", tmp_path, "--out", tmp_path / "h.csv", "--predictions",
               tmp_path / "p.csv").refuses()  # fmt: skip
    assert "labels" in line


def test_predict_gives_programs_what_python_gives(run, tmp_path):
    facts = run("predict", "--target", "wine", "--coverage", "0.9", "--json").json
    prediction = graphglow.predict(graphglow.load_graph("wine"), coverage=0.9)
    assert {"leave_one_out_accuracy", "low", "high", "best_channels", "set_size"} <= facts.keys()
    assert facts["classes"] == 3
    assert prediction.accuracy.value > 0.9
    out = tmp_path / "p.csv"
    outcome = run("predict", "--target", "wine", "--out", out)
    assert "leave-one-out" in outcome.out
    assert "majority" not in outcome.out  # every label is given where there is no split
    assert len(pd.read_csv(out)) == 178
    two = run("predict", "--target", "breast_cancer", "--split-seed", "0", "--json").json
    assert min(two["auroc"], two["average_precision"], two["test_accuracy"]) > two["majority"] > 0
    two = run("predict", "--target", "breast_cancer", "--json").json  # by leave-one-out
    assert min(two["auroc"], two["average_precision"]) > two["majority"] > 0.6
    assert "always the majority: 0.500" in repr(graphglow.predict("breast_cancer"))


def test_datasets_says_which_files_are_there(run, tmp_path):
    (tmp_path / "CiteSeer" / "raw").mkdir(parents=True)
    (tmp_path / "CiteSeer" / "raw" / "ind.citeseer.x").touch()
    facts = run("datasets", "--data-root", tmp_path, "--json").json
    found = {row["name"]: row["found"] for row in facts["datasets"]}
    assert found.keys() == graphglow.graph.DATASETS.keys()
    assert [found[n] for n in ("cora", "citeseer", "pubmed", "wine")] == [True, True, False, True]
    shown = run("datasets", "--data-root", tmp_path / "absent").out
    assert "missing" in shown
    assert "universal" in shown


def test_a_log_has_a_line_now_and_then_and_at_the_end(capsys, monkeypatch):
    with output.progress_bar(in_logs=True) as move:
        for done in range(1, 11):
            move("drawing", done, 10)
    assert capsys.readouterr().err.splitlines() == [
        "graphglow: 1 of 10: drawing", "graphglow: 10 of 10: drawing"
    ]  # fmt: skip
    with output.progress_bar() as move:
        move("drawing", 10, 10)
    assert capsys.readouterr().err == ""


def test_a_log_says_how_long_a_stage_will_take(capsys, monkeypatch):
    clock = iter([0.0, 100.0, 200.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with output.progress_bar(in_logs=True) as move:
        for stage, done in (("drawing", 0), ("drawing", 2), ("learning", 0)):
            move(stage, done, 10)
    lines = [line.removeprefix("graphglow: ") for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "0 of 10: drawing",
        "2 of 10: drawing, about 7 minutes left",
        "0 of 10: learning",
    ]


def test_progress_is_shown_on_a_terminal(run, home, monkeypatch):
    monkeypatch.setattr(output, "interactive", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the captured stream for a terminal
    outcome = run(*FIT, home / "g.npz", "--json")
    assert "validation" in outcome.err
    assert outcome.json["epochs"] == 1


def test_demo_writes_a_report_and_replaces_only_reports(run, tmp_path, monkeypatch):
    from graphglow.demo import DemoTarget, run_demo

    names = ("wine", "synthetic-small")
    targets = [DemoTarget(name, name, 5, false_edges=1.0) for name in names]
    monkeypatch.setattr("graphglow.lab.open_methods.EPOCHS", 2)
    small = partial(run_demo, targets, seeds=2)
    monkeypatch.setattr("graphglow.demo.run_demo", small)
    monkeypatch.chdir(tmp_path)
    first = run("demo")
    assert (first.status, first.err) == (0, "")
    assert str(tmp_path / "demo_report.html") in first.out
    assert "of the injected edges" in " ".join(first.out.split())
    again = run("demo", "--json", "--seed", "4").json
    assert [line["method"] for line in again["comparisons"]["wine"]]
    assert again["seed"] == 4
    Path("demo_report.html").write_text("my own page")
    assert "--overwrite" in run("demo").refuses()
    assert Path("demo_report.html").read_text() == "my own page"


# Bad command lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tranfer", "no command 'tranfer' (nearest: transfer)"),
        ("transfer", "--target NAME|FILE"),
        ("transfer --target wine --epoch 3", "--epochs"),
        ("transfer --target wine --epochs x", "--epochs"),
        ("transfer --learner univrsal --target wine", "'univrsal' (nearest: universal)"),
        ("transfer --target wine --split-seed -1", "split"),
        ("pretrain --out l.st", "--sources"),
        ("pretrain --sources --out l.st", "at least one source"),
        ("pretrain --sources wine wnie --out l.st", "(nearest: wine)"),
        ("pretrain --sources wine --out l.st --split-file s.npz", "--split-file"),
        ("pretrain --sources wine --out l.st --resume", "--kind paper"),
        ("pretrain --kind nonsense --sources wine --out l.st", "--kind must be one of"),
        ("fit --method gnc --target wine", "(nearest: gcn"),
        ("refine --out g.csv", "--target"),
        ("refine --target wine --out g.csv --min-probability 2", "min_probability"),
        ("refine --target wine --out g.xlsx", ".graphml"),
        ("refine --target wine --out g.csv --predictions ./g.csv", "one file"),
        ("predict", "--target or --saved"),
        ("predict --target wine --nodes n.csv", "--saved"),
        ("predict --saved p.st --nodes n.csv", "--out"),
        ("predict --target wine --coverage 1", "coverage"),
        ("explain --target wine", "--node ID or --pair"),
        ("explain --node 3", "--target NAME|FILE"),
        ("explain --target wine --pair 3 4 --label a", "--label goes with --node"),
        ("explain --target wine --pair 3 999", "999"),
        ("audit --target wine --out a.html --suspects s.csv --missing ./s.csv", "one file"),
        ("audit --target wine --out a.txt", ".html"),
        ("compare --target wine --split-seed 3", "--split-seed"),
        ("report", "at least one saved transfer"),
        ("transfer --target no_such_graph", "no_such_graph"),
        ("transfer --target a\x1b[31m\nb", "a\\x1b"),
    ],
)
def test_bad_usage_is_one_line(run, monkeypatch, tmp_path, words, said):
    monkeypatch.chdir(tmp_path)
    line = run(*words.split(" ")).refuses()
    assert said in line
    assert "\x1b" not in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "colour"), [("utf-8", "1"), ("ascii", "0")])
def test_usage_errors_do_not_depend_on_the_terminal(encoding, colour):
    words = ["transfer", "--x"]
    line = process(*words, PYTHONIOENCODING=encoding, FORCE_COLOR=colour).refuses()
    assert "--target NAME|FILE" in line
    assert "--x" in line
    assert "\x1b" not in line


def test_no_edges_are_said(run, tmp_path):
    rows = [f"{n},{'ab'[n % 2]},{n % 2 + n / 99},{n % 5}" for n in range(30)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,f,g", *rows]))
    (tmp_path / "edges.csv").write_text("source,target\n")
    outcome = run("audit", "--target", tmp_path)
    assert (outcome.status, outcome.err.count("has no edges of its own")) == (0, 1)


# Output files


def never(*args, **kwargs):
    raise AssertionError("work has begun")


@pytest.mark.parametrize(
    "words",
    [["pretrain", "--sources", "wine"], [*UNTRAINED, "--target", "wine"],
     ["refine", "--target", "wine"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_outputs_are_checked_before_any_work(run, tmp_path, monkeypatch, words):
    monkeypatch.setattr("graphglow.graph.load_graph", never)
    suffix = ".pt" if words[0] == "refine" else ".st"
    taken, folder = tmp_path / f"taken{suffix}", tmp_path / f"folder{suffix}"
    plain, link = tmp_path / "plain", tmp_path / f"link{suffix}"
    taken.write_text("mine")
    folder.mkdir()
    plain.touch()
    link.symlink_to(tmp_path / "gone.st")
    before = sorted(tmp_path.iterdir())
    for path in (taken, link):
        assert "--overwrite" in run(*words, "--out", path).refuses()
    assert "no regular file" in run(*words, "--out", folder, "--overwrite").refuses()
    assert "no folder" in run(*words, "--out", tmp_path / "new" / f"a{suffix}").refuses()
    for path in (plain / f"below{suffix}", tmp_path / f"{'n' * 250}{suffix}"):
        assert "cannot be written" in run(*words, "--out", path).refuses()
    assert taken.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == before


def test_an_output_is_never_one_of_the_inputs(run, home, tmp_path):
    learner, graph = tmp_path / "l.st", tmp_path / "g.npz"
    learner.write_bytes((home / "learner.st").read_bytes())
    graph.write_bytes((home / "g.npz").read_bytes())
    kept = learner.read_bytes(), graph.read_bytes()
    words = ["transfer", "--learner", learner, "--target", graph, "--overwrite"]
    assert "one of the inputs" in run(*words, "--out", learner).refuses()
    assert "one of the inputs" in run("refine", *words[3:], "--out", graph).refuses()
    assert (learner.read_bytes(), graph.read_bytes()) == kept


def test_a_file_that_cannot_be_written_costs_no_other(run, home, tmp_path, monkeypatch):
    def full(*_):
        raise graphglow.InputError("no space left")

    monkeypatch.setattr("graphglow.graph.write_graph", full)
    words = ["refine", "--target", home / "g.npz", "--out", tmp_path / "r.csv"]
    assert "no space left" in run(*words, "--predictions", tmp_path / "p.csv").refuses()
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


# Endings


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
    monkeypatch.setattr("graphglow.graph.write._edge_values", fail)
    run("refine", "--target", home / "g.npz", "--out", out, "--overwrite").refuses(status)
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["graph.csv"]


@pytest.mark.usefixtures("plain_sigterm")
def test_sigterm_ends_a_command(run, monkeypatch):
    def die(*_, **__):
        os.kill(os.getpid(), 15)

    monkeypatch.setattr("graphglow.graph.load_graph", die)
    assert run(*FIT, "wine").refuses(143) == "graphglow: terminated\n"


def test_a_traceback_only_when_asked(monkeypatch, run, home):
    monkeypatch.setattr("graphglow.transfer", lambda *a, **k: 1 / 0)
    words = [*UNTRAINED, "--target", home / "g.npz"]
    assert "ZeroDivisionError" in run(*words).refuses(1)
    monkeypatch.setenv("GRAPHGLOW_DEBUG", "1")
    outcome = run(*words)
    assert outcome.status == 1
    assert "Traceback" in outcome.err


@pytest.mark.slow
def test_a_closed_pipe_is_quiet():
    command = f"{sys.executable} -m graphglow datasets | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_control_characters_do_not_reach_the_terminal(capsys):
    output.print_facts("t\x1b[2J", {"\x1b[31mred": "\x1b[2J", "none": None}, json=False)
    shown = capsys.readouterr().out
    assert "red" in shown
    assert "\x1b" not in shown
    assert "none" not in shown


def test_json_is_strict(capsys):
    output.print_json({"a": float("nan"), "b": Path("c"), "d": [float("inf"), 0]})
    assert capsys.readouterr().out == '{"a": null, "b": "c", "d": [null, 0]}\n'
