import math

import pytest
import torch
from synthetic_rows import CLASSES, NODE

import graphglow
from graphglow.report.drawing import _fair_order, drawing
from graphglow.report.graph_chart import graph_chart
from graphglow.report.learned_structure import (
    EdgeSet,
    LearnedStructure,
    blocks,
    sample_by_class,
    unique_names,
)
from graphglow.report.structure_charts import (
    confusion_chart,
    homophily_chart,
    similarity_chart,
    training_chart,
)


@pytest.fixture
def structure(transfer: graphglow.TransferResult) -> LearnedStructure:
    return LearnedStructure(transfer)


def test_a_sample_keeps_shares_and_every_class() -> None:
    y = torch.tensor([1] * 90 + [0] * 9 + [-1])
    assert y[sample_by_class(y, 1000)].tolist() == [0] * 9 + [1] * 90 + [-1]
    found = sample_by_class(y, 20)
    assert y[found].tolist() == [0] * 2 + [1] * 18 + [-1]
    assert torch.equal(found, sample_by_class(y, 20))
    assert len(found.unique()) == len(found)
    assert blocks(y[found]) == [(0, 0, 1), (1, 2, 19), (-1, 20, 20)]


def test_names_of_an_axis_are_unique() -> None:
    assert unique_names(["a", "b", "a", "a"]) == ["a", "b", "a #2", "a #3"]


def test_similarities_are_those_of_the_structure(structure: LearnedStructure) -> None:
    latent = structure.result.refinement.structure
    assert latent is not None
    gamma = latent.gamma()
    whole = structure.similarities(100, 100)
    column = {int(node): i for i, node in enumerate(structure.result.pivots)}
    expected = gamma[whole.nodes][:, [column[int(node)] for node in whole.pivots]]
    torch.testing.assert_close(whole.values, expected)
    assert structure.y[whole.pivots].tolist() == sorted(structure.y[whole.pivots].tolist())
    assert structure.similarities(10, 5).values.shape[0] <= 12


def test_shares_count_labelled_edges_by_number_and_weight(structure: LearnedStructure) -> None:
    structure.y = torch.tensor([0, 0, 1, -1])
    source, target = torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 2, 0])
    weight = torch.tensor([3.0, 1.0, 4.0, 100.0])
    edges = EdgeSet(source, target, weight, weight, weight, weight > 0)
    share = structure.share(edges)
    assert share.edges == 4
    assert share.same_class == pytest.approx(2 / 3)
    assert share.same_class_weight == pytest.approx(7 / 8)
    into_one = structure.share(edges, label=1)
    assert (into_one.edges, into_one.same_class) == (2, 0.5)
    assert structure.share(edges, label=5).same_class is None


def test_new_edges_are_not_in_the_input_graph(structure: LearnedStructure) -> None:
    known = {frozenset(e) for e in structure.result.data.edge_index.T.tolist()}
    new, old = structure.strongest(new=True), structure.strongest(new=False)
    assert new
    assert old
    assert not [edge for edge in new if frozenset((edge.source, edge.target)) in known]
    assert all(frozenset((edge.source, edge.target)) in known for edge in old)
    assert len({frozenset((edge.source, edge.target)) for edge in new}) == len(new)
    weights = [edge.weight for edge in new]
    assert weights == sorted(weights, reverse=True)
    for edge in [*new, *old]:
        assert edge.weight == pytest.approx(edge.input_part + edge.learned_part, rel=1e-5)
    assert all(edge.input_part == 0 for edge in new)


def test_confusions_count_test_nodes(structure: LearnedStructure) -> None:
    counts = structure.confusion()
    assert counts is not None
    test = structure.result.graph.test
    assert int(counts.sum()) == len(test)
    right = float(counts.diagonal().sum() / counts.sum())
    assert right == pytest.approx(structure.result.test_accuracy)
    node = int(test[0])
    row, column = int(structure.y[node]), int(structure.result.predict()[node])
    assert counts[row, column] > 0


def test_the_learned_graph_alone_has_a_homophily(structure: LearnedStructure) -> None:
    share = structure.learned_share()
    assert share.edges is None
    assert share.same_class_weight is not None
    assert 0 < share.same_class_weight < 1


@pytest.mark.parametrize("count", [100, 30])
def test_a_drawing_has_the_asked_nodes_and_only_edges_between_them(
    structure: LearnedStructure, count: int
) -> None:
    found = drawing(structure, count)
    assert len(found.nodes) == min(count, 60)
    assert len(found.nodes.unique()) == len(found.nodes)
    assert found.places.shape == (len(found.nodes), 2)
    assert abs(found.places).max() < 2  # what drifts away is drawn back
    known = {frozenset(e) for e in structure.result.data.edge_index.T.tolist()}
    for pairs, expected in ((found.input_edges, True), (found.new_edges, False)):
        assert pairs.shape[1] > 0
        for u, v in found.nodes[pairs].T.tolist():
            assert (frozenset((u, v)) in known) == expected
    again = drawing(structure, count)
    assert (again.places == found.places).all()


def test_a_very_large_graph_has_no_refined_graph(
    structure: LearnedStructure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphglow.report.learned_structure.LARGEST_REFINED", 10)
    assert structure.refined_edges is None
    assert structure.strongest(new=True) == []
    assert drawing(structure, 30).new_edges.shape == (2, 0)


def test_text_in_charts_has_no_tags_of_the_data(structure: LearnedStructure) -> None:
    counts = structure.confusion()
    assert counts is not None
    charts = [
        similarity_chart(structure, structure.similarities(30, 10)),
        graph_chart(structure, drawing(structure)),
        homophily_chart(CLASSES, [0.5, None, 1.0], [0.5, 0.5, 0.5]),
        confusion_chart(CLASSES, counts),
        training_chart(structure.result.history),
    ]
    for chart in charts:
        text = chart.figure.to_json()
        for tag in ("<img", "<script", "</script", "<b>bold"):
            assert tag not in text
            assert tag.replace("<", "\\u003c") not in text
    assert "&lt;img" in charts[1].figure.to_json()
    assert "Sampled by class: 31 of 60 nodes and 9 of 12 pivots" in charts[0].caption


def test_the_heat_map_has_gaps_between_classes(structure: LearnedStructure) -> None:
    found = structure.similarities(100, 100)
    heat = similarity_chart(structure, found).figure.data[0]
    classes = len(blocks(structure.y[found.nodes]))
    assert len(heat.y) == 60 + classes - 1
    assert len(set(heat.y)) == len(heat.y)
    gaps = [i for i, row in enumerate(heat.z) if all(math.isnan(v) for v in row)]
    assert len(gaps) == classes - 1
    assert heat.y[0].startswith(NODE.split("{", maxsplit=1)[0][:4].replace("<", "&lt;"))


def test_no_hub_takes_all_the_edges_that_are_drawn() -> None:
    target = torch.tensor([7, 7, 7, 2, 9, 2])
    weight = torch.tensor([9.0, 8.0, 7.0, 1.0, 2.0, 3.0])
    order = _fair_order(target, weight)
    assert order.tolist() == [0, 5, 4, 1, 3, 2]
