"""What a graph is like, against numbers that were counted by hand."""

import pytest
import torch
from torch_geometric.data import Data

import graphglow


def test_a_path_and_a_lonely_node():
    edges = torch.tensor([[0, 1, 2, 2, 1], [1, 2, 3, 2, 0]])  # a loop, and one in both directions
    data = Data(x=torch.rand(5, 2), y=torch.tensor([0, 0, 1, -1, 1]), edge_index=edges)
    data.class_names = ["cat", "dog"]
    assert graphglow.describe(data) == {
        "name": "graph",
        "nodes": 5,
        "edges": 3,
        "made_of_nearest_neighbours": False,
        "features": 2,
        "labelled": 4,
        "classes": {"cat": 2, "dog": 2},
        "mean_degree": 6 / 5,
        "median_degree": 1.0,
        "largest_degree": 2,
        "isolated": 1,
        "components": 2,
        "homophily": 0.5,
        "homophily_over_chance": pytest.approx(1 / 6),  # 2/3 - 1/2 of cats; dogs have none
    }


def test_names_and_graphs_without_anything():
    wine = graphglow.describe("wine")
    assert (wine["nodes"], wine["edges"]) == (178, 1199)
    assert wine["made_of_nearest_neighbours"]
    assert wine["homophily"] > wine["homophily_over_chance"] > 0.8
    alone = graphglow.load_graph(Data(x=torch.rand(30, 2), y=torch.arange(30) % 2))
    assert graphglow.describe(alone)["made_of_nearest_neighbours"]
    bare = graphglow.describe(Data(num_nodes=3, edge_index=torch.tensor([[0], [1]])))
    assert (bare["features"], bare["classes"], bare["homophily"]) == (0, {}, None)


@pytest.mark.filterwarnings("ignore:worse")
def test_every_count_is_of_each_edge_once():
    """Loops, repeated edges and both directions do not count, whoever counts."""
    data = graphglow.synthetic_graph(num_nodes=60, num_classes=3, homophily=0.8, seed=1)
    clean = graphglow.load_graph(data)
    loops = torch.arange(5).repeat(2, 1)
    clean.edge_index = torch.cat([clean.edge_index, clean.edge_index[:, :7], loops], 1)
    count = data.edge_index.shape[1] // 2
    assert graphglow.describe(clean)["edges"] == count
    assert f" of {count:,}." in repr(graphglow.audit(clean, missing=False))
    grown, same = (graphglow.refine(clean, edges=choice) for choice in ("augment", "prune"))
    assert grown.to_frame().in_input.sum() == count
    for made in (grown, same):
        assert len(made.to_frame()) == graphglow.describe(made)["edges"]
    result = graphglow.transfer(clean, epochs=1, hidden=8, device="cpu")
    kept = graphglow.describe(Data(edge_index=result.edges.edge_index, num_nodes=60))
    assert result.summary()["refined_edges_in_training"] == kept["edges"]


def test_chance_is_zero():
    data = graphglow.synthetic_graph(num_nodes=600, num_classes=3, homophily=1 / 3)
    assert graphglow.describe(data)["homophily_over_chance"] < 0.1
    data = graphglow.synthetic_graph(num_nodes=60, num_classes=3, homophily=1.0)
    assert graphglow.describe(data)["homophily_over_chance"] == pytest.approx(1.0)
