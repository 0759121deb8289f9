"""The demo: every method on every target, gains paired by seed, a graph before and after."""

from dataclasses import replace

import pytest
import torch
from scipy.stats import ttest_ind, ttest_rel
from torch_geometric.data import Data

from graphglow.demo import (
    CORA_CLASSES,
    METHODS,
    TARGETS,
    DemoResult,
    Gain,
    Row,
    Target,
    describe_refined,
    gains,
    run_demo,
    summarise,
)
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.synthetic import add_edges
from graphglow.lab.open_world.methods import refine_pool
from graphglow.lab.structure_metrics import GraphFacts, graph_facts
from graphglow.pretrained import evidence_learner, load_learner

TINY = (
    Target("small", "synthetic-small", labels_per_class=5, seeds=2),
    Target("wine", "wine", labels_per_class=5, false_edges=1.0, seeds=2),
)


@pytest.fixture(scope="module")
def result() -> DemoResult:
    threads = torch.get_num_threads()
    result = run_demo(TINY, {"epochs": 2, "patience": 10, "hidden": 32}, seed=3, device="cpu")
    assert torch.get_num_threads() == threads
    return result


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
    around = refined.around
    assert len({node.node for node in around.nodes}) == len(around.nodes)
    edges = [*around.kept, *around.dropped, *around.added]
    assert len({frozenset(ends) for ends in edges}) == len(edges)
    assert {place for ends in edges for place in ends} <= set(range(len(around.nodes)))
    assert all(0 in ends for ends in around.added)


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
    assert attacked.class_names == list(CORA_CLASSES)
    sizes = dict(zip(CORA_CLASSES, torch.bincount(attacked.y).tolist(), strict=True))
    assert (sizes["Neural networks"], sizes["Rule learning"]) == (818, 180)  # as is known of Cora
    assert DATASETS[table.graph].kind == "table"


def test_demo_needs_no_files_and_no_target_is_a_source() -> None:
    names = {target.graph for target in TARGETS}
    assert not any(DATASETS[name].needs_data for name in names)
    assert not set(load_learner("universal").provenance["sources"]) & names


def test_graph_facts_count_each_edge_once_and_skip_loops_and_unlabelled() -> None:
    edge_index = torch.tensor([[0, 0, 1, 2, 3, 0], [0, 1, 0, 1, 0, 1]])
    data = Data(y=torch.tensor([0, 0, 1, -1]), edge_index=edge_index, num_nodes=4)
    assert graph_facts(data) == GraphFacts(3, pytest.approx(1 / 2))
    data.y[:] = -1
    assert graph_facts(data) == GraphFacts(3, None)


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


def test_dropped_own_is_of_the_graphs_own_edges():
    """Every third of the input's edges is made doubtful, whatever the learner says."""
    given = load_graph("synthetic-small")
    data = add_edges(given, 0.5, seed=1)
    made = refine_pool(data, evidence_learner(), device="cpu")
    odds = made.pair_log_odds.abs() + 0.1
    odds[made.pair_in_input.nonzero()[::3, 0]] = -1.0
    made = replace(made, pair_log_odds=odds, edges=(odds > 0).nonzero()[:, 0])
    gone = undirected(made.pairs[:, made.pair_in_input & (odds < 0)])
    refined = describe_refined(made, data, "small", given.edge_index)
    own = undirected(given.edge_index)
    injected = undirected(data.edge_index) - own
    assert injected
    assert refined.dropped_own == pytest.approx(len(gone & own) / len(own))
    assert refined.dropped_injected == pytest.approx(len(gone & injected) / len(injected))
    assert refined.dropped_own != refined.dropped_injected
    edges = len(undirected(data.edge_index))
    assert refined.before.edges == edges
    assert edges <= refined.after.edges <= edges + data.num_nodes
    around, ends = refined.around, lambda at: refined.around.nodes[at].node
    dropped = {tuple(sorted(map(ends, pair))) for pair in around.dropped}
    assert dropped <= gone
    assert not {tuple(sorted(map(ends, pair))) for pair in around.kept} & gone
