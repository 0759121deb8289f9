"""The demo: methods side by side on every target, and a graph before and after."""

import pytest
import torch
from torch_geometric.data import Data

from graphglow import demo
from graphglow.demo import (
    DEMO_METHODS,
    TARGETS,
    DemoResult,
    DemoTarget,
    before_and_after,
    run_demo,
)
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.datasets import add_edges
from graphglow.pretrained import load_learner

TINY = (
    DemoTarget("small", "synthetic-small", labels_per_class=5),
    DemoTarget("wine", "wine", labels_per_class=5, false_edges=1.0),
)


@pytest.fixture(scope="module")
def result() -> DemoResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphglow.lab.open_methods.EPOCHS", 2)
        return run_demo(TINY, seeds=2, seed=3, device="cpu")


def test_every_method_runs_on_every_target(result: DemoResult) -> None:
    small, wine = ({line.method for line in of.lines} for of in result.comparisons.values())
    assert small == set(DEMO_METHODS)
    assert wine == small - {"gcn", "bag-gcn"}  # a table
    assert "2 seeds" in result.comparisons["wine"].how


def test_demo_says_how_it_was_made(result: DemoResult) -> None:
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
