"""What a transfer gives back, and that it survives the disk."""

import json

import pytest
import torch

from graphglow.errors import InputError
from graphglow.result import TransferResult
from graphglow.storage import CHECKSUM, load_tensors, save_tensors
from graphglow.transfer import transfer
from tiny_graphs import WIDTH, learner, small_data, transfer_config


@pytest.fixture(scope="module")
def result():
    config = transfer_config(structure_momentum=0.6, input_weight=0.4, dropout=0.3)
    return transfer(small_data(), learner(), config)


@pytest.fixture
def saved(result, tmp_path):
    path = tmp_path / "result.safetensors"
    result.save(path)
    return path


def refusal(path):
    with pytest.raises(InputError) as caught:
        TransferResult.load(path)
    assert str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def parts(path):
    """The tensors and facts of a file."""
    tensors, meta = load_tensors(path, "result")
    return tensors, {name: meta[name] for name in meta if name not in ("kind", "version", CHECKSUM)}


def write(path, tensors, meta):
    save_tensors(path, "result", tensors, meta)
    return path


def assert_same(one, other):
    assert torch.equal(one.predict_proba(), other.predict_proba())
    assert one.history == other.history
    assert one.val_accuracy == other.val_accuracy
    assert one.test_accuracy == other.test_accuracy
    a, b = one.refined_graph(top_k=7), other.refined_graph(top_k=7)
    for name in ("edge_index", "edge_weight", "edge_input_weight", "edge_latent_weight", "x", "y"):
        assert torch.equal(a[name], b[name])
    facts, other_facts = one.summary(), other.summary()
    assert facts == other_facts


def test_probabilities_predictions_and_accuracies_agree(result):
    proba = result.predict_proba()
    assert proba.shape == (40, 3)
    torch.testing.assert_close(proba.sum(1), torch.ones(40))
    assert torch.equal(result.predict(), proba.argmax(1))
    data = result.data
    right = result.predict() == data.y
    assert result.val_accuracy == pytest.approx(float(right[data.val_mask].float().mean()))
    assert result.test_accuracy == pytest.approx(float(right[data.test_mask].float().mean()))
    assert result.epochs == len(result.history) == 5
    assert 0 < result.train_seconds <= result.seconds
    assert result.peak_memory_bytes > 10**6


def test_the_summary_has_what_the_command_line_promises(result):
    promised = (
        "target method backbone test_accuracy val_accuracy epochs train_seconds total_seconds "
        "peak_memory_bytes device seed"
    )
    summary = result.summary()
    assert set(promised.split()) <= set(summary)
    assert json.loads(json.dumps(summary)) == summary
    assert summary["target"] == "small-0"
    assert summary["method"] == "random-theta"


def test_a_trained_learner_is_called_graphglow():
    theta = learner()
    theta.provenance = {"trained": True}
    assert transfer(small_data(), theta, transfer_config(epochs=1)).method == "graphglow"


def test_loading_gives_the_same_predictions_and_the_same_refined_graph(result, saved):
    loaded = TransferResult.load(saved)
    assert_same(loaded, result)
    assert loaded.learner.provenance == result.learner.provenance
    again = saved.parent / "again.safetensors"
    loaded.save(again)
    assert_same(TransferResult.load(again), result)


def test_weights_ids_and_names_of_the_graph_come_along(tmp_path):
    data = small_data()
    data.edge_weight = torch.rand(
        data.edge_index.shape[1], generator=torch.Generator().manual_seed(0)
    )
    data.node_id = [f"node {i}" for i in range(40)]
    data.class_names = ["a", "b", "c"]
    data.y[3] = -1
    data.test_mask = torch.zeros_like(data.test_mask)
    made = transfer(data, learner(), transfer_config())
    made.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    assert_same(loaded, made)
    assert loaded.test_accuracy is None
    assert loaded.data.node_id == data.node_id
    assert loaded.data.class_names == data.class_names
    assert loaded.refined_graph().node_id == data.node_id
    plain = transfer(small_data(), learner(), transfer_config())
    assert not torch.equal(plain.predict_proba(), made.predict_proba())


def dense(graph, weight):
    out = torch.zeros(40, 40)
    out[graph.edge_index[1], graph.edge_index[0]] = weight
    return out


def test_the_refined_graph_keeps_the_strongest_edges_and_the_nodes(result):
    refined = result.refined_graph(top_k=4)
    assert refined.has_self_loops()
    assert not result.refined_graph(top_k=4, self_loops=False).has_self_loops()
    whole = dense(result.refined_graph(top_k=40), result.refined_graph(top_k=40).edge_weight)
    counts = torch.bincount(refined.edge_index[1], minlength=40)
    assert counts.max() == 4
    strongest = whole.topk(4, dim=1)[0]
    torch.testing.assert_close(refined.edge_weight.sum(), strongest.sum())
    assert torch.equal(refined.edge_weight, refined.edge_input_weight + refined.edge_latent_weight)
    for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(refined[name], result.data[name])
    assert refined.validate()


@pytest.mark.parametrize("top_k", [0, 2.5, None])
def test_the_refined_graph_needs_at_least_one_edge_per_node(result, top_k):
    with pytest.raises(InputError, match="top_k must"):
        result.refined_graph(top_k=top_k)


def test_a_result_without_any_one_tensor_is_refused(saved, tmp_path):
    tensors, meta = parts(saved)
    optional = {"graph.test_mask"}
    for name in tensors.keys() - optional:
        rest = {k: t for k, t in tensors.items() if k != name}
        if name in ("graph.edge_index", "graph.train_mask", "graph.val_mask"):
            continue  # a graph may come without: the checks complete it
        refusal(write(tmp_path / "r.safetensors", rest, meta))


@pytest.mark.parametrize("part", ["config", "learner", "run", "graph"])
def test_a_result_without_a_part_of_its_facts_is_refused(saved, tmp_path, part):
    tensors, meta = parts(saved)
    rest = {k: v for k, v in meta.items() if k != part}
    refusal(write(tmp_path / "r.safetensors", tensors, rest))
    refusal(write(tmp_path / "r.safetensors", tensors, meta | {part: [1]}))


BAD_TENSORS = {
    "pivot out of range": {"pivots": torch.tensor([0, 40])},
    "wrong weight shape": {"gnn.weights.0": torch.zeros(3, 3)},
    "NaN in the GNN": {"gnn.weights.1": torch.full((WIDTH, 3), float("nan"))},
    "edge out of range": {"graph.edge_index": torch.tensor([[0], [40]])},
    "labels cut short": {"graph.y": torch.zeros(3, dtype=torch.int64)},
    "a tensor that nobody knows": {"graph.colour": torch.zeros(3), "gnn.extra": torch.zeros(1)},
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_damaged_tensors_are_refused(saved, tmp_path, case):
    tensors, meta = parts(saved)
    refusal(write(tmp_path / "r.safetensors", tensors | BAD_TENSORS[case], meta))


def test_a_result_made_on_a_gpu_is_loaded_onto_the_cpu(saved, tmp_path):
    tensors, meta = parts(saved)
    meta["config"]["device"] = "cuda"
    loaded = TransferResult.load(write(tmp_path / "r.safetensors", tensors, meta))
    assert loaded.pivots.device.type == "cpu"


def test_lists_as_long_as_there_are_edges_stay_with_the_nodes():
    """PyG takes any list of that length for an attribute of edges."""
    data = small_data()
    ring = torch.arange(40)
    data.edge_index = torch.stack([ring, (ring + 1) % 40])
    data.node_id = [f"node {i}" for i in range(40)]
    data.some_edge_attr = torch.rand(40, generator=torch.Generator().manual_seed(0))
    refined = transfer(data, learner(), transfer_config(epochs=1)).refined_graph(top_k=3)
    assert refined.node_id == data.node_id
    assert refined.y is not None
    assert "some_edge_attr" not in refined
