"""One meaning of a graph in every door: what is refused, and what is drawn where no split is."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import graphglow
from graphglow.graph.check import MASKS

CONFIG = {"epochs": 1, "device": "cpu"}
DOORS = {
    "load_graph": graphglow.load_graph,
    "refine": graphglow.refine,
    "audit": graphglow.audit,
    "explain_pair": lambda data, **on: graphglow.explain_pair(data, 0, 1, **on),
    "transfer": lambda data, **on: graphglow.transfer(data, **(CONFIG | on)),
    "transfer, paper": lambda data, **on: graphglow.transfer(data, "paper", **(CONFIG | on)),
    "fit": lambda data, **on: graphglow.fit("mlp", data, **(CONFIG | on)),
    "pretrain": lambda data, **on: graphglow.pretrain([data], **on),
    "pretrain, paper": lambda data, **on: graphglow.pretrain([data], kind="paper", **on),
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
        (graph(x=torch.tensor(1.0)), r"a row per node \[N, D\]; got shape \(\)"),
        (graph(num_nodes=50), r"x must have one row per node \(50\); got 40 rows"),
        (graph(num_nodes="a"), "num_nodes must be an integer; got 'a'"),
        (graph(train_mask=[True] * 40), r"train_mask must be a boolean tensor \[N\]; got list"),
        (graph(node_id=["a"]), r"node_id must have one id per node \(40\); got 1"),
        (graph(node_id=[None] * 40), r"node_id must be a list of text or numbers; got \[None\]"),
        (graph(node_id=5), "node_id must be a list of text or numbers; got 5"),
        (
            graph(node_id=[1, "1", *range(2, 40)]),
            "node_id must hold each name once; got '1' twice",
        ),
        (graph(class_names=["a", "a"]), "class_names must hold each name once"),
        (graph(edge_weight="ab"), r"edge_weight must have one value per edge \(40\); got str"),
    ],
)
def test_what_cannot_be_predicted_is_refused_with_advice(door, data, advice):
    with pytest.raises(graphglow.InputError, match=advice):
        DOORS[door](data)


@pytest.mark.parametrize("door", ["transfer", "transfer, paper", "fit"])
@pytest.mark.parametrize(
    ("val_mask", "rule"),
    [
        (torch.ones(40) > 0, "training and validation nodes must not overlap; got 20 nodes"),
        (torch.ones(39) > 0, r"val_mask must have one entry per node \(40\); got \(39,\)"),
        (torch.arange(40), "val_mask must be boolean; got torch.int64"),
    ],
)
def test_a_split_that_is_none_is_refused(door, val_mask, rule):
    with pytest.raises(graphglow.InputError, match=rule):
        DOORS[door](graph(train_mask=torch.arange(40) < 20, val_mask=val_mask))


@pytest.mark.parametrize("door", [*DOORS][1:])
@pytest.mark.filterwarnings("ignore:.*no split of its own")
def test_a_gpu_that_is_not_there_is_refused(door, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(graphglow.InputError, match="device cuda must be present; got"):
        DOORS[door](graph(), device="cuda")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_small_integers_are_labels_too(dtype):
    found = graphglow.refine(graph(y=graph().y.to(dtype)))
    assert found.predict_proba().shape == (40, 2)


SEEDED = {
    "load_graph": lambda seed: graphglow.load_graph(graph(), split_seed=seed),
    "refine": lambda seed: graphglow.refine(graph(), seed=seed),
    "refine, untrained": lambda seed: graphglow.refine(graph(), "untrained", seed=seed),
    "audit": lambda seed: graphglow.audit(graph(), missing=False, seed=seed),
    "explain_pair": lambda seed: graphglow.explain_pair(graph(), 0, 1, seed=seed),
    "transfer": lambda seed: graphglow.transfer(graph(), "untrained", seed=seed, **CONFIG),
    "classifier": lambda seed: graphglow.GlowClassifier(random_state=seed).fit(graph()),
    "predict": lambda seed: graphglow.predict(graph(), seed=seed),
    "compare": lambda seed: graphglow.compare(graph(), ["mlp"], seeds=1, seed=seed, device="cpu"),
    "synthetic_graph": lambda seed: graphglow.synthetic_graph(seed=seed),
}


@pytest.mark.filterwarnings("ignore:worse")
@pytest.mark.parametrize("door", SEEDED)
def test_seeds_are_whole_numbers(door):
    for seed in (1.5, "a", 2**70, True, -1):
        with pytest.raises(graphglow.InputError, match=r"seed.* must be (an integer|[<>]= )"):
            SEEDED[door](seed)
    SEEDED[door](np.int64(3))


@pytest.mark.parametrize("door", ["transfer", "transfer, paper", "fit"])
def test_a_split_that_is_drawn_is_said(door):
    said = "the graph has no split of its own: 20 training, 10 validation and 10 test nodes are"
    with pytest.warns(graphglow.InputWarning, match=said):
        DOORS[door](graph())


@pytest.mark.parametrize("labels", ["flat", "one column"])
def test_the_split_that_is_drawn_is_the_same_everywhere(labels):
    data = graph()
    expected = graphglow.load_graph(data)
    given = data if labels == "flat" else graph(y=data.y[:, None])
    made = graphglow.transfer(given, **CONFIG).data
    assert all(torch.equal(made[name], expected[name]) for name in MASKS)
    assert not any(name in graphglow.refine(given) for name in MASKS)  # which reads every label
    assert not any(name in data for name in MASKS)


def test_every_label_of_a_table_without_a_split_is_read():
    people = pd.DataFrame({"id": range(40), "label": ["a", "b"] * 20, "age": range(40)})
    links = pd.DataFrame({"source": range(39), "target": range(1, 40)})
    assert len(graphglow.audit((people, links)).graph.labelled) == 40
    assert int(graphglow.predict((people, links)).labelled.sum()) == 40
    assert "40 labelled nodes" in graphglow.refine((people, links), edges="replace").verdict
