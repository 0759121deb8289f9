"""Settings of the learner and its objective are checked at birth."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from graphglow.errors import InputError
from graphglow.paper import LearnerConfig, ObjectiveConfig

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("embedding_size", 0),
        ("embedding_size", -4),
        ("embedding_size", 2.5),
        ("num_heads", 0),
        ("num_heads", True),
        ("num_heads", "4"),
        ("similarity", "euclid"),
        ("delta", "soft"),
        ("delta", "exp"),
        ("threshold", -0.1),
        ("threshold", NAN),
        ("threshold", INFINITY),
        ("neighbours", 0),
        ("neighbours", 2.5),
        ("neighbours", True),
    ],
)
def test_a_learner_setting_out_of_range_is_refused(field, value):
    with pytest.raises(InputError, match=f"^{field} must .*; got ") as caught:
        LearnerConfig(**{field: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("supervision", "magic"),
        ("smoothness", -0.1),
        ("smoothness", NAN),
        ("sparsity", -1),
        ("sparsity", INFINITY),
        ("entropy", -1),
        ("entropy", NAN),
        ("samples", 1),
        ("samples", 0),
        ("samples", 2.0),
        ("temperature", 0),
        ("temperature", -1),
        ("temperature", INFINITY),
        ("temperature", NAN),
        ("probes", 0),
        ("sketch", 0),
        ("sketch", False),
    ],
)
def test_an_objective_setting_out_of_range_is_refused(field, value):
    with pytest.raises(InputError, match=f"^{field} must .*; got ") as caught:
        ObjectiveConfig(**{field: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("similarity", ["dot", "rbf", "attention"])
def test_an_affine_delta_needs_a_cosine(similarity):
    with pytest.raises(InputError, match=r"^delta 'affine' must be used with similarity 'cosine'"):
        LearnerConfig(delta="affine", similarity=similarity)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_heads": 2},
        {"tied": False},
        {"similarity": "rbf"},
        {"similarity": "attention"},
    ],
)
def test_without_weights_nothing_that_needs_them_is_taken(changes):
    (name,) = changes
    with pytest.raises(InputError, match=rf"^where nothing is weighted, .*{name}.*; got "):
        LearnerConfig(**{"weighted": False, "num_heads": 1, **changes})


@pytest.mark.parametrize(
    "changes",
    [{"similarity": "rbf"}, {"similarity": "attention"}, {"delta": "affine"}],
)
def test_neighbours_need_an_inner_product_and_a_cut(changes):
    with pytest.raises(InputError, match=r"^neighbours must go with .*; got "):
        LearnerConfig(neighbours=3, **changes)


def test_the_ends_of_the_ranges_are_allowed():
    LearnerConfig(embedding_size=1, num_heads=1, threshold=0.0, weighted=False, neighbours=1)
    ObjectiveConfig(smoothness=0, sparsity=0, entropy=0, samples=2, probes=1, sketch=1)


def test_numbers_of_numpy_become_those_of_python():
    learner = LearnerConfig(num_heads=np.int32(6), threshold=np.float32(0.5), tied=np.bool_(True))
    assert learner == LearnerConfig(num_heads=6, threshold=0.5)
    objective = ObjectiveConfig(samples=np.int64(3), entropy=np.float16(0.25))
    assert objective == ObjectiveConfig(samples=3, entropy=0.25)
    assert json.loads(json.dumps([asdict(learner), asdict(objective)]))[0]["tied"] is True
    with pytest.raises(InputError, match="num_heads must be an integer; got True"):
        LearnerConfig(num_heads=np.bool_(True))
