"""A transfer under an evidence learner: what it reads, what it gives back, what it refuses."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import graphglow
from command_line import ring_arrays
from graphglow import device
from graphglow.errors import InputError
from graphglow.gnn.backbones import BACKBONES
from graphglow.gnn.train import GNNTask, accuracy_by_luck
from graphglow.graph import check_graph, synthetic_graph
from graphglow.graph.check import with_random_split
from graphglow.pretrained import load_learner
from graphglow.result import RefinedEdges, TransferResult
from graphglow.settings import TransferConfig
from graphglow.storage import load_tensors, save_tensors
from graphglow.transfer import INPUT_WEIGHTS, input_weight_by_leave_one_out, transfer
from tiny_graphs import learner, same_tensors, small_data, transfer_config

FEW = 40
"""Nodes; a quarter of them validate."""


def config(**changes):
    return TransferConfig(**({"epochs": 6, "hidden": 8, "device": "cpu"} | changes))


def few(**changes):
    return small_data(num_nodes=FEW, noise=2.0, **changes)


def unvalidated():
    data = few()
    data.test_mask |= data.val_mask
    data.val_mask = torch.zeros_like(data.test_mask)
    return data


@pytest.fixture(scope="module")
def result():
    return transfer(few(), config=config())


def assert_same(one, other):
    assert one.history == other.history
    assert (one.input_weight, one.chosen_by) == (other.input_weight, other.chosen_by)
    assert same_tensors(one.gnn, other.gnn)
    assert_same_edges(one, other)
    assert torch.equal(one.predict_proba(), other.predict_proba())


def assert_same_edges(one, other):
    for name in RefinedEdges._fields:
        assert torch.equal(getattr(one.edges, name), getattr(other.edges, name)), name


# What it gives back


def test_the_default_is_the_universal_learner_frozen(result):
    assert result.edges is not None
    assert same_tensors(result.learner, load_learner("universal"))
    torch.testing.assert_close(result.predict_proba().sum(1), torch.ones(FEW))
    facts = result.summary()
    assert (facts["method"], facts["backbone"], facts["seed"]) == ("evidence", "gcn", 0)
    assert json.loads(json.dumps(facts)) == facts
    assert "test_accuracy" in repr(result)


def test_the_same_seed_gives_the_same_bytes_whatever_the_global_one(result):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    assert_same(result, transfer(few(), config=config()))
    assert torch.equal(before, torch.random.get_rng_state())
    other = transfer(few(), config=config(seed=4))
    assert not torch.equal(result.predict_proba(), other.predict_proba())


def test_the_graph_and_the_learner_are_never_touched():
    data, theta = few(), load_learner("universal")
    before = copy.deepcopy(data.to_dict())
    transfer(data, theta, config())
    assert same_tensors(theta, load_learner("universal"))
    assert before.keys() == data.to_dict().keys()
    for name, value in data.to_dict().items():
        same = torch.equal(value, before[name]) if torch.is_tensor(value) else value == before[name]
        assert same, name


def test_the_control_differs(result):
    control = transfer(few(), "untrained", config())
    assert control.summary()["method"] == "untrained"
    assert not torch.equal(control.predict_proba(), result.predict_proba())
    other = transfer(few(), "untrained", config(seed=1))
    assert not same_tensors(control.learner, other.learner)


def test_validation_chooses_among_gnns_that_are_each_trained_alone(result):
    alone = [transfer(few(), config=config(input_weight=weight)) for weight in INPUT_WEIGHTS]

    def score(one):
        return max((epoch.val_accuracy, -epoch.val_loss) for epoch in one.history)

    best = max(alone, key=score)
    assert (result.input_weight, result.chosen_by) == (best.input_weight, "validation")
    assert same_tensors(result.gnn, best.gnn)
    assert result.history == best.history
    plain = alone[INPUT_WEIGHTS.index(1.0)]
    assert result.against_input.before == pytest.approx(plain.val_accuracy)
    assert result.against_input.after == pytest.approx(result.val_accuracy)


def test_a_lambda_that_is_given_is_held():
    for data in (few(), unvalidated()):
        facts = transfer(data, config=config(input_weight=0.25, epochs=2)).summary()
        assert (facts["input_weight"], facts["chosen_by"]) == (0.25, "settings")


@pytest.mark.parametrize(
    ("given", "refined", "expected"), [(0.5, 0.2, 1.0), (0.2, 0.5, 0.0), (0.3, 0.32, 0.5)]
)
def test_lambda_by_leave_one_out(given, refined, expected):
    scores = {name: {"likelihood": gain} for name, gain in (("aax", given), ("ssx", refined))}
    assert input_weight_by_leave_one_out(scores) == expected


# What it reads


def test_labels_of_test_nodes_change_nothing(result):
    data = few()
    changed = data.clone()
    changed.y[data.test_mask] = (data.y[data.test_mask] + 1) % 3
    assert_same(result, transfer(changed, config=config()))
    changed.y[data.test_mask] = -1
    changed.test_mask[:] = False
    assert_same(result, transfer(changed, config=config()))


def test_labels_of_validation_nodes_choose_and_no_more(result):
    data = few()
    data.y[data.val_mask] = (data.y[data.val_mask] + 1) % 3
    assert_same_edges(result, transfer(data, config=config()))


@pytest.mark.parametrize("absent", [True, False])
def test_without_validation_nodes_leave_one_out_chooses(absent, tmp_path):
    data = unvalidated()
    if absent:
        del data.val_mask
    found = transfer(data, config=config())
    facts = found.summary()
    assert facts["chosen_by"] == "leave-one-out"
    assert facts["val_accuracy"] is None
    assert found.predict_proba().isfinite().all()
    found.save(tmp_path / "r.safetensors")
    assert_same(TransferResult.load(tmp_path / "r.safetensors"), found)
    changed = data.clone()
    changed.y[data.test_mask] = (data.y[data.test_mask] + 1) % 3
    assert_same(found, transfer(changed, config=config()))


def test_who_needs_validation_nodes(tmp_path):
    arrays = ring_arrays() | {"train": np.arange(20), "test": np.arange(20, 40)}
    np.savez(tmp_path / "g.npz", **arrays, val=np.arange(0))
    data = graphglow.load_graph(tmp_path / "g.npz")
    assert transfer(data, config=config()).val_accuracy is None
    for train in (lambda: transfer(data, "paper"), lambda: graphglow.fit("gcn", data)):
        with pytest.raises(InputError, match="validation"):
            train()


def test_a_node_keeps_as_many_refined_edges_as_it_is_told(result):
    sparse = transfer(few(), config=config(top_k=2, epochs=1))
    assert 0 < sparse.edges.edge_index.shape[1] < result.edges.edge_index.shape[1]
    assert sparse.edges.edge_index.shape[1] <= 2 * 2 * FEW


def test_a_graph_without_edges_gets_some():
    data = few()
    plain = Data(**{name: data[name] for name in data.keys() if name != "edge_index"})  # noqa: SIM118
    found = transfer(plain, config=config())
    assert found.edges.edge_index.shape[1] > 0


def test_a_class_without_a_training_label_is_a_class(tmp_path):
    data = few()
    data.train_mask &= data.y != 2
    found = transfer(data, config=config())
    assert found.predict_proba().shape == (FEW, 3)
    found.save(tmp_path / "r.safetensors")
    assert_same(TransferResult.load(tmp_path / "r.safetensors"), found)


def test_a_class_that_only_a_test_node_has_changes_nothing():
    plain = few()
    plain.pop("class_names", None)
    odd = plain.clone()
    odd.y[int(odd.test_mask.nonzero()[0])] = 7
    one, other = (transfer(data, config=config()) for data in (plain, odd))
    assert torch.equal(one.predict_proba(), other.predict_proba())


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
def test_every_backbone_runs(backbone):
    found = transfer(few(), config=config(backbone=backbone, epochs=2))
    assert found.summary()["backbone"] == backbone
    assert found.predict_proba().isfinite().all()


# A rare class, and no features


def test_luck_is_the_majority_and_one_standard_error():
    labels = torch.tensor([0] * 90 + [1] * 10)
    assert accuracy_by_luck(labels) == pytest.approx(0.9 + math.sqrt(0.9 * 0.1 / 100))
    assert accuracy_by_luck(torch.zeros(5, dtype=torch.int64)) == 1


@pytest.mark.parametrize(("last", "kept"), [(0.94, 3), (0.99, 4)])
def test_where_a_class_is_rare_a_lucky_node_does_not_choose_the_epoch(monkeypatch, last, kept):
    """Untrained weights get a node more right than the majority class does: 0.95."""
    data = small_data(num_nodes=400)
    data.y = (torch.arange(400) % 17 == 0).long()
    scores = iter([(0.9, 0.95), (0.5, 0.94), (0.4, 0.94), (0.6, last)])

    def validate(task):
        loss, accuracy = next(scores)
        return torch.tensor(loss), torch.tensor(accuracy, dtype=torch.float64)

    monkeypatch.setattr(GNNTask, "validate", validate)
    found = transfer(data, config=config(epochs=4, input_weight=0.5))
    assert 0.95 < accuracy_by_luck(data.y[found.data.val_mask]) < 0.99
    assert found.best_epoch.epoch == kept


def bare(**changes):
    """A graph whose edges alone tell its classes apart."""
    data = small_data(num_nodes=90, homophily=0.95, **changes)
    data.x = torch.ones(90, 1)
    return check_graph(data)


@pytest.mark.parametrize("paper", [False, True])
def test_without_features_nodes_are_told_apart_by_their_edges(paper, tmp_path):
    kind = (learner(), transfer_config(epochs=60)) if paper else ("universal", config(epochs=60))
    found = transfer(bare(), *kind)
    assert found.data.x.shape == (90, 1)
    assert found.graph.x.shape == (90, 32)
    assert found.test_accuracy > found.metrics()["majority"] + 0.3
    found.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    assert torch.equal(loaded.predict_proba(), found.predict_proba())


def test_a_graph_with_features_gets_no_columns(result):
    assert result.spectral is None


# Files


def test_a_saved_result_is_the_same_when_loaded(result, tmp_path):
    result.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    assert_same(result, loaded)
    assert loaded.config == result.config
    assert loaded.summary() == result.summary()


def set_tensor(name, change):
    def act(tensors, meta):
        tensors[name] = change(tensors[name]).contiguous()

    return act


DAMAGE = {
    "an edge to nowhere": set_tensor("refined.edge_index", lambda t: t + 1000),
    "NaN": set_tensor("learner.logit_scale", lambda t: t * float("nan")),
    "no lambda": lambda tensors, meta: meta["run"].pop("input_weight"),
    "another version": lambda tensors, meta: meta["learner"].update(evidence_version=99),
    "no edges": lambda tensors, meta: tensors.pop("refined.edge_index"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_changed_file_is_refused_in_a_sentence(result, tmp_path, kind):
    result.save(tmp_path / "r.safetensors")
    tensors, meta = load_tensors(tmp_path / "r.safetensors", "result")
    DAMAGE[kind](tensors, meta)
    save_tensors(tmp_path / "d.safetensors", "result", tensors, meta)
    with pytest.raises(InputError) as caught:
        TransferResult.load(tmp_path / "d.safetensors")
    assert "\n" not in str(caught.value)


def test_a_graph_without_training_labels_is_refused():
    data = few()
    data.train_mask[:] = False
    with pytest.raises(InputError, match="train"):
        transfer(data, config=config())


def test_too_little_memory_is_said_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr(device, "free_bytes", lambda device: 100)
    with pytest.raises(InputError, match=r"training must fit in memory.*a smaller --hidden"):
        transfer(few(), config=config())


def test_it_trains_over_the_graph_that_refine_makes():
    data = with_random_split(synthetic_graph(num_nodes=90, homophily=0.7, seed=4), 0)
    result = transfer(data, epochs=2, top_k=5)
    refined = graphglow.refine(data, top_k=5)
    trained_over = torch.cat([result.edges.edge_index, result.edges.edge_index.flip(0)], 1)
    wanted = {tuple(pair) for pair in refined.edge_index.T.tolist()}
    assert {tuple(pair) for pair in trained_over.T.tolist()} == wanted
