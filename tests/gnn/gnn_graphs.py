"""A small graph and a latent structure over it, in float64, and backbones for these."""

from types import SimpleNamespace

import torch

from graphglow.gnn.propagation import Dropout, MixedPropagation
from graphglow.settings import ModelConfig
from tiny_graphs import WIDTH, keep_largest, learner, raw_data

HIDDEN = WIDTH


def small_data(*, num_nodes=20, sparse_features=False):
    data = raw_data(num_nodes=num_nodes, features=12, seed=4)
    return keep_largest(data, 0.1) if sparse_features else data


def training(seed, rate=0.5):
    """What training drops."""
    return Dropout(rate, torch.Generator().manual_seed(seed))


def latent_structure(num_nodes=20, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(num_nodes, HIDDEN, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return learner(seed=seed).double().structure(z, torch.tensor([0, 3, 8, 11]))


def fresh(cls, num_layers=2, *, encoder="gcn", seed=0, num_nodes=20, **settings):
    """A backbone for the small graph, in float64, with settings of its own."""
    sizes = SimpleNamespace(num_features=12, num_classes=3, num_nodes=num_nodes)
    config = ModelConfig(num_layers=num_layers, encoder=encoder, **settings)
    return cls(config, sizes, HIDDEN, torch.Generator().manual_seed(seed)).double()


def built(cls, num_layers=2, *, seed=0, **more):
    """The same with biases that are not zero."""
    model = fresh(cls, num_layers, seed=seed, **more)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if (parameter == 0).all():
                parameter.uniform_(-0.5, 0.5, generator=generator)
    return model


def evaluated(model, graph, structure, input_weight=0.4):
    """Embeddings and logits of one pass in evaluation."""
    mix = MixedPropagation(graph.adj, structure, input_weight)
    return model(model.encode(graph, None), mix, None)


def raw_adjacency(graph):
    """A without self-loops as a dense matrix of zeros and ones."""
    dense = (graph.adj.to_dense() != 0).double()
    return dense - torch.eye(graph.num_nodes, dtype=torch.float64)
