"""A small graph and fast searches on it."""

import json
from dataclasses import replace

import optuna
import torch

from graphglow.competitors import METHODS
from graphglow.graph import check_graph, synthetic_graph
from graphglow.lab.search.space import SearchConfig
from graphglow.lab.search.study import open_storage, search

FAST = SearchConfig(trials=3, seeds_per_trial=2, epochs=2, pretrain_epochs=1, device="cpu")
NO_TIMES = ("trial_seconds", "provenance")


def graph(name="small", *, seed=0):
    data = synthetic_graph(
        num_nodes=45,
        num_classes=3,
        num_features=8,
        homophily=0.6,
        average_degree=4.0,
        feature_noise=2.0,
        seed=seed,
    )
    data.name = name
    return check_graph(data)


def relabelled(data, mask):
    changed = data.clone()
    changed.y = torch.where(data[mask], (data.y + 1) % 3, data.y)
    return changed


def found(method="gcn", data=None, config=FAST, **more):
    row = search(method, graph() if data is None else data, config, **more)
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    return {name: value for name, value in row.items() if name not in NO_TIMES}


def work_in(folder):
    names = {"storage": "t.db", "learners": "learners", "settings": "settings.json"}
    return {what: folder / name for what, name in names.items()}


def drawn(work, study=None):
    """Values and scores of the settled trials, in order, as the storage has them."""
    storage = open_storage(work["storage"])
    name = study or optuna.get_all_study_names(storage)[0]
    loaded = optuna.load_study(storage=storage, study_name=name)
    complete = [optuna.trial.TrialState.COMPLETE]
    return [(trial.params, trial.value) for trial in loaded.get_trials(states=complete)]


def with_space(monkeypatch, name="gcn", **space):
    monkeypatch.setitem(METHODS, name, replace(METHODS[name], space=space))
