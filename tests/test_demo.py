"""The demo: every method on every target, gains paired by seed, a graph before and after."""

import pytest
import torch
from scipy.stats import ttest_ind, ttest_rel
from torch_geometric.data import Data

from graphglow import demo
from graphglow.demo import (
    METHODS,
    TARGETS,
    DemoResult,
    DemoTarget,
    Gain,
    Row,
    before_and_after,
    gains,
    run_demo,
    summarise,
)
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.datasets import add_edges
from graphglow.pretrained import load_learner

TINY = (
    DemoTarget("small", "synthetic-small", labels_per_class=5, seeds=2),
    DemoTarget("wine", "wine", labels_per_class=5, false_edges=1.0, seeds=2),
)


@pytest.fixture(scope="module")
def result() -> DemoResult:
    return run_demo(TINY, {"epochs": 2, "patience": 10, "hidden": 32}, seed=3, device="cpu")


def test_every_method_runs_on_every_target_and_seed(result: DemoResult) -> None:
    cells = {(row.target, row.method, row.seed) for row in result.rows}
    every = {(t.name, m, s) for t in TINY for m in METHODS for s in (3, 4)}
    no_edges = {("wine", method, seed) for method in ("gcn", "bag-gcn") for seed in (3, 4)}
    assert cells == every - no_edges  # a table
    assert len(result.rows) == len(cells)
    for row in result.rows:
        assert 0 <= row.test_accuracy <= 1


def test_demo_says_how_it_was_made(result: DemoResult) -> None:
    assert result.settings == {"--epochs": 2, "--patience": 10, "--hidden": 32}
    assert "torch" in result.versions


def test_refined_graph_is_described(result: DemoResult) -> None:
    refined = result.refined
    assert refined.target == "wine"
    assert refined.dropped_injected is not None
    assert 0 <= refined.dropped_own <= 1
    assert 0 <= refined.audit_auc <= 1


def test_few_labels_are_as_many_in_validation_as_in_training() -> None:
    data = TINY[1].draw(1)
    classes = [torch.bincount(data.y[data[f"{part}_mask"]]) for part in ("train", "val")]
    assert [counts.tolist() for counts in classes] == [[5, 5, 5], [5, 5, 5]]
    assert int((data.train_mask | data.val_mask | data.test_mask).sum()) == 178
    assert int(data.test_mask.sum()) == 178 - 30
    assert not torch.equal(data.train_mask, TINY[1].draw(2).train_mask)


def test_the_targets_of_the_demo() -> None:
    few, false, table = TARGETS
    assert [few.draw(0)[f"{part}_mask"].sum() for part in ("train", "val")] == [35, 35]
    attacked = false.draw(0)
    assert attacked.num_edges == 4 * DATASETS["cora"].edges
    assert [attacked[f"{part}_mask"].sum() for part in ("train", "val")] == [140, 140]
    assert DATASETS[table.graph].kind == "table"


def test_demo_needs_no_files_and_no_target_is_a_source() -> None:
    names = {target.graph for target in TARGETS}
    assert not any(DATASETS[name].needs_data for name in names)
    assert not set(load_learner("universal").provenance["sources"]) & names


def test_summary_is_mean_and_sample_deviation() -> None:
    rows = [Row("a", "m", s, acc, 2.0) for s, acc in enumerate((0.5, 0.7))]
    summary = summarise(rows)["a"]["m"]
    assert summary.runs == 2
    assert summary.mean == pytest.approx(0.6)
    assert summary.std == pytest.approx(0.1 * 2**0.5)
    assert summarise(rows[:1])["a"]["m"].std is None


def demo_rows(scores: dict[str, tuple[float, ...]]) -> list[Row]:
    return [Row("a", m, s, a, 1.0) for m, of in scores.items() for s, a in enumerate(of)]


def test_gains_are_paired_over_the_best_control_and_the_untrained_one() -> None:
    scores = {
        "gcn": (0.70, 0.60, 0.80),
        "logistic": (0.50, 0.50, 0.50),
        "untrained": (0.69, 0.58, 0.79),
        "predict": (0.75, 0.651, 0.851),
    }
    rows = demo_rows(scores)
    best, untrained = gains(rows)
    assert (best.control, untrained.control) == ("gcn", "untrained")
    assert best.difference == pytest.approx(0.152 / 3)
    assert best.beyond_chance  # a steady gain, though seeds differ much more
    assert gains([row for row in rows if row.seed == 0])[0].p is None
    assert gains([row for row in rows if row.method != "predict"]) == []
    assert not Gain("a", "gcn", 0.1, 3, 0.05).beyond_chance


def test_the_p_of_a_gain_is_that_of_a_paired_test() -> None:
    ours, theirs = (0.75, 0.65, 0.86, 0.7), (0.70, 0.61, 0.80, 0.69)
    rows = demo_rows({"predict": ours, "gcn": theirs})
    (gain,) = gains(rows[::-1])  # whatever their order
    assert gain.p == pytest.approx(ttest_rel(ours, theirs).pvalue)
    assert gain.p < 0.05 < ttest_ind(ours, theirs).pvalue
    lacking = [row for row in rows if (row.method, row.seed) != ("gcn", 2)]
    (gain,) = gains(lacking)  # a seed that only one has does not count
    kept = [0, 1, 3]
    assert gain.seeds == 3
    assert gain.difference == pytest.approx(sum(ours[s] - theirs[s] for s in kept) / 3)


def undirected(edges):
    return {tuple(sorted(pair)) for pair in edges.T.tolist() if pair[0] != pair[1]}


def test_dropped_own_is_of_the_graphs_own_edges(monkeypatch):
    """The refined graph has every third edge of the input, whatever the learner says."""
    given = load_graph("synthetic-small")
    data = add_edges(given, 0.5, seed=1)
    kept = sorted(undirected(data.edge_index))[::3]
    left = Data(edge_index=torch.tensor(kept).T)
    monkeypatch.setattr(demo, "refine", lambda known, edges, device: left)
    refined = before_and_after(data, "small", given.edge_index)
    own = undirected(given.edge_index)
    injected = undirected(data.edge_index) - own
    assert injected
    gone = undirected(data.edge_index) - set(kept)
    assert refined.dropped_own == pytest.approx(len(gone & own) / len(own))
    assert refined.dropped_injected == pytest.approx(len(gone & injected) / len(injected))
    assert refined.dropped_own != refined.dropped_injected
    assert refined.before["edges"] == len(undirected(data.edge_index))
    assert refined.after["edges"] == len(kept)
    same = [data.y[u] == data.y[v] for u, v in kept]
    assert refined.after["homophily"] == pytest.approx(sum(map(float, same)) / len(same))
