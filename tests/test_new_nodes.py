"""Nodes that come after training: what must stay, and what a copy of an old node must get."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from graphglow.errors import InputError
from graphglow.gnn import BACKBONES
from graphglow.graph import check_graph, training_graph
from graphglow.paper.algorithms import last_refinement
from graphglow.result import TransferResult
from graphglow.settings import TransferConfig
from graphglow.transfer import transfer
from tiny_graphs import computing_in_float64, learner, small_data, transfer_config

ABLE = sorted(name for name, kind in BACKBONES.items() if kind.inductive)
NONE = torch.empty(2, 0, dtype=torch.int64)


@pytest.fixture(scope="module")
def result():
    return transfer(small_data(), learner(), transfer_config(epochs=20, learning_rate=0.05))


def copy_of(result, nodes):
    """Features and edges of new nodes 40, 41, .. that copy old ones; edges to the old one's own."""
    data, edges = result.data, []
    for new, old in enumerate(nodes, start=40):
        joined = torch.cat(
            [
                data.edge_index[1][data.edge_index[0] == old],
                data.edge_index[0][data.edge_index[1] == old],
            ]
        ).unique()
        edges += [(new, int(v)) for v in joined if int(v) != old]
    return data.x[list(nodes)], torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T


@pytest.mark.parametrize("backbone", ABLE)
def test_no_new_node_changes_nothing(backbone):
    data = small_data(sparse_features=backbone == "gcn")
    made = transfer(data, learner(), transfer_config(epochs=2, backbone=backbone))
    found = made.predict_new(torch.empty(0, 8), NONE)
    assert torch.equal(found.result.logits, made.logits)
    assert found.predict_proba().shape == (0, 3)
    assert len(found.to_frame()) == 0


@pytest.mark.parametrize("backbone", ABLE)
def test_a_copy_gets_the_prediction_of_what_it_copies(backbone):
    with computing_in_float64():
        config = transfer_config(epochs=3, backbone=backbone, structure_momentum=0.6)
        made = transfer(small_data(num_nodes=40), learner(), config)
        for old in (3, 12, int(made.pivots[0])):
            logits = made.predict_new(*copy_of(made, [old])).result.logits
            torch.testing.assert_close(logits[40], logits[old])  # the same by symmetry
            torch.testing.assert_close(
                logits[40].softmax(0), made.predict_proba()[old], atol=0.06, rtol=0
            )


def test_it_is_an_evaluation_of_the_graph_with_the_new_nodes(result):
    """By hand: all nodes in one graph, the old weights, the old pivots."""
    data = result.data.clone()
    x, edges = copy_of(result, [3, 9])
    edges = torch.cat([edges, torch.tensor([[40], [41]])], dim=1)
    data.x, data.y = torch.cat([data.x, x]), torch.cat([data.y, torch.tensor([-1, -1])])
    data.edge_index = torch.cat([data.edge_index, edges], dim=1)
    for mask in ("train_mask", "val_mask", "test_mask"):
        data[mask] = torch.cat([data[mask], torch.zeros(2, dtype=torch.bool)])
    graph = training_graph(check_graph(data))
    final = last_refinement(result.gnn, result.learner, graph, result.pivots, result.config)
    found = result.predict_new(x, edges)
    assert torch.equal(found.predict_proba(), final.logits[40:].softmax(1))
    assert torch.equal(found.predict(), final.logits[40:].argmax(1))


def test_edges_and_weights_matter(result):
    x, edges = copy_of(result, [3])
    with_edges = result.predict_new(x, edges).predict_proba()
    alone = result.predict_new(x).predict_proba()
    assert not torch.allclose(with_edges, alone, atol=1e-4)
    ones = torch.ones(edges.shape[1])
    plain = result.predict_new(x, edges, edge_weight=ones).predict_proba()
    torch.testing.assert_close(plain, with_edges)
    none = result.predict_new(x, edges, edge_weight=0 * ones).predict_proba()
    torch.testing.assert_close(none, alone)
    both = torch.cat([edges, edges.flip(0)], dim=1)  # directions and duplicates are one edge
    torch.testing.assert_close(result.predict_new(x, both).predict_proba(), with_edges)


def test_features_are_scaled_as_in_training(result):
    x, edges = copy_of(result, [3])
    found = result.predict_new(x, edges).predict_proba()
    torch.testing.assert_close(result.predict_new(7 * x, edges).predict_proba(), found)


@pytest.mark.parametrize(
    "kind",
    [
        torch.Tensor.tolist,
        torch.Tensor.to_sparse,
        lambda x: sp.csr_array(x.numpy()),
        lambda x: pd.DataFrame(x.numpy()),
    ],
)
def test_any_array_will_do(result, kind):
    x, edges = copy_of(result, [3, 4])
    expected = result.predict_new(x, edges).predict_proba()
    assert torch.equal(result.predict_new(kind(x), edges.numpy()).predict_proba(), expected)


def test_weights_of_the_old_edges_stay():
    data = small_data()
    data.edge_weight = torch.linspace(0.1, 2, data.edge_index.shape[1])
    made = transfer(data, learner(), transfer_config(epochs=2))
    assert torch.equal(made.predict_new(torch.empty(0, 8), NONE).result.logits, made.logits)
    made.predict_new(data.x[:1], torch.tensor([[40], [3]]))  # one of weight 1 among them


def without_edges():
    data = small_data()
    data.edge_index = NONE
    return transfer(data, learner(), transfer_config(epochs=20, learning_rate=0.05))


def test_where_edges_were_nearest_neighbours_new_nodes_get_theirs(tmp_path):
    made = without_edges()
    x = made.data.x[:3]
    unit = torch.nn.functional.normalize(made.data.x, dim=1)
    nearest = (unit[:3] @ unit.T).topk(10).indices  # itself first
    edges = torch.stack([40 + torch.arange(3).repeat_interleave(10), nearest.flatten()])
    expected = made.predict_new(x, edges).predict_proba()
    torch.testing.assert_close(made.predict_new(x).predict_proba(), expected)
    made.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    torch.testing.assert_close(loaded.predict_new(x).predict_proba(), expected)
    assert made.predict_new(torch.empty(0, 8)).predict_proba().shape == (0, 3)
    alone = made.predict_new(x, NONE).predict_proba()
    assert not torch.allclose(alone, expected, atol=1e-4)


def test_tables_have_ids_and_class_names(tmp_path):
    data = small_data()
    data.class_names = ["red", "green", "blue"]
    made = transfer(data, learner(), transfer_config(epochs=2))
    found = made.predict_new(data.x[:2], node_id=["a", "b"])
    found.write(tmp_path / "p.csv")
    found.write(tmp_path / "p.parquet")
    frame = pd.read_csv(tmp_path / "p.csv")
    assert list(frame) == ["id", "predicted", "probability", "p_red", "p_green", "p_blue"]
    assert frame.id.tolist() == ["a", "b"]
    assert frame.predicted.tolist() == [data.class_names[c] for c in found.predict()]
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "p.parquet"), found.to_frame(), check_dtype=False
    )
    assert made.predict_new(data.x[:2]).to_frame().id.tolist() == [40, 41]


def test_a_weight_per_node_cannot_serve_new_ones():
    made = transfer(small_data(), learner(), transfer_config(epochs=1, backbone="linkx"))
    with pytest.raises(InputError, match="linkx has a weight for each node"):
        made.predict_new(made.data.x[:1])


X = torch.ones(2, 8)


@pytest.mark.parametrize(
    ("x", "edges", "more", "said"),
    [
        (torch.ones(2, 7), None, {}, r"the 8 columns of training; got shape \(2, 7\)"),
        (torch.full((2, 8), np.nan), None, {}, "x must be finite; got nan at node 40, column 0"),
        ([["a"] * 8], None, {}, "x must be an array of numbers; got"),
        (X, [[40], [42]], {}, r"must lie in \[0, 41\]; got 42"),
        (X, [[3], [4]], {}, "each edge must have a new end, 40 or above; got 3 - 4"),
        (X, [[40.0], [1.0]], {}, "must hold integers; got torch.float64"),
        (X, [[40, 1, 2]], {}, r"edges must have shape \[2, E\]; got \(1, 3\)"),
        (X, [[40], [1]], {"edge_weight": [1, 2]}, "edge_weight must have one value per edge"),
        (X, [[40], [1]], {"edge_weight": [-1.0]}, "finite and non-negative"),
        (X, None, {"edge_weight": [1.0]}, "must come with edges"),
        (X, None, {"node_id": ["a"]}, r"one id per new node \(2\); got 1"),
    ],
)
def test_bad_input_is_one_sentence(result, x, edges, more, said):
    with pytest.raises(InputError, match=said):
        result.predict_new(x, edges, **more)


@pytest.mark.parametrize("paper", [False, True])
def test_a_new_node_is_explained(paper):
    data = small_data()
    data.node_id, data.class_names = list(range(100, 140)), ["red", "green", "blue"]
    made = transfer(data, config=TransferConfig(epochs=4, hidden=8, device="cpu"))
    if paper:
        made = transfer(data, learner(), transfer_config(epochs=4))
    x, edges = copy_of(made, [3, 9])
    found = made.predict_new(x, edges)
    assert found.to_frame().id.tolist() == [140, 141]
    why = found.result.explain(140, top_k=100)
    assert why.facts["label"] is None
    assert why.facts["predicted"] == found.to_frame().predicted[0]
    assert why.probability == pytest.approx(float(found.predict_proba()[0].max()), abs=1e-5)
    details = [one.details for one in why.contributions if one.details]
    joined = {one["node"] for one in details if one["input_edge"]}
    assert set(edges[1][edges[0] == 40].tolist()) <= joined
    if not paper:
        pair = found.result.explain_pair(140, 103)
        assert sum(one.value for one in pair.contributions) == pytest.approx(pair.score, abs=1e-3)
    with pytest.raises(InputError, match="ids that no node has yet; got 103"):
        made.predict_new(x, edges, node_id=[103, 200])
