"""Mixed message passing in closed form."""

import pytest
import torch
from gnn_graphs import dense_latent, float64, latent_structure, small_data

from graphglow.gnn import MixedPropagation

ADJ = float64(small_data()).adj
LATENT = latent_structure()
V = torch.randn(20, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("input_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("known", [True, False])
def test_mixes_the_dense_operators(input_weight, known):
    mix = MixedPropagation(ADJ, LATENT, input_weight)
    operator = input_weight * ADJ.to_dense() + (1 - input_weight) * dense_latent(LATENT)
    out = mix(V, input_part=ADJ @ V if known else None)
    torch.testing.assert_close(out, operator @ V)


def test_weight_one_is_the_input_graph_exactly():
    assert torch.equal(MixedPropagation(ADJ, LATENT, 1.0)(V), ADJ @ V)


def test_weight_zero_is_the_latent_graph_exactly():
    assert torch.equal(MixedPropagation(ADJ, LATENT, 0.0)(V), LATENT.propagate(V))


@pytest.mark.parametrize("input_weight", [0.0, 0.5, 1.0])
def test_without_a_latent_graph_only_the_input_graph_counts(input_weight):
    assert torch.equal(MixedPropagation(ADJ, None, input_weight)(V), ADJ @ V)


def test_the_known_input_part_is_used_as_given():
    out = MixedPropagation(ADJ, LATENT, 0.5)(V, input_part=torch.zeros_like(V))
    torch.testing.assert_close(out, 0.5 * LATENT.propagate(V))
