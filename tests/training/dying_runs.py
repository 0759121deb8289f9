"""Runs that die after so many checkpoints, and how to tell that two runs are the same."""

from functools import cache

import torch

from graphglow.pretrain import pretrain
from graphglow.transfer import transfer
from tiny_graphs import learner, pretrain_config, same_tensors, small_data, transfer_config

SOURCES = [small_data(seed=1), small_data(seed=2, num_nodes=30)]
TARGET = small_data(seed=3)
PRETRAIN = pretrain_config(dropout=0.5, episodes=2, epochs=3, patience=2)
TRANSFER = transfer_config(dropout=0.5, epochs=12)


class Killed(BaseException):
    """What ends a run in these tests; nothing catches it."""


class Dying(Checkpoints):
    """Dies right after so many checkpoints."""

    def __init__(self, folder, after, **settings):
        super().__init__(folder, every_seconds=0, **settings)
        self.left = after

    def offer(self, parts, facts=None):
        super().offer(parts, facts)
        self.left -= 1
        if self.left == 0:
            raise Killed


def eager(folder, **settings):
    """Saves after every epoch."""
    return Checkpoints(folder, every_seconds=0, **settings)


def killed(run, folder, after):
    """Let a run die after so many checkpoints; whether it came so far."""
    try:
        run(Dying(folder, after))
    except Killed:
        return True
    return False


def pretrained(checkpoints=None, *, config=PRETRAIN, sources=SOURCES, seen=None):
    on_epoch = None if seen is None else seen.append
    return pretrain(sources, config, on_epoch=on_epoch, checkpoints=checkpoints)


def transferred(checkpoints=None, *, config=TRANSFER, theta=None, data=TARGET, seen=None):
    on_epoch = None if seen is None else seen.append
    return transfer(data, theta or learner(), config, on_epoch=on_epoch, checkpoints=checkpoints)


@cache
def unbroken():
    """A transfer that nobody stopped."""
    return transferred()


def assert_same_learner(one, other):
    assert same_tensors(one, other)
    assert one.provenance == other.provenance


def assert_same_result(one, other):
    assert one.history == other.history
    assert same_tensors(one.gnn, other.gnn)
    assert same_tensors(one.learner, other.learner)
    assert torch.equal(one.pivots, other.pivots)
    assert torch.equal(one.predict_proba(), other.predict_proba())
