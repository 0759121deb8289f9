"""Learners on disk: bit for bit the same after loading, and one sentence for anything else."""

import json
import random
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from graphglow.errors import InputError
from graphglow.paper import StructureLearner
from graphglow.settings import LearnerConfig
from graphglow.storage import FORMAT_VERSION, save_tensors

CONFIG = LearnerConfig(
    embedding_size=5,
    num_heads=2,
    similarity="cosine",
    tied=False,
    delta="truncate",
    threshold=0.1,
)
META = {
    "config": {
        "embedding_size": 5,
        "num_heads": 2,
        "similarity": "cosine",
        "tied": False,
        "delta": "truncate",
        "threshold": 0.1,
        "weighted": True,
        "neighbours": None,
    },
    "provenance": {"trained": False, "seed": 0},
}


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


def learner_or_refusal(path):
    try:
        return StructureLearner.load(path)
    except InputError as error:
        return str(error)


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


OLDER = {n: v for n, v in META["config"].items() if n not in ("weighted", "neighbours")}


def test_a_learner_is_a_few_kilobytes_of_safetensors_with_json(saved):
    assert saved.stat().st_size < 4096
    with safe_open(saved, framework="pt") as file:
        meta = json.loads(file.metadata()["graphglow"])
    assert meta["kind"] == "learner"
    assert meta["version"] == FORMAT_VERSION
    assert meta["config"] == META["config"]


def test_every_truncation_is_refused(saved, tmp_path):
    whole = saved.read_bytes()
    cut = tmp_path / "cut.safetensors"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        refusal(cut)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path, content):
    path = tmp_path / "noise.safetensors"
    path.write_bytes(content)
    refusal(path)


def test_a_damaged_header_is_refused_or_harmless(saved, tmp_path):
    """One changed byte: either refused in one line, or still a valid learner."""
    whole, draws = saved.read_bytes(), random.Random(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    path = tmp_path / "damaged.safetensors"
    refused = 0
    for _ in range(80):
        damaged = bytearray(whole)
        damaged[draws.randrange(header)] = draws.randrange(256)
        path.write_bytes(damaged)
        result = learner_or_refusal(path)
        if isinstance(result, str):
            assert "\n" not in result
            refused += 1
        else:
            assert all(p.isfinite().all() for p in result.parameters())
    assert refused > 25


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    save_file(weights(), tmp_path / "f.safetensors")
    assert "foreign" in refusal(tmp_path / "f.safetensors")
    save_file(weights(), tmp_path / "g.safetensors", metadata={"format": "pt"})
    assert "foreign" in refusal(tmp_path / "g.safetensors")


def test_a_pickle_is_refused_and_not_run(tmp_path):
    path = tmp_path / "l.pt"
    torch.save(weights(), path)
    refusal(path)


@pytest.mark.parametrize("header", ["[]", "3", "null", "{", "", '"learner"', "[" * 100_000])
def test_metadata_that_is_not_a_json_object_is_refused(tmp_path, header):
    path = tmp_path / "l.safetensors"
    save_file(weights(), path, metadata={"graphglow": header})
    refusal(path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "r.safetensors"
    save_tensors(path, "result", weights(), META)
    assert "got a 'result' file" in refusal(path)


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 99, "1", None, 1.5])
def test_a_newer_or_strange_version_is_refused(tmp_path, version):
    path = tmp_path / "l.safetensors"
    header = json.dumps({"kind": "learner", **META, "version": version})
    save_file(weights(), path, metadata={"graphglow": header})
    assert "format" in refusal(path)


BAD_TENSORS = {
    "too wide": weights(shape=(2, 6)),
    "too many heads": weights(shape=(3, 5)),
    "one dimension": weights(shape=(10,)),
    "one missing": {"node_weight": torch.ones(2, 5)},
    "one more": {**weights(), "extra": torch.ones(1)},
    "other names": {"a": torch.ones(2, 5), "b": torch.ones(2, 5)},
    "none": {},
    "NaN": weights(float("nan")),
    "infinite": weights(float("inf")),
    "integers": weights(1, dtype=torch.int64),
    "complex": weights(1, dtype=torch.complex64),
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
        {"num_heads": None},
        {"embedding_size": -1},
        {"embedding_size": 10**9, "num_heads": 10**9},
        {"similarity": "manhattan"},
        {"delta": "soft"},
        {"threshold": float("nan")},
        {"threshold": "low"},
        {"threshold": None},
        {"weighted": False},
        {"neighbours": 0},
        {"neighbours": "few"},
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


def test_a_refused_file_is_left_as_it_was(saved, tmp_path):
    copy = tmp_path / "copy.safetensors"
    shutil.copy(saved, copy)
    with copy.open("ab") as file:
        file.write(b"tail")
    before = copy.read_bytes()
    refusal(copy)
    assert copy.read_bytes() == before
