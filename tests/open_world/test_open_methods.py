"""Every method of the suite runs on a graph, with features and without."""

import pytest
import torch
from torch_geometric.data import Data

from graphglow.experiments.open_world import methods
from graphglow.experiments.open_world.methods import NAMES, run_methods, without_unlike_edges
from graphglow.pretrained import evidence_learner
from graphglow.training import transfer
from graphglow.training.evidence import instant_predictions
from tiny_graphs import small_data


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(methods, "EPOCHS", 3)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_scores_every_node(name):
    data = small_data()
    (entry,) = run_methods(data, [name], device="cpu")
    assert entry.method == name
    assert entry.scores.shape == (40, 3)
    assert entry.seconds > 0


def test_without_features_gnns_get_columns_that_tell_nodes_apart(monkeypatch):
    data = small_data()
    data.x = torch.ones(40, 1)
    seen = []
    monkeypatch.setattr(methods, "transfer", lambda data, *_: seen.append(data) or transfer(data))
    asked = ["gcn", "knn", "instant", "graphglow"]
    found = [entry.method for entry in run_methods(data, asked, device="cpu")]
    assert found == ["gcn", "instant", "graphglow"]
    assert [one.x.shape for one in seen] == [(40, 40)]


def test_instant_is_the_closed_form_and_graphglow_says_how_true_it_is():
    data = small_data()
    instant, trained = run_methods(data, ["instant", "graphglow"], device="cpu", calibrate=True)
    expected = instant_predictions(evidence_learner(), data, 0, torch.device("cpu"))
    assert torch.equal(instant.scores, expected)
    metrics = trained.metrics
    assert 0 <= metrics["ece"] <= 1
    assert len(metrics["pairs"]) == len(metrics["said"]) == methods.BINS


def test_jaccard_drops_edges_between_nodes_with_nothing_in_common():
    x = torch.tensor([[1.0, 1, 0], [1, 0, 0], [0, 0, 1]])
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    assert without_unlike_edges(Data(x=x, edge_index=edges)).edge_index.tolist() == [[0, 1], [1, 0]]
    apart = Data(x=torch.eye(3), edge_index=edges, edge_weight=torch.ones(4))
    assert without_unlike_edges(apart).edge_index.tolist() == [[0], [0]]
