import re

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphglow.errors import InputError
from graphglow.graph import load_graph
from graphglow.graph.check import few_label_split, mask_from, random_split


def test_half_a_quarter_a_quarter_of_the_labelled():
    y = torch.arange(100) % 4
    y[:20] = -1
    train, val, test = random_split(y, seed=0)
    assert (len(train), len(val), len(test)) == (40, 20, 20)
    together = torch.cat([train, val, test]).sort()[0]
    assert torch.equal(together, torch.arange(20, 100))


def test_each_class_is_split_alike():
    y = torch.tensor([0] * 40 + [1] * 8 + [2] * 4 + [-1] * 5)
    for seed in range(5):
        parts = random_split(y, seed=seed, by_class=True)
        counts = [y[part].bincount(minlength=3).tolist() for part in parts]
        assert counts == [[20, 4, 2], [10, 2, 1], [10, 2, 1]]
        assert torch.equal(torch.cat(parts).sort()[0], torch.arange(52))
    one, other = (random_split(y, seed=seed, by_class=True)[0] for seed in (0, 1))
    assert not torch.equal(one, other)
    assert torch.equal(one, random_split(y, seed=0, by_class=True)[0])


def test_the_second_nodes_of_classes_of_two_are_shared_out():
    y = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, *[4] * 40])
    parts = random_split(y, seed=0, by_class=True)
    assert [int((y[part] < 4).sum()) for part in parts] == [4, 2, 2]


@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=8), seed=st.integers(0, 99))
@example(sizes=[2, 2, 3, 9, 3, 6], seed=59)
@settings(max_examples=50, deadline=None)
def test_every_class_is_learned_where_there_is_room(sizes, seed):
    y = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    train, val, test = random_split(y, seed=seed, by_class=True)
    assert len(train) == max(1, len(y) // 2)
    assert len(val) == max(1, len(y) // 4)
    assert len(train) + len(val) + len(test) == len(y)
    if len(train) >= len(sizes):
        assert len(y[train].unique()) == len(sizes)
        for label, size in enumerate(sizes if min(sizes) > 1 else []):
            assert abs(int((y[train] == label).sum()) - size / 2) <= 0.5
            assert abs(int((y[val] == label).sum()) - size / 4) <= 1.5


def test_a_graph_of_a_name_keeps_the_split_of_the_paper():
    data = load_graph("synthetic-small", split_seed=3)
    train, _, test = random_split(data.y, seed=3)
    assert torch.equal(data.train_mask.nonzero()[:, 0], train)
    assert torch.equal(data.test_mask.nonzero()[:, 0], test)


def write(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_a_split_file_replaces_the_masks(small_graph, tmp_path):
    file = write(tmp_path / "s.npz", train=[0, 1], val=[2, 3], test=np.arange(12) == 5)
    data = load_graph(load_graph(small_graph), split_file=file)
    assert data.train_mask.nonzero().flatten().tolist() == [0, 1]
    assert data.val_mask.nonzero().flatten().tolist() == [2, 3]
    assert data.test_mask.nonzero().flatten().tolist() == [5]


BAD = {
    "no val": ({"train": [0], "test": [1]}, "Save the arrays train, val and test"),
    "overlap": ({"train": [0, 1], "val": [1], "test": []}, "must not overlap; got 1 nodes in both"),
    "range": ({"train": [0, 12], "val": [1], "test": []}, "must lie in [0, 11]; got 12"),
    "negative": ({"train": [0, -1], "val": [1], "test": []}, "must lie in [0, 11]; got -1"),
    "floats": ({"train": [0.5], "val": [1], "test": []}, "node indices or booleans; got float64"),
    "2-d": ({"train": [[0]], "val": [1], "test": []}, "must be one-dimensional; got shape (1, 1)"),
    "short mask": (
        {"train": [True], "val": [1], "test": []},
        "must have one entry per node (12); got 1",
    ),
    "empty": ({"train": [], "val": [1], "test": []}, "at least one labelled node for training"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_split_files(case, small_graph, tmp_path):
    arrays, message = BAD[case]
    file = write(tmp_path / "s.npz", **arrays)
    with pytest.raises(InputError, match=re.escape(message)):
        load_graph(small_graph, split_file=file)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 truncated", b"\x93NUMPY", b"text"])
def test_damaged_split_files(content, small_graph, tmp_path):
    (tmp_path / "s.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"the split file .* is no \.npz file of plain arrays"):
        load_graph(small_graph, split_file=tmp_path / "s.npz")


def test_few_labels_takes_so_many_of_each_class_and_splits_the_rest() -> None:
    y = torch.tensor([0] * 30 + [1] * 20 + [2] * 3 + [-1] * 7)
    train, val, test = few_label_split(y, per_class=5, seed=0)
    assert torch.bincount(y[train]).tolist() == [5, 5, 3]
    assert len(val) == (53 - 13) // 4
    together = torch.cat([train, val, test])
    assert together.sort()[0].tolist() == list(range(53))
    again = few_label_split(y, per_class=5, seed=0)
    assert all(a.equal(b) for a, b in zip((train, val, test), again, strict=True))
    assert not few_label_split(y, per_class=5, seed=1)[0].equal(train)


def test_a_mask_of_integers_is_not_taken_for_indices() -> None:
    with pytest.raises(InputError, match="got a mask of 0 and 1"):
        mask_from(np.array([0, 1, 1, 0]), 4, "train")
