"""``graphglow predict --target``: a report for people, an object for programs, a table."""

import pandas as pd
import pytest

import graphglow

SAID = {
    "target", "method", "leave_one_out_accuracy", "low", "high", "test_accuracy", "auroc",
    "average_precision", "labels", "classes", "seconds", "device", "seed",
}  # fmt: skip
WINE = ["predict", "--target", "wine", "--device", "cpu"]


def test_a_program_reads_what_python_gives(run):
    facts = run(*WINE, "--split-seed", "0", "--json").json
    found = graphglow.predict(graphglow.load_graph("wine"), device="cpu")
    assert set(facts) >= SAID
    assert (facts["method"], facts["target"], facts["device"]) == ("predict", "wine", "cpu")
    accuracy = found.accuracy
    assert facts["leave_one_out_accuracy"] == pytest.approx(accuracy.value)
    assert (facts["low"], facts["high"]) == pytest.approx((accuracy.low, accuracy.high))
    assert facts["test_accuracy"] == pytest.approx(found.score("test").accuracy)
    assert (facts["labels"], facts["classes"], facts["seed"]) == (89, 3, 0)
    assert facts["average_precision"] is None  # of two classes only
    assert len(facts["best_channels"]) == 3


def test_without_a_split_every_label_is_given(run, tmp_path):
    out = tmp_path / "p.csv"
    outcome = run(*WINE, "--out", out, "--coverage", "0.9")
    assert (outcome.status, outcome.err) == (0, "")
    for words in ("leave-one-out over 178 labels", "best channels", "90% coverage"):
        assert words in " ".join(outcome.out.split())
    assert "test accuracy" not in outcome.out
    frame = pd.read_csv(out)
    assert len(frame) == 178
    assert {"id", "predicted", "probability", "labelled", "classes"} <= set(frame)
    assert bool(frame.labelled.all())


def test_two_classes_have_ranking_measures(run, home):
    words = ["predict", "--target", home / "g.npz", "--split-seed", "0", "--device", "cpu"]
    shown = " ".join(run(*words).out.split())
    assert "AUROC, average precision" in shown
    assert "the majority class is" in shown
    facts = run(*words, "--labels", "train+val", "--json").json
    assert 0 <= facts["average_precision"] <= 1
    assert facts["labels"] == 30


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("", "predict needs either --target or --result; got none"),
        ("--target wine --result r.st", "predict needs either --target or --result; got both"),
        ("--target wine --nodes n.csv", "go with --result, not --target"),
        ("--target wine --labels train+val", "needs a val_mask"),
        ("--target wine --coverage 2", "coverage must lie between 0 and 1"),
        ("--target wine --out p.txt", "must be .csv or .parquet"),
        ("--target wien", "wine"),
        ("--target wine --learner paper", "needs an evidence learner"),
        ("--result r.st --nodes n.csv --out p.csv --coverage 0.9", "must come without --coverage"),
        ("--result r.st --out p.csv", "--result needs --nodes"),
    ],
)
def test_bad_words_are_refused_in_one_line(run, tmp_path, monkeypatch, words, rule):
    monkeypatch.chdir(tmp_path)
    assert rule in run("predict", *words.split()).refuses()
    assert list(tmp_path.iterdir()) == []


def test_an_output_is_not_replaced_unasked(run, tmp_path):
    (tmp_path / "p.csv").write_text("mine")
    assert "--overwrite" in run(*WINE, "--out", tmp_path / "p.csv").refuses()
    assert (tmp_path / "p.csv").read_text() == "mine"
