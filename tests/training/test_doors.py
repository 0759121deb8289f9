"""One meaning of a graph in every door: what is refused, and what is drawn where no split is."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData

import graphglow
from graphglow.graphs.check import MASKS

CONFIG = {"epochs": 1, "device": "cpu"}
DOORS = {
    "load_graph": graphglow.load_graph,
    "refine": graphglow.refine,
    "audit": graphglow.audit,
    "explain_pair": lambda data: graphglow.explain_pair(data, 0, 1),
    "transfer": lambda data: graphglow.transfer(data, **CONFIG),
    "transfer, paper": lambda data: graphglow.transfer(data, "paper", **CONFIG),
    "fit": lambda data: graphglow.fit("mlp", data, **CONFIG),
    "pretrain": lambda data: graphglow.pretrain([data]),
}


def graph(**changes):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 2
    x = torch.randn(40, 4, generator=generator) + y[:, None]
    ring = torch.stack([torch.arange(40), (torch.arange(40) + 2) % 40])
    return Data(**{"x": x, "y": y, "edge_index": ring} | changes)


def hetero():
    data = HeteroData()
    data["person"].x = torch.ones(3, 2)
    return data


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (hetero(), r"nodes of one kind.*data.to_homogeneous\(\)"),
        (graph(y=torch.rand(40)), "integer classes.*cut into classes, as pandas.qcut"),
        (graph(y=torch.ones(40, 3).long()), "one label per node.*one at a time"),
        (graph(y=torch.full((40,), -5)), "y must be -1"),
    ],
)
def test_what_cannot_be_predicted_is_refused_with_advice(door, data, advice):
    with pytest.raises(graphglow.InputError, match=advice):
        DOORS[door](data)


@pytest.mark.parametrize("door", ["refine", "explain_pair", "transfer", "transfer, paper", "fit"])
def test_a_split_that_is_drawn_is_said(door):
    said = "the graph has no split of its own: 20 training, 10 validation and 10 test nodes are"
    with pytest.warns(graphglow.InputWarning, match=said):
        DOORS[door](graph())


@pytest.mark.parametrize("labels", ["flat", "one column"])
def test_the_split_that_is_drawn_is_the_same_everywhere(labels):
    data = graph()
    expected = graphglow.load_graph(data)
    given = data if labels == "flat" else graph(y=data.y[:, None])
    for made in (graphglow.refine(given), graphglow.transfer(given, **CONFIG).data):
        assert all(torch.equal(made[name], expected[name]) for name in MASKS)
    assert not any(name in data for name in MASKS)
