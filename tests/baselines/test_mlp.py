"""The MLP against its equation; what it does not read."""

import pytest
import torch
from small_fits import built, config_of, float64, relabelled, shuffled, small_data

from graphglow.baselines import fit


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_equals_the_dense_equation(num_layers):
    task = built("mlp", small_data(), num_layers=num_layers)
    with torch.no_grad():
        for bias in task.model.biases:
            bias.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    hidden = float64(small_data()).x.to_dense()
    for layer, (weight, bias) in enumerate(zip(task.model.weights, task.model.biases, strict=True)):
        hidden = (torch.relu(hidden) if layer else hidden) @ weight + bias
    torch.testing.assert_close(task.logits(), hidden)
    assert len(task.model.weights) == num_layers


def test_reads_no_edge():
    data, other = small_data(), small_data()
    other.edge_index = other.edge_index[:, ::7]
    one, two = (fit("mlp", d, config_of("mlp", dropout=0.5)) for d in (data, other))
    assert torch.equal(one.logits, two.logits)


def test_follows_the_nodes_names():
    order, settings = shuffled(), config_of("mlp", dropout=0.0, epochs=10)
    one = fit("mlp", small_data(), settings)
    other = fit("mlp", relabelled(small_data(), order), settings)
    torch.testing.assert_close(other.logits, one.logits[order], rtol=1e-4, atol=1e-5)
