"""Settings of training are checked at birth, each with its rule and what came."""

import json
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

from graphglow.competitors import METHODS
from graphglow.errors import InputError
from graphglow.training import PaperConfig, PretrainConfig, TransferConfig

NAN, INFINITY = float("nan"), float("inf")

SHARED = [
    ("backbone", "gnc"),
    ("num_layers", 1),
    ("num_layers", 2.0),
    ("dropout", 1.0),
    ("dropout", -0.1),
    ("dropout", NAN),
    ("encoder", "gat"),
    ("input_weight", -0.01),
    ("input_weight", 1.01),
    ("input_weight", NAN),
    ("attention_heads", 0),
    ("teleport", 1.5),
    ("steps", 0),
    ("structure_momentum", -0.01),
    ("structure_momentum", 1.01),
    ("num_pivots", 0),
    ("num_pivots", -5),
    ("num_pivots", 10.5),
    ("refinements", 0),
    ("refinements", True),
    ("tolerance", -1e-5),
    ("tolerance", NAN),
    ("tolerance", INFINITY),
    ("learning_rate", 0),
    ("learning_rate", -0.1),
    ("learning_rate", INFINITY),
    ("learning_rate", NAN),
    ("weight_decay", -1e-4),
    ("weight_decay", NAN),
    ("backend", "fast"),
    ("precision", "float16"),
    ("precision", None),
    ("seed", -1),
    ("seed", 1.5),
    ("device", "tpu"),
    ("epochs", 0),
    ("epochs", "many"),
    ("patience", 0),
    ("refinements", np.bool_(True)),
    ("dropout", np.bool_(False)),
    ("num_pivots", np.float64(10)),
    ("num_pivots", np.int64(0)),
    ("epochs", np.timedelta64(5, "D")),
    ("learning_rate", np.float32("nan")),
    ("tolerance", np.complex64(1)),
]


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (config, field, value)
        for config in (PretrainConfig, PaperConfig, TransferConfig)
        for field, value in [*SHARED, ("hidden", 0), ("top_k", 0)]
        if field in config.__dataclass_fields__
    ],
)
def test_a_setting_out_of_range_is_refused(config, field, value):
    with pytest.raises(InputError, match=rf"^{field} must .*; got ") as caught:
        config(**{field: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0, NAN, INFINITY])
def test_the_learners_learning_rate_must_be_positive(value):
    with pytest.raises(InputError, match=r"^learner_learning_rate must .*; got "):
        PretrainConfig(learner_learning_rate=value)


@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_episodes_must_be_a_positive_integer(value):
    with pytest.raises(InputError, match="episodes must"):
        PretrainConfig(episodes=value)


def test_transfer_may_run_without_patience_and_pretraining_may_not():
    assert PaperConfig(patience=None).patience is None
    with pytest.raises(InputError, match="patience must"):
        PretrainConfig(patience=None)


@pytest.mark.parametrize("config", [PretrainConfig, PaperConfig])
def test_the_ends_of_the_ranges_are_allowed(config):
    config(
        num_layers=2,
        dropout=0.0,
        input_weight=0.0,
        structure_momentum=0.0,
        num_pivots=1,
        refinements=1,
        tolerance=0.0,
        weight_decay=0.0,
        seed=0,
        epochs=1,
        patience=1,
    )
    config(input_weight=1.0, structure_momentum=1.0)


@pytest.mark.parametrize(
    "config", [PretrainConfig(), PaperConfig(), *(m.config() for m in METHODS.values())]
)
def test_numbers_of_numpy_become_those_of_python(config):
    kinds = {bool: np.bool_, int: np.int64, float: np.float64}
    plain = {f.name: getattr(config, f.name) for f in fields(config) if f.init}
    given = {name: kinds[type(v)](v) for name, v in plain.items() if type(v) in kinds}
    assert {"epochs", "dropout", "capture"} <= set(given)
    made = replace(config, **given)
    assert made == config
    assert json.loads(json.dumps(asdict(made))) == json.loads(json.dumps(asdict(config)))
    assert all(type(getattr(made, name)) is type(plain[name]) for name in given)


@pytest.mark.parametrize("value", [np.float32(0.5), np.float16(0.5), np.longdouble(0.5)])
def test_any_width_of_a_number_will_do(value):
    assert type(PaperConfig(dropout=value).dropout) is float
    assert PaperConfig(epochs=np.uint8(3)) == PaperConfig(epochs=3)
