"""Learners without weights: the non-parametric similarities, by hand, and on disk."""

from dataclasses import asdict

import pytest
import torch

from graphglow.errors import InputError
from graphglow.paper.learner import AFFINE_MARGIN, StructureLearner
from graphglow.settings import LearnerConfig
from graphglow.storage import save_tensors


def embeddings(n=11, width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=generator, dtype=torch.float64)


UNWEIGHTED = {
    "cosine": {"similarity": "cosine"},
    "dot": {"similarity": "dot"},
    "knn": {"similarity": "cosine", "neighbours": 2},
    "affine": {"similarity": "cosine", "delta": "affine"},
}


def config(kind, *, weighted=False):
    return LearnerConfig(embedding_size=6, num_heads=1, weighted=weighted, **UNWEIGHTED[kind])


def unweighted(kind, seed=0):
    return StructureLearner(config(kind), seed=seed).double()


@pytest.mark.parametrize("kind", UNWEIGHTED)
def test_a_learner_without_weights_has_no_parameters_and_no_seed(kind):
    one, other = unweighted(kind, seed=1), unweighted(kind, seed=2)
    assert list(one.parameters()) == []
    assert one.state_dict() == {}
    assert one.provenance == other.provenance == {"trained": False}
    z, pivots = embeddings(), torch.tensor([4, 0, 9])
    assert torch.equal(one.structure(z, pivots).gamma(), other.structure(z, pivots).gamma())


def test_similarities_without_weights_by_hand():
    z = torch.zeros(3, 6, dtype=torch.float64)
    z[0, 0], z[1, :2], z[2, 0] = 2.0, torch.tensor([3.0, 4.0]), -1.0
    pivots = torch.tensor([0, 1])

    def gamma(kind):
        return unweighted(kind).structure(z, pivots).gamma().tolist()

    def close(*rows):
        return [pytest.approx(row, abs=1e-12) for row in rows]

    assert gamma("cosine") == close([1, 0.6], [0.6, 1], [0, 0])
    assert gamma("dot") == close([4 / 6, 1], [1, 25 / 6], [0, 0])  # over d, which RowNorm cancels
    margin = AFFINE_MARGIN / 2
    expected = [[1, 0.8], [0.8, 1], [0, 0.2]]
    assert gamma("affine") == close(*([s + margin for s in row] for row in expected))


@pytest.mark.parametrize("kind", UNWEIGHTED)
def test_a_learner_without_weights_is_one_whose_weights_are_ones(kind):
    learner = StructureLearner(config(kind, weighted=True)).double()
    torch.nn.init.ones_(learner.node_weight)
    z, pivots, v = embeddings(), torch.tensor([4, 0, 9]), embeddings(width=2, seed=5)
    one, other = (x.structure(z, pivots) for x in (learner, unweighted(kind)))
    assert torch.equal(one.gamma(), other.gamma())
    assert torch.equal(one.propagate(v), other.propagate(v))


@pytest.mark.parametrize("kind", UNWEIGHTED)
def test_a_file_of_one_is_its_configuration(tmp_path, kind):
    path = tmp_path / "l.safetensors"
    unweighted(kind).save(path)
    loaded = StructureLearner.load(path)
    assert loaded.config == config(kind)
    assert loaded.provenance == {"trained": False}
    assert list(loaded.parameters()) == []


def test_a_file_of_one_with_weights_is_refused(tmp_path):
    path = tmp_path / "l.safetensors"
    tensors = {"node_weight": torch.ones(1, 6)}
    save_tensors(path, "learner", tensors, {"config": asdict(config("dot"))})
    with pytest.raises(InputError, match=r"weights of shape \{\}; got"):
        StructureLearner.load(path)
