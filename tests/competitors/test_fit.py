"""Every method through the one door: it learns, is reproducible, and refuses what it must."""

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from small_fits import EVERY, config_of, has, small_data

from graphglow.competitors import METHODS, FitResult, fit, fit_many
from graphglow.errors import InputError
from graphglow.settings import RunConfig


def fitted(name, data=None, **changes):
    return fit(name, small_data() if data is None else data, config_of(name, **changes))


SEED = 5


@cache
def plain(name):
    """One run of each method, for all tests that only look at it or compare with it."""
    return fitted(name, seed=SEED)


@EVERY
def test_learns_a_separable_graph(name):
    data = small_data(num_nodes=90, homophily=0.98, noise=0.2, degree=12.0)
    epochs = 100 if name in ("gpr", "vgcn") else 30
    result = fitted(name, data, epochs=epochs, learning_rate=0.05)
    assert result.test_accuracy >= 0.9


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
def test_test_labels_do_not_matter(name):
    data = small_data()
    changed = data.clone()
    changed.y = torch.where(data.test_mask, (data.y + 1) % 3, data.y)
    one, other = plain(name), fitted(name, changed, seed=SEED)
    assert torch.equal(one.logits, other.logits)
    assert one.history == other.history
    right = (one.predict() == changed.y)[data.test_mask].double()
    assert other.test_accuracy == pytest.approx(float(right.mean()))


@EVERY
def test_training_labels_matter(name):
    data = small_data()
    changed = data.clone()
    changed.y = torch.where(data.train_mask, (data.y + 1) % 3, data.y)
    assert not torch.equal(plain(name).logits, fitted(name, changed, seed=SEED, epochs=1).logits)


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


def unlabelled():
    data = small_data()
    data.y[data.test_mask] = -1
    return data


def isolated():
    data = small_data()
    data.edge_index = data.edge_index[:, (data.edge_index >= 10).all(0)]
    return data


def edgeless():
    data = small_data()
    data.edge_index = data.edge_index[:, :0]
    return data


def sparse_features():
    data = small_data()
    data.x = torch.where(data.x > data.x.quantile(0.9), data.x, 0.0)
    return data


def weighted():
    data = small_data()
    data.edge_weight = torch.linspace(0.1, 2.0, data.edge_index.shape[1])
    return data


@EVERY
@pytest.mark.parametrize("make", [unlabelled, isolated, edgeless, sparse_features, weighted])
def test_awkward_graphs_give_finite_results(name, make):
    data = make()
    before = data.clone()
    result = fitted(name, data, epochs=2)
    assert result.logits.shape == (45, 3)
    assert result.logits.isfinite().all()
    torch.testing.assert_close(result.predict_proba().sum(1), torch.ones(45))
    found = result.predict_proba().gather(1, result.predict()[:, None])[:, 0]
    torch.testing.assert_close(found, result.predict_proba().amax(1))  # up to ties
    assert data.keys() == before.keys()
    assert torch.equal(data.edge_index, before.edge_index)
    if make is unlabelled:
        assert result.test_accuracy is None


KEYS = (
    "target method backbone test_accuracy val_accuracy epochs train_seconds total_seconds "
    "peak_memory_bytes device seed"
)


@EVERY
def test_the_summary_has_what_the_command_line_promises(name):
    result = plain(name)
    facts = result.summary()
    assert set(facts) >= set(KEYS.split())
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["target"], facts["method"], facts["seed"]) == ("small", name, SEED)
    assert (facts["epochs"], facts["device"]) == (4, "cpu")
    assert facts["backbone"] == METHODS[name].backbone
    assert 0 < facts["train_seconds"] <= facts["total_seconds"]
    assert facts["peak_memory_bytes"] > 10**6
    right = (result.predict() == result.data.y).double()
    assert facts["test_accuracy"] == pytest.approx(float(right[result.data.test_mask].mean()))
    assert facts["val_accuracy"] == pytest.approx(float(right[result.graph.val].mean()))
    assert repr(result).startswith(f"FitResult(target='small', method='{name}'")


@EVERY
def test_a_loss_that_is_not_finite_is_refused_in_one_sentence(name, monkeypatch):
    method = METHODS[name]

    def poisoned(graph, configs):
        task = method.build(graph, configs)
        for weights in task.weights:
            weights.fill_(float("nan"))
        return task

    monkeypatch.setitem(METHODS, name, replace(method, build=poisoned))
    with pytest.raises(InputError, match="loss must stay finite; got nan") as caught:
        fitted(name)
    assert "\n" not in str(caught.value)


class Stranger(RunConfig):
    pass


@EVERY
@pytest.mark.parametrize("stranger", [RunConfig(), Stranger(), "fast", 3])
def test_only_the_methods_own_config_says_how(name, stranger):
    own = METHODS[name].config.__name__
    with pytest.raises(InputError, match=f"config of {name} must be a {own}; got") as caught:
        fit(name, small_data(), stranger)
    assert type(stranger).__name__ in str(caught.value)


@EVERY
def test_several_runs_give_what_each_gives_alone(name):
    changes = ({"seed": 2, "dropout": 0.5}, {"seed": 3, "weight_decay": 0.0})
    configs = [config_of(name, epochs=3, **change) for change in changes]
    seen = []
    together = fit_many(name, small_data(), configs, on_epoch=seen.append)
    assert len(seen) == 2 * 3
    for one, config in zip(together, configs, strict=True):
        alone = fit(name, small_data(), config)
        assert isinstance(one, FitResult)
        assert one.config is config
        torch.testing.assert_close(one.logits, alone.logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in sorted(METHODS) if has(name, "hidden")])
def test_runs_of_different_shapes_are_refused_only_where_one_program_trains_them(name):
    configs = [config_of(name, hidden=hidden, epochs=1) for hidden in (4, 8)]
    if METHODS[name].batched:
        with pytest.raises(InputError, match="got hidden 4 and 8"):
            fit_many(name, small_data(), configs)
    else:
        assert [r.config for r in fit_many(name, small_data(), configs)] == configs


@pytest.mark.parametrize("configs", [[], METHODS["gcn"].config()])
def test_several_configs_come_as_a_list(configs):
    with pytest.raises(InputError, match="needs a list of one or more configs; got"):
        fit_many("gcn", small_data(), configs)


def test_an_unknown_method_is_refused_before_the_graph_is_looked_at():
    with pytest.raises(InputError, match="nearest: gcn"):
        fit("gnc", None)


def test_predictions_are_written_with_the_nodes_own_ids(tmp_path):
    data = small_data()
    data.node_id = [f"node {i}" for i in range(45)]
    fitted("mlp", data).write_predictions(tmp_path / "p.csv")
    header, *rows = (tmp_path / "p.csv").read_text().splitlines()
    assert header.startswith("id,predicted,probability,p_")
    assert [row.split(",")[0] for row in rows] == data.node_id


@EVERY
@pytest.mark.gpu
def test_an_epoch_can_be_recorded_as_a_cuda_graph(name):
    """A failed recording warns, and a warning fails here.

    The library may add in another order, and Adam makes whole steps of what is left where a
    gradient should be zero: runs drift apart. The first replayed epochs tell whether the same
    is done.
    """
    recorded, plain = (
        fitted(name, epochs=20, device="cuda", capture=capture) for capture in (True, False)
    )
    for one, other in zip(recorded.history[:4], plain.history[:4], strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-2)
        assert one.val_loss == pytest.approx(other.val_loss, rel=1e-2)
    assert recorded.logits.device.type == "cpu"


@pytest.mark.parametrize("config", [{}, 0, False, "gcn"])
def test_only_none_means_the_defaults(config):
    with pytest.raises(InputError, match="config of mlp must be a MLPConfig; got"):
        fit("mlp", small_data(), config)


@pytest.mark.parametrize("name", [["gcn"], None, METHODS["gcn"]])
def test_a_method_is_named_by_text(name):
    with pytest.raises(InputError, match=r"^method must be one of"):
        fit(name, small_data())


@pytest.mark.parametrize("name", ["input_weight", "structure_momentum", "teleport"])
@pytest.mark.parametrize("value", ["0.5", None, []])
def test_a_share_must_be_a_number(name, value):
    with pytest.raises(InputError, match=f"^{name} must be a number; got"):
        METHODS["random-theta"].config(**{name: value})


def test_counts_beyond_reason_are_refused():
    with pytest.raises(InputError, match=r"^epochs must be <="):
        METHODS["gcn"].config(epochs=10**20)
