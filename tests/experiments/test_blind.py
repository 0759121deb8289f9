"""A search is blind to test labels: to change them changes nothing, and nothing is given them."""

import ast
from pathlib import Path

import pytest
import torch
from small_search import found, graph, relabelled

from graphglow.baselines import fit_many
from graphglow.errors import InputError
from graphglow.experiments import candidates, search
from graphglow.experiments.blind import blinded
from graphglow.training import pretrain, transfer_many


def test_a_blind_graph_has_no_label_outside_training_and_validation():
    data = graph()
    data.y_all = data.y.clone()
    data.edge_weight = torch.rand(data.edge_index.shape[1])
    blind = blinded(data)
    seen = data.train_mask | data.val_mask
    assert torch.equal(blind.data.y[seen], data.y[seen])
    assert (blind.data.y[~seen] == -1).all()
    assert not blind.data.test_mask.any()
    assert torch.equal(blind.data.edge_weight, data.edge_weight)
    kept = {"x", "y", "edge_index", "edge_weight", "train_mask", "val_mask", "test_mask", "name"}
    assert set(blind.data.keys()) == kept
    assert data.test_mask.any()
    assert (data.y >= 0).all()


def test_a_graph_that_no_trial_could_train_on_is_refused():
    data = graph()
    data.train_mask &= data.y == 0
    with pytest.raises(InputError, match="at least two classes"):
        found(data=data)


@pytest.mark.parametrize("method", ["gcn", "link", "lds", "graphglow"])
def test_test_labels_change_nothing(method):
    more = {"sources": [graph("a", seed=1)]} if method == "graphglow" else {}
    changed = {"sources": [relabelled(s, "test_mask") for s in more["sources"]]} if more else {}
    one = found(method, graph(), **more)
    assert one == found(method, relabelled(graph(), "test_mask"), **changed)


def test_validation_labels_change_the_study():
    one, other = found(), found(data=relabelled(graph(), "val_mask"))
    assert one["study"] != other["study"]
    assert one["val_accuracies"] != other["val_accuracies"]


def test_what_trains_is_given_blind_graphs_only(monkeypatch):
    seen = []

    def spy(module, name, real, place):
        def spied(*args, **more):
            given = args[place]
            seen.extend((name, data) for data in (given if isinstance(given, list) else [given]))
            return real(*args, **more)

        monkeypatch.setattr(module, name, spied)

    spy(candidates, "fit_many", fit_many, 1)
    spy(candidates, "transfer_many", transfer_many, 1)
    spy(candidates, "pretrain", pretrain, 0)
    found()
    found("graphglow", sources=[graph("a", seed=1)])
    assert {name for name, _ in seen} == {"fit_many", "transfer_many", "pretrain"}
    for _, data in seen:
        assert not data.test_mask.any()
        assert (data.y[~(data.train_mask | data.val_mask)] == -1).all()


def test_only_the_module_that_blinds_speaks_of_tests():
    folder = Path(search.__file__).parent
    for name in ("search", "candidates", "trials", "trial_storage", "trial_workers"):
        tree = ast.parse((folder / f"{name}.py").read_text())
        used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        used |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        used |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)} - {None}
        words = {word for word in used if isinstance(word, str) and " " not in word}
        assert not {word for word in words if word == "test" or "test_" in word}, name
    source = (folder / "search.py").read_text()
    before, after = source.split("target = blinded(data)")
    assert "data" not in before.split('"""')[-1].replace("Data", "")
    body = after.split("\ndef ")[0].split("del data, sources")[1]
    assert "data" not in {n.id for n in ast.walk(ast.parse("def f():" + body)) if hasattr(n, "id")}
