import re

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graph import load_graph, write_graph
from graphglow.graph.write import WRITERS, prediction_frame, to_networkx, write_predictions


@pytest.fixture
def graph(small_graph) -> Data:
    """A refined graph: weights, own ids, class names, a split."""
    data = load_graph(small_graph)
    size = data.edge_index.shape[1] // 2
    weight = torch.rand(size, generator=torch.Generator().manual_seed(1)) + 0.1
    data.edge_weight = weight.repeat(2)
    data.edge_input_weight = torch.ones(2 * size)
    data.edge_latent_weight = data.edge_weight - 0.1
    data.node_id = [f"n{i}" for i in range(12)]
    data.class_names = ["good", "bad"]
    return data


def pairs(data: Data, name: str = "edge_weight") -> dict[tuple[int, int], float]:
    ends = map(tuple, data.edge_index.T.tolist())
    return dict(zip(ends, data[name].tolist(), strict=True))


@pytest.mark.parametrize("suffix", [".pt", ".npz", ".graphml"])
def test_a_whole_graph_comes_back(suffix, graph, tmp_path):
    write_graph(graph, tmp_path / f"g{suffix}")
    back = load_graph(tmp_path / f"g{suffix}", split_seed=9)
    names = ["x", "train_mask", "val_mask", "test_mask"]
    if suffix == ".graphml":  # the names are sorted, and so the classes are numbered anew
        assert back.class_names == ["bad", "good"]
        assert torch.equal(back.y, torch.where(graph.y < 0, -1, 1 - graph.y))
    else:
        names += ["y", "edge_index", "edge_weight", "edge_input_weight", "edge_latent_weight"]
        assert back.class_names == graph.class_names
    assert all(torch.equal(back[name], graph[name]) for name in names)
    assert back.node_id == graph.node_id
    for name in ("edge_weight", "edge_input_weight", "edge_latent_weight"):
        assert pairs(back, name) == pytest.approx(pairs(graph, name))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV"])
def test_tables_hold_the_users_own_ids(suffix, graph, tmp_path):
    write_graph(graph, tmp_path / f"g{suffix}")
    read = pd.read_parquet if suffix == ".parquet" else pd.read_csv
    frame = read(tmp_path / f"g{suffix}")
    assert list(frame) == ["source", "target", "weight", "input_weight", "latent_weight"]
    assert frame.source[0] == "n0"
    np.testing.assert_allclose(frame.weight, graph.edge_weight, rtol=1e-6)


def test_a_written_edge_table_reads_as_the_edges_of_a_folder(graph, tmp_path):
    write_graph(graph, tmp_path / "edges.csv")
    rows = [f"n{i},{c if c >= 0 else ''},{i}" for i, c in enumerate(graph.y.tolist())]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,f", *rows]))
    back = load_graph(tmp_path)
    assert torch.equal(back.edge_index, graph.edge_index)
    torch.testing.assert_close(back.edge_weight, graph.edge_weight)


def test_integer_ids_stay_integers(graph, tmp_path):
    graph.node_id = list(range(100, 112))
    write_graph(graph, tmp_path / "g.csv")
    assert pd.read_csv(tmp_path / "g.csv").source[0] == 100
    write_graph(graph, tmp_path / "g.npz")
    assert load_graph(tmp_path / "g.npz").node_id == graph.node_id


@pytest.mark.parametrize("suffix", sorted(WRITERS))
def test_edges_alone_can_be_written(suffix, tmp_path):
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=4)
    write_graph(data, tmp_path / f"g{suffix}")
    assert (tmp_path / f"g{suffix}").stat().st_size > 0


@pytest.mark.parametrize("name", ["g.txt", "g"])
def test_unknown_suffix(name, graph, tmp_path):
    known = re.escape("one of .pt, .npz, .csv, .parquet, .graphml; got")
    with pytest.raises(InputError, match=known):
        write_graph(graph, tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bad", [Data(), None, Data(edge_index=[[0], [1]])])
def test_what_is_no_graph(bad, tmp_path):
    with pytest.raises(InputError, match="must be a Data with edge_index; got"):
        write_graph(bad, tmp_path / "g.pt")


# NetworkX


def test_networkx_holds_everything_and_loads_back(graph):
    made = to_networkx(graph)
    assert not made.is_directed()
    assert made.nodes["n0"]["y"] == "good"
    assert made.nodes["n0"]["x"] == graph.x[0].tolist()
    assert "y" not in made.nodes["n11"]
    first = made.edges["n0", "n1"]
    assert first == pytest.approx(
        {
            "weight": float(graph.edge_weight[0]),
            "input_weight": 1.0,
            "latent_weight": float(graph.edge_latent_weight[0]),
        }
    )
    back = load_graph(made)
    assert pairs(back) == pairs(graph)
    assert back.node_id == graph.node_id
    assert all(torch.equal(back[n], graph[n]) for n in ("x", "train_mask", "val_mask", "test_mask"))


@pytest.mark.parametrize("name", ["edge_weight", "edge_input_weight", "edge_latent_weight"])
def test_networkx_is_directed_where_any_number_is(graph, name):
    graph[name] = graph[name].clone()
    graph[name][0] += 1.0
    made = to_networkx(graph)
    assert made.is_directed()
    assert made.number_of_edges() == 24
    back = load_graph(made)
    assert back.is_undirected()  # as it counts
    assert {*map(tuple, back.edge_index.T.tolist())} == {*map(tuple, graph.edge_index.T.tolist())}


def test_of_duplicates_the_largest_weight_holds_with_its_parts():
    ends = torch.tensor([[0, 0, 1, 0], [1, 1, 1, 1]])
    data = Data(edge_index=ends, edge_weight=torch.tensor([1.0, 3.0, 2.0, 2.0]), num_nodes=2)
    data.edge_input_weight = torch.tensor([1.0, 0.5, 0.0, 2.0])
    made = to_networkx(data)
    assert dict(made.edges[0, 1]) == {"weight": 3.0, "input_weight": 0.5}
    assert made.number_of_edges() == 2


@pytest.mark.parametrize("ids", [torch.arange(12), ["a", 1, *range(2, 12)], np.arange(12)])
def test_ids_of_any_kind_are_written(graph, ids, tmp_path):
    graph.node_id = ids
    for suffix in (".csv", ".parquet", ".graphml"):
        write_graph(graph, tmp_path / f"g{suffix}")
    assert str(pd.read_csv(tmp_path / "g.csv").target[0]) == "1"


# Predictions

PROBABILITIES = torch.tensor([[0.25, 0.75], [0.875, 0.125]]).repeat(6, 1)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_have_ids_names_labels_and_split(suffix, graph, tmp_path):
    write_predictions(graph, PROBABILITIES, tmp_path / f"p{suffix}")
    read = pd.read_parquet if suffix == ".parquet" else pd.read_csv
    frame = read(tmp_path / f"p{suffix}")
    assert list(frame) == [
        *["id", "predicted", "probability", "p_good", "p_bad", "label", "split"],
    ]
    assert frame.id.tolist() == graph.node_id
    assert frame.predicted.tolist() == ["bad", "good"] * 6
    assert frame.probability.tolist() == [0.75, 0.875] * 6
    assert frame.p_good.tolist() == [0.25, 0.875] * 6
    assert frame.label[:11].tolist() == (["good", "bad"] * 6)[:11]
    assert pd.isna(frame.label[11])
    for name in ("train", "val", "test"):
        assert (frame.split == name).tolist() == graph[f"{name}_mask"].tolist()


def test_numbers_stand_in_for_names(graph, tmp_path):
    del graph.node_id, graph.class_names
    frame = prediction_frame(graph, PROBABILITIES)
    assert frame.id.tolist() == list(range(12))
    assert frame.predicted.tolist() == [1, 0] * 6
    write_predictions(graph, PROBABILITIES, tmp_path / "p.csv")
    rows = (tmp_path / "p.csv").read_text().splitlines()
    assert rows[1].split(",")[5] == "0"
    assert rows[12].split(",")[5] == ""


def test_predictions_need_a_table(graph, tmp_path):
    with pytest.raises(InputError, match=r"a predictions file must be \.csv or \.parquet; got"):
        write_predictions(graph, PROBABILITIES, tmp_path / "p.txt")
