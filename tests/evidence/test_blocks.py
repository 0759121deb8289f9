"""A refinement is the same to the last bit, whoever does its blocks and however they are cut."""

import pickle
from functools import partial

import pytest
import torch

from graphglow.audit import load_auditor
from graphglow.device import map_blocks
from graphglow.evidence import EvidenceLearner, views
from graphglow.graph import load_graph
from graphglow.graph.graph import known_graph
from graphglow.pretrained import evidence_learner

REFINED = ("edge_index", "edge_weight", "edge_probability", "probabilities", "pair_log_odds")
AUDITED = ("edge_log_odds", "pairs", "pair_log_odds")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setitem(views.NODES, "cpu", 16)
    monkeypatch.setitem(views.PAIRS, "cpu", 256)


def backwards(counts, function, shared, blocks):
    """The last block first, each with a copy of all that is known."""
    counts.append(len(blocks))
    copied = [pickle.loads(pickle.dumps((function, shared, block))) for block in reversed(blocks)]
    return [function(shared, block) for function, shared, block in copied][::-1]


@pytest.mark.parametrize("learner", [evidence_learner(), EvidenceLearner.untrained()])
def test_small_blocks_with_copies_of_what_is_known_give_the_same_bytes(learner, small_blocks):
    data, counts = load_graph("synthetic-small"), []
    alone = learner.refine(data)
    cut = learner.refine(data, map_blocks=partial(backwards, counts))
    assert min(counts) >= 7
    for name in REFINED:
        assert torch.equal(getattr(alone, name), getattr(cut, name)), name


@pytest.mark.slow
def test_ray_gives_the_bytes_of_one_process(small_blocks):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    data, on_ray = load_graph("synthetic-small"), partial(map_blocks, workers=2, ray="local")
    try:
        alone, shared = (
            evidence_learner().refine(data, map_blocks=m) for m in (map_blocks, on_ray)
        )
        problem = known_graph(data)
        audited = [load_auditor().examine(problem, map_blocks=m) for m in (map_blocks, on_ray)]
    finally:
        ray.shutdown()
    for name in REFINED:
        assert torch.equal(getattr(alone, name), getattr(shared, name)), name
    for name in AUDITED:
        assert torch.equal(getattr(audited[0], name), getattr(audited[1], name)), name
