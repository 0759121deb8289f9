"""The checks of ``predict``: what they draw, what they measure, and what they write."""

import json
import re

import pytest
import torch
from torch_geometric.data import Data

import predict_checks as checks
from graphglow import predict
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from tiny_graphs import small_data


def test_communities_have_no_features_and_thirty_labels():
    for data in (checks.planted_partition(0), checks.lfr(0)):
        assert data.x is None
        assert (int(data.train_mask.sum()), len(data.y)) == (30, 500)
        assert torch.equal(data.test_mask, ~data.train_mask)
    row, col = data.edge_index
    assert 0.6 < float((data.y[row] == data.y[col]).double().mean()) < 0.8  # mixing .3


def test_a_fraud_graph_is_what_it_says():
    data = checks.fraud_graph(1)
    nodes = len(data.y)
    assert 3000 <= nodes <= 5000
    assert float(data.y.double().mean()) == pytest.approx(0.05, abs=0.015)
    pool = data.train_mask | data.val_mask
    assert int(pool.sum()) == nodes // 5
    assert torch.equal(data.test_mask, ~pool)


def two_cliques():
    ends = torch.combinations(torch.arange(4)).T
    ends = torch.cat([ends, ends + 4, torch.tensor([[3], [4]])], 1)
    known = torch.tensor([1, 0, 0, 0, 0, 0, 0, 1]).bool()
    y = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    edges = torch.cat([ends, ends.flip(0)], 1)
    return Data(edge_index=edges, y=y, num_nodes=8, train_mask=known, test_mask=~known)


def test_rivals_find_two_cliques():
    data = two_cliques()
    assert torch.equal(checks.louvain(data, 0), data.y)
    assert torch.equal(checks.label_propagation(data, data.train_mask).argmax(1), data.y)
    assert torch.equal(checks.spectral(data), data.y)


def test_self_estimates_are_about_test_nodes():
    data = small_data(num_nodes=300, noise=2.0)
    learner = EvidenceLearner.untrained()
    found = checks.self_estimates(data, learner, 0, "cpu")
    prediction = predict(data, learner, labels="train+val", coverage=0.9, device="cpu")
    test = data.test_mask
    held = prediction.sets[test].gather(1, data.y[test, None]).double().mean()
    assert found["coverage"] == pytest.approx(float(held))
    assert found["accuracy"] == prediction.score("test").accuracy
    assert found["loo_off"] == pytest.approx(abs(found["accuracy"] - prediction.accuracy.value))


def test_learners_of_open_graphs_must_be_named(tmp_path):
    target = checks.Target("dblp", "citation", tmp_path / "dblp.npz")
    with pytest.raises(InputError, match=r"predictor.py --train FOLDER"):
        checks.learner_for(target, None)


def test_rows_have_an_origin_and_means_are_printed(tmp_path, capsys, monkeypatch):
    rows = [{"target": "a", "seed": s, "method": "predict", "accuracy": 0.5 + s} for s in (0, 1)]
    monkeypatch.setitem(checks.CHECKS, "exam", lambda _: iter(rows))
    out = tmp_path / "rows.jsonl"
    assert checks.main(["exam", "--out", str(out)]) == 0
    assert re.search(r"a +predict +0.5 +1.0", capsys.readouterr().out)
    found = [*map(json.loads, out.read_text().splitlines())]
    assert [row["accuracy"] for row in found] == [0.5, 1.5]
    assert all(row["check"] == "exam" and "commit" in row["provenance"] for row in found)
