"""Small graphs, learners and settings for the training tests; every number is said."""

import math
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.gnn import Dropout
from graphglow.gnn.train import adam
from graphglow.graph import Graph, check_graph, prepare, synthetic_graph
from graphglow.graph.check import with_random_split
from graphglow.linalg.rows import sparse_rows
from graphglow.linalg.sparse import SparseMatrix
from graphglow.paper import StructureLearner
from graphglow.paper.algorithms import PaperTask
from graphglow.settings import LearnerConfig, ObjectiveConfig, PaperConfig, PretrainConfig

MASKS = ("train_mask", "val_mask", "test_mask")
WIDTH = 6
FLOAT64 = torch.float64


def small_data(*, num_nodes=40, noise=0.5, homophily=0.7, seed=0, sparse_features=False):
    """A checked graph: with features, labels, edges and a split."""
    data = synthetic_graph(
        num_nodes=num_nodes,
        num_classes=3,
        num_features=8,
        homophily=homophily,
        average_degree=3.0,
        feature_noise=noise,
        seed=seed,
    )
    if sparse_features:
        data.x = torch.where(data.x > data.x.quantile(0.85), data.x, 0.0)
    data.name = f"small-{seed}"
    return check_graph(with_random_split(data, 0))


def relabelled(data, order):
    """The same graph with node ``order[i]`` called ``i``."""
    return Data(
        x=data.x[order],
        y=data.y[order],
        edge_index=order.argsort()[data.edge_index],
        **{name: data[name][order] for name in MASKS},
    )


def float64(data):
    return prepare(data).to("cpu", torch.float64)


def learner(*, seed=0, **changes):
    settings = {
        "embedding_size": WIDTH,
        "num_heads": 2,
        "similarity": "cosine",
        "tied": False,
        "delta": "truncate",
        "threshold": 0.0,
    }
    return StructureLearner(LearnerConfig(**(settings | changes)), seed=seed)


def objective(**changes):
    settings = {
        "smoothness": 0.1,
        "sparsity": 0.1,
        "entropy": 0.1,
        "samples": 3,
        "probes": 2,
        "sketch": 4,
    }
    return ObjectiveConfig(**(settings | changes))


MODEL = {
    "backbone": "gcn",
    "num_layers": 2,
    "attention_heads": 8,
    "teleport": 0.1,
    "steps": 10,
    "dropout": 0.0,
    "encoder": "gcn",
    "input_weight": 0.5,
    "structure_momentum": 1.0,
    "num_pivots": 10,
    "redraw_pivots": True,
    "pivots_by_degree": False,
    "refinements": 3,
    "tolerance": 0.0,
    "learning_rate": 0.02,
    "weight_decay": 5e-4,
    "capture": True,
    "seed": 0,
    "device": "cpu",
}
LEARNER_RATE = 0.02


def transfer_config(**changes):
    settings = MODEL | {"epochs": 5, "patience": None}
    return PaperConfig(**(settings | changes))


def pretrain_config(**changes):
    settings = MODEL | {
        "learner": learner().config,
        "objective": objective(),
        "learner_learning_rate": LEARNER_RATE,
        "episodes": 1,
        "epochs": 4,
        "patience": 4,
    }
    return PretrainConfig(**(settings | changes))


def dropout(seed, rate=0.0):
    """What training drops, by a generator of its own."""
    return Dropout(rate, torch.Generator().manual_seed(seed))


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


def close_histories(one, other):
    """Whether two histories are the same up to the rounding of their losses."""
    rel = 1e-4 if torch.get_default_dtype() == torch.float32 else 1e-9

    def exact(epoch):
        return (epoch.graph, epoch.epoch, epoch.val_accuracy, epoch.refinements)

    return len(one) == len(other) and all(
        exact(a) == exact(b)
        and math.isclose(a.loss, b.loss, rel_tol=rel)
        and math.isclose(a.val_loss, b.val_loss, rel_tol=rel)
        for a, b in zip(one, other, strict=True)
    )


def same_tensors(one, other):
    """Whether two modules hold the same tensors bit for bit."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def sparse_matrix(dense: Tensor) -> SparseMatrix:
    """The entries of a dense matrix that are not zero."""
    row, col = dense.nonzero().unbind(1)
    return sparse_rows(row, col, dense[row, col], tuple(dense.shape))
