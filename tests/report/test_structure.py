import numpy as np
import pandas as pd
import pytest

import graphglow
from graphglow.report.structure import (
    LearnedStructure,
    fair_order,
    graph_chart,
    homophily_chart,
    sample_by_class,
    training_chart,
)


@pytest.fixture
def structure(transfer: graphglow.TransferResult) -> LearnedStructure:
    return LearnedStructure(transfer)


def test_a_sample_keeps_shares_and_every_class() -> None:
    y = np.array([1] * 90 + [0] * 9 + [-1])
    assert y[sample_by_class(y, 1000)].tolist() == [0] * 9 + [1] * 90 + [-1]
    found = sample_by_class(y, 20)
    assert y[found].tolist() == [0] * 2 + [1] * 18 + [-1]
    assert (found == sample_by_class(y, 20)).all()
    assert len(set(found)) == len(found)


def test_shares_count_labelled_edges_by_number_and_weight(structure: LearnedStructure) -> None:
    structure.y = np.array([0, 0, 1, -1])
    edges = pd.DataFrame(
        {"source": [0, 1, 2, 3], "target": [1, 2, 2, 0], "weight": [3.0, 1.0, 4.0, 100.0]}
    )
    share = structure.share(edges)
    assert share.edges == 4
    assert share.same_class == pytest.approx(2 / 3)
    assert share.same_class_weight == pytest.approx(7 / 8)
    into_one = structure.share(edges, label=1)
    assert (into_one.edges, into_one.same_class) == (2, 0.5)
    assert structure.share(edges, label=5).same_class is None


def test_new_edges_are_not_in_the_input_graph(structure: LearnedStructure) -> None:
    known = {frozenset(e) for e in structure.result.data.edge_index.T.tolist()}
    new = structure.strongest()
    assert new
    assert not [edge for edge in new if frozenset((edge.source, edge.target)) in known]
    assert len({frozenset((edge.source, edge.target)) for edge in new}) == len(new)
    weights = [edge.weight for edge in new]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] > 0


def test_confusions_count_test_nodes(structure: LearnedStructure) -> None:
    counts = structure.confusion()
    test = structure.result.graph.test
    assert counts.sum() == len(test)
    assert counts.trace() / counts.sum() == pytest.approx(structure.result.test_accuracy)
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
    found = structure.drawing(count)
    assert len(found.nodes) == min(count, 60)
    assert len(set(found.nodes)) == len(found.nodes)
    assert found.places.shape == (len(found.nodes), 2)
    assert abs(found.places).max() < 2  # what drifts away is drawn back
    known = {frozenset(e) for e in structure.result.data.edge_index.T.tolist()}
    for pairs, expected in ((found.input_edges, True), (found.new_edges, False)):
        assert pairs.shape[1] > 0
        for u, v in found.nodes[pairs].T.tolist():
            assert (frozenset((u, v)) in known) == expected
    again = structure.drawing(count)
    assert (again.places == found.places).all()


def test_a_very_large_graph_has_no_refined_graph(
    structure: LearnedStructure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphglow.report.structure.LARGEST_REFINED", 10)
    assert structure.refined_edges is None
    assert structure.strongest() == []
    assert structure.drawing(30).new_edges.shape == (2, 0)


def test_text_in_charts_has_no_tags_of_the_data(structure: LearnedStructure) -> None:
    charts = [
        graph_chart(structure, structure.drawing()),
        homophily_chart(structure),
        training_chart(structure.result.history),
    ]
    for chart in charts:
        for tag in ("<img", "<script", "</script", "<b>bold"):
            assert tag not in str(chart.figure)
    assert "&lt;img" in str(charts[0].figure)


def test_a_loss_that_is_no_number_can_be_drawn(structure: LearnedStructure) -> None:
    history = [step._replace(loss=float("nan")) for step in structure.result.history]
    assert "2 epochs" in training_chart(history).alt


def test_no_hub_takes_all_the_edges_that_are_drawn() -> None:
    target, weight = [7, 7, 7, 2, 9, 2], [9.0, 8.0, 7.0, 1.0, 2.0, 3.0]
    order = fair_order(pd.DataFrame({"target": target, "weight": weight}))
    assert order.index.tolist() == [0, 5, 4, 1, 3, 2]
