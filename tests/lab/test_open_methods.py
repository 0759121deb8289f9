"""Every method of the suite runs on a graph, with features and without."""

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data

from graphglow.lab import open_methods as methods
from graphglow.lab.open_methods import METHOD_TITLES, run_method, without_unlike_edges
from graphglow.pretrained import evidence_learner
from graphglow.transfer import transfer
from tiny_graphs import small_data


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    monkeypatch.setattr(methods, "EPOCHS", 3)


@pytest.mark.parametrize("name", METHOD_TITLES)
def test_a_method_scores_every_node_and_judges_itself(name):
    data = small_data()
    entry = run_method(name, data, device="cpu")
    assert entry.scores.shape == (40, 3)
    assert entry.seconds > 0
    judged = methods.judged_nodes(name, data)
    assert entry.estimate == methods.accuracy_on(entry.scores, data, judged)
    assert torch.equal(judged, data.val_mask) == (name not in methods.POOL)


def test_without_features_gnns_get_columns_that_tell_nodes_apart(monkeypatch):
    data = small_data()
    data.x = torch.ones(40, 1)
    assert methods.lacks_features(data)
    seen = []
    monkeypatch.setattr(methods, "transfer", lambda data, *_: seen.append(data) or transfer(data))
    run_method("transfer", data, device="cpu")
    assert [one.x.shape for one in seen] == [(40, 40)]
    assert methods.with_columns(small_data(num_nodes=methods.WIDEST + 1), 0).x.shape[1] == 256


def test_the_pool_is_training_and_validation_labels_and_no_others():
    data = small_data()
    before = methods.predict_pool(data, evidence_learner(), device="cpu")
    changed = data.clone()
    changed.y = torch.where(data.test_mask, (data.y + 1) % 3, data.y)
    assert torch.equal(before, methods.predict_pool(changed, evidence_learner(), device="cpu"))
    changed.y = torch.where(data.val_mask, (data.y + 1) % 3, data.y)
    after = methods.predict_pool(changed, evidence_learner(), device="cpu")
    assert not torch.allclose(before, after)


def test_a_member_of_a_bag_answers_for_its_own_fold(monkeypatch):
    data, given = small_data(), []

    def fit(_name, one, _config):
        given.append(one)
        return SimpleNamespace(logits=torch.eye(5)[len(given) - 1].log().expand(40, 5))

    monkeypatch.setattr(methods, "fit", fit)
    p = methods.bag("gcn", data, None, 0)
    pool = data.train_mask | data.val_mask
    assert torch.stack([one.val_mask for one in given]).sum(0).tolist() == pool.long().tolist()
    for number, one in enumerate(given):
        assert torch.equal(one.train_mask, pool & ~one.val_mask)
        assert bool((p[one.val_mask].argmax(1) == number).all())
        assert float(p[one.val_mask].amax(1).min()) == 1
    assert torch.allclose(p[~pool], torch.full((1, 5), 0.2))


def test_jaccard_drops_edges_between_nodes_with_nothing_in_common():
    x = torch.tensor([[1.0, 1, 0], [1, 0, 0], [0, 0, 1]])
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    assert without_unlike_edges(Data(x=x, edge_index=edges)).edge_index.tolist() == [[0, 1], [1, 0]]
    apart = Data(x=torch.eye(3), edge_index=edges, edge_weight=torch.ones(4))
    assert without_unlike_edges(apart).edge_index.tolist() == [[0], [0]]


def test_jaccard_is_over_the_union():
    words = torch.zeros(3, 300)
    words[0, :2], words[1, 1:200], words[2, 1:20] = 1, 1, 1  # one word in common with the first
    edges = torch.tensor([[0, 0], [1, 2]])
    kept = without_unlike_edges(Data(x=words, edge_index=edges)).edge_index
    assert kept.tolist() == [[0], [2]]  # 1 / 200 and 1 / 20
