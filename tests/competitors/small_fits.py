"""Small graphs and fast settings for every method of the table."""

from dataclasses import fields

import pytest
import torch
from torch_geometric.data import Data

from graphglow.competitors import METHODS
from graphglow.graph import check_graph, prepare, synthetic_graph

EVERY = pytest.mark.parametrize("name", sorted(METHODS))
MASKS = ("train_mask", "val_mask", "test_mask")
SMALL = {
    "epochs": 4,
    "hidden": 8,
    "num_pivots": 12,
    "refinements": 2,
    "dropout": 0.3,
    "device": "cpu",
}


def small_data(*, num_nodes=45, homophily=0.8, noise=0.8, degree=4.0, seed=0):
    """A checked graph of three classes, with a split."""
    data = synthetic_graph(
        num_nodes=num_nodes,
        num_classes=3,
        num_features=8,
        homophily=homophily,
        average_degree=degree,
        feature_noise=noise,
        seed=seed,
    )
    data.name = "small"
    return check_graph(data)


def float64(data):
    return prepare(data).to("cpu", torch.float64)


def relabelled(data, order):
    """The same graph with node ``order[i]`` called ``i``."""
    return Data(
        x=data.x[order],
        y=data.y[order],
        edge_index=order.argsort()[data.edge_index],
        name=data.name,
        **{name: data[name][order] for name in MASKS},
    )


def shuffled(num_nodes=45):
    return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(7))


def has(name, setting):
    """Whether a method has this setting, free to choose."""
    return setting in {field.name for field in fields(METHODS[name].config) if field.init}


def config_of(name, **changes):
    """Fast settings: of the small ones, those that the method has."""
    known = {setting: value for setting, value in SMALL.items() if has(name, setting)}
    return METHODS[name].config(**(known | changes))


def built(name, data, *, dtype=torch.float64, **changes):
    """What the loop trains, before the first step."""
    graph = prepare(data).to("cpu", dtype)
    return METHODS[name].build(graph, [config_of(name, **changes)])


def all_probabilities(theta):
    """Of an EdgeProbabilities: [N, N], symmetric."""
    full = theta.flat.new_zeros(theta.num_nodes, theta.num_nodes)
    for start, stop, values in theta.blocks(theta.flat):
        full[start:stop, start:] = values
    return full + full.T
