"""The scripts behind the rows: who shares trials with whom, who borrows, and what comes first."""

import argparse
import json
import sys
from pathlib import Path

import optuna
import pytest

from graphglow.experiments.search.settings import Settings, read_settings, write_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import final_settings
import reproduce_rows
import search_settings

CITATION = ("cora", "citeseer", "pubmed")


def settle(folder: Path, *methods: str, target: str = "reed98") -> None:
    """By the scores of the trials alone."""
    paths = [f"--folder={folder}", f"--settings={folder / 'settings.json'}"]
    for method in methods:
        args = final_settings.parsed(["--seeds=0", "--targets", target, *paths])
        final_settings.settle(method, target, args)


def study(folder: Path, target: str, method: str, trials: list[tuple[dict, float]]) -> None:
    """A file as a search leaves it: trials with settings and scores."""
    made = optuna.create_study(
        storage=f"sqlite:///{folder / f'{target}-{method}.db'}", direction="maximize"
    )
    choices = {name: sorted({given[name] for given, _ in trials}) for name in trials[0][0]}
    space = {n: optuna.distributions.CategoricalDistribution(c) for n, c in choices.items()}
    for given, score in trials:
        made.add_trial(optuna.trial.create_trial(params=given, distributions=space, value=score))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_settings(tmp_path / "settings.json", Settings())
    return tmp_path


def test_without_the_learned_graph_both_have_each_other_s_trials(folder: Path) -> None:
    ours = {"transfer.input_weight": 0.5, "transfer.dropout": 0.2, "pretrain.episodes": 3}
    off = {"input_weight": 1.0, "dropout": 0.6, "embedding_size": 64}
    study(folder, "reed98", "graphglow", [(ours, 0.7)])
    study(folder, "reed98", "random-theta", [(off, 0.8), ({**off, "dropout": 0.0}, 0.6)])
    settle(folder, "graphglow", "random-theta")
    settings = read_settings(folder / "settings.json")
    assert settings.of("graphglow", "reed98", CITATION) == {
        "pretrain": {},
        "transfer": {"input_weight": 1.0, "dropout": 0.6},
    }
    assert settings.of("graphglow-on", "reed98", CITATION) == {
        "pretrain": {"episodes": 3},
        "transfer": {"input_weight": 0.5, "dropout": 0.2},
    }
    assert settings.of("random-theta", "reed98") == off
    assert settings.of("random-on", "reed98") == {}  # it has no such trial of its own
    rows = [json.loads(line) for line in (folder / "search.jsonl").read_text().splitlines()]
    told = {row["method"]: (row["found_by"], row["trials"], row["val_accuracy"]) for row in rows}
    assert told["graphglow"] == ("random-theta", 1, 0.8)
    assert told["graphglow-on"] == ("graphglow", 1, 0.7)
    assert told["random-theta"] == ("random-theta", 2, 0.8)


def test_finals_have_the_best_once_and_what_is_good_for_the_other(folder: Path) -> None:
    on = {"transfer.input_weight": 0.5, "transfer.dropout": 0.2}
    better, other = {**on, "transfer.dropout": 0.6}, {"input_weight": 0.3, "dropout": 0.0}
    study(folder, "cora", "graphglow", [(on, 0.7), (on, 0.72), (better, 0.8)])
    study(folder, "cora", "random-theta", [(other, 0.9)])
    found = final_settings.finalists(folder, "graphglow", "cora", 2)
    assert [one.score for one in found] == [0.8, 0.72, 0.9, 0.9]
    steps = [one.settings["pretrain"].get("learner_learning_rate") for one in found]
    assert steps == [None, None, 0.01, 0.1]
    (crossed,) = final_settings.finalists(folder, "random-theta", "cora", 2)[1:2]
    assert crossed.settings == {"transfer": {"input_weight": 0.5, "dropout": 0.6}
                                | {"embedding_size": 64}}  # fmt: skip


def test_what_was_not_searched_is_borrowed_and_says_so(folder: Path) -> None:
    path = folder / "settings.json"
    found = Settings().having("gcn", "citeseer", {"dropout": 0.3})
    write_settings(path, found.having("gcn", "johnshopkins55", {"dropout": 0.0}))
    search_settings.borrow(path)
    settings = read_settings(path)
    assert settings.of("gcn", "pubmed") == {"dropout": 0.3}
    assert settings.of("gcn", "cornell5") == {"dropout": 0.0}
    assert settings.of("gcn", "amherst41") == {}
    rows = [json.loads(line) for line in (folder / "search.jsonl").read_text().splitlines()]
    assert {(row["target"], row["borrowed_from"]) for row in rows} == {
        ("pubmed", "citeseer"),
        ("cornell5", "johnshopkins55"),
    }
    search_settings.borrow(path)
    assert len((folder / "search.jsonl").read_text().splitlines()) == 2


def test_variants_have_no_search_of_their_own() -> None:
    methods = search_settings.all_methods()
    assert methods[:2] == ["gcn", "graphglow"]
    assert {"graphglow-backbone", "random-backbone", "link"} <= set(methods)
    assert not {"graphglow-star", "graphglow-dot", "graphglow-attention"} & set(methods)


def test_rows_are_made_in_the_order_asked_for_and_large_graphs_last() -> None:
    args = argparse.Namespace(
        experiments=["table2", "table1"], rows=["random-theta", "gcn"], targets=["pubmed", "cora"]
    )
    cells = [(cell.experiment, cell.key) for cell in reproduce_rows.ordered(args)]
    small = [(e, f"{m}/cora") for e in ("table2", "table1") for m in ("random-theta", "gcn")]
    large = [(e, f"{m}/pubmed") for e in ("table2", "table1") for m in ("random-theta", "gcn")]
    assert cells == [*small, *large]


def test_a_large_graph_hears_what_won_on_a_smaller_one_of_its_kind(folder: Path) -> None:
    off, on = ({"pretrain": {}, "transfer": {"input_weight": weight}} for weight in (1.0, 0.9))
    known = Settings().having("graphglow", "johnshopkins55", off, CITATION)
    known = known.having("graphglow-on", "johnshopkins55", on, CITATION)
    known = known.having("gcn", "johnshopkins55", {"dropout": 0.25})
    path = folder / "settings.json"
    write_settings(path, known)
    heard = final_settings.of_sibling(path, "graphglow", "cornell5")
    assert [one.settings for one in heard] == [off, on]
    assert {one.found_by for one in heard} == {"of johnshopkins55"}
    (plain,) = final_settings.of_sibling(path, "gcn", "cornell5")
    assert plain.settings["transfer"] == {"dropout": 0.25}
    assert final_settings.of_sibling(path, "graphglow", "reed98") == []
    assert final_settings.of_sibling(path, "graphglow", "pubmed") == []
