"""``graphglow search`` through the command line's one entry point, and as several processes."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from graphglow.commands import terminal
from graphglow.competitors import METHODS
from graphglow.lab.search.settings import read_settings
from graphglow.paper import StructureLearner
from graphglow.settings import LearnerConfig

FAST = ["--trials", "2", "--epochs", "2", "--seeds-per-trial", "2", "--pretrain-epochs", "1"]
FAST += ["--device", "cpu"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty working folder with two small graphs."""
    monkeypatch.chdir(tmp_path)
    random, ring = np.random.default_rng(0), np.arange(40)
    for name in ("one", "two"):
        np.savez(
            tmp_path / f"{name}.npz",
            x=random.normal(size=(40, 4)).astype(np.float32),
            y=ring % 2,
            edge_index=np.stack([ring, (ring + 2) % 40]),
        )
    return tmp_path


@pytest.fixture
def search(run):
    return partial(run, "search")


def test_one_json_object_and_the_best_settings_in_the_file(search, home):
    outcome = search("--methods", "gcn", "mlp", "--targets", "one.npz", *FAST, "--json")
    assert outcome.err == ""
    rows = outcome.json["rows"]
    assert [(row["method"], row["target"]) for row in rows] == [("gcn", "one"), ("mlp", "one")]
    known = read_settings(home / "results" / "settings.json")
    for row in rows:
        assert (row["trials"], row["split"]) == (2, "random seed 0")
        assert 0 <= row["val_accuracy"] <= 1
        assert known.of(row["method"], "one") == row["settings"]
        assert set(row["settings"]) == set(METHODS[row["method"]].space)
        assert row["provenance"]["command"]
        assert "test" not in {name.split("_")[0] for name in row}
    kept = (home / "results" / "search.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in kept] == rows
    assert (home / "runs" / "search" / "trials.db").exists()


def test_a_table_for_people(search):
    words = ["--methods", "gcn", "--targets", "one.npz", *FAST, "--settings", "s.json"]
    status, out, err = search(*words, "--storage", "t.db")
    assert (status, err) == (0, "")
    assert "2/2" in out
    assert "gcn on one: dropout " in out
    assert "settings: s.json" in out
    assert {path.name for path in Path().iterdir()} == {
        *("one.npz", "two.npz", "s.json", "search.jsonl", "t.db"),
    }


def test_a_target_is_left_out_of_its_own_sources(search):
    words = ["--methods", "graphglow", "--targets", "one.npz", "two.npz"]
    words += ["--sources", "one.npz", "two.npz", *FAST, "--json"]
    rows = search(*words).json["rows"]
    assert [(row["target"], row["sources"]) for row in rows] == [("one", ["two"]), ("two", ["one"])]
    assert {*rows[0]["settings"]} == {"pretrain", "transfer"}
    assert len(list(Path("runs/search/learners").iterdir())) == 4


def test_a_learner_from_a_file(search):
    StructureLearner(LearnerConfig(embedding_size=4)).save("l.st")
    words = ["--methods", "graphglow", "--targets", "one.npz", "--learner", "l.st", *FAST, "--json"]
    (row,) = search(*words).json["rows"]
    assert {*row["settings"]} == {"transfer"}


def test_the_authors_split_of_the_facebook_graphs(search, data_root, tmp_path):
    words = ["--methods", "link", "--targets", "Reed98", *FAST, "--json", "--data-root"]
    (authors,) = search(*words, data_root, "--split-seed", "3").json["rows"]  # for other targets
    (drawn,) = search(*words, data_root, "--split", "random").json["rows"]
    assert (authors["target"], authors["split"]) == ("reed98", "authors")
    assert drawn["split"] == "random seed 0"
    assert authors["study"] != drawn["study"]
    line = search(*words, tmp_path).refuses()
    assert "split.npz; got no such file (--split random draws one)" in line


def test_progress_is_shown_on_a_terminal(search, monkeypatch):
    monkeypatch.setattr(terminal, "interactive", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the captured stream for a terminal
    status, _, err = search("--methods", "gcn", "--targets", "one.npz", *FAST)
    assert status == 0
    assert "gcn on one" in err
    assert "2/2" in err


def test_trials_that_fail_are_said(search, monkeypatch):
    monkeypatch.setattr("graphglow.training.device.free_bytes", lambda device: 10)
    words = ["--targets", "one.npz", *FAST]
    status, out, err = search("--methods", "mlp", "idgl", *words)
    assert (status, err) == (0, "")
    assert "idgl on one: idgl must fit in memory" in out
    assert "idgl" not in read_settings(Path("results/settings.json")).entries
    line = search("--methods", "idgl", *words).refuses()
    assert "a trial must succeed; got none in 1 (idgl must fit in memory" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "required options are missing: --methods"),
        ("--methods gcn", "required options are missing: --targets"),
        ("--methods --targets one.npz", "at least one method and one target; got none"),
        ("--methods gnc --targets one.npz", "method must be one of "),
        ("--methods gcn --targets on.npz", "got on.npz"),
        ("--methods gcn --targets one.npz --trials 0", "trials must be >= 1; got 0"),
        (
            "--methods gcn --targets one.npz --learner l.st",
            "other methods neither; got one for gcn",
        ),
        (
            "--methods graphglow --targets one.npz --learner l.st",
            "learner must be universal",
        ),
        ("--methods graphglow --targets one.npz --sources one.npz", "got only one.npz"),
        ("--methods gcn --targets one.npz --settings one.npz", "must end in .json"),
        ("--methods gcn --targets one.npz --settings bad.json", "settings file must be JSON"),
        ("--methods gcn --targets one.npz --storage .", "must be writable"),
    ],
)
def test_bad_usage_is_one_line_and_leaves_nothing(search, home, words, said):
    (home / "bad.json").write_text("bad")
    before = sorted(home.iterdir())
    assert said in search(*words.split()).refuses()
    assert sorted(home.iterdir()) == before


WORKER = """
import os, signal, sys, time
from pathlib import Path
import torch
from graphglow.cli import main
from graphglow.lab.search import space

torch.set_num_threads(1)
real, role = space.fit_many, sys.argv.pop(1)

def fit_many(*args, **more):
    Path(f"begun-{os.getpid()}").touch()
    while len(list(Path().glob("begun-*"))) < 3:  # until each has a trial in hand
        time.sleep(0.02)
    if role == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)

space.fit_many = fit_many
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main())
"""


def workers(*roles):
    """Start one process for each role, all at once, and wait for them: [(out, status)]."""
    words = ["search", "--methods", "gcn", "--targets", "one.npz", "--trials", "8"]
    words += ["--epochs", "1", "--seeds-per-trial", "1", "--device", "cpu", "--json"]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, role, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for role in roles
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [(process.communicate()[0], process.returncode) for process in started]


@pytest.mark.slow
def test_processes_share_one_file_and_a_killed_one_loses_its_trial_only(home):
    (_, killed), *done = workers("dies", "lives", "lives")
    assert killed == -signal.SIGKILL
    assert [status for _, status in done] == [0, 0]
    rows = [json.loads(out)["rows"][0] for out, _ in done]
    assert max(row["trials"] for row in rows) == 8

    import optuna

    storage = f"sqlite:///{home / 'runs' / 'search' / 'trials.db'}"
    trials = optuna.load_study(storage=storage, study_name=rows[0]["study"]).get_trials()
    finished = [trial for trial in trials if trial.state == optuna.trial.TrialState.COMPLETE]
    assert 8 <= len({json.dumps(trial.params) for trial in finished}) <= 9  # both at the last one
    assert [t.state.name for t in trials if not t.state.is_finished()] == ["RUNNING"]  # the killed
    found = read_settings(home / "results" / "settings.json").of("gcn", "one")
    assert found in [row["settings"] for row in rows]
    kept = (home / "results" / "search.jsonl").read_text().splitlines()
    assert [json.loads(line)["trials"] for line in kept][-1] == 8
