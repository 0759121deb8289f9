"""Settings from a grid of NumPy's become plain numbers, which JSON can hold."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from graphglow.errors import InputError
from graphglow.lab.bench.config import BenchConfig, ModelBench
from graphglow.lab.bench.op import OpBench
from graphglow.lab.bench.transfers import ScaleBench
from graphglow.lab.runs.config import ReproduceConfig
from graphglow.lab.search.space import SearchConfig


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SearchConfig, "trials"),
        (SearchConfig, "epochs"),
        (ReproduceConfig, "learners"),
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


@pytest.mark.parametrize("kind", [OpBench, ScaleBench])
def test_numbers_in_tuples_are_plain_too(kind):
    config = kind(nodes=(np.int64(300), 400))
    assert [type(n) for n in config.nodes] == [int, int]
    assert config == kind(nodes=(300, 400))
    assert json.loads(json.dumps(asdict(config)))["nodes"] == [300, 400]
    with pytest.raises(InputError, match="nodes must be an integer; got "):
        kind(nodes=(np.float64(300.0),))
