"""Settings are checked at birth, each by its rule, and need no torch."""

import json
import subprocess
import sys
from dataclasses import asdict, fields, replace
from typing import get_args

import numpy as np
import pytest

from graphglow.competitors import METHODS
from graphglow.errors import InputError
from graphglow.gnn.backbones import BACKBONES
from graphglow.settings import (
    BackboneName,
    EvidencePretrainConfig,
    LearnerConfig,
    ObjectiveConfig,
    PaperConfig,
    PretrainConfig,
    TransferConfig,
)

NAN, INFINITY = float("nan"), float("inf")
BAD = {
    "backbone": ["gnc"],
    "num_layers": [0, 2.0],
    "dropout": [1.0, -0.1, NAN, np.bool_(False)],
    "encoder": ["gat"],
    "input_weight": [-0.01, 1.01, NAN, "0.5"],
    "attention_heads": [0],
    "teleport": [1.5],
    "steps": [0],
    "structure_momentum": [-0.01, 1.01],
    "num_pivots": [0, -5, 10.5, np.float64(10), np.int64(0)],
    "refinements": [0, True, np.bool_(True)],
    "tolerance": [-1e-5, NAN, INFINITY, np.complex64(1)],
    "learning_rate": [0, -0.1, INFINITY, NAN, np.float32("nan")],
    "learner_learning_rate": [0, NAN],
    "weight_decay": [-1e-4, NAN],
    "seed": [-1, 1.5],
    "device": ["tpu"],
    "epochs": [0, "many", np.timedelta64(5, "D")],
    "episodes": [0, 1.5],
    "patience": [0],
    "hidden": [0],
    "top_k": [0],
    "embedding_size": [0, 2.5],
    "num_heads": [0, True, "4"],
    "similarity": ["euclid"],
    "delta": ["soft"],
    "threshold": [-0.1, NAN, INFINITY],
    "neighbours": [0, 2.5],
    "smoothness": [-0.1, NAN],
    "sparsity": [INFINITY],
    "entropy": [-1],
    "samples": [0, 2.0],
    "probes": [0],
    "sketch": [0, False],
    "edge_probability": [0, 1.0],
    "other_probability": [0],
    "graph_decay": [0, 1.5],
    "kl_weight": [-1],
    "co_training": [-1],
    "connectivity": [-1],
    "pretrain_epochs": [-1],
    "estimator": ["gcn"],
    "adjacency": ["dense"],
    **{
        name: [0]
        for name in (
            *("propagations", "num_anchors", "window", "inner_patience", "eval_samples"),
            *("temperature", "prior_temperature"),
            *("graph_learning_rate", "posterior_learning_rate"),
        )
    },
}
OWN = [PretrainConfig, PaperConfig, TransferConfig, LearnerConfig, ObjectiveConfig]
CONFIGS = [*OWN, *dict.fromkeys(method.config for method in METHODS.values())]


def test_names_of_backbones_are_those_of_the_table():
    assert get_args(BackboneName) == tuple(sorted(BACKBONES))


def test_settings_need_neither_torch_nor_numpy():
    code = "import graphglow.settings, sys; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (PaperConfig, "num_layers", 1),
        (ObjectiveConfig, "samples", 1),
        *(
            (config, field.name, value)
            for config in CONFIGS
            for field in fields(config)
            if field.init
            for value in BAD.get(field.name, ())
        ),
    ],
)
def test_a_setting_out_of_range_is_refused(config, field, value):
    with pytest.raises(InputError, match=rf"^{field} must .*; got "):
        config(**{field: value})


def test_transfer_may_run_without_patience_and_pretraining_may_not():
    assert PaperConfig(patience=None).patience is None
    with pytest.raises(InputError, match="patience must"):
        PretrainConfig(patience=None)


@pytest.mark.parametrize(
    "settings",
    [
        *({"delta": "affine", "similarity": s} for s in ("dot", "rbf", "attention")),
        *({"neighbours": 3, "similarity": s} for s in ("rbf", "attention")),
        {"neighbours": 3, "delta": "affine"},
        {"weighted": False, "num_heads": 2},
        {"weighted": False, "num_heads": 1, "tied": False},
        {"weighted": False, "num_heads": 1, "similarity": "rbf"},
    ],
)
def test_a_learner_of_settings_that_contradict_each_other_is_refused(settings):
    with pytest.raises(InputError):
        LearnerConfig(**settings)


def test_the_ends_of_the_ranges_are_allowed():
    PaperConfig(dropout=0.0, input_weight=0.0, structure_momentum=0.0, tolerance=0.0, patience=1)
    PaperConfig(input_weight=1.0, structure_momentum=1.0, num_pivots=1, refinements=1)
    LearnerConfig(embedding_size=1, num_heads=1, threshold=0.0, weighted=False, neighbours=1)


def test_few_sources_take_few_episodes():
    config = EvidencePretrainConfig()
    assert config.episode_counts(1) == [70, 30, 70, 150]
    assert config.episode_counts(10) == config.episode_counts(50) == [700, 300, 700, 1500]
    assert EvidencePretrainConfig(vote_episodes=5).episode_counts(2) == [140, 5, 140, 300]


@pytest.mark.parametrize(
    "config", [*(kind() for kind in OWN), *(m.config() for m in METHODS.values())]
)
def test_numbers_of_numpy_become_those_of_python(config):
    kinds = {bool: np.bool_, int: np.int64, float: np.float64}
    plain = {f.name: getattr(config, f.name) for f in fields(config) if f.init}
    given = {name: kinds[type(v)](v) for name, v in plain.items() if type(v) in kinds}
    converted = replace(config, **given)
    assert converted == config
    assert json.loads(json.dumps(asdict(converted))) == json.loads(json.dumps(asdict(config)))
    assert all(type(getattr(converted, name)) is type(plain[name]) for name in given)


@pytest.mark.parametrize("value", [np.float32(0.5), np.float16(0.5), np.longdouble(0.5)])
def test_any_width_of_a_number_will_do(value):
    assert type(PaperConfig(dropout=value).dropout) is float
    assert PaperConfig(epochs=np.uint8(3)) == PaperConfig(epochs=3)
