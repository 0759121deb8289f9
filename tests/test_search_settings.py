"""The scripts behind the rows: who shares trials with whom, who borrows, and what comes first."""

import argparse
import json
import sys
from pathlib import Path

import optuna
import pytest

from graphglow.experiments.settings import Settings, read_settings, write_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import reproduce_rows
import search_settings

CITATION = ("cora", "citeseer", "pubmed")


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
    ours = {"transfer.input_weight": 0.5, "transfer.dropout": 0.2}
    off = {"input_weight": 1.0, "dropout": 0.6, "embedding_size": 64}
    study(folder, "reed98", "graphglow", [(ours, 0.7)])
    study(folder, "reed98", "random-theta", [(off, 0.8), ({**off, "dropout": 0.0}, 0.6)])
    changed = search_settings.share(folder, folder / "settings.json")
    assert changed == ["graphglow on reed98: 0.8000, of random-theta"]
    settings = read_settings(folder / "settings.json")
    assert settings.of("graphglow", "reed98", CITATION) == {
        "transfer": {"input_weight": 1.0, "dropout": 0.6}
    }


def test_a_better_trial_with_the_learned_graph_is_not_shared(folder: Path) -> None:
    study(folder, "cora", "graphglow", [({"transfer.input_weight": 0.5}, 0.9)])
    study(folder, "cora", "random-theta", [({"input_weight": 1.0, "embedding_size": 64}, 0.8)])
    assert search_settings.share(folder, folder / "settings.json") == []
    assert read_settings(folder / "settings.json").entries == {}


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
