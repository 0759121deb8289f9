"""Several runs at once, each under a learner of its own."""

import pytest
import torch

from graphglow.errors import InputError
from graphglow.transfer import transfer
from tiny_graphs import (
    close_histories,
    computing_in_float64,
    learner,
    same_tensors,
    small_data,
    transfer_config,
)

DATA = small_data()
CONFIGS = [transfer_config(seed=seed, dropout=0.5) for seed in range(3)]


@pytest.mark.parametrize("similarity", ["cosine", "attention", "rbf"])
def test_each_run_is_that_of_its_own_learner(similarity):
    with computing_in_float64():
        thetas = [learner(seed=seed, similarity=similarity) for seed in range(3)]
        found = transfer_many(DATA, thetas, CONFIGS)
        for theta, config, result in zip(thetas, CONFIGS, found, strict=True):
            alone = transfer(DATA, theta, config)
            assert close_histories(result.history, alone.history)
            assert same_tensors(result.learner, theta)
            torch.testing.assert_close(result.predict_proba(), alone.predict_proba())


def test_learners_are_as_many_as_runs_or_one():
    with pytest.raises(InputError, match=r"one per config \(3\); got 2"):
        transfer_many(DATA, [learner(), learner()], CONFIGS)


def test_learners_of_two_shapes_are_refused():
    with pytest.raises(InputError, match="must have one configuration; got several"):
        transfer_many(DATA, [learner(), learner(num_heads=3), learner()], CONFIGS)
