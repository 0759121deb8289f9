"""Small graphs, learners and settings for the training tests; every number is said."""

import torch
from torch_geometric.data import Data

from graphglow.graphs import check_graph, prepare, synthetic_graph
from graphglow.structure import LearnerConfig, ObjectiveConfig, StructureLearner
from graphglow.training import PretrainConfig, TransferConfig

MASKS = ("train_mask", "val_mask", "test_mask")
WIDTH = 6


def small_data(*, num_nodes=40, noise=0.5, homophily=0.7, seed=0):
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
    data.name = f"small-{seed}"
    return check_graph(data)


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
        "supervision": "nwgm",
        "smoothness": 0.1,
        "sparsity": 0.1,
        "entropy": 0.1,
        "samples": 3,
        "temperature": 0.5,
        "probes": 2,
        "sketch": 4,
    }
    return ObjectiveConfig(**(settings | changes))


MODEL = {
    "backbone": "gcn",
    "num_layers": 2,
    "dropout": 0.0,
    "encoder": "gcn",
    "input_weight": 0.5,
    "structure_momentum": 1.0,
    "num_pivots": 10,
    "redraw_pivots": True,
    "refinements": 3,
    "tolerance": 0.0,
    "learning_rate": 0.02,
    "weight_decay": 5e-4,
    "backend": "auto",
    "seed": 0,
    "device": "cpu",
    "learner_learning_rate": 0.02,
}


def transfer_config(**changes):
    settings = MODEL | {
        "epochs": 5,
        "patience": None,
        "train_learner": False,
        "objective": objective(),
    }
    return TransferConfig(**(settings | changes))


def pretrain_config(**changes):
    settings = MODEL | {
        "learner": learner().config,
        "objective": objective(),
        "episodes": 1,
        "epochs": 4,
        "patience": 4,
    }
    return PretrainConfig(**(settings | changes))


def same_tensors(one, other):
    """Whether two modules hold the same tensors bit for bit."""
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
