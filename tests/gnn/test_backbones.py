"""What every backbone promises; a new line in the table is tested for free."""

import pytest
import torch
from gnn_graphs import HIDDEN, fresh, latent_structure, small_data, training

from graphglow.gnn.backbones import BACKBONES
from graphglow.gnn.propagation import MixedPropagation
from graphglow.graph import check_graph
from graphglow.paper.pivots import PivotStructure
from tiny_graphs import float64, relabelled

EVERY = pytest.mark.parametrize("name", sorted(BACKBONES))
DEPTHS = pytest.mark.parametrize("num_layers", [2, 3])


def build(name, *, seed=2, **more):
    return fresh(BACKBONES[name], seed=seed, **more)


def run(model, graph, structure, dropout=None, input_weight=0.4):
    encoded = model.encode(graph, dropout)
    return encoded, *model(encoded, MixedPropagation(graph.adj, structure, input_weight), dropout)


@EVERY
@DEPTHS
@pytest.mark.parametrize("sparse", [True, False])
def test_shapes_of_embeddings_and_logits(name, num_layers, sparse):
    graph = float64(small_data(sparse_features=sparse))
    encoded, z, logits = run(build(name, num_layers=num_layers), graph, latent_structure())
    assert encoded.z0.shape == z.shape == (20, HIDDEN)
    assert logits.shape == (20, 3)
    assert z.isfinite().all()
    assert logits.isfinite().all()


@EVERY
@DEPTHS
def test_every_parameter_receives_a_gradient(name, num_layers):
    model = build(name, num_layers=num_layers)
    _, _, logits = run(model, float64(small_data()), latent_structure())
    logits.square().sum().backward()
    assert list(model.parameters())
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert (parameter.grad != 0).any()


@EVERY
@DEPTHS
def test_relabelling_the_nodes_relabels_the_result(name, num_layers):
    data = check_graph(small_data())
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    structure = latent_structure()
    moved = PivotStructure(structure.q[order], structure.k, 0.0, "identity", 1)
    model = build(name, num_layers=num_layers)
    _, z, logits = run(model, float64(data), structure)
    for parameter in model.parameters() if name == "linkx" else ():
        if len(parameter) == 20:  # a weight per node moves with the node
            parameter.data = parameter.data[order]
    _, moved_z, moved_logits = run(model, float64(relabelled(data, order)), moved)
    torch.testing.assert_close(moved_z, z[order])
    torch.testing.assert_close(moved_logits, logits[order])
    assert not torch.allclose(moved_logits, logits)


@EVERY
def test_evaluation_is_deterministic_and_training_follows_its_generator(name):
    model, graph, structure = build(name), float64(small_data()), latent_structure()

    def logits(seed=None):
        return run(model, graph, structure, None if seed is None else training(seed))[2]

    assert torch.equal(logits(), logits())
    assert torch.equal(logits(1), logits(1))
    assert not torch.allclose(logits(1), logits(2))
    assert not torch.allclose(logits(1), logits())


@EVERY
def test_without_dropout_training_and_evaluation_agree(name):
    model, graph, structure = build(name), float64(small_data()), latent_structure()
    trained = run(model, graph, structure, training(1, rate=0.0))[2]
    assert torch.equal(trained, run(model, graph, structure)[2])


@EVERY
def test_the_latent_graph_matters(name):
    model, graph = build(name), float64(small_data())
    one, other = (run(model, graph, latent_structure(seed=s))[2] for s in (0, 1))
    assert not torch.allclose(one, other)
