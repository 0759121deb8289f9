"""A refinement is the same to the last bit, whoever does its blocks and however they are cut."""

import json
import pickle
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from graphglow.errors import InputError
from graphglow.evidence import EvidenceLearner, candidates
from graphglow.evidence.stages import stage, watched
from graphglow.graph import load_graph
from graphglow.pretrained import evidence_learner

GOLDEN = json.loads((Path(__file__).parent / "refined.json").read_text())
SAME = ("edge_index", "edge_weight", "edge_probability", "probabilities", "pair_log_odds")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setitem(candidates.NODES, "cpu", 16)
    monkeypatch.setitem(candidates.PAIRS, "cpu", 256)


def in_pieces(pieces, stages):
    """Runs of blocks, the last first, each with a copy of all that is known."""

    def each(stage, step, known, blocks):
        stages.append((stage, len(blocks)))
        size = -(-len(blocks) // pieces)
        runs = [blocks[i : i + size] for i in range(0, len(blocks), size)]
        done = [pickle.loads(pickle.dumps((step, known, run))) for run in reversed(runs)]
        parts = [[step(known, block) for block in run] for step, known, run in done]
        return [part for run in reversed(parts) for part in run]

    return each


@pytest.mark.parametrize("learner", [evidence_learner(), EvidenceLearner.untrained()])
def test_one_two_and_seven_pieces_give_the_same_bytes(learner, small_blocks):
    data = load_graph("synthetic-small")
    alone = learner.refine(data)
    for pieces in (1, 2, 7):
        stages = []
        cut = learner.refine(data, each=in_pieces(pieces, stages))
        assert list(dict.fromkeys(name.rstrip(" 01234") for name, _ in stages)) == [
            "find first", "score first", "find second", "score second",
        ]  # fmt: skip
        assert all(count >= 7 for _, count in stages)
        for name in SAME:
            assert torch.equal(getattr(alone, name), getattr(cut, name)), name


@pytest.mark.parametrize("name", GOLDEN)
def test_the_shipped_learner_says_what_it_said(name):
    """Weights are only worth what the evidence means: what it said when it was trained."""
    refined = evidence_learner().refine(load_graph(name))
    said = GOLDEN[name]
    for values, count in ((refined.edge_index, "edges"), (refined.pairs, "pairs")):
        assert values.shape[1] == pytest.approx(said[count], abs=8)  # near ties, by rounding
    assert refined.calibration == pytest.approx(said["calibration"], abs=1e-4)
    for field in ("pair_log_odds", "probabilities"):
        some = getattr(refined, field)[: len(said[field])]
        torch.testing.assert_close(some, torch.tensor(said[field]), atol=1e-3, rtol=1e-3)
    assert refined.context == pytest.approx(said["context"], abs=1e-4)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            torch.OutOfMemoryError("Tried to allocate 12.00 GiB."),
            "12 GiB .what helps: --device cpu",
        ),
        (MemoryError(), "no room for more .what helps: fewer columns"),
        (MemoryError("Unable to allocate 1.50 TiB for an array"), "no room for 1.5 TiB "),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "no room for more "),
        (
            RuntimeError("can't allocate memory: you tried to allocate 8000 bytes"),
            "candidates of this graph must fit in memory; got no room for 0.008 MB ",
        ),
    ],
)
def test_a_stage_that_runs_out_of_memory_says_so(error, sentence, monkeypatch):
    def full(rows):
        raise error

    monkeypatch.setattr(candidates.Search, "of", full)
    with pytest.raises(InputError, match=sentence):
        EvidenceLearner.untrained().refine(load_graph("synthetic-small"))


def test_other_errors_and_watchers_pass_through_a_stage():
    seen = []

    @contextmanager
    def watch(name):
        seen.append(name)
        yield

    with pytest.raises(RuntimeError, match="else"), watched(watch), stage("views"):
        raise RuntimeError("something else")
    with stage("channels"):
        assert seen == ["views"]
