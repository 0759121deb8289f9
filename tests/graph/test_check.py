"""The bad graphs of the design, one by one; each is refused in one sentence."""

import re

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData

from graphglow.errors import InputError
from graphglow.graph import check_graph


def mask(*nodes: int, size: int = 12) -> torch.Tensor:
    out = torch.zeros(size, dtype=torch.bool)
    out[list(nodes)] = True
    return out


def with_entry(x: torch.Tensor, value: float) -> torch.Tensor:
    x = x.clone()
    x[4, 1] = value
    return x


BAD = {
    "nothing": (lambda d: {"x": None, "edge_index": None}, "features x or edges; got neither"),
    "list features": (lambda d: {"x": [[1.0]]}, "a row per node [N, D]; got list"),
    "empty graph": (
        lambda d: {"x": torch.ones(0, 3), "y": d.y[:0]},
        "at least one node; got (0, 3)",
    ),
    "zero features": (lambda d: {"x": torch.zeros(12, 3)}, "non-zero entry; got all zeros"),
    "nan": (lambda d: {"x": with_entry(d.x, float("nan"))}, "finite; got nan at node 4, column 1"),
    "rows": (lambda d: {"x": d.x[:7]}, "y must have one label per node (7); got shape (12,)"),
    "stated size": (lambda d: {"num_nodes": 13}, "x must have one row per node (13); got 12 rows"),
    "no labels": (lambda d: {"y": None}, "must have labels y [N]; got y of type NoneType"),
    "float labels": (
        lambda d: {"y": d.y.float()},
        "integer classes (-1 for unlabelled); got torch",
    ),
    "one-hot labels": (
        lambda d: {"y": torch.eye(12)},
        "one label per node (12); got shape (12, 12)",
    ),
    "label -2": (lambda d: {"y": d.y - 1}, "-1 (unlabelled) or a class from 0; got -2"),
    "unlabelled": (lambda d: {"y": torch.full((12,), -1)}, "two classes; got no label at all"),
    "one class": (lambda d: {"y": torch.zeros(12, dtype=torch.int64)}, "got only class 0"),
    "huge class": (lambda d: {"y": d.y.abs() * 1000}, "classes below the node count 12; got 1000"),
    "edge shape": (lambda d: {"edge_index": d.edge_index.T}, "shape [2, E]; got (24, 2)"),
    "edge floats": (
        lambda d: {"edge_index": d.edge_index.float()},
        "hold integers; got torch.float",
    ),
    "edge range": (lambda d: {"edge_index": d.edge_index + 1}, "lie in [0, 11]; got 12"),
    "adj_t": (
        lambda d: {"edge_index": None, "adj_t": torch.eye(12).to_sparse()},
        "edges must be given as edge_index [2, E]; got adj_t only",
    ),
    "weight size": (lambda d: {"edge_weight": torch.ones(3)}, "one value per edge (24); got (3,)"),
    "weight 1e39": (
        lambda d: {"edge_weight": torch.full((24,), 1e39, dtype=torch.float64)},
        "at most 1e+30; got 1e+39",
    ),
    "weight < 0": (lambda d: {"edge_weight": -torch.ones(24)}, "finite and non-negative"),
    "ids": (lambda d: {"node_id": ["a"]}, "node_id must have one id per node (12); got 1"),
    "mask length": (
        lambda d: {"train_mask": mask(0, size=5), "val_mask": mask(1)},
        "train_mask must have one entry per node (12); got (5,)",
    ),
    "mask type": (
        lambda d: {"train_mask": mask(0).long(), "val_mask": mask(1)},
        "train_mask must be boolean; got torch.int64",
    ),
    "one mask": (
        lambda d: {"train_mask": mask(0)},
        "a split must have training and validation nodes",
    ),
    "overlap": (
        lambda d: {"train_mask": mask(0, 1, 2), "val_mask": mask(1, 2)},
        "training and validation nodes must not overlap; got 2 nodes in both",
    ),
    "empty train": (
        lambda d: {"train_mask": mask(), "val_mask": mask(1)},
        "at least one labelled node for training (train_mask); got none",
    ),
    "unlabelled validation": (
        lambda d: {"train_mask": mask(0), "val_mask": mask(11)},
        "at least one labelled node for validation (val_mask); got none",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_graphs_are_refused_in_one_sentence(case, small_graph):
    changes, message = BAD[case]
    for name, value in changes(small_graph).items():
        small_graph[name] = value
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        check_graph(small_graph)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("graph", [None, "cora", HeteroData(), {"x": torch.ones(3, 1)}])
def test_only_data_is_a_graph(graph):
    with pytest.raises(InputError, match="a torch_geometric Data; got"):
        check_graph(graph)


def test_zero_edges_give_a_knn_graph(small_graph):
    small_graph.edge_index = torch.empty(2, 0, dtype=torch.int64)
    small_graph.edge_weight = torch.empty(0)
    checked = check_graph(small_graph)
    assert checked.knn_graph
    assert checked.edge_index.shape[1] > 0
    assert checked.get("edge_weight") is None


def test_two_nodes_suffice():
    checked = check_graph(Data(x=torch.eye(2), y=torch.tensor([0, 1])))
    assert checked.edge_index.tolist() == [[0, 1], [1, 0]]
    assert int(checked.train_mask.sum()) == int(checked.val_mask.sum()) == 1
    assert not checked.test_mask.any()


def test_what_is_harmless_is_taken(small_graph):
    small_graph.x = small_graph.x.double().to_sparse().requires_grad_()
    small_graph.y = small_graph.y[:, None].to(torch.int32)
    small_graph.edge_index = EdgeIndex(small_graph.edge_index)
    small_graph.edge_weight = torch.ones(24, 1, dtype=torch.float64)
    checked = check_graph(small_graph)
    assert (checked.x.dtype, checked.y.dtype) == (torch.float32, torch.int64)
    assert checked.x.layout == torch.strided
    assert not checked.x.requires_grad
    assert type(checked.edge_index) is torch.Tensor
    assert checked.edge_weight.shape == (24,)


def test_masks_lose_unlabelled_nodes(small_graph):
    small_graph.train_mask, small_graph.val_mask = mask(0, 11), mask(1)
    assert check_graph(small_graph).train_mask.tolist() == mask(0).tolist()


@pytest.mark.parametrize("y", [None, [-1] * 12, [-1] * 11 + [0]])
def test_labels_are_not_always_needed(y, small_graph):
    small_graph.y = None if y is None else torch.tensor(y)
    checked = check_graph(small_graph, need_labels=False)
    assert checked.y.tolist() == (y or [-1] * 12)
    assert not checked.test_mask.any()


def test_of_several_splits_one_must_be_chosen(small_graph):
    for name in ("train_mask", "val_mask", "test_mask"):
        small_graph[name] = torch.zeros(12, 10, dtype=torch.bool)
    with pytest.raises(
        InputError, match=r"choose one.*data\.train_mask = data\.train_mask\[:, 0\]"
    ):
        check_graph(small_graph)
