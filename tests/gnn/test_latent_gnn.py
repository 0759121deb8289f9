"""Mixed message passing in closed form."""

import pytest
import torch
from gnn_graphs import dense_latent, float64, latent_structure, small_data

from graphglow.gnn import MixedPropagation
from graphglow.paper import PivotStructure

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


@pytest.mark.parametrize("known", [True, False])
def test_each_run_of_a_batch_may_have_a_weight_of_its_own(known):
    weights = (0.0, 0.3, 0.8, 1.0)
    several = torch.stack([V, V.flip(0), -V, 2 * V])
    batched = PivotStructure(
        LATENT.q.expand(4, -1, -1), LATENT.k.expand(4, -1, -1), LATENT.threshold, "identity", 1
    )
    column = torch.tensor(weights, dtype=torch.float64)[:, None, None]
    input_part = ADJ @ several if known else None
    out = MixedPropagation(ADJ, batched, column)(several, input_part=input_part)
    for run, weight in enumerate(weights):
        alone = MixedPropagation(ADJ, LATENT, weight)(several[run])
        torch.testing.assert_close(out[run], alone)
