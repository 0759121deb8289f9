"""Conditions do what they say, to the graph and to the split."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphglow.graph import write_graph
from graphglow.lab.open_suite import (
    CONDITIONS,
    FAMILIES,
    FAMILY_FOLDS,
    Target,
    attacked_files,
    draw,
    family_of,
    few_labels,
    find_targets,
    shuffled_columns,
)
from tiny_graphs import small_data


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_condition_leaves_labels_and_a_split(name):
    data = small_data(num_nodes=200)
    found = draw(SimpleNamespace(load=lambda *_: data), name, 0, Path())
    if found is None:
        assert name in ("20 labels per class", "10 labels per class")
        return
    assert torch.equal(found.y, data.y)
    assert found.train_mask.any()
    assert found.val_mask.any()
    assert found.test_mask.any()
    assert not (found.train_mask & found.test_mask).any()


def test_few_labels_has_as_many_for_validation():
    found = few_labels(small_data(num_nodes=120), 3, seed=1)
    for mask in (found.train_mask, found.val_mask):
        assert torch.bincount(found.y[mask]).tolist() == [3, 3, 3]
    assert few_labels(small_data(), 10, seed=1) is None


def test_half_of_the_columns_are_dealt_out_anew():
    data = small_data()
    found = shuffled_columns(data, 0)
    assert torch.equal(found.x.sort(0)[0], data.x.sort(0)[0])
    assert int((found.x != data.x).any(0).sum()) == data.x.shape[1] // 2


def test_targets_are_found_with_their_families(tmp_path):
    (tmp_path / "open" / "attacked").mkdir(parents=True)
    data = small_data()
    n = data.num_nodes
    order = np.lexsort(data.edge_index.numpy())
    indptr = np.r_[0, np.bincount(data.edge_index[1].numpy(), minlength=n).cumsum()]
    arrays = {"adj_data": np.ones(len(order)), "adj_indices": data.edge_index[0].numpy()[order]}
    arrays |= {"adj_indptr": indptr, "adj_shape": [n, n], "labels": data.y.numpy()}
    x = data.x.numpy()
    arrays |= {"attr_data": x.ravel(), "attr_indices": np.tile(np.arange(8), n)}
    arrays |= {"attr_indptr": np.arange(0, 8 * n + 1, 8), "attr_shape": [n, 8]}
    np.savez(tmp_path / "open" / "dblp.npz", **arrays)
    write_graph(data, tmp_path / "open" / "attacked" / "cora-metattack-15.npz")
    found = {target.name: target for target in find_targets(tmp_path)}
    assert {*found} == {"cora", "dblp", "digits", "wine", "breast_cancer"}
    target = found["dblp"]
    assert (target.family, target.fold) == ("citation", 0)
    assert target.size == (n, data.edge_index.shape[1] // 2)
    assert draw(target, "as it is", 3, tmp_path).split == "random seed 3"
    assert [*attacked_files(tmp_path)] == ["metattack 15%"]


def test_every_family_is_in_a_fold():
    assert {family_of(name) for name in (*FAMILIES, "facebook-rice31-year")} == {*FAMILY_FOLDS}
    assert Target("mine", family_of("mine"), Path("mine.npz")).fold is None
