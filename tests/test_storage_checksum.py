"""Saved tensors: what has changed on disk is refused, and the same content is the same file."""

import json
from contextlib import suppress

import pytest
import torch
from safetensors.torch import save as tensors_to_bytes

from graphglow.errors import InputError
from graphglow.storage import checksum, load_tensors, prefixed, save_tensors, within


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused(tmp_path, step):
    """Bit by bit through a whole file; or in strides that come to each place of a byte."""
    path, damaged = tmp_path / "t.safetensors", tmp_path / "damaged.safetensors"
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


def test_a_wrong_checksum_is_said(tmp_path):
    path = tmp_path / "t.safetensors"
    save_tensors(path, "thing", {"a": torch.zeros(4)}, {})
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    with pytest.raises(
        InputError, match=r"damaged or changed since \(its checksum is wrong or gone\)"
    ):
        load_tensors(path, "thing")


def test_a_checksum_that_is_gone_is_said(tmp_path):
    path = tmp_path / "t.safetensors"
    save_tensors(path, "thing", {"a": torch.zeros(4)}, {})
    path.write_bytes(path.read_bytes().replace(b"sha256", b"sha257"))
    with pytest.raises(InputError, match="wrong or gone"):
        load_tensors(path, "thing")


def test_a_file_of_before_there_were_checksums_is_read(tmp_path):
    path = tmp_path / "t.safetensors"
    header = {"graphglow": json.dumps({"kind": "thing", "version": 1, "fact": 2})}
    path.write_bytes(tensors_to_bytes({"a": torch.ones(2)}, metadata=header))
    loaded, facts = load_tensors(path, "thing")
    assert loaded["a"].tolist() == [1.0, 1.0]
    assert facts["fact"] == 2


def test_the_same_content_is_the_same_file(tmp_path):
    for name in ("one", "other"):
        save_tensors(tmp_path / name, "thing", {"a": torch.ones(2), "b": torch.zeros(1)}, {"x": 1})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


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
