"""GCN against Algorithm 1 as the paper writes it: dense, multiplying after propagating."""

import pytest
import torch
from gnn_graphs import dense_latent, float64, fresh, latent_structure, small_data

from graphglow.gnn import MixedPropagation
from graphglow.gnn.backbones import GCN


def algorithm_1(model, graph, structure, input_weight):
    """Z^(l+1) = sigma((lambda A + (1 - lambda) A_hat) Z^(l) W^(l)), no sigma at the end.

    Returns Z^(L-1) before its sigma, from which the next structure is inferred, and Z^(L).
    """
    operator = input_weight * graph.adj.to_dense() + (1 - input_weight) * dense_latent(structure)
    z = graph.x.to_dense()
    for weight in model.weights[:-1]:
        before_sigma = (operator @ z) @ weight
        z = torch.relu(before_sigma)
    return before_sigma, (operator @ z) @ model.weights[-1]


@pytest.mark.parametrize("encoder", ["gcn", "mlp"])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("input_weight", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("num_layers", [2, 3, 4])
def test_equals_algorithm_1(num_layers, input_weight, sparse, encoder):
    graph, structure = float64(small_data(sparse_features=sparse)), latent_structure()
    model = fresh(GCN, num_layers, encoder=encoder)
    mix = MixedPropagation(graph.adj, structure, input_weight)
    z, logits = model(model.encode(graph, None), mix, None)
    expected_z, expected_logits = algorithm_1(model, graph, structure, input_weight)
    torch.testing.assert_close(z, expected_z)
    torch.testing.assert_close(logits, expected_logits)
    assert logits.abs().max() > 1e-4
    assert (z < 0).any()


def test_starts_without_biases_and_adds_them_in_every_layer():
    graph, structure, model = float64(small_data()), latent_structure(), fresh(GCN, 3)
    mix = MixedPropagation(graph.adj, structure, 0.4)
    assert all((bias == 0).all() for bias in model.biases)
    before = model(model.encode(graph, None), mix, None)[1]
    for bias in model.biases:
        with torch.no_grad():
            bias.fill_(0.5)
        after = model(model.encode(graph, None), mix, None)[1]
        assert not torch.allclose(after, before)
        before = after


def test_sparse_and_dense_features_give_the_same():
    sparse = float64(small_data(sparse_features=True))
    dense = sparse.with_matrices(x=sparse.x.to_dense())
    model, structure = fresh(GCN), latent_structure()
    outs = [
        model(model.encode(g, None), MixedPropagation(g.adj, structure, 0.4), None)[1]
        for g in (sparse, dense)
    ]
    torch.testing.assert_close(outs[0], outs[1])


def test_the_generator_decides_the_initial_weights():
    first, again, other = (fresh(GCN, 3, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first.weights, again.weights, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first.weights, other.weights, strict=True))
