from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from graphglow.experiments.demo import (
    DEMO,
    METHODS,
    DemoResult,
    Row,
    run_demo,
    summarise,
)
from graphglow.experiments.structure_metrics import GraphFacts, graph_facts
from graphglow.graphs import DATASETS
from graphglow.pretrained import PRETRAINED, load_learner

pytestmark = pytest.mark.filterwarnings("ignore:worse")  # few labels, and few epochs

TINY = replace(
    DEMO,
    targets=("wine", "breast_cancer"),
    num_seeds=2,
    labels_per_class=5,
    refined_target="breast_cancer",
    transfer=replace(DEMO.transfer, epochs=2, num_pivots=8),
    top_k=3,
)


@pytest.fixture(scope="module")
def result() -> DemoResult:
    threads = torch.get_num_threads()
    result = run_demo(TINY, seed=3, device="cpu")
    assert torch.get_num_threads() == threads
    return result


def test_every_method_runs_on_every_target_and_seed(result: DemoResult) -> None:
    cells = {(row.target, row.method, row.seed) for row in result.rows}
    assert cells == {(t, m, s) for t in TINY.targets for m in METHODS for s in (3, 4)}
    assert len(result.rows) == len(cells)
    for row in result.rows:
        assert row.test_accuracy is not None
        assert 0 <= row.test_accuracy <= 1
        assert row.split == f"few labels, seed {row.seed}"


def test_demo_says_how_it_was_made(result: DemoResult) -> None:
    made = load_learner(DEMO.learner).provenance
    assert result.pretraining["name"] == DEMO.learner
    assert result.pretraining["sources"] == made["sources"]
    assert result.pretraining["val_accuracy"] == made["validation_accuracy"]
    assert result.pretraining["seconds"] > 0
    assert result.settings["transfer"]["--learner"] == DEMO.learner
    assert result.settings["transfer"]["--num-pivots"] == 8
    assert "--seed" not in result.settings["transfer"]
    assert "torch" in result.versions


def test_refined_graph_is_described(result: DemoResult) -> None:
    refined = result.refined
    assert refined.target == "breast_cancer"
    assert refined.after.edges <= 3 * refined.nodes
    weights = [edge.weight for edge in refined.new_edges]
    assert weights == sorted(weights, reverse=True)


def test_demo_needs_no_files_and_no_target_is_a_source() -> None:
    assert not any(DATASETS[name].needs_data for name in DEMO.targets)
    for learner in PRETRAINED:
        assert not set(load_learner(learner).provenance["sources"]) & set(DEMO.targets)
    assert DEMO.refined_target in DEMO.targets
    assert DEMO.num_seeds == 3


def test_graph_facts_count_each_direction_once_and_skip_loops_and_unlabelled() -> None:
    edge_index = torch.tensor([[0, 0, 1, 2, 3, 0], [0, 1, 0, 1, 0, 1]])
    data = Data(y=torch.tensor([0, 0, 1, -1]), edge_index=edge_index, num_nodes=4)
    assert graph_facts(data) == GraphFacts(4, pytest.approx(2 / 3))
    assert graph_facts(data, undirected=True) == GraphFacts(6, pytest.approx(1 / 2))
    data.y[:] = -1
    assert graph_facts(data) == GraphFacts(4, None)


def test_summary_is_mean_and_sample_deviation() -> None:
    rows = [Row("a", "m", s, "", acc, 0.0, 2.0) for s, acc in enumerate((0.5, 0.7, None))]
    summary = summarise(rows)["a"]["m"]
    assert summary.runs == 3
    assert summary.mean == pytest.approx(0.6)
    assert summary.std == pytest.approx(0.1 * 2**0.5)
    assert summarise(rows[:1])["a"]["m"].std is None
