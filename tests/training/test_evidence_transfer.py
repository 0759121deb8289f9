"""A transfer under an evidence learner: what it reads, what it gives back, what it refuses."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from dying_runs import Dying, Killed, eager
from torch_geometric.data import Data

import graphglow
from command_line import ring_arrays
from graphglow.errors import InputError
from graphglow.gnn import BACKBONES
from graphglow.graphs import check_graph
from graphglow.graphs.graph import normalised_adjacency
from graphglow.inference.refined_graph import OperatorRows
from graphglow.pretrained import load_learner
from graphglow.storage import load_tensors, save_tensors
from graphglow.structure import FixedStructure
from graphglow.training import TransferConfig, TransferResult, evidence, transfer, transfer_many
from graphglow.training.evidence import EvidenceResult
from graphglow.training.transfer import StructureObserver
from tiny_graphs import learner, same_tensors, small_data, transfer_config

FEW, MANY = 40, 220
"""Nodes; a quarter of them validate."""


def config(**changes):
    return TransferConfig(**({"epochs": 6, "hidden": 8, "device": "cpu"} | changes))


def few(**changes):
    return small_data(num_nodes=FEW, noise=2.0, **changes)


def many():
    return small_data(num_nodes=MANY, noise=3.0)


@pytest.fixture(scope="module")
def result():
    return transfer(few(), config=config())


@pytest.fixture(scope="module")
def larger():
    return transfer(many(), config=config())


def assert_same(one, other):
    assert one.history == other.history
    assert [a.facts() for a in one.answers] == [a.facts() for a in other.answers]
    for mine, its in zip(one.answers, other.answers, strict=True):
        assert same_tensors(mine.gnn, its.gnn)
    assert_same_known(one.known, other.known)
    assert torch.equal(one.predict_proba(), other.predict_proba())


def assert_same_known(one, other):
    for name, value in vars(one).items():
        assert torch.equal(value, getattr(other, name)), name


# What it gives back


def test_the_default_is_the_universal_learner_frozen(result):
    assert isinstance(result, EvidenceResult)
    assert same_tensors(result.learner, load_learner("universal"))
    assert result.predict_proba().shape == (FEW, 3)
    torch.testing.assert_close(result.predict_proba().sum(1), torch.ones(FEW))
    facts = result.summary()
    assert (facts["method"], facts["backbone"], facts["seed"]) == ("evidence", "gcn", 0)
    assert json.loads(json.dumps(facts)) == facts
    assert "test_accuracy" in repr(result)


@pytest.mark.parametrize("nodes", [FEW, MANY])
def test_the_same_seed_gives_the_same_bytes_whatever_the_global_one(nodes):
    data = small_data(num_nodes=nodes, noise=2.0)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = transfer(data, config=config(seed=3))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert_same(one, transfer(data, config=config(seed=3)))
    other = transfer(data, config=config(seed=4))
    assert not torch.equal(one.predict_proba(), other.predict_proba())


def test_the_graph_and_the_learner_are_never_touched():
    data, theta = few(), load_learner("universal")
    before = copy.deepcopy(data.to_dict())
    transfer(data, theta, config())
    assert same_tensors(theta, load_learner("universal"))
    assert before.keys() == data.to_dict().keys()
    for name, value in data.to_dict().items():
        same = torch.equal(value, before[name]) if torch.is_tensor(value) else value == before[name]
        assert same, name


def test_the_control_differs(result):
    control = transfer(few(), "untrained", config())
    assert control.summary()["method"] == "untrained"
    assert not torch.equal(control.known.instant, result.known.instant)
    assert not torch.equal(control.predict_proba(), result.predict_proba())
    other = transfer(few(), "untrained", config(seed=1))
    assert not same_tensors(control.learner, other.learner)


# What it reads


@pytest.mark.parametrize("nodes", [FEW, MANY])
def test_labels_of_test_nodes_change_nothing(nodes):
    data = small_data(num_nodes=nodes, noise=2.0)
    one = transfer(data, config=config())
    changed = data.clone()
    changed.y[data.test_mask] = (data.y[data.test_mask] + 1) % 3
    assert_same(one, transfer(changed, config=config()))
    changed.y[data.test_mask] = -1
    changed.test_mask[:] = False
    assert_same(one, transfer(changed, config=config()))


@pytest.mark.parametrize("nodes", [FEW, MANY])
def test_labels_of_validation_nodes_choose_and_no_more(nodes):
    data = small_data(num_nodes=nodes, noise=2.0)
    changed = data.clone()
    changed.y[data.val_mask] = (data.y[data.val_mask] + 1) % 3
    one, other = (transfer(given, config=config()) for given in (data, changed))
    assert_same_known(one.known, other.known)


@pytest.mark.parametrize("absent", [True, False])
def test_without_validation_nodes_leave_one_out_chooses(absent, tmp_path):
    data = few()
    data.test_mask |= data.val_mask
    if absent:
        del data.val_mask
    else:
        data.val_mask = torch.zeros_like(data.test_mask)
    found = transfer(data, config=config())
    facts = found.summary()
    assert facts["chosen_by"] == "leave-one-out"
    assert facts["val_accuracy"] is None
    assert 0 <= facts["test_accuracy"] <= 1
    assert found.predict_proba().isfinite().all()
    found.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    assert torch.equal(loaded.predict_proba(), found.predict_proba())
    changed = data.clone()
    changed.y[data.test_mask] = (data.y[data.test_mask] + 1) % 3
    assert_same(found, transfer(changed, config=config()))


def test_who_needs_validation_nodes(tmp_path):
    arrays = ring_arrays() | {"train": np.arange(20), "test": np.arange(20, 40)}
    np.savez(tmp_path / "g.npz", **arrays, val=np.arange(0))
    data = graphglow.load_graph(tmp_path / "g.npz")
    assert not data.val_mask.any()
    assert transfer(data, config=config()).val_accuracy is None
    for train in (lambda: transfer(data, "paper"), lambda: graphglow.fit("gcn", data)):
        with pytest.raises(InputError, match="validation") as caught:
            train()
        assert "\n" not in str(caught.value)


def test_the_summary_says_how_much_each_answer_counts(larger):
    facts = larger.summary()
    assert facts["chosen_by"] == "validation"
    assert sum(facts["answers"].values()) == pytest.approx(1, abs=0.01)
    assert sum(facts["graph_weights"].values()) == pytest.approx(1, abs=0.01)
    assert 0 <= facts["input_weight"] <= 1


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("validated", [True, False])
def test_a_lambda_that_is_given_is_held(weight, validated):
    data = few()
    data.val_mask &= torch.tensor(validated)
    facts = transfer(data, config=config(input_weight=weight)).summary()
    assert facts["input_weight"] == pytest.approx(weight)
    assert facts["graph_weights"]["none"] == 0
    names = set(facts["answers"]) - {"closed form"}
    assert names
    assert all(name.endswith(" over given") for name in names)


def test_a_node_keeps_as_many_refined_edges_as_it_is_told(result):
    sparse = transfer(few(), config=config(top_k=2))
    assert 0 < sparse.edge_index.shape[1] < result.edge_index.shape[1]
    counts = torch.bincount(sparse.edge_index[0], minlength=FEW)
    assert sparse.edge_index.shape[1] <= 2 * 2 * FEW
    assert int(counts.max()) >= 1


def test_a_graph_without_edges_gets_some():
    data = few()
    plain = Data(**{name: data[name] for name in data.keys() if name != "edge_index"})  # noqa: SIM118
    found = transfer(plain, config=config())
    assert found.edge_index.shape[1] > 0
    assert not found.known.edge_in_input.any()
    assert found.test_accuracy is not None
    new = found.predict_new(plain.x[:3])
    assert new.predict_proba().isfinite().all()


def test_a_class_without_a_training_label_is_a_class(tmp_path):
    data = few()
    data.train_mask &= data.y != 2
    found = transfer(data, config=config())
    assert found.predict_proba().shape == (FEW, 3)
    assert found.predict_proba().isfinite().all()
    found.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    assert torch.equal(loaded.predict_proba(), found.predict_proba())
    assert found.predict_new(data.x[:2]).predict_proba().shape == (2, 3)


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
def test_every_backbone_runs(backbone):
    found = transfer(few(), config=config(backbone=backbone, epochs=2))
    assert found.summary()["backbone"] == backbone
    assert found.predict_proba().isfinite().all()
    if BACKBONES[backbone].inductive:
        assert found.predict_new(found.data.x[:1]).predict_proba().shape == (1, 3)
    else:
        with pytest.raises(InputError, match="without a weight for each node"):
            found.predict_new(found.data.x[:1])


# Files


@pytest.mark.parametrize("which", ["result", "larger"])
def test_a_saved_result_is_the_same_when_loaded(which, request, tmp_path):
    found = request.getfixturevalue(which)
    found.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    assert isinstance(loaded, EvidenceResult)
    assert_same(found, loaded)
    assert loaded.config == found.config
    assert loaded.summary() == found.summary()
    one, other = (r.refined_graph(5) for r in (found, loaded))
    assert torch.equal(one.edge_index, other.edge_index)
    assert torch.equal(one.edge_weight, other.edge_weight)
    assert loaded.explain(7) == found.explain(7)
    nodes = found.graph.num_nodes
    new = (found.data.x[:2] + 0.1, [[nodes, 1], [2, nodes + 1]])
    one, other = (r.predict_new(*new) for r in (found, loaded))
    assert torch.equal(one.predict_proba(), other.predict_proba())


def damaged(path, out, change):
    """The file with other tensors or facts, signed anew as if they were its own."""
    tensors, meta = load_tensors(path, "result")
    change(tensors, meta)
    save_tensors(out, "result", tensors, meta)


def set_tensor(name, change):
    def act(tensors, meta):
        tensors[name] = change(tensors[name]).contiguous()

    return act


DAMAGE = {
    "an edge to nowhere": set_tensor("refined.edge_index", lambda t: t + 1000),
    "predictions of fewer nodes": set_tensor("refined.instant", lambda t: t[1:]),
    "weights of another shape": set_tensor("learner.logit_scale", lambda t: t[1:]),
    "NaN": set_tensor("learner.logit_scale", lambda t: t * float("nan")),
    "no answers": lambda tensors, meta: meta.pop("answers"),
    "an answer without weights": lambda tensors, meta: meta["answers"].extend(meta["answers"]),
    "an answer that reads something else": lambda tensors, meta: meta["answers"][0].update(
        inputs="features" if meta["answers"][0]["inputs"] != "features" else "votes"
    ),
    "a foreign setting": lambda tensors, meta: meta["config"].update(speed=1),
    "another version": lambda tensors, meta: meta["learner"].update(evidence_version=99),
    "no instant predictions": lambda tensors, meta: tensors.pop("refined.instant"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_changed_file_is_refused_in_a_sentence(result, tmp_path, kind):
    result.save(tmp_path / "r.safetensors")
    damaged(tmp_path / "r.safetensors", tmp_path / "same.safetensors", lambda *_: None)
    assert_same(TransferResult.load(tmp_path / "same.safetensors"), result)
    damaged(tmp_path / "r.safetensors", tmp_path / "d.safetensors", DAMAGE[kind])
    with pytest.raises(InputError) as caught:
        TransferResult.load(tmp_path / "d.safetensors")
    assert "\n" not in str(caught.value)
    assert "d.safetensors" in str(caught.value)


def test_a_foreign_truncated_or_altered_file_is_refused_in_a_sentence(result, tmp_path):
    path = tmp_path / "r.safetensors"
    result.save(path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    load_learner("universal").save(tmp_path / "l.safetensors")
    learner_file = (tmp_path / "l.safetensors").read_bytes()
    for content in (whole[: len(whole) // 2], bytes(flipped), b"hello", b"", learner_file):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"r\.safetensors must be") as caught:
            TransferResult.load(path)
        assert "\n" not in str(caught.value)


# What is done with it


@pytest.mark.parametrize("edges", [None, "some"])
def test_new_nodes_are_predicted(result, edges):
    data = result.data
    x = data.x[:3]
    pairs = None if edges is None else [[FEW, FEW + 1, FEW + 2], [0, 1, 2]]
    found = result.predict_new(x, pairs)
    assert found.predict_proba().shape == (3, 3)
    torch.testing.assert_close(found.predict_proba().sum(1), torch.ones(3))
    again = result.predict_new(x, pairs)
    assert torch.equal(found.predict_proba(), again.predict_proba())
    with pytest.raises(InputError, match="the 8 columns of training"):
        result.predict_new(x[:, 1:], pairs)


def test_easy_new_nodes_get_the_classes_of_their_like():
    data = small_data(noise=0.1)
    found = transfer(data, config=config(epochs=30))
    picked = torch.stack([(data.y == c).nonzero()[0, 0] for c in range(3)])
    assert found.predict_new(data.x[picked]).predict().tolist() == [0, 1, 2]


EXPLAINABLE = sorted(name for name, kind in BACKBONES.items() if kind.explainable())


@pytest.mark.parametrize("backbone", EXPLAINABLE)
@pytest.mark.parametrize("weight", [None, 0.0, 0.3, 1.0])
def test_an_explanation_adds_up_to_the_score(backbone, weight):
    found = transfer(few(), config=config(backbone=backbone, epochs=3, input_weight=weight))
    logits = found.logits
    for node, label, against in ((0, None, None), (7, 1, 2)):
        why = found.explain(node, top_k=4, label=label, against=against)
        parts = sum(one.contribution for one in why.contributions)
        parts += why.others_input + why.others_latent + why.own + why.bias
        assert parts == pytest.approx(why.score, abs=1e-4)
        assert why.bias + why.own + why.input_total + why.latent_total == pytest.approx(
            why.score, abs=1e-4
        )
        if label is None:
            assert why.score == pytest.approx(float(logits[node].max()), abs=1e-5)


def test_without_any_graph_nobody_else_is_heard(monkeypatch):
    monkeypatch.setattr(evidence, "LINES", (("wide", "none"),))
    found = transfer(many(), config=config())
    why = found.explain(3)
    assert [one.node for one in why.contributions] == [3]
    total = why.bias + why.own + why.input_total + why.latent_total
    assert total == pytest.approx(why.score, abs=1e-4)
    graph = found.refined_graph(4)
    assert torch.equal(graph.edge_index[0], graph.edge_index[1])


@pytest.mark.parametrize("weight", [None, 0.3])
def test_the_refined_graph_is_the_operator_of_a_layer(weight):
    found = transfer(few(), config=config(input_weight=weight))
    graph = found.refined_graph(FEW)
    dense = torch.zeros(FEW, FEW)
    dense[graph.edge_index[1], graph.edge_index[0]] = graph.edge_weight
    shares = found.graph_weights
    refined = normalised_adjacency(found.edge_index, found.edge_weight, FEW).to_dense()
    expected = shares["input"] * found.graph.adj.to_dense() + shares["refined"] * refined
    expected += shares["none"] * torch.eye(FEW)
    torch.testing.assert_close(dense, expected / (1 - shares["instant"]), rtol=1e-4, atol=1e-6)


# Several runs, and runs that die


@pytest.mark.filterwarnings("ignore:worse")  # as a control is
@pytest.mark.parametrize("name", ["universal", "untrained"])
def test_several_runs_are_those_that_are_made_alone(name):
    configs = [config(seed=1), config(seed=2, backbone="appnp"), config(input_weight=0.5)]
    seen = []
    found = transfer_many(few(), name, configs, on_epoch=seen.append)
    for one, given in zip(found, configs, strict=True):
        assert_same(one, transfer(few(), name, given))
    assert {epoch.run for epoch in seen} == {0, 1, 2}
    both = transfer_many(few(), ["untrained", "universal"], configs[:2])
    for one, given, alone in zip(both, configs, ["untrained", "universal"], strict=False):
        assert_same(one, transfer(few(), alone, given))


def test_a_run_can_die_at_any_moment_and_ends_with_the_same_bits(tmp_path):
    data, given = many(), config(epochs=4)
    heard = []
    whole = transfer(data, config=given, on_epoch=heard.append)
    deaths, after = 0, 1
    while True:  # in the first graph's training, in the second's, .. and in that of other settings
        folder = tmp_path / str(after)
        try:
            transfer(data, config=given, checkpoints=Dying(folder, after))
            break
        except Killed:
            deaths += 1
        seen = []
        again = eager(folder)
        found = transfer(data, config=given, on_epoch=seen.append, checkpoints=again)
        assert again.resumed
        assert_same(found, whole)
        assert seen == heard  # those before the checkpoint too
        after += 3
    assert deaths >= 4


def test_a_run_can_die_again_and_again(tmp_path):
    data, given = many(), config(epochs=2)
    deaths = 0
    while True:
        try:
            found = transfer(data, config=given, checkpoints=Dying(tmp_path / "run", 1))
            break
        except Killed:
            deaths += 1
    assert deaths >= 4
    assert_same(found, transfer(data, config=given))


def test_checkpoints_of_another_run_are_refused(tmp_path):
    with pytest.raises(Killed):
        transfer(few(), config=config(), checkpoints=Dying(tmp_path, 1))
    for changes in ({"seed": 1}, {"hidden": 9}):
        with pytest.raises(InputError, match="checkpoints must be of the same run"):
            transfer(few(), config=config(**changes), checkpoints=eager(tmp_path))
    with pytest.raises(InputError, match="checkpoints must be of the same run"):
        transfer(few(), "untrained", config(), checkpoints=eager(tmp_path))
    with pytest.raises(InputError, match="checkpoints must be of the same run"):
        transfer(few(seed=1), config=config(), checkpoints=eager(tmp_path))


# Refusals


@pytest.mark.parametrize(
    ("theta", "given", "rule"),
    [
        ("universal", transfer_config(), "must be a TransferConfig under a learner that reads evi"),
        ("untrained", "fast", "must be a TransferConfig under a learner that reads evidence"),
        ("paper", TransferConfig(), "must be a PaperConfig under a learner of the paper's kind"),
    ],
)
def test_a_config_of_the_other_kind_is_refused(theta, given, rule):
    for run in (transfer, lambda data, one, two: transfer_many(data, one, [two])):
        with pytest.raises(InputError, match=rule) as caught:
            run(few(), theta, given)
        assert "\n" not in str(caught.value)


def test_an_observer_needs_the_paper_s_learner():
    observer = StructureObserver(1, lambda *_: None)
    with pytest.raises(InputError, match="an observer needs a learner of the paper's kind; got an"):
        transfer(few(), config=config(), observer=observer)


def test_both_kinds_in_one_batch_are_refused():
    with pytest.raises(InputError, match="the learners of a batch must be of one kind; got both"):
        transfer_many(few(), ["universal", learner()], [config(), config()])


def test_a_graph_without_training_labels_is_refused():
    data = few()
    data.train_mask[:] = False
    with pytest.raises(InputError, match="train"):
        transfer(data, config=config())


# A graph that is given


def given_structure(own, dtype=torch.float64):
    data = check_graph(few())
    matrix = normalised_adjacency(data.edge_index, None, FEW)
    matrix = replace(matrix, values=matrix.values.to(dtype))
    dense = (1 - own) * matrix.to_dense() + own * torch.eye(FEW, dtype=dtype)
    return FixedStructure(matrix, own), dense


@pytest.mark.parametrize("own", [0.0, 0.3, 1.0])
def test_messages_over_a_given_graph_are_a_dense_product(own):
    structure, dense = given_structure(own)
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(FEW, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    up = torch.randn(FEW, 5, dtype=torch.float64, generator=generator)
    found, expected = structure.propagate(v), dense @ v
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(out, v, up)[0] for out in (found, expected)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("own", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_rows_of_the_operator_are_those_of_the_dense_one(own, share):
    structure, dense = given_structure(own)
    adj = given_structure(0.0)[0].matrix
    operator = OperatorRows(adj, structure, share)
    for rows in (slice(0, FEW), slice(3, 4), slice(10, 25)):
        given, learned = operator.parts(rows)
        torch.testing.assert_close(given, share * adj.to_dense()[rows])
        torch.testing.assert_close(learned, (1 - share) * dense[rows])


# The doors above it


def test_the_classifier_takes_it_by_default():
    data = few()
    clf = graphglow.GlowClassifier(config=config(), graph=data)
    nodes = torch.arange(30).numpy()
    clf.fit(nodes, data.y[:30].numpy())
    assert isinstance(clf.result_, EvidenceResult)
    assert clf.predict_proba().shape == (FEW, 3)
    own = graphglow.GlowClassifier(config=config()).fit(data)
    expected = transfer(data, config=config()).predict_proba()
    assert (own.predict_proba() == expected.numpy()).all()
    assert 0 <= own.score() <= 1
    with pytest.raises(InputError, match="config must be a TransferConfig under"):
        graphglow.GlowClassifier(config=transfer_config()).fit(data)


@pytest.mark.parametrize("mode", ["replace", "augment"])
@pytest.mark.parametrize("labelled", [True, False])
def test_the_transform_takes_it_by_default(mode, labelled):
    data = few()
    if not labelled:
        data = Data(x=data.x, edge_index=data.edge_index)
    refined = graphglow.RefineStructure(mode=mode, top_k=4)(data)
    assert refined.edge_weight.shape == (refined.num_edges,)
    assert (refined.edge_weight > 0).all()
    kept = data.num_edges if mode == "augment" else 0
    assert torch.equal(refined.edge_index[:, :kept], data.edge_index[:, :kept])
    learned = refined.edge_index[:, kept:]
    assert (learned[0] != learned[1]).all()
    found = {tuple(pair) for pair in learned.T.tolist()}
    assert len(found) == learned.shape[1]
    assert found == {(v, u) for u, v in found}
    if mode == "augment":
        given = {tuple(pair) for pair in data.edge_index.T.tolist()}
        assert not found & (given | {(v, u) for u, v in given})
    assert float(refined.edge_weight[kept:].mean()) > 0
    assert torch.equal(refined.x, data.x)


def test_the_transform_has_the_edges_of_refine():
    data = few()
    found = graphglow.refine(data)
    assert torch.equal(graphglow.RefineStructure()(data).edge_index, found.edge_index)
    more = graphglow.RefineStructure(mode="augment")(data).edge_index[:, data.num_edges :]
    assert torch.equal(more, found.edge_index[:, ~found.edge_in_input])


def test_the_transform_reads_training_labels_only():
    data = few()
    changed = data.clone()
    changed.y[~data.train_mask] = (data.y[~data.train_mask] + 1) % 3
    transform = graphglow.RefineStructure()
    assert torch.equal(transform(data).edge_index, transform(changed).edge_index)
    other = data.clone()
    other.y = (other.y * 2 + torch.arange(FEW)) % 3
    unsupervised = graphglow.RefineStructure(use_labels=False)
    assert torch.equal(unsupervised(data).edge_index, unsupervised(other).edge_index)


def test_a_class_that_only_a_test_node_has_changes_nothing() -> None:
    plain = small_data()
    plain.pop("class_names", None)
    odd = plain.clone()
    odd.y = odd.y.clone()
    odd.y[int(odd.test_mask.nonzero()[0])] = 7
    one, other = (transfer(data, config=config()).predict_proba() for data in (plain, odd))
    assert torch.equal(one, other)


def test_a_graph_without_features_is_learned_by_where_its_nodes_are() -> None:
    data = small_data()
    bare = Data(edge_index=data.edge_index, y=data.y, num_nodes=data.num_nodes)
    for name in ("train_mask", "val_mask", "test_mask"):
        bare[name] = data[name]
    with pytest.warns(graphglow.InputWarning, match="the graph has no features: its nodes are"):
        result = transfer(bare, config=config())
    assert result.predict_proba().shape == (data.num_nodes, 3)


def test_new_nodes_beside_a_class_that_only_a_test_node_has() -> None:
    data = small_data()
    data.pop("class_names", None)
    data.y = data.y.clone()
    data.y[int(data.test_mask.nonzero()[0])] = 7
    found = transfer(data, config=config()).predict_new(data.x[:2], [[data.num_nodes], [0]])
    assert found.predict_proba().shape == (2, 3)
