"""Every method through the one door: it learns, is reproducible, and refuses what it must."""

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from small_fits import EVERY, config_of, small_data

from graphglow import device as memory
from graphglow.competitors import METHODS, fit
from graphglow.errors import InputError
from graphglow.settings import RunConfig
from tiny_graphs import keep_largest

SEED = 5


def fitted(name, data=None, **changes):
    return fit(name, small_data() if data is None else data, config_of(name, **changes))


@cache
def plain(name):
    """One run of each method, for all tests that only look at it or compare with it."""
    return fitted(name, seed=SEED)


@EVERY
def test_learns_a_separable_graph(name):
    data = small_data(num_nodes=90, homophily=0.98, noise=0.2, degree=12.0)
    epochs = 100 if name in ("gpr", "vgcn") else 30
    assert fitted(name, data, epochs=epochs, learning_rate=0.05).test_accuracy >= 0.9


@EVERY
def test_the_same_seed_gives_the_same_result_whatever_the_global_state(name):
    one = plain(name)
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    other = fitted(name, seed=SEED)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one.logits, other.logits)
    assert one.history == other.history


@EVERY
def test_training_labels_matter_and_test_labels_do_not(name):
    data = small_data()
    test, train = data.clone(), data.clone()
    test.y = torch.where(data.test_mask, (data.y + 1) % 3, data.y)
    train.y = torch.where(data.train_mask, (data.y + 1) % 3, data.y)
    other = fitted(name, test, seed=SEED)
    assert torch.equal(plain(name).logits, other.logits)
    right = (plain(name).predict() == test.y)[data.test_mask].double()
    assert other.test_accuracy == pytest.approx(float(right.mean()))
    assert not torch.equal(plain(name).logits, fitted(name, train, seed=SEED, epochs=1).logits)


@EVERY
def test_the_best_epoch_is_kept_and_every_epoch_is_told_until_patience_ends(name):
    seen = []
    data = small_data(noise=3.0)
    config = config_of(name, epochs=60, patience=2, learning_rate=0.1)
    result = fit(name, data, config, on_epoch=seen.append)
    assert seen == result.history
    assert [epoch.epoch for epoch in seen] == list(range(1, result.epochs + 1))
    best = max(seen, key=lambda e: (e.val_accuracy, -e.val_loss))
    assert result.val_accuracy == pytest.approx(best.val_accuracy)
    judged = result.graph.val  # of some methods, not all validation nodes
    loss = torch.nn.functional.cross_entropy(result.logits[judged], data.y[judged])
    assert float(loss) == pytest.approx(best.val_loss, rel=1e-4)
    assert result.epochs == min(best.epoch + 2, 60)  # patience ends what no longer improves


def isolated_and_unlabelled():
    data = small_data()
    data.edge_index = data.edge_index[:, (data.edge_index >= 10).all(0)]
    data.y[data.test_mask] = -1
    return data


def edgeless():
    data = small_data()
    data.edge_index = data.edge_index[:, :0]
    return data


def sparse_and_weighted():
    data = keep_largest(small_data(), 0.1)
    data.edge_weight = torch.linspace(0.1, 2.0, data.edge_index.shape[1])
    return data


@EVERY
@pytest.mark.parametrize("make", [isolated_and_unlabelled, edgeless, sparse_and_weighted])
def test_awkward_graphs_give_finite_results(name, make):
    data = make()
    edges = data.edge_index.clone()
    result = fitted(name, data, epochs=2)
    assert result.logits.shape == (45, 3)
    torch.testing.assert_close(result.predict_proba().sum(1), torch.ones(45))
    found = result.predict_proba().gather(1, result.predict()[:, None])[:, 0]
    torch.testing.assert_close(found, result.predict_proba().amax(1))  # up to ties
    assert torch.equal(data.edge_index, edges)
    assert (result.test_accuracy is None) == (make is isolated_and_unlabelled)


@EVERY
def test_the_summary_is_json_with_the_run_s_facts(name):
    result = plain(name)
    facts = result.summary()
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["target"], facts["method"], facts["seed"]) == ("small", name, SEED)
    assert (facts["epochs"], facts["device"]) == (4, "cpu")
    assert facts["backbone"] == METHODS[name].backbone
    assert 0 < facts["train_seconds"] <= facts["total_seconds"]
    right = (result.predict() == result.data.y).double()
    assert facts["test_accuracy"] == pytest.approx(float(right[result.data.test_mask].mean()))
    assert facts["val_accuracy"] == pytest.approx(float(right[result.graph.val].mean()))


@EVERY
def test_a_loss_that_is_not_finite_is_refused(name, monkeypatch):
    method = METHODS[name]

    def poisoned(graph, config):
        task = method.build(graph, config)
        for weights in task.weights:
            weights.fill_(float("nan"))
        return task

    monkeypatch.setitem(METHODS, name, replace(method, build=poisoned))
    with pytest.raises(InputError, match="nan"):
        fitted(name)


@pytest.mark.parametrize("stranger", [RunConfig(), {}, False, "gcn"])
def test_only_the_methods_own_config_says_how(stranger):
    with pytest.raises(InputError, match="config of mlp must be a MLPConfig; got"):
        fit("mlp", small_data(), stranger)


def test_what_would_not_fit_in_memory_is_refused_before_it_is_built(monkeypatch):
    def never(graph, config):
        raise AssertionError("it was built")

    monkeypatch.setattr(memory, "free_bytes", lambda device: 10**9)
    large = replace(METHODS["gcn"], build=never, pair_bytes=10**9)
    monkeypatch.setitem(METHODS, "gcn", large)
    with pytest.raises(InputError, match=r"on small, .* it would need about 2.02e.03 GB"):
        fitted("gcn")


@EVERY
@pytest.mark.gpu
def test_a_gpu_gives_the_first_epochs_of_a_cpu_without_dropout(name):
    """Recorded as a CUDA graph or not; later epochs drift apart."""
    settings = {"epochs": 12, "dropout": 0.0}
    alike = ("graphglow-star", "graphglow-attention", "lds", "vgcn")  # these draw besides
    one, other = (
        fitted(name, device="cuda", capture=capture, **settings) for capture in (True, False)
    )
    reference = other if name in alike else fitted(name, **settings)
    for result in (one, other):
        for epoch, expected in zip(result.history[:3], reference.history, strict=False):
            assert epoch.loss == pytest.approx(expected.loss, rel=1e-2)
