"""``compare`` tests on what there is, and says ties."""

import json
import math

import pytest
import torch

import graphglow
from graphglow.cli import main
from graphglow.compare import Comparison, Line, p_value, splits_of
from graphglow.errors import InputError, InputWarning
from graphglow.lab import open_methods as methods
from graphglow.pretrained import evidence_learner
from graphglow.scores import scores_of
from tiny_graphs import small_data

QUICK = ("mlp", "predict")


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(methods, "EPOCHS", 2)


def masks_of(data):
    return [data[f"{part}_mask"] for part in ("train", "val", "test")]


def test_a_graph_without_a_split_is_split_by_each_seed():
    splits, how = splits_of(small_data(), 2, 5)
    assert "2 random splits" in how
    assert not torch.equal(splits[0].test_mask, splits[1].test_mask)


def test_without_test_nodes_labelled_ones_are_tested_in_turn():
    data = small_data()
    data.split = "own"
    data.test_mask[:] = False
    known = data.train_mask | data.val_mask
    splits, how = splits_of(data, 3, 0)
    assert "no test nodes" in how
    tested = torch.stack([one.test_mask for one in splits])
    assert torch.equal(tested.sum(0), known.long())
    for one in splits:
        assert int(torch.stack(masks_of(one)).sum(0).max()) == 1


def test_without_validation_nodes_some_training_nodes_are_taken():
    data = small_data()
    data.split = "own"
    data.val_mask[:] = False
    splits, how = splits_of(data, 2, 0)
    assert "no validation nodes" in how
    assert torch.equal(splits[0].train_mask | splits[0].val_mask, data.train_mask)


def test_too_few_labels_are_refused():
    data = small_data()
    data.y[5:] = -1
    with pytest.raises(InputError, match="5 labelled nodes are too few to compare: 6 are needed"):
        graphglow.compare(data)


def test_a_ranking_is_by_the_probabilities_of_test_nodes():
    data = small_data(num_nodes=90, noise=3.0)
    data.split = "own"
    (line,) = graphglow.compare(data, "predict", seeds=1, device="cpu").lines
    p = methods.predict_pool(data, evidence_learner(), device="cpu")
    expected = scores_of(data.y[data.test_mask], p[data.test_mask])
    assert (line.accuracy, line.auroc) == pytest.approx((expected.accuracy, expected.auroc))


def runs(*right):
    return torch.stack(right).double()


def test_chance_counts_nodes_and_seeds():
    right, wrong = torch.ones(100), torch.arange(100) % 2
    assert p_value(runs(right), runs(wrong)) < 1e-6
    assert p_value(runs(right), runs(right)) == 1
    mixed = runs(right, 0 * right)
    assert p_value(mixed, mixed.flip(0)) > 0.9


def normal_p(z):
    return math.erfc(z / math.sqrt(2))


def test_chance_of_one_run_is_a_z_test_over_nodes():
    apart = torch.tensor([1.0] * 30 + [-1.0] * 10 + [0.0] * 60)
    best, other = apart.clamp_min(0), (-apart).clamp_min(0)
    z = apart.mean() / (apart.var() / 100).sqrt()
    assert p_value(runs(best), runs(other)) == pytest.approx(normal_p(float(z)))
    twice = p_value(runs(best.repeat(2)), runs(other.repeat(2)))
    z = apart.mean() / (apart.repeat(2).var() / 200).sqrt()
    assert twice == pytest.approx(normal_p(float(z)))


def test_chance_adds_the_variance_of_seeds_to_that_of_nodes():
    first, second = torch.tensor([1.0] * 50 + [0.0] * 50), torch.tensor([1.0] * 10 + [0.0] * 90)
    none = torch.zeros(100)
    found = p_value(runs(first, second), runs(none, none))
    nodes = ((first + second) / 2).var() / 100
    seeds = torch.tensor([0.5, 0.1]).var() / 2
    assert found == pytest.approx(normal_p(0.3 / float(nodes + seeds) ** 0.5), rel=1e-5)
    assert found > 0.1  # nodes alone would say 1e-13


def test_the_recommendation_is_by_own_estimates_and_says_so():
    best = Line("predict", 0.9, 0.01, 5.0, None, 0.88)
    far, near = Line("mlp", 0.7, 0.01, 1.0, 1e-5, 0.8), Line("gcn", 0.89, 0.01, 1.0, 0.4, 0.86)
    assert Comparison([best, far], "", {}).verdict == (
        "Use predict: its own estimate is the highest, 88.0% by leave-one-out; 90.0% of test nodes "
        "right, the highest."
    )
    assert Comparison([best, near], "", {}).verdict.endswith("right, level with GCN.")
    lucky = near._replace(estimate=0.95)
    tied = Comparison([best, lucky, far], "", {})
    assert tied.recommended is lucky
    assert tied.verdict.endswith("right, 1.0 points below predict (level).")
    wrong = Comparison([best, far._replace(estimate=0.99)], "", {}).verdict
    assert wrong.endswith("20.0 points below predict (lower, p < 0.001).")
    even = Comparison([best, near._replace(estimate=best.estimate)], "", {})
    assert even.recommended.method == "gcn"  # the faster one


def test_no_features_are_no_reason_to_refuse():
    data = small_data()
    data.num_nodes, data.x = 40, None
    for name in ("train_mask", "val_mask", "test_mask", "split"):
        del data[name]
    with pytest.warns(InputWarning, match="no features"):
        found = graphglow.compare(data, (*QUICK, "knn"), seeds=2, device="cpu")
    assert {line.method for line in found.lines} == {*QUICK}
    assert found.lines[0].p is None
    assert "random splits" in repr(found)


def test_the_command_prints_a_table_and_a_sentence(capsys):
    words = ["compare", "--target", "synthetic-small", "--methods", *QUICK, "--seeds", "2"]
    assert main([*words, "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    assert "own estimate" in shown.out
    assert "by leave-one-out" in shown.out
    assert "nodes are drawn" not in shown.err  # that split is not used
    assert main([*words, "--device", "cpu", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {line["method"] for line in facts["lines"]} == {*QUICK}
    assert facts["verdict"]


def test_an_unknown_method_is_refused(run):
    line = run("compare", "--target", "synthetic-small", "--methods", "gnc").refuses()
    assert "got 'gnc' (nearest: gcn)" in line
    assert "linkx" in run("compare", "--target", "synthetic-small", "--methods").refuses()


def test_of_two_classes_the_ranking_is_shown_beside_a_constant_answer(run):
    words = ["compare", "--target", "breast_cancer", "--methods", *QUICK, "--seeds", "2"]
    facts = run(*words, "--json").json
    assert all(0.9 < line["auroc"] <= 1 for line in facts["lines"])
    constant = facts["majority"]
    assert constant["auroc"] == pytest.approx(0.5)
    assert constant["average_precision"] == pytest.approx(1 - constant["accuracy"])
    assert "always the majority" in run(*words).out
