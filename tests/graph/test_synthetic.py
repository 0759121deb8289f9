"""Random graphs."""

import re

import pytest
import torch

from graphglow.errors import InputError
from graphglow.graph import check_graph, synthetic_graph


def edge_homophily(data) -> float:
    u, v = data.edge_index
    return float((data.y[u] == data.y[v]).float().mean())


@pytest.mark.parametrize("homophily", [0.0, 0.1, 0.35, 0.8, 1.0])
@pytest.mark.parametrize("num_classes", [2, 7])
def test_homophily_and_degree_are_as_asked(homophily, num_classes):
    data = synthetic_graph(
        num_nodes=500, num_classes=num_classes, homophily=homophily, average_degree=6
    )
    assert edge_homophily(data) == pytest.approx(homophily, abs=0.001)
    u, v = data.edge_index
    assert len(u) / 500 == 6
    assert (u != v).all()
    assert data.edge_index.unique(dim=1).shape[1] == len(u)
    assert (torch.bincount(data.y).max() - torch.bincount(data.y).min()) <= 1
    check_graph(data)


def test_the_seed_fixes_everything():
    a, b, c = (synthetic_graph(seed=s) for s in (4, 4, 5))
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.edge_index, b.edge_index)
    assert not torch.equal(a.x, c.x)


def test_features_gather_around_their_class():
    data = synthetic_graph(feature_noise=0.0)
    for c in range(5):
        assert (data.x[data.y == c] == data.x[data.y == c][0]).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, "num_classes must be >= 2; got 1"),
        ({"num_nodes": 9}, "num_nodes must be at least two per class (10); got 9"),
        ({"num_nodes": 0}, "got 0"),
        ({"num_features": 0}, "num_features must be >= 1; got 0"),
        ({"homophily": 1.1}, "homophily must lie in [0, 1]; got 1.1"),
        ({"homophily": float("nan")}, "homophily must lie in [0, 1]; got nan"),
        ({"feature_noise": -1.0}, "feature_noise must lie in [0, 1e+30]; got -1.0"),
        ({"average_degree": 0.0}, "average_degree must lie in [0.002, 999]; got 0.0"),
        ({"average_degree": float("inf")}, "average_degree must lie in [0.002, 999]; got inf"),
        ({"num_nodes": 20, "average_degree": 9}, "at most half of the pairs"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        synthetic_graph(**arguments)
