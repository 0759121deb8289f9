"""The PyG transform: refined edges for any model, with labels and without."""

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data, HeteroData

from graphglow.errors import InputError
from graphglow.pyg_api import RefineStructure
from graphglow.transfer import transfer
from tiny_graphs import learner, small_data, transfer_config


@pytest.fixture(scope="module")
def data():
    return small_data()


def refine(mode="replace", top_k=4, **changes):
    return RefineStructure(learner(), mode, top_k, transfer_config(**changes))


def by_evidence(data, mode="replace", top_k=4, **options):
    return RefineStructure("universal", mode, top_k, **options)(data)


def without_labels(data):
    return Data(x=data.x, edge_index=data.edge_index)


def transformed(data, labelled, mode="replace"):
    """By the paper's learner with labels, by evidence without."""
    return refine(mode)(data) if labelled else by_evidence(without_labels(data), mode)


def pairs(edge_index):
    return set(map(tuple, edge_index.t().tolist()))


def test_with_labels_the_edges_are_those_of_a_transfer(data):
    refined = refine()(data)
    expected = transfer(data, learner(), transfer_config()).refined_graph(4, self_loops=False)
    assert torch.equal(refined.edge_index, expected.edge_index)
    ratio = refined.edge_weight / expected.edge_weight
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))


@pytest.mark.parametrize("labelled", [True, False])
def test_replaced_edges_have_mean_weight_one_and_no_loops(data, labelled):
    refined = transformed(data, labelled)
    assert refined.edge_weight.mean() == pytest.approx(1)
    assert (refined.edge_weight > 0).all()
    assert not refined.has_self_loops()
    assert refined.edge_index.dtype == torch.int64
    assert refined.edge_weight.shape == (refined.edge_index.shape[1],)


@pytest.mark.parametrize("evidence", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_augmented_edges_follow_those_of_the_input(data, evidence, weighted):
    given, count = data.clone(), data.num_edges
    weight = torch.ones(count)
    if weighted:
        weight = torch.rand(count, generator=torch.Generator().manual_seed(0)) + 0.5
        given.edge_weight = weight
    refined = refine("augment", input_weight=0.8)(given)
    if evidence:
        refined = by_evidence(given, "augment")
    assert torch.equal(refined.edge_index[:, :count], data.edge_index)
    assert torch.equal(refined.edge_weight[:count], weight)
    new = refined.edge_index[:, count:]
    assert new.shape[1] > 0
    assert pairs(new).isdisjoint(pairs(data.edge_index) | pairs(data.edge_index.flip(0)))
    assert (new[0] != new[1]).all()
    share = refined.edge_weight[count:].sum() / refined.edge_weight.sum()
    assert share == pytest.approx(0.5 if evidence else 0.2, rel=1e-5)


def test_new_edges_are_those_of_the_refined_graph_that_the_input_has_not(data):
    for top_k in (3, 12):
        replaced = refine("replace", top_k, input_weight=0.5)(data)
        new = refine("augment", top_k, input_weight=0.5)(data).edge_index[:, data.num_edges :]
        given = pairs(data.edge_index) | pairs(data.edge_index.flip(0))
        assert pairs(new) == pairs(replaced.edge_index) - given
    assert new.shape[1] > 40


def test_everything_else_stays_and_the_input_is_not_changed(data):
    given = data.clone()
    given.node_id = [f"n{i}" for i in range(40)]
    given.edge_attr = torch.rand(given.num_edges, 2)
    given.note = torch.rand(7)
    before = given.clone()
    refined = refine()(given)
    for name in ("x", "y", "train_mask", "val_mask", "test_mask", "note"):
        assert torch.equal(refined[name], before[name])
    assert refined.node_id == given.node_id
    assert "edge_attr" not in refined
    assert given.keys() == before.keys()
    assert torch.equal(given.edge_index, before.edge_index)
    assert torch.equal(given.edge_attr, before.edge_attr)
    refined.validate()


def test_without_labels_or_split_features_and_edges_decide(data):
    expected = by_evidence(without_labels(data))
    for drop in ([], ["y"], ["train_mask", "val_mask", "test_mask"]):
        given = data.clone()
        for name in drop:
            del given[name]
        refined = by_evidence(given, use_labels=bool(drop))
        assert torch.equal(refined.edge_weight, expected.edge_weight)
        if drop:
            with pytest.raises(InputError, match="take the learner universal"):
                refine()(given)


@pytest.mark.parametrize("mode", ["replace", "augment"])
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("edges", [None, torch.empty(2, 0, dtype=torch.int64)])
def test_no_edges_at_all(data, mode, labelled, edges):
    given = data.clone()
    given.edge_index = edges
    refined = transformed(given, labelled, mode)
    assert refined.edge_index.shape[1] > 0
    assert refined.edge_weight.mean() == pytest.approx(1)


@pytest.mark.parametrize("mode", ["replace", "augment"])
def test_isolated_nodes_and_nodes_without_features(data, mode):
    given = data.clone()
    away = (given.edge_index < 5).any(0)
    given.edge_index = given.edge_index[:, ~away]
    given.x[:2] = 0
    for refined in (refine(mode, num_pivots=40)(given), by_evidence(given, mode)):
        assert refined.edge_weight.isfinite().all()
        assert refined.num_nodes == 40
        assert (refined.edge_index[1] == 3).any()  # isolated before


def test_in_a_composition_and_in_words():
    torch.manual_seed(99)  # from which the split is drawn
    graph = Data(x=torch.randn(30, 4), y=torch.arange(30) % 3)
    graph.edge_index = torch.randint(30, (2, 60))
    compose = T.Compose(
        [T.RandomNodeSplit(num_val=6, num_test=6), refine(epochs=1), T.ToUndirected()]
    )
    refined = compose(graph)
    assert refined.is_undirected()
    assert refined.train_mask.sum() == 18
    assert repr(RefineStructure(top_k=8)) == (
        "RefineStructure(learner='universal', mode='auto', top_k=8)"
    )
    assert "StructureLearner" in repr(compose)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"mode": "both"}, "mode must be"),
        ({"top_k": 0}, "top_k must be"),
        ({"learner": "paper", "config": {}}, "config must be a PaperConfig"),
        ({"config": transfer_config()}, "config goes with a learner of the paper"),
        ({"learner": "universe"}, "nearest: universal"),
        (
            {"learner": "paper", "mode": "augment", "config": transfer_config(input_weight=0.0)},
            "needs an input_weight above 0",
        ),
    ],
)
def test_bad_settings_are_refused(settings, rule):
    with pytest.raises(InputError, match=rule):
        RefineStructure(**settings)


def test_what_is_no_single_graph_is_refused(data):
    with pytest.raises(InputError, match="one torch_geometric Data at a time"):
        refine()(Batch.from_data_list([Data(x=data.x), Data(x=data.x)]))
    with pytest.raises(InputError, match="HeteroData"):
        refine()(HeteroData())


def test_one_node_alone_gets_no_edges():
    refined = RefineStructure()(Data(x=torch.ones(1, 3)))
    assert refined.edge_index.shape == (2, 0)
    assert refined.edge_weight.shape == (0,)
