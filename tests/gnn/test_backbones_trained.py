"""Every backbone through the public doors: it learns, and whatever it gives can be kept."""

from dataclasses import replace

import pytest
import torch

from graphglow import (
    LearnerConfig,
    PaperConfig,
    StructureLearner,
    TransferResult,
    transfer,
)
from graphglow.gnn.backbones import BACKBONES
from tiny_graphs import raw_data

EVERY = pytest.mark.parametrize("name", sorted(BACKBONES))
LEARNER = StructureLearner(LearnerConfig(embedding_size=8, num_heads=2), seed=0)


def graph():
    return raw_data(num_nodes=60, homophily=0.9, degree=4.0)


def settings(name, **changes):
    base = PaperConfig(
        backbone=name, epochs=5, num_pivots=12, refinements=2, device="cpu", dropout=0.2
    )
    return replace(base, **changes)


@EVERY
def test_learns_a_separable_graph(name):
    assert (
        transfer(graph(), LEARNER, settings(name, epochs=25, learning_rate=0.03)).test_accuracy
        >= 0.9
    )


@EVERY
def test_a_result_can_be_saved_loaded_and_asked(name, tmp_path):
    result = transfer(graph(), LEARNER, settings(name))
    result.save(tmp_path / "result.safetensors")
    again = TransferResult.load(tmp_path / "result.safetensors")
    assert torch.equal(again.predict_proba(), result.predict_proba())
    assert torch.equal(again.predict(), result.predict())
    assert again.test_accuracy == result.test_accuracy
    refined, other = result.refined_graph(top_k=4), again.refined_graph(top_k=4)
    assert torch.equal(refined.edge_index, other.edge_index)
    assert refined.edge_weight.isfinite().all()


@EVERY
@pytest.mark.parametrize(("edges", "num_layers"), [("none", 2), ("some nodes isolated", 3)])
def test_isolated_nodes_and_no_edges_give_finite_results(name, edges, num_layers):
    data = graph()
    few = (data.edge_index < 20).all(0)
    data.edge_index = data.edge_index[:, few if edges != "none" else few & False]
    result = transfer(data, LEARNER, settings(name, num_layers=num_layers))
    assert result.predict_proba().isfinite().all()
    assert all(p.isfinite().all() for p in result.gnn.parameters())


@EVERY
@pytest.mark.gpu
def test_an_epoch_can_be_recorded_as_a_cuda_graph(name):
    """A failed recording warns, and a warning fails here; the library may add in another order."""
    recorded, plain = (
        transfer(graph(), LEARNER, settings(name, epochs=30, device="cuda", capture=capture))
        for capture in (True, False)
    )
    torch.testing.assert_close(
        recorded.predict_proba(), plain.predict_proba(), rtol=1e-2, atol=1e-3
    )
