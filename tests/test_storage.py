"""Files are whole or absent, and what was on disk before is never harmed."""

import io
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from graphglow.errors import InputError
from graphglow.storage import (
    append_line,
    atomic_path,
    existing_file,
    load_tensors,
    save_tensors,
    try_lock,
    wait_for_lock,
)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("old", [None, b"old"])
def test_the_file_changes_in_one_step_when_the_block_succeeds(tmp_path, old):
    path = tmp_path / "a" / "out.csv"
    with pytest.raises(InputError, match="there is no folder"), atomic_path(path):
        pass
    path.parent.mkdir()
    if old is not None:
        path.write_bytes(old)
    with atomic_path(str(path)) as temporary:
        temporary.write_bytes(b"new")
        assert temporary.parent == path.parent
        assert temporary.suffix == ".csv"  # for writers that go by it
        assert (path.read_bytes() if path.exists() else None) == old
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["out.csv"]


@pytest.mark.parametrize("failure", [ValueError, OSError, KeyboardInterrupt])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_failing_block_leaves_what_was_there(tmp_path, failure, old):
    path = tmp_path / "out.bin"
    if old is not None:
        path.write_bytes(old)

    def write():
        with atomic_path(path) as temporary:
            temporary.write_bytes(b"half")
            raise failure("stop")

    with pytest.raises((failure, InputError)):
        write()
    assert names(tmp_path) == ([] if old is None else ["out.bin"])
    assert old is None or path.read_bytes() == old


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_new_file_has_the_permissions_of_any_new_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        with atomic_path(tmp_path / "out.bin") as temporary:
            temporary.write_bytes(b"new")
        assert os.umask(mask) == mask  # and the mask itself is as it was
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.bin").stat().st_mode) == 0o666 & ~mask


def refused(path):
    with pytest.raises(InputError) as caught, atomic_path(path) as temporary:
        temporary.write_bytes(b"new")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_as_output_is_refused(tmp_path):
    (tmp_path / "keep").write_text("keep")
    assert "must be a file; got the folder" in refused(tmp_path)
    assert names(tmp_path) == ["keep"]


def test_a_file_where_a_folder_must_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("keep")
    assert "must be writable" in refused(tmp_path / "file" / "out.bin")
    assert (tmp_path / "file").read_text() == "keep"


def test_a_name_too_long_for_the_file_system_is_refused(tmp_path):
    refused(tmp_path / ("x" * 300))
    assert names(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_or_device_is_never_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # as /dev/null would be, for root
    with pytest.raises(InputError), atomic_path(pipe) as temporary:
        temporary.write_bytes(b"new")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert "must be writable" in refused(tmp_path / "out.bin")
    finally:
        tmp_path.chmod(0o700)


def test_an_existing_file_is_returned_and_others_are_named(tmp_path):
    path = tmp_path / "in.bin"
    path.write_bytes(b"x")
    assert existing_file(str(path), "the graph") == path
    for absent in ("none", "x" * 300, "in.bin/none", "nul\0"):
        with pytest.raises(InputError, match=r"^the graph must exist; got "):
            existing_file(tmp_path / absent, "the graph")
    with pytest.raises(InputError, match=r"^the graph must be a file; got the folder"):
        existing_file(tmp_path, "the graph")


def test_tensors_and_facts_survive_the_disk(tmp_path):
    tensors = {
        "a": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).T,  # not contiguous
        "b": torch.tensor([True, False]),
        "c": torch.arange(3).requires_grad_(False),
        "d": torch.ones(2, requires_grad=True),
        "empty": torch.empty(0, 5),
    }
    meta = {"words": ["\u00e4", 'quote "'], "number": 0.1, "none": None, "deep": {"x": [1, 2]}}
    save_tensors(tmp_path / "t.safetensors", "thing", tensors, meta)
    loaded, facts = load_tensors(tmp_path / "t.safetensors", "thing")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor)
        assert loaded[name].dtype == tensor.dtype
    assert {name: facts[name] for name in meta} == meta


def test_tensors_that_share_memory_are_saved(tmp_path):
    whole = torch.arange(6.0)
    save_tensors(tmp_path / "t.safetensors", "thing", {"a": whole[:3], "b": whole[3:]}, {})
    loaded, _ = load_tensors(tmp_path / "t.safetensors", "thing")
    assert loaded["b"].tolist() == [3.0, 4.0, 5.0]


def test_facts_that_json_cannot_hold_leave_the_old_file(tmp_path):
    path = tmp_path / "t.safetensors"
    path.write_text("old")
    with pytest.raises((TypeError, ValueError)):
        save_tensors(path, "thing", {}, {"bad": object()})
    assert path.read_text() == "old"
    assert names(tmp_path) == ["t.safetensors"]


def test_lines_are_appended_whole(tmp_path):
    path = tmp_path / "new" / "rows.jsonl"
    append_line(path, "one")
    append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"


def test_a_torn_line_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"b"')  # a writer was killed
    append_line(path, '{"c": 3}')
    assert path.read_text().splitlines() == ['{"a": 1}', '{"b"', '{"c": 3}']


def test_a_full_disk_takes_the_part_of_a_line_back(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    append_line(path, "whole")
    real = io.FileIO.write

    class Short(io.FileIO):
        def write(self, data):
            return real(self, data[:3])

    monkeypatch.setattr(io, "FileIO", Short)
    with pytest.raises(InputError, match="No space left"):
        append_line(path, "another")
    monkeypatch.undo()
    assert path.read_text() == "whole\n"


def test_many_writers_lose_no_line(tmp_path):
    path = tmp_path / "rows.jsonl"

    def write(writer):
        for number in range(20):
            append_line(path, f"{writer}-{number}-" + "x" * 1000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    lines = path.read_text().splitlines()
    assert len(lines) == 160
    assert {line.rsplit("-", 1)[0] for line in lines} == {
        f"{w}-{n}" for w in range(8) for n in range(20)
    }


def test_append_to_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="must be writable"):
        append_line(tmp_path, "line")


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = []
    real_sync, real_replace = os.fsync, Path.replace

    def fsync(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real_sync(handle)

    def replace(path, target):
        done.append("rename")
        return real_replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    with atomic_path(tmp_path / "out.bin") as temporary:
        temporary.write_bytes(b"new")
    assert done == ["file", "rename", "folder"]


def test_a_lock_is_held_by_one_until_it_lets_go(tmp_path):
    one = try_lock(tmp_path / "lock")
    assert one is not None
    assert try_lock(tmp_path / "lock") is None
    one.close()
    other = try_lock(tmp_path / "lock")
    assert other is not None
    (tmp_path / "lock").unlink()
    new = try_lock(tmp_path / "lock")  # a file of the same name is another lock
    assert new is not None
    for file in (other, new):
        file.close()


@pytest.mark.parametrize("take", [try_lock, wait_for_lock, lambda path: append_line(path, "row")])
def test_a_lock_that_is_no_regular_file_is_refused_and_not_waited_for(tmp_path, take):
    os.mkfifo(tmp_path / "lock")
    (tmp_path / "link").symlink_to("lock")
    for path in (tmp_path / "lock", tmp_path / "link", Path("/dev/null")):
        with pytest.raises(InputError, match="a lock must lie on a regular file; got "):
            take(path)


def test_a_lock_behind_a_circle_of_links_is_an_error_of_the_system(tmp_path):
    (tmp_path / "lock").symlink_to("lock")
    with pytest.raises(OSError, match="symbolic links"):
        try_lock(tmp_path / "lock")


def test_a_damaged_file_is_told_in_words_of_ours(tmp_path):
    path = tmp_path / "cut.st"
    path.write_bytes(b"\0" * 5)
    with pytest.raises(InputError) as caught:
        load_tensors(path, "checkpoint")
    said = f"{path} must be a graphglow checkpoint file; it is foreign or truncated"
    assert str(caught.value) == said
