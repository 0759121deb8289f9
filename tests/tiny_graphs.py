"""Small graphs, learners and settings for the training tests; every number is said."""

from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.gnn.propagation import FixedStructure
from graphglow.gnn.train import adam
from graphglow.graph import Graph, check_graph, prepare, synthetic_graph
from graphglow.graph.check import with_random_split
from graphglow.linalg.rows import sparse_rows
from graphglow.linalg.sparse import SparseMatrix
from graphglow.paper.algorithms import PaperTask
from graphglow.paper.learner import StructureLearner
from graphglow.paper.pivots import BlendedStructure
from graphglow.settings import LearnerConfig, ObjectiveConfig, PaperConfig, PretrainConfig

MASKS = ("train_mask", "val_mask", "test_mask")
WIDTH = 6
FLOAT64 = torch.float64


def raw_data(*, num_nodes=40, homophily=0.7, degree=3.0, noise=0.5, features=8, seed=0):
    """Three classes, not checked, without a split."""
    return synthetic_graph(
        num_nodes=num_nodes, num_classes=3, num_features=features, homophily=homophily,
        average_degree=degree, feature_noise=noise, seed=seed,
    )  # fmt: skip


def keep_largest(data, share):
    """Set the features but this share of the largest to zero, and return the graph."""
    data.x = torch.where(data.x > data.x.quantile(1 - share), data.x, 0.0)
    return data


def small_data(*, sparse_features=False, **changes):
    """A checked graph: with features, labels, edges and a split."""
    data = raw_data(**changes)
    if sparse_features:
        keep_largest(data, 0.15)
    data.name = f"small-{changes.get('seed', 0)}"
    return check_graph(with_random_split(data, 0))


def relabelled(data, order):
    """The same graph with node ``order[i]`` called ``i``."""
    moved = data.clone()
    moved.edge_index = order.argsort()[data.edge_index]
    for name in ("x", "y", *MASKS):
        moved[name] = data[name][order]
    return moved


def float64(data):
    return prepare(data).to("cpu", torch.float64)


def learner(*, seed=0, **changes):
    settings = {"embedding_size": WIDTH, "num_heads": 2, "similarity": "cosine", "tied": False}
    settings |= {"delta": "truncate", "threshold": 0.0}
    return StructureLearner(LearnerConfig(**(settings | changes)), seed=seed)


def objective(**changes):
    settings = {"smoothness": 0.1, "sparsity": 0.1, "entropy": 0.1}
    settings |= {"samples": 3, "probes": 2, "sketch": 4}
    return ObjectiveConfig(**(settings | changes))


MODEL = {
    "backbone": "gcn", "num_layers": 2, "attention_heads": 8, "teleport": 0.1, "steps": 10,
    "dropout": 0.0, "encoder": "gcn", "input_weight": 0.5, "structure_momentum": 1.0,
    "num_pivots": 10, "redraw_pivots": True, "pivots_by_degree": False, "refinements": 3,
    "tolerance": 0.0, "learning_rate": 0.02, "weight_decay": 5e-4, "capture": True, "seed": 0,
    "device": "cpu",
}  # fmt: skip
LEARNER_RATE = 0.02


def transfer_config(**changes):
    settings = MODEL | {"epochs": 5, "patience": None}
    return PaperConfig(**(settings | changes))


def pretrain_config(**changes):
    settings = MODEL | {"episodes": 1, "epochs": 4, "patience": 4, "learner": learner().config}
    settings |= {"objective": objective(), "learner_learning_rate": LEARNER_RATE}
    return PretrainConfig(**(settings | changes))


def task(config=None, *, data=None, theta=None, objective=None, seed=None):
    """A GNN under a learner; with an objective the learner is trained along."""
    theta = theta or learner()
    graph = prepare(data or small_data()).to("cpu", torch.get_default_dtype())
    optimizer = None if objective is None else adam(theta, LEARNER_RATE)
    config = config or transfer_config()
    return PaperTask(graph, theta, config, seed=seed, theta=optimizer, objective=objective)


@contextmanager
def computing_in_float64():
    """All training in float64: rounding can then not hide what differs, nor grow with epochs."""
    to = Graph.to
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Graph, "to", lambda graph, device, dtype=None: to(graph, device, FLOAT64))
        torch.set_default_dtype(FLOAT64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


def row_norm(matrix):
    return matrix / matrix.sum(1, keepdim=True).clamp_min(1e-12)


def dense_latent(latent):
    """The operator of a latent graph: RowNorm(Gamma) RowNorm(Gamma^T), mixed or given: [N, N]."""
    if isinstance(latent, FixedStructure):
        return latent.matrix.to_dense()
    if isinstance(latent, BlendedStructure):
        one, other = dense_latent(latent.current), dense_latent(latent.first)
        return latent.eta * one + (1 - latent.eta) * other
    return row_norm(latent.gamma()) @ row_norm(latent.gamma().T)


def hubs():
    """Two hubs of the same degree and features; a leaf's class is the hub it is joined to."""
    leaf = torch.arange(2, 42)
    part = torch.cat([torch.tensor([3, 3]), leaf // 2 % 3])  # the hubs are in no part
    masks = {name: part == i for i, name in enumerate(MASKS)}
    y = torch.cat([torch.tensor([0, 1]), leaf % 2])
    return Data(x=torch.ones(42, 3), y=y, edge_index=torch.stack([leaf, leaf % 2]), **masks)


def same_tensors(one, other):
    """Whether two modules hold the same tensors bit for bit."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def sparse_matrix(dense: Tensor) -> SparseMatrix:
    """The entries of a dense matrix that are not zero."""
    row, col = dense.nonzero().unbind(1)
    return sparse_rows(row, col, dense[row, col], tuple(dense.shape))
