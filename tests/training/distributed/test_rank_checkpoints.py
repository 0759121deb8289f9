"""Ranks that are killed go on with ``--resume``, and end with the bits of a run that was not."""

import pytest
from two_ranks import facts, job, of_ranks, sentences, statuses, write_graph

from graphglow.commands.flags import parse
from graphglow.commands.graphs import shard
from tiny_graphs import learner

pytestmark = pytest.mark.slow
MODEL = ["--num-pivots", "8", "--refinements", "2", "--device", "cpu", "--json"]
SAVED = ["--checkpoint-seconds", "0"]


def transfer(folder, *more, target="s2"):
    words = ("transfer", "--learner", "theta.st", "--target", target)
    return [*words, "--predictions", folder, "--epochs", "40", "--seed", "2", *MODEL, *more]


def pretrain(out, *more):
    words = ("pretrain", "--kind", "paper", "--sources", "g0.npz", "g1.npz", "--out", out)
    return [
        *words,
        "--schedule",
        "together",
        "--epochs",
        "15",
        "--learner.embedding-size",
        "6",
        *MODEL,
        *more,
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    write_graph(folder / "g0.npz", 0, 60)
    write_graph(folder / "g1.npz", 1, 80)
    learner().save(folder / "theta.st")
    cut = ["--graph", folder / "g0.npz", "--out", folder / "s2", "--parts", 2]
    parse(shard, [str(word) for word in cut])()
    return folder


@pytest.fixture(scope="module")
def said(home):
    third = "{}.checkpoints/checkpoint-*[3-9].safetensors"
    jobs = {
        "transfer": job(transfer("whole", target="g0.npz")),
        "one is killed": job(transfer("p", *SAVED), kill=[1], when=third.format("p")),
        "begun anew": job(transfer("p", *SAVED)),
        "on three": job([transfer("p", *SAVED, "--resume", target="g0.npz")] * 3),
        "of another seed": job(transfer("p", *SAVED, "--resume", "--seed", "3")),
        "all are killed": job(
            transfer("p", *SAVED, "--resume"), kill=[0, 1], when="p.checkpoints/checkpoint-*8.*"
        ),
        "resumed": job(transfer("p", *SAVED, "--resume")),
        "once more": job(transfer("p", *SAVED, "--resume")),
        "pretrain": job(pretrain("whole.st")),
        "pretrain killed": job(pretrain("l.st", *SAVED), kill=[0, 1], when=third.format("l.st")),
        "pretrain resumed": job(pretrain("l.st", *SAVED, "--resume")),
        "pretrain killed again": job(pretrain("m.st", *SAVED), kill=[0], when=third.format("m.st")),
        "pretrain on one": job([pretrain("m.st", *SAVED, "--resume")]),
        "nowhere to lie": job(
            [word for word in transfer("p", "--resume") if word not in ("p", "--predictions")]
        ),
    }
    return of_ranks(home, jobs)


def predictions(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_killed_transfer_of_shards_goes_on_to_the_bits_of_one_of_the_whole_graph(home, said):
    assert statuses(said["one is killed"]) == [1, -9]
    assert sentences(said["one is killed"]) == [
        "graphglow: rank 0 of 2 lost another one, which ended"
    ]
    assert statuses(said["all are killed"]) == [-9, -9]
    whole, resumed = facts(said["transfer"]), facts(said["resumed"])
    assert (whole["resumed"], resumed["resumed"]) == (False, True)
    for name in ("test_accuracy", "val_accuracy", "epochs"):
        assert resumed[name] == whole[name]
    assert predictions(home / "p") == predictions(home / "whole")
    assert len(predictions(home / "p")) == 4
    assert not (home / "p.checkpoints").exists()
    assert not (home / "whole.checkpoints").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("begun anew", "a new run must begin without checkpoints of an unfinished one"),
        ("on three", "checkpoints must be of the same run"),
        ("of another seed", "config.seed (2 there, 3 here)"),
        ("once more", "--resume must have an unfinished run to go on with; got p"),
        ("nowhere to lie", "--resume must go with --predictions FOLDER"),
    ],
)
def test_what_cannot_go_on_is_refused_once_and_by_all(said, name, sentence):
    assert set(statuses(said[name])) == {2}
    (line,) = sentences(said[name])
    assert sentence in line


def test_another_number_of_ranks_is_named(said):
    assert "ranks (2 there, 3 here)" in sentences(said["on three"])[0]


def test_killed_pretraining_goes_on_to_the_same_file(home, said):
    assert statuses(said["pretrain killed"]) == [-9, -9]
    whole, resumed = facts(said["pretrain"]), facts(said["pretrain resumed"])
    assert (whole["resumed"], resumed["resumed"]) == (False, True)
    assert resumed["visit_scores"] == whole["visit_scores"]
    assert (home / "l.st").read_bytes() == (home / "whole.st").read_bytes()
    assert not list(home.glob("*.checkpoints"))


def test_pretraining_goes_on_with_another_number_of_ranks(home, said):
    assert statuses(said["pretrain killed again"]) == [-9, 1]
    assert facts(said["pretrain on one"])["resumed"] is True
    assert (home / "m.st").read_bytes() == (home / "whole.st").read_bytes()
