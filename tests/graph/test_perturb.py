"""Damage to graphs: exactly as much as asked for, the same for a seed, and nothing else changed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph import check_graph, synthetic_graph
from graphglow.graph.datasets import PERTURBATIONS, add_edges, delete_edges, shuffle_features

EVERY = pytest.mark.parametrize("kind", PERTURBATIONS)


def graph(seed=0, num_nodes=60):
    return check_graph(
        synthetic_graph(
            num_nodes=num_nodes, num_classes=3, num_features=4, average_degree=4.0, seed=seed
        )
    )


def pairs(data):
    """Undirected edges without loops."""
    return {tuple(sorted(edge)) for edge in data.edge_index.T.tolist() if edge[0] != edge[1]}


@settings(max_examples=25, deadline=None)
@given(ratio=st.floats(0, 0.9), seed=st.integers(0, 99))
def test_deleting_takes_so_many_edges_both_ways(ratio, seed):
    data = graph()
    changed = delete_edges(data, ratio, seed=seed)
    gone = round(ratio * 120)
    assert len(pairs(changed)) == 120 - gone
    assert pairs(changed) <= pairs(data)
    assert changed.edge_index.shape[1] == 2 * (120 - gone)
    assert torch.equal(changed.x, data.x)


@settings(max_examples=25, deadline=None)
@given(ratio=st.floats(0, 0.9), seed=st.integers(0, 99))
def test_adding_makes_so_many_new_edges_both_ways(ratio, seed):
    data = graph()
    changed = add_edges(data, ratio, seed=seed)
    more = round(ratio * 120)
    assert len(pairs(changed)) == 120 + more
    assert pairs(data) <= pairs(changed)
    assert changed.edge_index.shape[1] == 2 * (120 + more)
    backward = changed.edge_index.flip(0).T.tolist()
    assert sorted(backward) == sorted(changed.edge_index.T.tolist())


@settings(max_examples=25, deadline=None)
@given(ratio=st.floats(0, 0.9), seed=st.integers(0, 99))
def test_shuffling_gives_so_many_nodes_anothers_features(ratio, seed):
    data = graph()
    changed = shuffle_features(data, ratio, seed=seed)
    moved = (changed.x != data.x).any(1)
    count = round(ratio * 60)
    assert int(moved.sum()) == (count if count > 1 else 0)  # a single one has nobody to swap with
    key = lambda x: sorted(map(tuple, x.tolist()))  # noqa: E731
    assert key(changed.x) == key(data.x)
    assert torch.equal(changed.edge_index, data.edge_index)


@EVERY
def test_a_seed_gives_the_same_and_another_seed_another(kind):
    one, same, other = (PERTURBATIONS[kind](graph(), 0.3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.edge_index, same.edge_index)
    assert torch.equal(one.x, same.x)
    differs = one.x != other.x if kind == "shuffle" else pairs(one) ^ pairs(other)
    assert bool(differs.any()) if kind == "shuffle" else differs


@EVERY
def test_the_callers_graph_stays_and_labels_and_masks_come_along(kind):
    data, before = graph(), graph()
    changed = PERTURBATIONS[kind](data, 0.5, seed=0)
    for name in ("x", "y", "edge_index", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(data[name], before[name])
        if name not in ("x", "edge_index"):
            assert torch.equal(changed[name], before[name])
    check_graph(changed)


def test_deleting_takes_duplicates_along_and_leaves_loops():
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 0, 2, 3, 2]])
    weight = torch.arange(6.0)
    data = Data(x=torch.ones(4, 1), edge_index=edge_index, edge_weight=weight)
    data.edge_attr = torch.ones(6, 2)
    for seed in range(5):
        changed = delete_edges(data, 0.5, seed=seed)  # one of the edges 0-1 and 2-3
        kept = [0, 1, 2, 3] if (0, 1) in pairs(changed) else [3, 4, 5]
        assert torch.equal(changed.edge_index, edge_index[:, kept])
        assert torch.equal(changed.edge_weight, weight[kept])
        assert "edge_attr" not in changed


def test_new_edges_weigh_what_edges_do_in_the_mean():
    data = graph()
    data.edge_weight = torch.linspace(1, 3, data.edge_index.shape[1])
    changed = add_edges(data, 0.25, seed=0)
    assert torch.equal(changed.edge_weight[:240], data.edge_weight)
    assert changed.edge_weight[240:].tolist() == pytest.approx([2.0] * 60)


def test_every_edge_is_deleted_equally_often():
    data = graph(num_nodes=24)
    counts = dict.fromkeys(pairs(data), 0)
    for seed in range(400):
        for pair in pairs(data) - pairs(delete_edges(data, 0.25, seed=seed)):
            counts[pair] += 1
    spread = (400 * 0.25 * 0.75) ** 0.5
    assert max(abs(count - 100) for count in counts.values()) < 4.5 * spread


@EVERY
@pytest.mark.parametrize("ratio", [-0.1, 2.0, float("nan")])
def test_a_ratio_out_of_range_is_refused(kind, ratio):
    if kind == "add" and ratio >= 1:  # as many as one likes
        assert add_edges(graph(), ratio, seed=0).num_edges == round((1 + ratio) * 240)
        return
    with pytest.raises(InputError, match="ratio must lie in"):
        PERTURBATIONS[kind](graph(), ratio, seed=0)


def test_a_full_graph_takes_no_more_edges():
    full = torch.combinations(torch.arange(5)).T
    with pytest.raises(InputError, match="half of the pairs of nodes without an edge"):
        add_edges(Data(x=torch.ones(5, 1), edge_index=full), 0.5, seed=0)
