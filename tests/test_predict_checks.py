"""The checks of ``predict``: what they draw, what they measure, and that each of them runs."""

import json

import pytest
import torch
from torch_geometric.data import Data

import predict_checks as checks
from graphglow.errors import InputError
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
    assert torch.equal(checks.label_propagation(data).argmax(1), data.y)
    assert torch.equal(checks.spectral(data), data.y)


def test_graphany_reads_twenty_labels_times_classes():
    data = small_data(num_nodes=300)
    found = checks.graphany_split(data, 0)
    assert int(found.train_mask.sum()) == 60
    assert abs(int(found.val_mask.sum()) - int(found.test_mask.sum())) <= 1
    every = found.train_mask.long() + found.val_mask.long() + found.test_mask.long()
    assert bool((every == 1).all())


def test_sets_hold_nine_of_ten():
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(4000, 4, generator=generator).mul(2).softmax(1)
    y = torch.multinomial(p, 1, generator=generator)[:, 0]
    known = torch.arange(4000) < 1000
    data = Data(y=y, train_mask=known, val_mask=~known & False, test_mask=~known)
    found = checks.coverage_of(p, data)
    assert found["coverage"] == pytest.approx(0.9, abs=0.02)
    assert 1 < found["set_size"] < 4
    few = Data(y=y, train_mask=torch.arange(4000) < 5, val_mask=known & False, test_mask=~known)
    assert checks.coverage_of(p, few) == {"coverage": 1.0, "set_size": 4.0}  # too few to leave out
    count, said, true = map(torch.tensor, checks.reliability(p, data))
    assert int(count.sum()) == 3000
    assert torch.allclose(said[4:], true[4:], atol=0.08)


def test_a_learner_of_an_open_graph_must_be_named(tmp_path):
    target = checks.Target("dblp", "citation", tmp_path / "dblp.npz")
    asked = checks.Asked("cpu", tmp_path, None, (), None, None)
    with pytest.raises(InputError, match=r"predictor.py --train FOLDER makes; got none"):
        asked.learner(target)


def test_rows_have_an_origin_and_the_table_means(tmp_path, capsys, monkeypatch):
    rows = [{"target": "a", "seed": s, "method": "predict", "accuracy": 0.5 + s} for s in (0, 1)]
    monkeypatch.setitem(checks.CHECKS, "exam", lambda _asked: iter(rows))
    out = tmp_path / "rows.jsonl"
    assert checks.main(["exam", "--out", str(out)]) == 0
    assert "a  predict  1.000" in capsys.readouterr().out
    found = [*map(json.loads, out.read_text().splitlines())]
    assert [row["accuracy"] for row in found] == [0.5, 1.5]
    assert {row["check"] for row in found} == {"exam"}
    assert all("commit" in row["provenance"] for row in found)
