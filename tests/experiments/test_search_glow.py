"""GraphGLOW in a search: pre-trained once for each learner's settings, then transferred."""

import pytest
from small_search import found, graph, relabelled, work_in

from graphglow.errors import InputError
from graphglow.experiments import candidates
from graphglow.experiments.search import Work
from graphglow.experiments.settings import config_of, read_settings
from graphglow.structure import LearnerConfig, StructureLearner
from graphglow.training import PretrainConfig, pretrain


def one_learner(monkeypatch, **changes):
    space = {name: values[:1] for name, values in candidates.PRETRAIN_SPACE.items()} | changes
    monkeypatch.setattr(candidates, "PRETRAIN_SPACE", space)


def counted_pretraining(monkeypatch):
    calls = []
    monkeypatch.setattr(
        candidates, "pretrain", lambda *a, **m: calls.append(a[1]) or pretrain(*a, **m)
    )
    return calls


def test_graphglow_is_searched_with_its_pretraining():
    row = found("graphglow", sources=[graph("a", seed=1), graph("b", seed=2)])
    assert row["sources"] == ["a", "b"]
    assert set(row["settings"]) == {"pretrain", "transfer"}
    made = config_of(PretrainConfig, row["settings"]["pretrain"])
    assert (made.refinements, made.learner.similarity) == (4, "cosine")
    assert made.episodes in (1, 2, 3)
    assert row["settings"]["transfer"]["refinements"] == 4


@pytest.mark.parametrize("kept", [True, False])
def test_a_learner_is_pretrained_once(tmp_path, monkeypatch, kept):
    one_learner(monkeypatch)
    calls = counted_pretraining(monkeypatch)
    work = Work(learners=tmp_path if kept else None)
    sources = [graph("a", seed=1)]
    first = found("graphglow", sources=sources, work=work)
    assert len(calls) == 1
    assert found("graphglow", sources=sources, work=work) == first
    assert len(calls) == (1 if kept else 2)


def test_another_setting_source_or_damage_makes_another_learner(tmp_path, monkeypatch):
    one_learner(monkeypatch)
    calls = counted_pretraining(monkeypatch)
    work, sources = Work(learners=tmp_path), [graph("a", seed=1)]
    found("graphglow", sources=sources, work=work)
    for file in tmp_path.iterdir():
        file.write_text("damaged")
    found("graphglow", sources=sources, work=work)
    assert (len(calls), len(list(tmp_path.iterdir()))) == (2, 1)
    found("graphglow", sources=[relabelled(sources[0], "val_mask")], work=work)
    one_learner(monkeypatch, episodes=(2,))
    found("graphglow", sources=sources, work=work)
    assert (len(calls), len(list(tmp_path.iterdir()))) == (4, 3)


def test_with_a_learner_only_the_transfer_is_searched(monkeypatch, tmp_path):
    calls = counted_pretraining(monkeypatch)
    theta = StructureLearner(LearnerConfig(embedding_size=8), seed=1)
    theta.provenance["sources"] = ["cora"]
    row = found("graphglow", learner=theta, work=work_in(tmp_path))
    assert calls == []
    assert set(row["settings"]) == {"transfer"}
    assert set(row["settings"]["transfer"]) == set(candidates.TRANSFER_SPACE)
    assert row["sources"] == ["cora"]
    known = read_settings(tmp_path / "settings.json")
    assert known.entries["graphglow"] == {f"small < learner {row['learner']}": row["settings"]}
    other = StructureLearner(LearnerConfig(embedding_size=8), seed=2)
    assert found("graphglow", learner=other)["study"] != row["study"]


@pytest.mark.parametrize("both", [True, False])
def test_graphglow_needs_sources_or_a_learner(both):
    more = {"sources": [graph("a", seed=1)], "learner": StructureLearner()} if both else {}
    with pytest.raises(InputError, match=f"either sources .*got {'both' if both else 'neither'}"):
        found("graphglow", **more)
    with pytest.raises(InputError, match="must go with graphglow; got gcn"):
        found("gcn", learner=StructureLearner())
