"""Learners on disk: bit for bit the same after loading, and one sentence for anything else."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from graphglow.errors import InputError
from graphglow.paper.learner import StructureLearner
from graphglow.settings import LearnerConfig
from graphglow.storage import FORMAT_VERSION, save_tensors

META = {
    "config": {
        "embedding_size": 5, "num_heads": 2, "similarity": "cosine", "tied": False,
        "delta": "truncate", "threshold": 0.1, "weighted": True, "neighbours": None,
    },
    "provenance": {"trained": False, "seed": 0},
}  # fmt: skip
CONFIG = LearnerConfig(**META["config"])


@pytest.fixture
def learner():
    return StructureLearner(CONFIG, seed=3)


@pytest.fixture
def saved(learner, tmp_path):
    path = tmp_path / "learner.safetensors"
    learner.save(path)
    return path


def weights(value=1.0, shape=(2, 5), dtype=torch.float32):
    return {name: torch.full(shape, value, dtype=dtype) for name in ("node_weight", "pivot_weight")}


def refusal(path):
    """The one line with which a file is refused."""
    with pytest.raises(InputError) as caught:
        StructureLearner.load(path)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    return text


@pytest.mark.parametrize("similarity", ["cosine", "dot", "rbf", "attention"])
@pytest.mark.parametrize("tied", [True, False])
def test_loading_gives_the_same_tensors_bit_for_bit(tmp_path, similarity, tied):
    config = LearnerConfig(
        embedding_size=5, num_heads=2, similarity=similarity, tied=tied, threshold=0.25
    )
    learner = StructureLearner(config, seed=9)
    learner.provenance = {"trained": True, "sources": ["a", "b"], "validation_accuracy": 0.5}
    learner.save(tmp_path / "l.safetensors")
    loaded = StructureLearner.load(tmp_path / "l.safetensors")
    assert loaded.config == config
    assert loaded.provenance == learner.provenance
    assert loaded.state_dict().keys() == learner.state_dict().keys()
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])
    again = tmp_path / "again.safetensors"
    loaded.save(again)
    assert again.read_bytes() == (tmp_path / "l.safetensors").read_bytes()


def test_a_learner_is_a_few_kilobytes_of_safetensors_with_json(saved):
    assert saved.stat().st_size < 4096
    with safe_open(saved, framework="pt") as file:
        meta = json.loads(file.metadata()["graphglow"])
    assert meta["kind"] == "learner"
    assert meta["version"] == FORMAT_VERSION
    assert meta["config"] == META["config"]


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    save_file(weights(), tmp_path / "f.safetensors")
    assert "foreign" in refusal(tmp_path / "f.safetensors")
    save_file(weights(), tmp_path / "g.safetensors", metadata={"format": "pt"})
    assert "foreign" in refusal(tmp_path / "g.safetensors")


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "r.safetensors"
    save_tensors(path, "result", weights(), META)
    assert "got a 'result' file" in refusal(path)


BAD_TENSORS = {
    "too wide": weights(shape=(2, 6)),
    "too many heads": weights(shape=(3, 5)),
    "one missing": {"node_weight": torch.ones(2, 5)},
    "one more": {**weights(), "extra": torch.ones(1)},
    "other names": {"a": torch.ones(2, 5), "b": torch.ones(2, 5)},
    "none": {},
    "NaN": weights(float("nan")),
    "infinite": weights(float("inf")),
    "integers": weights(1, dtype=torch.int64),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_wrong_weights_are_refused(tmp_path, case):
    path = tmp_path / "l.safetensors"
    save_tensors(path, "learner", BAD_TENSORS[case], META)
    assert "weights" in refusal(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"colour": "red"},
        {"num_heads": 0},
        {"num_heads": "two"},
        {"embedding_size": 10**9, "num_heads": 10**9},
        {"similarity": "manhattan"},
        {"weighted": False},
        {"neighbours": 0},
    ],
)
def test_an_impossible_configuration_is_refused(tmp_path, changes):
    path = tmp_path / "l.safetensors"
    save_tensors(path, "learner", weights(), META | {"config": META["config"] | changes})
    refusal(path)


@pytest.mark.parametrize("config", [None, [], "cosine", 3])
def test_a_configuration_that_is_no_object_is_refused(tmp_path, config):
    path = tmp_path / "l.safetensors"
    save_tensors(path, "learner", weights(), META | {"config": config})
    assert "configuration" in refusal(path)
