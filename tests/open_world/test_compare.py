"""``compare`` tests on what there is, and says ties."""

import json

import pytest
import torch

import graphglow
from graphglow.cli import main
from graphglow.errors import InputError
from graphglow.experiments.compare import Comparison, Line, chance, splits_of
from graphglow.experiments.open_world import methods
from tiny_graphs import small_data

QUICK = ("mlp", "instant")


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
    with pytest.raises(InputError, match="at least 6 labelled nodes; got 5"):
        graphglow.compare(data)


def test_chance_counts_nodes_and_seeds():
    nodes, right = torch.arange(100), torch.ones(100).double()
    wrong = (torch.arange(100) % 2).double()
    assert chance([(nodes, right)], [(nodes, wrong)], 100) < 1e-6
    assert chance([(nodes, right)], [(nodes, right)], 100) == 1
    mixed = [(nodes, right), (nodes, 0 * right)]
    assert chance(mixed, mixed[::-1], 100) > 0.9


def test_the_verdict_says_ties():
    best, far = Line("graphglow", 0.9, 0.01, 5.0, None), Line("mlp", 0.7, 0.01, 1.0, 1e-5)
    sure = Comparison([best, far], "", {}).verdict
    assert (
        sure
        == "Use graphglow: 90.0% of test nodes right, 20.0 points above MLP, the next (p < 0.001)."
    )
    tied = Comparison([best, Line("gcn", 0.89, 0.01, 1.0, 0.4), far], "", {}).verdict
    assert (
        "level with it, within chance: GCN. Use graphglow, or GCN, the fastest of them (1.0 s)."
        in tied
    )


def test_a_comparison_is_a_frame():
    frame = Comparison([Line("gcn", 0.8, 0.1, 1.0, None), Line("mlp", 0.7, None, 0.5, 0.4)], "", {})
    frame = frame.to_frame()
    assert frame.columns.tolist() == [
        *("method", "name", "accuracy", "deviation", "seconds", "p", "against_highest")
    ]
    assert frame.accuracy.tolist() == [0.8, 0.7]
    assert frame.against_highest.tolist() == ["highest", "level"]


def test_no_features_are_no_reason_to_refuse():
    data = small_data()
    data.num_nodes, data.x = 40, None
    for name in ("train_mask", "val_mask", "test_mask", "split"):
        del data[name]
    found = graphglow.compare(data, (*QUICK, "knn"), seeds=2, device="cpu")
    assert {line.method for line in found.lines} == {*QUICK}
    assert found.lines[0].p is None
    assert "random splits" in repr(found)


def test_the_command_prints_a_table_and_a_sentence(capsys):
    words = ["compare", "--target", "synthetic-small", "--methods", *QUICK, "--seeds", "2"]
    assert main([*words, "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "against the highest" in shown
    assert main([*words, "--device", "cpu", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {line["method"] for line in facts["lines"]} == {*QUICK}
    assert facts["verdict"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "gnc"], "methods must be one of gcn, .*; got 'gnc' (nearest: gcn)"),
        (["--seeds", "0"], "seeds must be >= 1; got 0"),
    ],
)
def test_bad_words_are_refused_before_the_graph_is_read(run, words, said):
    line = run("compare", "--target", "no_such_graph.csv", *words).refuses()
    assert all(part in line for part in said.split(".*"))
