"""GPR-GNN: starts as APPNP, and is the polynomial that its weights say."""

import pytest
import torch
from gnn_graphs import built, dense_latent, evaluated, float64, latent_structure, small_data

from graphglow.gnn.backbones import APPNP, GPR


@pytest.mark.parametrize("settings", [{}, {"teleport": 0.5, "steps": 3}, {"teleport": 1.0}])
def test_with_the_weights_of_appnp_it_is_appnp(settings):
    graph, structure = float64(small_data()), latent_structure()
    gpr, appnp = built(GPR, **settings), built(APPNP, seed=1, **settings)
    appnp.load_state_dict({n: t for n, t in gpr.state_dict().items() if n != "gamma"})
    for one, other in zip(
        evaluated(gpr, graph, structure), evaluated(appnp, graph, structure), strict=True
    ):  # gamma starts in float32
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_the_first_weights_sum_to_one():
    torch.testing.assert_close(built(GPR).gamma.sum().item(), 1.0, rtol=1e-6, atol=0.0)


def test_is_the_polynomial_of_the_mixed_operator():
    graph, structure, model = float64(small_data()), latent_structure(), built(GPR)
    with torch.no_grad():
        model.gamma.copy_(torch.linspace(-1, 1, 11, dtype=torch.float64))
    operator = 0.4 * graph.adj.to_dense() + 0.6 * dense_latent(structure)
    h0 = model.encode(graph, None).cached[-1]
    powers = [torch.linalg.matrix_power(operator, k) @ h0 for k in range(11)]
    expected = sum(g * p for g, p in zip(model.gamma, powers, strict=True))
    torch.testing.assert_close(evaluated(model, graph, structure)[1], expected)
