"""Files are whole or absent, and what was on disk before is never harmed."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch

from graphglow.errors import InputError
from graphglow.storage import (
    append_line,
    atomic_path,
    checksum,
    existing_file,
    load_tensors,
    prefixed,
    save_tensors,
    within,
)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("old", [None, b"old"])
def test_the_file_changes_in_one_step_when_the_block_succeeds(tmp_path, old):
    path = tmp_path / "out.csv"
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


def test_the_new_file_has_the_permissions_of_any_new_file(tmp_path):
    before = os.umask(0o077)
    try:
        with atomic_path(tmp_path / "out.bin") as temporary:
            temporary.write_bytes(b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.bin").stat().st_mode) == 0o600


def test_what_is_no_place_for_a_file_is_refused_and_left_alone(tmp_path):
    (tmp_path / "file").write_text("keep")
    os.mkfifo(tmp_path / "pipe")  # as /dev/null would be, for root
    before = names(tmp_path)
    places = (tmp_path, tmp_path / "file" / "below", tmp_path / "absent" / "a", tmp_path / "pipe")
    for path in (*places, tmp_path / ("x" * 300)):
        with pytest.raises(InputError), atomic_path(path) as temporary:
            temporary.write_bytes(b"new")
    with pytest.raises(InputError, match="no regular file"):
        append_line(tmp_path / "pipe", "line")  # and is not waited for
    assert names(tmp_path) == before
    assert (tmp_path / "file").read_text() == "keep"


def test_an_existing_file_is_returned_and_others_are_named(tmp_path):
    path = tmp_path / "in.bin"
    path.write_bytes(b"x")
    assert existing_file(str(path), "the graph") == path
    for absent in ("none", "x" * 300, "in.bin/none", "nul\0"):
        with pytest.raises(InputError, match=r"^the graph must exist; got "):
            existing_file(tmp_path / absent, "the graph")
    with pytest.raises(InputError, match=r"^the graph must be .*; got the folder"):
        existing_file(tmp_path, "the graph")


# Tensors


def test_tensors_and_facts_survive_the_disk(tmp_path):
    whole = torch.arange(6.0)
    tensors = {
        "a": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).T,  # not contiguous
        "b": torch.tensor([True, False]),
        "half": whole[:3],  # they share memory
        "other": whole[3:],
        "d": torch.ones(2, requires_grad=True),
        "empty": torch.empty(0, 5),
    }
    meta = {"words": ["\u00e4", 'quote "'], "number": 0.1, "none": None, "deep": {"x": [1, 2]}}
    for name in ("t.st", "again.st"):
        save_tensors(tmp_path / name, "thing", tensors, meta)
    assert (tmp_path / "t.st").read_bytes() == (tmp_path / "again.st").read_bytes()
    loaded, facts = load_tensors(tmp_path / "t.st", "thing")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor)
        assert loaded[name].dtype == tensor.dtype
    assert {name: facts[name] for name in meta} == meta


def test_facts_that_json_cannot_hold_leave_the_old_file(tmp_path):
    path = tmp_path / "t.st"
    path.write_text("old")
    with pytest.raises((TypeError, ValueError)):
        save_tensors(path, "thing", {}, {"bad": object()})
    assert path.read_text() == "old"
    assert names(tmp_path) == ["t.st"]


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused(tmp_path, step):
    """Bit by bit through a whole file; or in strides that come to each place of a byte."""
    path, damaged = tmp_path / "t.st", tmp_path / "damaged.st"
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([True, False])}
    save_tensors(path, "thing", tensors, {"number": 0.1, "words": ["one", "two"]})
    whole = path.read_bytes()
    for position in range(0, 8 * len(whole), step):
        changed = bytearray(whole)
        changed[position // 8] ^= 1 << position % 8
        damaged.write_bytes(changed)
        with suppress(InputError):
            load_tensors(damaged, "thing")
            pytest.fail(f"bit {position} of {whole[position // 8 - 20 : position // 8 + 20]!r}")


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "t.st"
    save_tensors(path, "thing", {"a": torch.zeros(4)}, {})
    with pytest.raises(InputError, match="must be a graphglow result; got a 'thing' file"):
        load_tensors(path, "result")
    newer = path.read_bytes().replace(b'version\\": 2', b'version\\": 3')
    for data, said in (
        (newer, "format 3"),
        (path.read_bytes().replace(b"sha256", b"sha257"), "checksum"),
        (b"\0" * 5, "foreign or truncated"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputError, match=said):
            load_tensors(path, "thing")
        save_tensors(path, "thing", {"a": torch.zeros(4)}, {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0, 5), (3, 2)])
def test_a_checksum_knows_names_types_shapes_and_values(dtype, shape):
    one = torch.ones(shape, dtype=dtype)
    known = checksum({"a": one}, {"x": 1})
    assert checksum({"a": one.clone()}, {"x": 1}) == known
    others = [checksum({"b": one}, {"x": 1}), checksum({"a": one}, {"x": 2})]
    others.append(checksum({"a": one[None]}, {"x": 1}))
    if one.numel():
        others.append(checksum({"a": torch.zeros_like(one)}, {"x": 1}))
    assert known not in others


def test_parts_of_a_whole_come_out_as_they_went_in():
    one, other = {"a": torch.ones(1)}, {"a.b": torch.zeros(1)}
    whole = prefixed("one", one) | prefixed("other", other)
    assert sorted(whole) == ["one.a", "other.a.b"]
    assert within("one", whole) == one
    assert within("other", whole) == other
    assert within("on", whole) == {}


# Lines


def test_lines_are_appended(tmp_path):
    path = tmp_path / "new" / "rows.jsonl"
    append_line(path, "one")
    append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"


def test_many_writers_lose_no_line(tmp_path):
    path = tmp_path / "rows.jsonl"

    def write(writer):
        for number in range(20):
            append_line(path, f"{writer}-{number}-" + "x" * 1000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    lines = path.read_text().splitlines()
    assert {line.rsplit("-", 1)[0] for line in lines} == {
        f"{w}-{n}" for w in range(8) for n in range(20)
    }
    assert len(lines) == 160


def test_a_path_with_a_zero_byte_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="zero byte"), atomic_path("a\0.csv"):
        pass
