"""Small graphs and fast settings for every method of the table."""

from dataclasses import fields

import pytest
import torch

from graphglow.competitors import METHODS
from graphglow.graph import check_graph, prepare
from tiny_graphs import raw_data

EVERY = pytest.mark.parametrize("name", sorted(METHODS))
SMALL = {"epochs": 4, "hidden": 8, "num_pivots": 12, "refinements": 2, "dropout": 0.3}
SMALL |= {"device": "cpu"}


def small_data(*, num_nodes=45, homophily=0.8, noise=0.8, degree=4.0):
    """A checked graph of three classes, with a split."""
    data = raw_data(num_nodes=num_nodes, homophily=homophily, noise=noise, degree=degree)
    data.name = "small"
    return check_graph(data)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def shuffled(num_nodes=45):
    return torch.randperm(num_nodes, generator=seeded(7))


def has(name, setting):
    """Whether a method has this setting, free to choose."""
    return setting in {field.name for field in fields(METHODS[name].config) if field.init}


def config_of(name, **changes):
    """Fast settings: of the small ones, those that the method has."""
    known = {setting: value for setting, value in SMALL.items() if has(name, setting)}
    return METHODS[name].config(**(known | changes))


def built(name, data, *, dtype=torch.float64, **changes):
    """What the loop trains, before the first step."""
    return METHODS[name].build(prepare(data).to("cpu", dtype), config_of(name, **changes))


def slope_error(parameters, loss, step=1e-6):
    """The largest relative error of ``loss()``'s gradient, against finite differences."""
    loss().backward()
    errors = []
    for seed, parameter in enumerate(parameters):
        way = torch.randn(parameter.shape, dtype=parameter.dtype, generator=seeded(seed))
        values = []
        with torch.no_grad():
            for sign in (1, -1):
                parameter.add_(way, alpha=sign * step)
                values.append(float(loss()))
                parameter.sub_(way, alpha=sign * step)
        found, expected = float((parameter.grad * way).sum()), (values[0] - values[1]) / (2 * step)
        errors.append(abs(found - expected) / max(abs(expected), 1e-3))
    return max(errors)
