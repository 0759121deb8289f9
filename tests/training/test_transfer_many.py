"""Several transfers as one batched program: each gives what it gives alone, up to rounding."""

import pytest
import torch

from graphglow.errors import InputError
from graphglow.graph import prepare
from graphglow.linalg.sparse import SparseMatrix
from graphglow.result import TransferResult
from graphglow.transfer_results import PaperResult
from graphglow.transfer import transfer
from tiny_graphs import (
    close_histories,
    computing_in_float64,
    learner,
    same_tensors,
    small_data,
    transfer_config,
)

DATA = small_data(noise=2.0)
BASE = {"dropout": 0.5, "epochs": 4, "structure_momentum": 0.8}


def configs(settings, **shared):
    return [transfer_config(**(BASE | shared | changes)) for changes in settings]


def assert_same_up_to_rounding(together, alone):
    assert close_histories(together.history, alone.history)
    assert torch.equal(together.pivots, alone.pivots)
    single = torch.get_default_dtype() == torch.float32
    bounds = {"rtol": 1e-3, "atol": 1e-5} if single else {"rtol": 1e-8, "atol": 1e-10}
    weights, expected = together.gnn.state_dict(), alone.gnn.state_dict()
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], **bounds)
    torch.testing.assert_close(together.predict_proba(), alone.predict_proba(), **bounds)
    assert together.val_accuracy == alone.val_accuracy
    assert together.test_accuracy == alone.test_accuracy
    assert together.config == alone.config


def assert_each_as_alone(runs, *, data=DATA, **changes):
    """Train ``runs`` together and one by one; return the results of the batch."""
    together = transfer_many(data, learner(**changes), runs)
    assert len(together) == len(runs)
    for one, config in zip(together, runs, strict=True):
        assert_same_up_to_rounding(one, transfer(data, learner(**changes), config))
    return together


@pytest.fixture
def float64():
    with computing_in_float64():
        yield


IN_FLOAT64 = pytest.mark.usefixtures("float64")
SEEDS = [{"seed": 3}, {"seed": 0}, {"seed": 7}]
DIFFERENT = {
    "seed": SEEDS,
    "learning_rate": [{"learning_rate": 0.001}, {"learning_rate": 0.05}, {"learning_rate": 0.2}],
    "weight_decay": [{"weight_decay": 0.0}, {"weight_decay": 5e-4}, {"weight_decay": 0.1}],
    "dropout": [{"dropout": 0.1}, {"dropout": 0.5}, {"dropout": 0.8}],
    "no dropout": [{"dropout": 0.0}, {"dropout": 0.5}, {"dropout": 0.0, "seed": 1}],
    "input_weight": [{"input_weight": 0.0}, {"input_weight": 0.4}, {"input_weight": 1.0}],
    "structure_momentum": [
        {"structure_momentum": 0.0},
        {"structure_momentum": 0.6},
        {"structure_momentum": 1.0},
    ],
    "everything": [
        {
            "seed": 1,
            "learning_rate": 0.2,
            "weight_decay": 0.0,
            "dropout": 0.0,
            "input_weight": 0.2,
            "structure_momentum": 1.0,
        },
        {
            "seed": 2,
            "learning_rate": 0.05,
            "weight_decay": 0.01,
            "dropout": 0.7,
            "input_weight": 0.9,
            "structure_momentum": 0.3,
        },
        {"seed": 2},
    ],
}


@IN_FLOAT64
@pytest.mark.parametrize(
    ("what", "sparse"), [*((what, False) for what in DIFFERENT), ("everything", True)]
)
def test_runs_that_differ_in(what, sparse):
    data = small_data(noise=2.0, sparse_features=sparse)
    assert isinstance(prepare(data).x, SparseMatrix) == sparse
    found = assert_each_as_alone(configs(DIFFERENT[what]), data=data)
    assert len({result.history[-1].loss for result in found}) == 3


LEARNERS = {
    "rbf": {"similarity": "rbf"},
    "attention": {"similarity": "attention"},
    "dot": {"similarity": "dot"},
    "affine": {"delta": "affine"},
    "tied": {"tied": True},
}


@IN_FLOAT64
@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_in_a_batch(name):
    assert_each_as_alone(configs(SEEDS[:2], epochs=2), **LEARNERS[name])


@IN_FLOAT64
@pytest.mark.parametrize(
    "shared",
    [
        {"backend": "eager"},
        {"backend": "chunked"},
        {"num_layers": 3},
        {"encoder": "mlp"},
        {"redraw_pivots": False},
        {"num_pivots": 1},
        {"num_pivots": 1000},
        {"refinements": 1},
    ],
    ids=str,
)
def test_every_shared_setting_in_a_batch(shared):
    assert_each_as_alone(configs(SEEDS[:2], epochs=2, **shared))


@IN_FLOAT64
def test_runs_stop_each_by_its_own_patience():
    rates = [{"seed": s, "learning_rate": r} for s, r in ((0, 0.3), (1, 0.1), (2, 0.02))]
    runs = configs(rates, patience=8, epochs=60)
    found = assert_each_as_alone(runs, data=small_data(noise=1.0))
    assert len({result.epochs for result in found}) > 1
    assert max(result.epochs for result in found) < 60


@IN_FLOAT64
@pytest.mark.parametrize("tolerance", [1e-3, 0.01, 0.03])
def test_runs_settle_each_at_its_own_step(tolerance):
    runs = configs(SEEDS, tolerance=tolerance, refinements=5, dropout=0.0, epochs=6)
    found = assert_each_as_alone(runs)
    counts = [[epoch.refinements for epoch in result.history] for result in found]
    assert any(len(set(epoch)) > 1 for epoch in zip(*counts, strict=True))


@IN_FLOAT64
@pytest.mark.parametrize("tolerance", [1e-3, 0.01])
def test_runs_with_dropout_settle_each_at_its_own_step(tolerance):
    assert_each_as_alone(configs(SEEDS, tolerance=tolerance, refinements=5, dropout=0.5))


def test_up_to_rounding_in_float32_too():
    assert_each_as_alone(configs(DIFFERENT["everything"]))


def test_a_batch_of_one_is_a_transfer():
    (config,) = configs([{"seed": 4}])
    (one,) = transfer_many(DATA, learner(), [config])
    other = transfer(DATA, learner(), config)
    assert one.history == other.history
    assert same_tensors(one.gnn, other.gnn)


def test_the_same_run_twice_gives_the_same_twice():
    one, other = transfer_many(DATA, learner(), configs([{"seed": 4}, {"seed": 4}]))
    assert one.history == other.history
    assert torch.equal(one.predict_proba(), other.predict_proba())


@IN_FLOAT64
def test_what_stands_beside_a_run_does_not_matter():
    runs = configs([{"seed": s, "learning_rate": 0.01 * (1 + s)} for s in range(5)])
    whole = transfer_many(DATA, learner(), runs)
    for part in (runs[:2], runs[3:]):
        for result in transfer_many(DATA, learner(), part):
            (twin,) = (r for r in whole if r.config == result.config)
            assert_same_up_to_rounding(result, twin)


@pytest.mark.parametrize("momentum", [1.0, 0.6])
def test_results_of_a_batch_are_whole(tmp_path, momentum):
    """Each can be saved, loaded, and asked for its refined graph."""
    runs = configs(SEEDS, structure_momentum=momentum)
    found = assert_each_as_alone(runs)
    for run, (result, config) in enumerate(zip(found, runs, strict=True)):
        path = tmp_path / f"{run}.safetensors"
        result.save(path)
        loaded = TransferResult.load(path)
        assert torch.equal(loaded.predict_proba(), result.predict_proba())
        assert loaded.history == result.history
        assert loaded.summary() == result.summary()
        refined = result.refined_graph(top_k=5)
        assert torch.equal(loaded.refined_graph(top_k=5).edge_weight, refined.edge_weight)
        alone = transfer(DATA, learner(), config).refined_graph(top_k=40)
        whole = result.refined_graph(top_k=40)
        dense = []
        for graph in (alone, whole):
            out = torch.zeros(40, 40)
            out[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight
            dense.append(out)
        torch.testing.assert_close(dense[1], dense[0], rtol=1e-3, atol=1e-4)
        assert result.summary()["seed"] == config.seed


def test_each_result_has_memory_of_its_own():
    one, other = transfer_many(DATA, learner(), configs([{"seed": 4}, {"seed": 5}]))
    before = other.predict_proba()
    with torch.no_grad():
        for parameter in one.gnn.parameters():
            assert not parameter.requires_grad
            parameter.fill_(7.0)
    fresh = PaperResult(**vars_of(other))
    assert torch.equal(fresh.predict_proba(), before)


def vars_of(result):
    names = PaperResult.__dataclass_fields__
    return {name: getattr(result, name) for name in names}


def test_the_caller_hears_of_every_epoch_of_every_run():
    seen = []
    found = transfer_many(DATA, learner(), configs(SEEDS, epochs=3), on_epoch=seen.append)
    for run, result in enumerate(found):
        assert [epoch._replace(run=0) for epoch in seen if epoch.run == run] == result.history
    assert [epoch.epoch for epoch in seen] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_seconds_are_those_of_the_whole_batch():
    found = transfer_many(DATA, learner(), configs(SEEDS, epochs=3))
    assert len({result.train_seconds for result in found}) == 1
    assert all(0 < result.train_seconds <= result.seconds for result in found)


def test_the_learner_is_never_touched_and_the_same_in_every_result():
    theta = learner()
    found = transfer_many(DATA, theta, configs(SEEDS, epochs=3))
    assert same_tensors(theta, learner())
    assert all(p.requires_grad for p in theta.parameters())
    for result in found:
        assert same_tensors(result.learner, theta)
        assert result.learner is not theta


@pytest.mark.parametrize("given", [[], transfer_config()])
def test_configs_come_as_a_list(given):
    with pytest.raises(InputError, match="a list of one config or more; got"):
        transfer_many(DATA, learner(), given)


def test_runs_of_different_shapes_are_refused_by_the_setting():
    with pytest.raises(InputError, match=r"may differ in .* only; got num_layers "):
        transfer_many(DATA, learner(), [transfer_config(), transfer_config(num_layers=3)])


@pytest.mark.parametrize("stranger", [None, "cora", 3])
def test_only_a_graph_is_transferred_to(stranger):
    with pytest.raises(InputError, match="Data"):
        transfer_many(stranger, learner(), configs(SEEDS))
