"""Lambda by degree: a node with d neighbours gives the input graph the weight d / (d + c)."""

import pytest
import torch
from tiny_graphs import learner, pretrain_config, small_data, transfer_config

from graphglow import RefineStructure
from graphglow.baselines import fit
from graphglow.baselines.gnns import GNNConfig
from graphglow.baselines.variants import RandomConfig
from graphglow.errors import InputError
from graphglow.inference.refined_graph import OperatorRows
from graphglow.training import PretrainConfig, TransferConfig, TransferResult, pretrain, transfer
from graphglow.training.transfer import transfer_many

DATA = small_data()
LAMBDA = TransferConfig().input_weight


def by_degree(c, **changes):
    return transfer_config(input_weight=LAMBDA, latent_degree=c, **changes)


def degrees(adj):
    return (adj.to_dense() != 0).sum(1)


@pytest.mark.parametrize("config", [PretrainConfig, TransferConfig, RandomConfig])
def test_lambda_is_given_once(config):
    with pytest.raises(InputError, match=r"give one; got 0\.4 and 2\.0"):
        config(input_weight=0.4, latent_degree=2.0)
    assert config(latent_degree=2.0).input_weight == LAMBDA


def test_a_run_says_it():
    assert transfer(learner(), DATA, by_degree(2.0, epochs=1)).summary()["latent_degree"] == 2.0
    plain = transfer(learner(), DATA, transfer_config(epochs=1))
    assert "latent_degree" not in plain.summary()
    fitted = RandomConfig(latent_degree=3.0, epochs=1, embedding_size=6)
    assert fit("random-theta", DATA, fitted).summary()["latent_degree"] == 3.0
    assert "latent_degree" not in fit("gcn", DATA, GNNConfig(epochs=1)).summary()


def test_without_it_lambda_is_the_same_everywhere():
    result = transfer(learner(), DATA, transfer_config(epochs=1))
    assert result.config.input_weight_on(result.graph.adj) == 0.5


def test_the_refined_graph_has_in_each_row_the_lambda_of_its_node():
    result = transfer(learner(), DATA, by_degree(2.0))
    adj, latent = result.graph.adj, result.refinement.latent
    every = slice(0, adj.shape[0])
    given, learned = OperatorRows(adj, latent, result.config.input_weight_on(adj)).parts(every)
    for node, degree in enumerate(degrees(adj).tolist()):
        one = slice(node, node + 1)
        alone = OperatorRows(adj, latent, degree / (degree + 2.0)).parts(one)
        torch.testing.assert_close(given[one], alone[0])
        torch.testing.assert_close(learned[one], alone[1])
    refined = result.refined_graph(len(DATA.y))
    dense = torch.zeros_like(given)
    dense[refined.edge_index[1], refined.edge_index[0]] = refined.edge_weight
    torch.testing.assert_close(dense, given + learned)


def assert_alike(one, other):
    torch.testing.assert_close(one.predict_proba(), other.predict_proba(), atol=1e-5, rtol=1e-4)


def test_as_c_goes_to_zero_the_input_graph_alone_is_left():
    alone = transfer(learner(), DATA, transfer_config(input_weight=1.0))
    assert_alike(transfer(learner(), DATA, by_degree(1e-9)), alone)
    other = transfer(learner(), DATA, by_degree(2.0))
    assert not torch.allclose(other.predict_proba(), alone.predict_proba(), atol=1e-3)


def test_runs_of_a_batch_give_what_each_gives_alone():
    configs = [by_degree(2.0, seed=seed, dropout=0.5) for seed in (0, 1)]
    for result, config in zip(transfer_many(learner(), DATA, configs), configs, strict=True):
        assert_alike(result, transfer(learner(), DATA, config))


def test_a_saved_result_predicts_the_same(tmp_path):
    result = transfer(learner(), DATA, by_degree(2.0))
    result.save(tmp_path / "run.safetensors")
    again = TransferResult.load(tmp_path / "run.safetensors")
    assert again.config.latent_degree == 2.0
    assert torch.equal(again.predict_proba(), result.predict_proba())


def test_it_counts_in_pretraining_and_for_methods_trained_on_the_target():
    thetas = [
        pretrain([DATA], pretrain_config(input_weight=LAMBDA, latent_degree=c)) for c in (0.5, 5.0)
    ]
    one, other = (dict(theta.named_parameters()) for theta in thetas)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    scores = [
        fit("random-theta", DATA, RandomConfig(latent_degree=c, epochs=5, embedding_size=6))
        for c in (0.5, 50.0)
    ]
    assert not torch.allclose(*(one.predict_proba() for one in scores), atol=1e-4)


@pytest.mark.parametrize("labelled", [True, False])
def test_augmented_edges_of_a_node_weigh_as_many_input_edges(labelled):
    transform = RefineStructure(learner(), "augment", 5, by_degree(1.5), use_labels=labelled)
    refined = transform(DATA)
    new = slice(DATA.edge_index.shape[1], None)
    target, weight = refined.edge_index[1, new], refined.edge_weight[new]
    sums = torch.bincount(target, weight, minlength=len(DATA.y))
    torch.testing.assert_close(sums[target.unique()], torch.full((len(target.unique()),), 1.5))
    replaced = RefineStructure(learner(), "replace", 5, by_degree(1.5), use_labels=labelled)(DATA)
    other = RefineStructure(learner(), "replace", 5, by_degree(15.0), use_labels=labelled)(DATA)
    assert not torch.equal(replaced.edge_weight, other.edge_weight)
