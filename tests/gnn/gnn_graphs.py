"""A small graph, its relabelled twin, and a latent structure over it, in float64."""

from types import SimpleNamespace

import torch
from torch_geometric.data import Data

from graphglow.gnn import Dropout, MixedPropagation
from graphglow.graph import prepare, synthetic_graph
from graphglow.paper import StructureLearner
from graphglow.settings import LearnerConfig, ModelConfig

HIDDEN = 6


def small_data(*, num_nodes=20, sparse_features=False):
    data = synthetic_graph(
        num_nodes=num_nodes,
        num_classes=3,
        num_features=12,
        homophily=0.7,
        average_degree=3.0,
        feature_noise=0.5,
        seed=4,
    )
    if sparse_features:
        data.x = torch.where(data.x > data.x.quantile(0.9), data.x, 0.0)
    return data


def relabelled(data, order):
    """The same graph with node ``order[i]`` called ``i``; no split is drawn anew."""
    new_index = order.argsort()
    return Data(
        x=data.x[order],
        y=data.y[order],
        edge_index=new_index[data.edge_index],
        **{name: data[name][order] for name in ("train_mask", "val_mask", "test_mask")},
    )


def float64(data):
    return prepare(data).to("cpu", torch.float64)


def training(seed, rate=0.5):
    """What training drops."""
    return Dropout(rate, torch.Generator().manual_seed(seed))


def latent_structure(num_nodes=20, seed=0):
    config = LearnerConfig(
        embedding_size=HIDDEN,
        num_heads=2,
        similarity="cosine",
        tied=False,
        delta="truncate",
        threshold=0.0,
    )
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(num_nodes, HIDDEN, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return (
            StructureLearner(config, seed=seed).double().structure(z, torch.tensor([0, 3, 8, 11]))
        )


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


def dense_latent(structure):
    """RowNorm(Gamma) RowNorm(Gamma^T), [N, N]."""
    gamma = structure.gamma()

    def row_norm(matrix):
        return matrix / matrix.sum(1, keepdim=True).clamp_min(1e-12)

    return row_norm(gamma) @ row_norm(gamma.T)
