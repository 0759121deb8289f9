"""Ranks that were asked different things, cannot write, or lose each other: a sentence, no hang."""

import json
import threading

import numpy as np
import pytest
import torch
from two_ranks import facts, job, of_ranks, sentences, statuses, write_graph

from graphglow.commands.flags import parse
from graphglow.commands.graphs import shard
from graphglow.errors import InputError
from graphglow.training.distributed import Ranks
from graphglow.training.distributed.agreement import agree
from graphglow.training.distributed.meeting import meet
from tiny_graphs import learner

pytestmark = pytest.mark.slow
MODEL = ["--num-pivots", "8", "--refinements", "2", "--epochs", "3", "--device", "cpu", "--json"]


def transfer(folder, *more, target="s2", learner="theta.st"):
    words = ("transfer", "--learner", learner, "--target", target)
    return [*words, "--predictions", folder, *MODEL, *more]


def pretrain(*more):
    words = ("pretrain", "--kind", "paper", "--sources", "g0.npz", "g1.npz", "--out", "l.st")
    return [*words, "--schedule", "together", *MODEL, *more]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    write_graph(folder / "g0.npz", 0, 60)
    write_graph(folder / "g1.npz", 1, 60)
    learner().save(folder / "theta.st")
    for graph, parts, out in (("g0", 2, "s2"), ("g0", 3, "s3"), ("g1", 2, "t2"), ("g0", 2, "d2")):
        cut = ["--graph", folder / f"{graph}.npz", "--out", folder / out, "--parts", parts]
        parse(shard, [str(word) for word in cut])()
    (folder / "d2" / "part-1" / "y.npy").unlink()
    (folder / "file").write_text("not a folder")
    return folder


DIFFERENT = {
    "seed": (transfer("d"), transfer("d", "--seed", "1"), "setting seed (0 on rank 0, 1 on"),
    "pivots": (transfer("d"), transfer("d", "--num-pivots", "9"), "setting num_pivots (8 on"),
    "epochs": (transfer("d"), transfer("d", "--epochs", "40"), "setting epochs (3 on rank 0, 40"),
    "shards": (transfer("d"), transfer("d", target="t2"), "graph or split ("),
    "kind": (transfer("d"), transfer("d", target="g0.npz"), "kind of target (a folder of shards"),
    "split": (
        transfer("d", target="g0.npz"),
        transfer("d", "--split-seed", "3", target="g0.npz"),
        "graph or split (",
    ),
    "learner": (
        transfer("d"),
        transfer("d", learner="paper"),
        "learner (",
    ),
    "command": (transfer("d"), pretrain(), "job (transfer on rank 0, pretrain"),
    "sources": (pretrain(), pretrain("--split-seed", "1"), "source 1 ("),
    "seed of theta": (pretrain(), pretrain("--seed", "1"), "setting seed (0 on rank 0, 1 on"),
}
"""Command lines of rank 0 and rank 1, and what the refusal names."""
REFUSED = {
    "no folder": (
        transfer("file/p", target="absent"),
        "the output path must be writable; got file/p",
    ),
    "a file": (
        transfer("file", "--overwrite", target="absent"),
        "must be a folder; got the file file",
    ),
    "split seed": (transfer("d", "--split-seed", "0"), "got --split-seed too"),
    "timeout": (transfer("d"), "GRAPHGLOW_RANK_TIMEOUT must be a number of seconds > 0, and at"),
}


@pytest.fixture(scope="module")
def said(home):
    jobs = {name: job([first, second]) for name, (first, second, _) in DIFFERENT.items()}
    jobs |= {name: job(words) for name, (words, _) in REFUSED.items()}
    jobs["timeout"]["env"] = {"GRAPHGLOW_RANK_TIMEOUT": "1e30"}
    jobs["no room"] = job(transfer("full"), limit=(1, 200))
    jobs["damaged"] = job(transfer("d", target="d2"))
    jobs["three"] = job([transfer("many", target="s3")] * 3)
    jobs["two"] = job(transfer("many", "--overwrite"))
    jobs["one"] = job([transfer("single", target="g0.npz")], env={"TORCHELASTIC_RUN_ID": "x"})
    (home / "many").mkdir()
    for name in ("notes.txt", "nodes-x.npy", "nodes-7.npy.old"):
        (home / "many" / name).write_text("mine")
    jobs["three"]["words"] = [[*words, "--overwrite"] for words in jobs["three"]["words"]]
    return of_ranks(home, jobs)


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_were_asked_different_things_refuse(home, said, name):
    assert statuses(said[name]) == [2, 2]
    (line,) = sentences(said[name])
    assert line.startswith("graphglow: all ranks must do the same job; got another ")
    assert DIFFERENT[name][-1] in line
    assert not (home / "d").exists()
    assert not (home / "l.st").exists()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_before_the_target_is_read(said, name):
    assert statuses(said[name]) == [2, 2]
    assert len(sentences(said[name])) == (2 if name == "timeout" else 1)  # it is of their meeting
    assert REFUSED[name][-1] in sentences(said[name])[0]


def test_predictions_that_do_not_fit_end_all_ranks(home, said):
    assert statuses(said["no room"]) == [2, 2]
    (line,) = sentences(said["no room"])
    assert line.startswith("graphglow: the output path must be writable; got full/nodes-1.npy")
    assert {path.name for path in (home / "full").iterdir()} <= {
        "nodes-0.npy", "probabilities-0.npy",
    }  # fmt: skip
    assert (home / "full.checkpoints").exists() is False  # it took less than ten seconds


def test_a_rank_that_refuses_a_file_is_the_one_that_is_heard(said):
    assert statuses(said["damaged"]) == [2, 2]
    (line,) = sentences(said["damaged"])
    assert "part-1" in line
    assert line in said["damaged"][1][2]


def test_predictions_of_an_older_job_with_more_ranks_are_removed(home, said):
    facts(said["three"])
    facts(said["two"])
    parts = {f"{kind}-{rank}.npy" for kind in ("nodes", "probabilities") for rank in (0, 1)}
    others = {"notes.txt", "nodes-x.npy", "nodes-7.npy.old"}
    assert {path.name for path in (home / "many").iterdir()} == parts | others
    nodes = np.concatenate([np.load(home / "many" / f"nodes-{rank}.npy") for rank in (0, 1)])
    assert sorted(nodes) == list(range(60))


def test_one_process_of_torchrun_writes_a_folder_too(home, said):
    assert facts(said["one"])["ranks"] == 1
    assert len(np.load(home / "single" / "nodes-0.npy")) == 60


def test_ranks_that_start_again_do_not_meet_the_dead(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 2)

    def meeting(delays):
        found = {}

        def arrive(rank):
            threading.Event().wait(delays[rank])
            own = torch.distributed.FileStore(str(tmp_path / "store"), 2)
            found[rank] = meet(own, rank, 2, f"word {rank}", 20)

        threads = [threading.Thread(target=arrive, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    seen = set()
    for delays in ((0, 0), (0, 0.3), (0.3, 0), (0, 0)):  # each time the last one's words are there
        found = meeting(delays)
        assert found[0][1] == found[1][1] == ["word 0", "word 1"]
        found[0][0].set("address", json.dumps(len(seen)))
        assert json.loads(found[1][0].get("address")) == len(seen)
        plan = json.loads(store.get("plan"))[0]
        assert plan not in seen
        seen.add(plan)


def test_a_rank_that_never_comes_is_not_waited_for(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 2)
    with pytest.raises(RuntimeError, match="rank 0 of 2 did not meet all others"):
        meet(store, 0, 2, "", 0.1)


def test_one_rank_agrees_with_itself():
    agree(Ranks(), {"a": 1})


def test_many_differences_are_counted(monkeypatch):
    ranks = Ranks()
    monkeypatch.setattr(
        Ranks, "texts", lambda self, own: [own, json.dumps({"a": "2", "b": "x" * 3})]
    )
    with pytest.raises(InputError, match=r"a \(1 on rank 0, 2 on rank 1\), b .* and 1 more"):
        agree(ranks, {"a": 1, "b": "y" * 100})
