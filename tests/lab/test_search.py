"""Search: one budget, resumable, blind to test labels; what fails is said and counted."""

import ast
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_search import FAST, drawn, found, graph, relabelled, with_space, work_in

from graphglow.competitors import METHODS, fit_many
from graphglow.errors import InputError
from graphglow.graph import check_graph
from graphglow.lab.search import space, study
from graphglow.lab.search.settings import Settings, config_of, read_settings, write_settings
from graphglow.lab.search.space import PRETRAIN_SPACE, TRANSFER_SPACE, SearchConfig, blinded
from graphglow.paper import StructureLearner
from graphglow.settings import LearnerConfig, PretrainConfig
from graphglow.training import pretrain, transfer_many
from graphglow.workers.executor import open_executor

# Budget and draws


def test_the_best_mean_over_the_seeds_is_found(tmp_path):
    row = found(config=replace(FAST, trials=6), **work_in(tmp_path))
    tried = drawn(work_in(tmp_path))
    assert (row["trials"], row["budget"], row["failed"], row["sampler"]) == (6, 6, 0, "tpe")
    assert row["val_accuracy"] == max(value for _, value in tried)
    assert row["settings"] == tried[row["best_trial"]][0]
    assert set(row["settings"]) == set(METHODS["gcn"].space)
    runs = [{"seed": seed, "epochs": 2, "patience": 100, "device": "cpu"} for seed in (0, 1)]
    configs = [config_of(METHODS["gcn"].config, row["settings"], **run) for run in runs]
    again = [result.val_accuracy for result in fit_many("gcn", blinded(graph()), configs)]
    assert row["val_accuracies"] == again
    assert row["val_accuracy"] == sum(again) / 2


def test_a_space_within_the_budget_is_tried_whole(tmp_path, monkeypatch):
    with_space(monkeypatch, hidden=(4, 8), dropout=(0.0, 0.5), learning_rate=(0.01,))
    row = found(config=replace(FAST, trials=30), **work_in(tmp_path))
    assert (row["sampler"], row["budget"], row["trials"]) == ("grid", 4, 4)
    tried = {(v["hidden"], v["dropout"], v["learning_rate"]) for v, _ in drawn(work_in(tmp_path))}
    assert tried == {(h, d, 0.01) for h in (4, 8) for d in (0.0, 0.5)}


def test_a_space_without_a_choice_is_one_trial(monkeypatch):
    with_space(monkeypatch, hidden=(4,))
    row = found()
    assert (row["trials"], row["settings"]) == (1, {"hidden": 4})


def test_the_runs_of_a_trial_are_one_program_where_the_method_is_batched(monkeypatch):
    built = []
    for name in ("gcn", "mlp"):
        real = METHODS[name]

        def build(given, configs, real=real, name=name):
            built.append((name, [config.seed for config in configs]))
            return real.build(given, configs)

        monkeypatch.setitem(METHODS, name, replace(real, build=build))
        found(name, config=replace(FAST, trials=1, seed=4))
    assert built == [("gcn", [4, 5]), ("mlp", [4]), ("mlp", [5])]


# Going on


def test_an_interrupted_search_keeps_its_trials_and_writes_no_settings(tmp_path, monkeypatch):
    work, calls = work_in(tmp_path), []

    def interrupted(*args, **more):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return fit_many(*args, **more)

    monkeypatch.setattr(space, "fit_many", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found(**work)
    assert len(drawn(work)) == 1
    assert not work["settings"].exists()
    assert found(**work)["trials"] == len(drawn(work)) == 3


def test_a_rerun_does_what_is_missing(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(space, "fit_many", lambda *a, **m: calls.append(a) or fit_many(*a, **m))
    work = work_in(tmp_path)
    first = found(**work)
    assert (first["trials"], len(calls)) == (3, 3)
    assert found(**work) == first
    assert len(calls) == 3
    assert found(config=replace(FAST, trials=5), **work)["trials"] == 5
    assert len(calls) == 5
    assert found(config=replace(FAST, trials=3), **work) == first  # a budget is a budget
    found(config=replace(FAST, epochs=1), **work)  # another question: trials of its own
    assert len(calls) == 8
    rows = [json.loads(line) for line in (tmp_path / "search.jsonl").read_text().splitlines()]
    assert [(row["trials"], row["epochs"]) for row in rows] == [
        *[(3, 2)] * 2,
        *[(5, 2), (3, 2), (3, 1)],
    ]


def test_others_own_settings_stay(tmp_path):
    work = work_in(tmp_path)
    work["settings"].write_text('{"gat": {"cora": {"hidden": 3}}, "gcn": {"cora": {"hidden": 5}}}')
    row = found(**work)
    known = read_settings(work["settings"])
    assert known.of("gcn", "small") == row["settings"]
    assert known.of("gat", "cora") == {"hidden": 3}
    assert known.of("gcn", "cora") == {"hidden": 5}


# Failures


def test_a_loss_that_is_not_finite_fails_its_trial_only(tmp_path, monkeypatch):
    with_space(monkeypatch, learning_rate=(0.01, 1e30), dropout=(0.0,))
    row = found(config=replace(FAST, epochs=20), **work_in(tmp_path))
    assert (row["trials"], row["failed"]) == (2, 1)
    assert "loss must stay finite" in row["failure"]
    assert row["settings"] == {"learning_rate": 0.01, "dropout": 0.0}
    assert found(config=replace(FAST, epochs=20), **work_in(tmp_path)) == row


def test_what_does_not_fit_fails_every_trial_and_writes_no_settings(tmp_path, monkeypatch):
    heavy = replace(METHODS["gcn"], memory=lambda graph, config: 10**18)
    monkeypatch.setitem(METHODS, "gcn", heavy)
    row = found(**work_in(tmp_path))
    assert (row["trials"], row["failed"], row["settings"]) == (3, 3, None)
    assert "gcn must fit in memory" in row["failure"]
    assert row["val_accuracy"] is None
    assert read_settings(tmp_path / "settings.json").entries == {}
    assert len((tmp_path / "search.jsonl").read_text().splitlines()) == 1


# Borders


@pytest.mark.parametrize(
    "wrong",
    [
        {"trials": 0},
        {"seeds_per_trial": 0},
        {"epochs": 0},
        {"patience": 0},
        {"pretrain_epochs": 0},
        {"seed": -1},
        {"seed": 2**32 - 1},
        {"device": "tpu"},
    ],
)
def test_absurd_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        SearchConfig(**wrong)


def test_an_unknown_method_is_refused():
    with pytest.raises(InputError, match=r"method must be one of .*; got 'gnc'"):
        found("gnc")


def test_without_optuna_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, study.__name__)
    with pytest.raises(InputError, match=r'needs Optuna; .*pip install "graphglow\[search\]"'):
        importlib.import_module(study.__name__)


def test_optuna_says_nothing(capfd, monkeypatch):
    with_space(monkeypatch, learning_rate=(0.01, 1e30), dropout=(0.0,))
    found(config=replace(FAST, epochs=20))
    assert capfd.readouterr() == ("", "")


def test_progress_counts_trials():
    seen = []
    found(told=lambda *now: seen.append(now))
    assert [now[1:] for now in seen] == [(done, 3) for done in range(4)]
    assert seen[0][0] == "gcn on small, best -"
    assert seen[-1][0].startswith("gcn on small, best ")
    assert seen[-1][0].endswith("%")


@pytest.mark.slow
@pytest.mark.parametrize("ray", [None, ""])
def test_processes_make_the_trials_that_one_would_make(tmp_path, ray):
    if ray is not None:
        pytest.importorskip("ray", reason="Ray is not installed")
    config = replace(FAST, trials=5, epochs=20)  # the first draws know no scores
    alone = found(config=config, **work_in(tmp_path / "alone"))
    with open_executor(2, ray, device="cpu") as executor:
        row = found(config=config, **work_in(tmp_path / "two"), executor=executor)
    assert row == alone
    assert drawn(work_in(tmp_path / "two")) == drawn(work_in(tmp_path / "alone"))


def test_settings_of_a_learner_leave_those_that_tables_take(tmp_path):
    """Two learners may have the same sources, and neither is the one that a table trains."""
    work, before = work_in(tmp_path), {"transfer": {"dropout": 0.25}}
    write_settings(work["settings"], Settings().having("graphglow", "small", before, ["a", "b"]))
    learners = [StructureLearner(LearnerConfig(embedding_size=4), seed=seed) for seed in (0, 1)]
    learners[0].provenance = {"sources": ["a", "b"], "name": "sharp"}
    learners[1].provenance = {"sources": ["a", "b"]}
    one = replace(FAST, trials=1, seeds_per_trial=1)
    rows = [found("graphglow", config=one, learner=learner, **work) for learner in learners]
    assert rows[0]["learner"] == "sharp"
    entries = read_settings(work["settings"]).entries["graphglow"]
    assert entries["small"] == entries["small < a+b"] == before
    assert set(entries) - {"small", "small < a+b"} == {
        f"small < learner {row['learner']}" for row in rows
    }
    assert len(entries) == 4


# GraphGLOW: pre-trained once for each learner's settings, then transferred


def counted_pretraining(monkeypatch):
    """What is pre-trained, where all trials have one learner."""
    calls = []
    one = {name: values[:1] for name, values in PRETRAIN_SPACE.items()}
    monkeypatch.setattr(space, "PRETRAIN_SPACE", one)
    monkeypatch.setattr(space, "TRANSFER_SPACE", {**TRANSFER_SPACE, "encoder": ("gcn",)})
    monkeypatch.setattr(space, "pretrain", lambda *a, **m: calls.append(a[1]) or pretrain(*a, **m))
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
    calls = counted_pretraining(monkeypatch)
    asked = {"learners": tmp_path if kept else None, "sources": [graph("a", seed=1)]}
    first = found("graphglow", **asked)
    assert len(calls) == 1
    assert found("graphglow", **asked) == first
    assert len(calls) == (1 if kept else 2)


def test_another_setting_source_or_damage_makes_another_learner(tmp_path, monkeypatch):
    calls = counted_pretraining(monkeypatch)
    sources, asked = [graph("a", seed=1)], {"learners": tmp_path}
    found("graphglow", sources=sources, **asked)
    for file in tmp_path.iterdir():
        file.write_text("damaged")
    found("graphglow", sources=sources, **asked)
    assert (len(calls), len(list(tmp_path.iterdir()))) == (2, 1)
    found("graphglow", sources=[relabelled(sources[0], "val_mask")], **asked)
    monkeypatch.setattr(space, "PRETRAIN_SPACE", {**space.PRETRAIN_SPACE, "episodes": (2,)})
    found("graphglow", sources=sources, **asked)
    assert (len(calls), len(list(tmp_path.iterdir()))) == (4, 3)


def test_with_a_learner_only_the_transfer_is_searched(monkeypatch, tmp_path):
    calls = counted_pretraining(monkeypatch)
    theta = StructureLearner(LearnerConfig(embedding_size=8), seed=1)
    theta.provenance["sources"] = ["cora"]
    row = found("graphglow", learner=theta, **work_in(tmp_path))
    assert calls == []
    assert set(row["settings"]) == {"transfer"}
    assert set(row["settings"]["transfer"]) == set(TRANSFER_SPACE)
    assert row["sources"] == ["cora"]
    known = read_settings(tmp_path / "settings.json")
    assert known.entries["graphglow"] == {f"small < learner {row['learner']}": row["settings"]}
    other = StructureLearner(LearnerConfig(embedding_size=8), seed=2)
    assert found("graphglow", learner=other)["study"] != row["study"]


@pytest.mark.parametrize("both", [True, False])
def test_graphglow_needs_sources_or_a_learner(both):
    more = {"sources": [graph("a", seed=1)], "learner": StructureLearner()} if both else {}
    with pytest.raises(
        InputError, match=f"either sources .*got {'both' if both else 'neither'} for"
    ):
        found("graphglow", **more)
    with pytest.raises(InputError, match="other methods neither; got one for gcn"):
        found("gcn", learner=StructureLearner())


# Blind to test labels: to change them changes nothing, and nothing is given them


def test_a_blind_graph_has_no_label_outside_training_and_validation():
    data = graph()
    data.y_all = data.y.clone()
    data.edge_weight = torch.rand(data.edge_index.shape[1])
    data = check_graph(data)
    blind = blinded(data)
    seen = data.train_mask | data.val_mask
    assert torch.equal(blind.y[seen], data.y[seen])
    assert (blind.y[~seen] == -1).all()
    assert not blind.test_mask.any()
    assert torch.equal(blind.edge_weight, data.edge_weight)
    kept = {"x", "y", "edge_index", "edge_weight", "train_mask", "val_mask", "test_mask", "name"}
    assert set(blind.keys()) == kept
    assert data.test_mask.any()
    assert (data.y >= 0).all()


def test_a_graph_that_no_trial_could_train_on_is_refused():
    data = graph()
    data.train_mask &= data.y == 0
    with pytest.raises(InputError, match="at least two classes"):
        found(data=data)


@pytest.mark.parametrize("method", ["gcn", "link", "lds", "graphglow"])
def test_test_labels_change_nothing(method):
    more = {"sources": [graph("a", seed=1)]} if method == "graphglow" else {}
    changed = {"sources": [relabelled(s, "test_mask") for s in more["sources"]]} if more else {}
    one = found(method, graph(), **more)
    assert one == found(method, relabelled(graph(), "test_mask"), **changed)


def test_validation_labels_change_the_study():
    one, other = found(), found(data=relabelled(graph(), "val_mask"))
    assert one["study"] != other["study"]
    assert one["val_accuracies"] != other["val_accuracies"]


def test_what_trains_is_given_blind_graphs_only(monkeypatch):
    seen = []

    def spy(module, name, real, place):
        def spied(*args, **more):
            given = args[place]
            seen.extend((name, data) for data in (given if isinstance(given, list) else [given]))
            return real(*args, **more)

        monkeypatch.setattr(module, name, spied)

    spy(space, "fit_many", fit_many, 1)
    spy(space, "transfer_many", transfer_many, 0)
    spy(space, "pretrain", pretrain, 0)
    found()
    found("graphglow", sources=[graph("a", seed=1)])
    assert {name for name, _ in seen} == {"fit_many", "transfer_many", "pretrain"}
    for _, data in seen:
        assert not data.test_mask.any()
        assert (data.y[~(data.train_mask | data.val_mask)] == -1).all()


def test_only_the_module_that_blinds_speaks_of_tests():
    folder = Path(study.__file__).parent
    for name in ("space", "study"):
        tree = ast.parse((folder / f"{name}.py").read_text())
        used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        used |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        used |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)} - {None}
        words = {word for word in used if isinstance(word, str) and " " not in word}
        assert not {word for word in words if word == "test" or "test_" in word}, name
    source = (folder / "study.py").read_text()
    body = source.split("del data, sources")[1].split("\ndef ")[0]
    assert "data" not in {n.id for n in ast.walk(ast.parse("def f():" + body)) if hasattr(n, "id")}
