"""A verdict on every result, and metrics beyond accuracy."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

import graphglow
from graphglow.scores import Change, compare_accuracies, compare_edges, scores_of, verdict_of
from tiny_graphs import small_data

RISE = Change(0.8, 0.81, 0, "new 81.0%")
FALL = Change(0.8, 0.3, -1, "new 30.0%")


@pytest.mark.parametrize(
    ("edges", "right", "expected"),
    [
        (1, None, "better: edges"),
        (-1, None, "worse: edges"),
        (-1, RISE, "worse: edges\nnew 81.0%"),
        (0, FALL, "worse: new 30.0%\nedges"),
        (1, RISE, "better: edges\nnew 81.0%"),
        (0, RISE, "no clear difference: new 81.0%\nedges"),
        (1, FALL, "better in one way and worse in another: edges\nnew 30.0%"),
        (None, None, "cannot tell: no labels"),
    ],
)
def test_a_verdict_gives_its_reason(edges, right, expected):
    share = None if edges is None else Change(0.5, 0.6, edges, "edges")
    assert verdict_of((right, share), "no labels") == expected


@pytest.mark.parametrize(
    ("dropped", "added", "sign"),
    [((0, 40), (40, 0), 1), ((40, 0), (0, 40), -1), ((20, 20), (22, 18), 0), ((0, 1), (1, 0), 0)],
)
def test_edges_are_compared_by_those_that_one_of_the_graphs_has(dropped, added, sign):
    """20 edges are kept, half of them within a class; others join (within, between) classes."""
    nodes = 400
    y = torch.arange(nodes) % 2
    ends = iter(torch.arange(nodes).view(-1, 4).tolist())

    def edges(within, between):
        pairs = [(a, c) for (a, b, c, d), _ in zip(ends, range(within), strict=False)]
        pairs += [(a, b) for (a, b, c, d), _ in zip(ends, range(between), strict=False)]
        return torch.tensor(pairs).reshape(-1, 2).T

    kept = edges(10, 10)
    before, after = (torch.cat([kept, edges(*own)], 1) for own in (dropped, added))
    assert compare_edges(Data(y=y, edge_index=before), after).sign == sign


@pytest.mark.parametrize(("nodes", "sign"), [(20, 0), (80, 1)])
def test_many_edges_of_few_labels_count_for_no_more_than_the_labels(nodes, sign):
    """40 % of 60 edges, then 60 % of 60 others: 0.2 is 1.3 or 2.2 standard errors."""
    y, pairs = torch.arange(nodes) % 2, torch.triu_indices(nodes, nodes, 1)
    same = y[pairs[0]] == y[pairs[1]]
    within, between = pairs[:, same], pairs[:, ~same]
    before = torch.cat([within[:, :24], between[:, :36]], 1)
    after = torch.cat([within[:, 24:60], between[:, 36:60]], 1)
    found = compare_edges(Data(y=y, edge_index=before), after)
    assert found[:3] == (0.4, 0.6, sign)


@pytest.mark.parametrize(
    ("gained", "lost", "sign"),
    [(0, 0, 0), (5, 0, 0), (6, 0, 1), (0, 6, -1), (15, 25, 0), (25, 10, 1), (10, 25, -1)],
)  # 2 * 0.5**5 = 0.0625, 2 * 0.5**6 = 0.031
def test_accuracies_are_compared_by_the_nodes_that_one_of_the_two_gets_right(gained, lost, sign):
    before = torch.tensor([True] * 30 + [False] * gained + [True] * lost)
    after = torch.tensor([True] * 30 + [True] * gained + [False] * lost)
    found = compare_accuracies(before, after, "{} against {}")
    assert found.after - found.before == pytest.approx((gained - lost) / len(before))
    assert found.sign == sign
    assert found.sentence == f"{found.after:.1%} against {found.before:.1%}"


def test_edges_are_judged_by_validation_labels_and_never_by_those_of_test():
    edges = torch.tensor([[0, 1, 2, 0], [1, 2, 3, 3]])
    masks = {name: torch.zeros(4, dtype=torch.bool) for name in ("train_mask", "val_mask")}
    masks["train_mask"][:2], masks["val_mask"][2] = True, True
    data = Data(y=torch.tensor([0, 0, 1, 1]), edge_index=edges, num_nodes=4, **masks)
    assert compare_edges(data, edges)[:3] == (0.0, 0.0, 0)  # 1 - 2, whose end is of validation
    found = compare_edges(data, edges[:, :1])  # only 0 - 1 is in both
    assert found[:3] == (0.5, 1.0, 0)
    assert found.sentence.startswith("100.0% of 1 labelled edges join one class")
    assert found.sentence.endswith("against 50.0% of 2 of the input")
    assert compare_edges(data, edges[:, 2:]) is None
    assert compare_edges(Data(edge_index=edges, num_nodes=4), edges) is None


@pytest.fixture(scope="module")
def data():
    return small_data(num_nodes=60)


@pytest.fixture(scope="module")
def result(data):
    return graphglow.transfer(data, config=graphglow.TransferConfig(epochs=5, device="cpu"))


def test_a_transfer_is_judged_by_a_gnn_on_the_input_graph(result, tmp_path):
    assert (
        f"against {result.against_input.before:.1%} of a GNN on the input graph" in result.verdict
    )
    assert result.summary()["verdict"] == result.verdict
    result.save(tmp_path / "r.safetensors")
    assert graphglow.TransferResult.load(tmp_path / "r.safetensors").verdict == result.verdict


def test_without_validation_edges_are_judged(data):
    few = data.clone()
    few.val_mask = torch.zeros_like(few.val_mask)
    found = graphglow.transfer(few, config=graphglow.TransferConfig(epochs=3, device="cpu"))
    assert "labelled edges join one class" in found.verdict


def test_the_papers_learner_is_judged_by_the_most_frequent_class(data):
    config = graphglow.PaperConfig(epochs=30, num_pivots=8, input_weight=0.6, device="cpu")
    found = graphglow.transfer(data, "paper", config)
    assert found.verdict.endswith("of the most frequent class; lambda is 0.6, by settings")
    known = data.y[data.val_mask]
    share = float((known == data.y[data.train_mask].bincount().argmax()).double().mean())
    assert f"against {share:.1%}" in found.verdict
    wrong = replace(found, logits=-found.logits)
    assert wrong.val_accuracy < share
    assert wrong.verdict.startswith("worse")


def test_a_frame_has_a_row_for_every_node(data, result):
    frame = result.to_frame()
    assert {"id", "predicted", "probability", "label", "split"} <= set(frame)
    assert len(frame) == data.num_nodes
    assert frame["predicted"].tolist() == result.predict().tolist()


def test_metrics_are_of_the_test_nodes(data, result):
    found = result.metrics()
    assert found["nodes"] == int(data.test_mask.sum())
    assert found["accuracy"] == pytest.approx(result.test_accuracy)
    assert sum(map(sum, found["confusion"])) == found["nodes"]
    right = sum(row[c] for c, row in enumerate(found["confusion"]))
    assert right == round(found["accuracy"] * found["nodes"])


def test_scores_by_hand():
    y = torch.tensor([0, 0, 0, 1])
    p = torch.tensor([[0.95, 0.05], [0.85, 0.15], [0.25, 0.75], [0.35, 0.65]])
    found = scores_of(y, p)
    assert found.balanced_accuracy == pytest.approx((2 / 3 + 1) / 2)
    assert found.f1_macro == pytest.approx((0.8 + 2 / 3) / 2)
    assert found.auroc == pytest.approx(2 / 3)
    assert found.calibration_error == pytest.approx((0.05 + 0.15 + 0.75 + 0.35) / 4)
    assert scores_of(y[:3], p[:3]).auroc is None  # one class


def test_no_test_nodes_have_no_metrics(data):
    alone = data.clone()
    alone.test_mask = torch.zeros_like(alone.test_mask)
    config = graphglow.METHODS["mlp"].config(epochs=2, device="cpu")
    assert graphglow.fit("mlp", alone, config).metrics() is None
