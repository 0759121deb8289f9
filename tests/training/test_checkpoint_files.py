"""A run's folder: what is kept in it, what is passed over, and who may use it."""

import json
import shutil

import pytest
import torch
from dying_runs import (
    PRETRAIN,
    SOURCES,
    TARGET,
    TRANSFER,
    assert_same_result,
    eager,
    killed,
    pretrained,
    transferred,
    unbroken,
)
from safetensors import safe_open
from safetensors.torch import save_file

from graphglow.errors import InputError, InputWarning
from graphglow.graph import prepare
from graphglow.storage import load_tensors, save_tensors
from graphglow.training import checkpoint
from graphglow.training.checkpoint import graph_identity
from graphglow.transfer import transfer
from tiny_graphs import learner, small_data, transfer_config


def test_nothing_is_written_before_it_is_time(tmp_path):
    assert Checkpoints(tmp_path / "run").every_seconds == 10
    transferred(Checkpoints(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("keep", [1, 3])
def test_the_last_few_are_kept(tmp_path, keep):
    checkpoints = eager(tmp_path / "run", keep=keep)
    transferred(checkpoints)
    names = [path.name for path in checkpoints.files()]
    assert names == [f"checkpoint-{n:06d}.safetensors" for n in range(13 - keep, 13)]


def test_the_folder_is_removed_when_the_result_is_safe(tmp_path):
    checkpoints = eager(tmp_path / "run")
    transferred(checkpoints)
    checkpoints.remove()
    assert list(tmp_path.iterdir()) == []
    checkpoints.remove()  # again does no harm
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_ours_is_never_removed(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    checkpoints = eager(tmp_path)
    transferred(checkpoints)
    checkpoints.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_what_a_killed_write_left_is_swept_up(tmp_path):
    killed(transferred, tmp_path, 3)
    (tmp_path / ".checkpoint-000004.safetensors.x8.safetensors").write_bytes(b"half")
    assert_same_result(transferred(eager(tmp_path)), unbroken())
    assert not list(tmp_path.glob(".*"))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a flipped bit": flip,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: path.write_text("hello"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path, damage):
    killed(transferred, tmp_path, 6)
    checkpoints = eager(tmp_path)
    damage(checkpoints.files()[-1])
    with pytest.warns(InputWarning, match=r"cannot be used, the one before is used: .*000006"):
        result = transferred(checkpoints)
    assert checkpoints.resumed
    assert_same_result(result, unbroken())


def test_with_all_damaged_the_run_begins_anew_and_says_so(tmp_path):
    killed(transferred, tmp_path, 6)
    checkpoints = eager(tmp_path)
    for path in checkpoints.files():
        flip(path)
    with pytest.warns(InputWarning) as said:
        result = transferred(checkpoints)
    assert "starts from the beginning" in str(said[-1].message)
    assert len(said) == 2
    assert not checkpoints.resumed
    assert_same_result(result, unbroken())


def test_a_checkpoint_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    killed(transferred, tmp_path, 4)
    before = {path: path.read_bytes() for path in eager(tmp_path).files()}

    def full(*args, **kwargs):
        raise InputError("the output path must be writable; got x (No space left on device)")

    monkeypatch.setattr("graphglow.training.checkpoint.save_tensors", full)
    with pytest.warns(InputWarning) as said:
        result = transferred(eager(tmp_path))
    assert [str(one.message) for one in said] == [
        "a checkpoint was not written, what was written stays and the run goes on: "
        "the output path must be writable; got x (No space left on device)"
    ]
    assert_same_result(result, unbroken())
    assert {path: path.read_bytes() for path in eager(tmp_path).files()} == before


# Whose checkpoints


OTHER = {
    r"config\.learning_rate \(0\.02 there, 0\.03 here\)": {
        "config": transfer_config(learning_rate=0.03)
    },
    r"graph\.content \(\w+ there, \w+ here\)": {"data": small_data(seed=3, noise=0.50001)},
    r"graph\.name \(small-3 there, small-4 here\), graph\.content \(.*\)": {
        "data": small_data(seed=4)
    },
    r"learner \(\w+ there, \w+ here\)": {"theta": learner(seed=1)},
}


@pytest.mark.parametrize("named", OTHER)
def test_another_run_is_refused_by_what_differs(tmp_path, named):
    config = transfer_config()
    killed(lambda c: transferred(c, config=config), tmp_path, 2)
    before = sorted(tmp_path.iterdir())
    sentence = rf"must be of the same run; got {tmp_path}, which differs in {named}$"
    with pytest.raises(InputError, match=sentence):
        transferred(eager(tmp_path), **({"config": config} | OTHER[named]))
    assert sorted(tmp_path.iterdir()) == before


def test_sources_in_another_order_are_another_run(tmp_path):
    killed(pretrained, tmp_path, 2)
    with pytest.raises(InputError, match=r"sources\.1\.name \(small-1 there, small-2 here\)"):
        pretrained(eager(tmp_path), sources=SOURCES[::-1])
    with pytest.raises(InputError, match=r"command \(pretrain there, transfer here\), .*more"):
        transferred(eager(tmp_path))


def test_another_version_is_another_run(tmp_path, monkeypatch):
    killed(transferred, tmp_path, 2)
    monkeypatch.setattr(checkpoint, "__version__", "9.9")
    with pytest.raises(InputError, match=r"versions\.graphglow .* 9\.9 here"):
        transferred(eager(tmp_path))


def test_how_often_a_run_is_saved_is_not_part_of_it(tmp_path):
    killed(transferred, tmp_path, 2)
    checkpoints = Checkpoints(tmp_path, every_seconds=1e9, keep=7)
    assert_same_result(transferred(checkpoints), unbroken())
    assert checkpoints.resumed


def test_a_split_and_an_edge_weight_are_part_of_a_graph():
    known = {json.dumps(graph_identity(prepare(TARGET)))}
    for name, change in {
        "train_mask": lambda data: data.train_mask.roll(1) & ~data.val_mask & ~data.test_mask,
        "y": lambda data: data.y.roll(1),
        "x": lambda data: data.x * torch.tensor([1.0] * 7 + [2.0]),
        "edge_weight": lambda data: torch.full((data.edge_index.shape[1],), 2.0),
    }.items():
        data = TARGET.clone()
        data[name] = change(TARGET)
        known.add(json.dumps(graph_identity(prepare(data))))
    assert len(known) == 5
    assert json.dumps(graph_identity(prepare(TARGET.clone()))) in known


def test_left_over_checkpoints_are_neither_used_nor_destroyed_unasked(tmp_path):
    killed(transferred, tmp_path, 2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"begin without checkpoints .*--resume goes on"):
        transferred(eager(tmp_path, resume=False))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    shutil.rmtree(tmp_path)
    assert not eager(tmp_path, resume=False).files()
    transferred(eager(tmp_path, resume=False))


def test_a_second_one_is_refused_while_one_is_at_work(tmp_path):
    other = []

    def meddle(epoch):
        if epoch.epoch == 3:
            with pytest.raises(InputError, match="another process is at work in") as caught:
                transferred(eager(tmp_path))
            other.append(str(caught.value))

    result = transfer(TARGET, learner(), TRANSFER, on_epoch=meddle, checkpoints=eager(tmp_path))
    assert len(other) == 1
    assert "\n" not in other[0]
    assert_same_result(result, unbroken())


@pytest.mark.parametrize("settings", [{"keep": 0}, {"every_seconds": -1}, {"every_seconds": "x"}])
def test_senseless_settings_are_refused(tmp_path, settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        Checkpoints(tmp_path, **settings)


def test_a_file_where_the_folder_should_be_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(InputError, match=r"must be a writable folder; got .*/run \(File exists\)"):
        transferred(eager(tmp_path / "run"))
    assert (tmp_path / "run").read_text() == "mine"


def test_a_checkpoint_can_be_read_by_people(tmp_path):
    killed(pretrained, tmp_path, 7)
    tensors, meta = load_tensors(eager(tmp_path).files()[-1], "checkpoint")
    assert meta["run"]["config"]["epochs"] == PRETRAIN.epochs
    assert [source["name"] for source in meta["run"]["sources"]] == ["small-1", "small-2"]
    assert {name.split(".")[0] for name in tensors} == {
        *("course", "theta", "visit", "task_0", "task_1")
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, meta: tensors.pop("loop.best.accuracy"),
        lambda tensors, meta: tensors.update({"task.gnn.mean": tensors["task.gnn.mean"][:-1]}),
        lambda tensors, meta: meta["facts"].pop("seconds"),
    ],
)
def test_a_whole_file_that_does_not_fit_is_refused_in_one_sentence(tmp_path, change):
    killed(transferred, tmp_path, 3)
    path = eager(tmp_path).files()[-1]
    tensors, meta = load_tensors(path, "checkpoint")
    change(tensors, meta)
    save_tensors(path, "checkpoint", tensors, meta)
    with pytest.raises(InputError, match="must hold checkpoints that fit this run; got"):
        transferred(eager(tmp_path))


def test_a_checkpoint_without_a_checksum_is_damaged_whatever_its_version(tmp_path):
    killed(transferred, tmp_path, 6)
    path = eager(tmp_path).files()[-1]
    with safe_open(path, framework="pt") as file:
        meta = json.loads(file.metadata()["graphglow"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del meta["sha256"]
    tensors["task.gnn.flat"].fill_(5)
    save_file(tensors, path, {"graphglow": json.dumps({**meta, "version": 1})})
    with pytest.warns(InputWarning, match=r"the one before is used: .*its checksum is wrong or"):
        assert_same_result(transferred(eager(tmp_path)), unbroken())


def test_a_folder_that_vanishes_stops_nothing(tmp_path):
    folder = tmp_path / "run"

    def vanish(epoch):
        if epoch.epoch == 5:
            shutil.rmtree(folder)

    checkpoints = eager(folder)
    with checkpoints:
        result = transfer(TARGET, learner(), TRANSFER, on_epoch=vanish, checkpoints=checkpoints)
        checkpoints.remove()
    assert list(tmp_path.iterdir()) == []
    assert_same_result(result, unbroken())
