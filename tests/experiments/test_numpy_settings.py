"""Settings from a grid of NumPy's become plain numbers, which JSON can hold."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from graphglow.errors import InputError
from graphglow.experiments.bench.config import BenchConfig, ModelBench
from graphglow.experiments.candidates import SearchConfig
from graphglow.experiments.cell_config import Protocol
from graphglow.experiments.plan import ReproduceConfig


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SearchConfig, "trials"),
        (SearchConfig, "epochs"),
        (Protocol, "learners"),
        (ReproduceConfig, "seeds"),
        (ReproduceConfig, "processes"),
        (BenchConfig, "seed"),
        (ModelBench, "pivots"),
    ],
)
def test_numpy_numbers_are_taken_as_plain_ones(kind, name):
    config = kind(**{name: np.int64(3)})
    assert type(getattr(config, name)) is int
    assert config == kind(**{name: 3})
    assert json.loads(json.dumps(asdict(config)))[name] == 3
    with pytest.raises(InputError):
        kind(**{name: np.float64(3.0)})
