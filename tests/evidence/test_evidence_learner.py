"""The learner: files, refinement of awkward graphs, explanations, and what it may not read."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch_geometric.data import Data

import graphglow
from graphglow.errors import InputError
from graphglow.evidence import (
    EvidenceLearner,
    pretrain_evidence,
    random_graph,
)
from graphglow.evidence.pretraining import ALL_SOURCES, Batch, pretrain_folds
from graphglow.settings import EvidencePretrainConfig
from graphglow.storage import load_tensors, save_tensors

SHIPPED = Path(graphglow.__file__).parent / "pretrained" / "universal.safetensors"
TINY = EvidencePretrainConfig(
    first_episodes=4, vote_episodes=4, second_episodes=4, predict_episodes=4,
    max_nodes=300, pairs=512, nodes=64,
    steps=30,
)  # fmt: skip


@pytest.fixture(scope="module")
def learner():
    g = torch.Generator().manual_seed(0)
    return pretrain_evidence([random_graph(g, 400)], TINY)


def graph(nodes=60, classes=3, labels=20, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % classes
    same = torch.randint(nodes // classes, (2, 3 * nodes), generator=g) * classes
    return Data(
        x=torch.randn(nodes, 10, generator=g) + 2 * torch.eye(classes, 10)[y],
        y=y,
        train_mask=torch.arange(nodes) < labels,
        edge_index=same + torch.arange(3 * nodes) % classes,
    )


def without(name):
    data = graph()
    num_nodes = data.num_nodes
    data = Data(**{k: v for k, v in data.to_dict().items() if k != name})
    data.num_nodes = num_nodes
    return data


def changed(**values):
    data = graph()
    for name, value in values.items():
        data[name] = value
    return data


def words():
    g = torch.Generator().manual_seed(0)
    index = torch.stack([torch.arange(600) % 60, torch.randint(12_000, (600,), generator=g)])
    return torch.sparse_coo_tensor(
        index, torch.ones(600), (60, 12_000), check_invariants=True
    ).coalesce()


def imbalanced():
    y = torch.zeros(60, dtype=torch.int64)
    y[[3, 40, 50]] = 1
    return y


AWKWARD = {
    "as it is": graph(),
    "no labels": without("y"),
    "an empty mask": changed(train_mask=torch.zeros(60, dtype=torch.bool)),
    "one label per class": graph(labels=3),
    "a class without a label": changed(y=torch.arange(60) % 3 * 2),
    "labels of one class only": changed(train_mask=torch.arange(60) == 0),
    "no features": without("x"),
    "identity features": changed(x=torch.eye(60)),
    "constant features": changed(x=torch.ones(60, 4)),
    "zero features": changed(x=torch.zeros(60, 4)),
    "12,000 sparse features": changed(x=words()),
    "no edges": changed(edge_index=torch.empty(2, 0, dtype=torch.int64)),
    "edges absent": without("edge_index"),
    "isolated nodes": changed(edge_index=torch.tensor([[0, 1], [1, 2]])),
    "self-loops and duplicates": changed(edge_index=torch.tensor([[0, 1, 1, 0], [0, 2, 2, 3]])),
    "heavy imbalance": changed(y=imbalanced()),
    "weighted edges": changed(edge_weight=torch.linspace(0, 5, 180)),
    "labels everywhere": changed(train_mask=torch.ones(60, dtype=torch.bool)),
    "two nodes": Data(x=torch.eye(2), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0], [1]])),
    "one node": Data(x=torch.ones(1, 1), num_nodes=1),
    "nothing at all": Data(num_nodes=5),
}


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("trained", [True, False])
def test_awkward_graphs_are_refined(name, trained, learner):
    data = AWKWARD[name]
    refined = (learner if trained else EvidenceLearner.untrained(1)).refine(data)
    edges = refined.edge_index.shape[1]
    for values in (refined.edge_weight, refined.edge_probability, refined.edge_in_input):
        assert values.shape == (edges,)
    assert ((refined.edge_probability >= 0) & (refined.edge_probability <= 1)).all()
    assert (refined.edge_weight > 0).all()
    assert refined.pair_log_odds.isfinite().all()
    assert torch.equal(
        refined.edge_index[:, : edges // 2], refined.edge_index[:, edges // 2 :].flip(0)
    )
    p = refined.probabilities
    if name in ("no labels", "an empty mask", "one node", "nothing at all"):
        assert p is None
    else:
        torch.testing.assert_close(p.sum(1), torch.ones(len(p)))
    if name == "a class without a label":
        assert p.shape[1] == 5
        assert not p[:, 1].any()
    adjacency = refined.adjacency()
    assert adjacency.shape == (data.num_nodes, data.num_nodes)


def test_labels_outside_the_training_mask_are_never_read(learner):
    data, other = graph(), graph()
    hidden = ~data.train_mask
    other.y[hidden] = other.y[hidden].flip(0)
    other.y[-1] = 7
    other.y[-2] = -1
    a, b = learner.refine(data), learner.refine(other)
    for name in ("edge_index", "edge_weight", "edge_probability", "probabilities", "pair_log_odds"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert torch.equal(a.known.context, b.known.context)


def test_pretraining_is_deterministic_and_leaves_the_learner_frozen(learner):
    again = pretrain_evidence([random_graph(torch.Generator().manual_seed(0), 400)], TINY)
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    assert not any(p.requires_grad for p in learner.parameters())
    assert learner.provenance["sources"] == ["random"]


def test_a_fold_is_never_seen_by_its_learner():
    """Only the first scorer: episodes of other folds reach later networks by other learners."""
    first, second, other = (random_graph(torch.Generator().manual_seed(s), 150) for s in range(3))
    few = replace(TINY, vote_episodes=1, second_episodes=1, predict_episodes=1, steps=5)
    learners = [pretrain_folds([source, second], [0, 1], few) for source in (first, other)]
    same = [
        torch.equal(learners[0][fold].first.out, learners[1][fold].first.out)
        for fold in (0, 1, ALL_SOURCES)
    ]
    assert same == [True, False, False]
    assert learners[0][1].provenance["sources"] == ["random"]
    assert learners[0][ALL_SOURCES].provenance["sources"] == ["random", "random"]


def test_batches_of_pairs_and_nodes_have_the_loss_of_all_their_rows():
    g = torch.Generator().manual_seed(0)
    evidence, same = torch.randn(40, 3, generator=g), (torch.arange(40) % 2).float()
    pairs = Batch(0, evidence, torch.zeros(2), torch.tensor(-0.5), same)
    loss = pairs.loss(lambda f, c: f[:, 0], g)
    wanted = F.binary_cross_entropy_with_logits(evidence[:, 0] - 0.5, same)
    torch.testing.assert_close(loss, wanted, atol=0.05, rtol=0)
    odds, prior = torch.randn(40, 3, 2, generator=g), torch.tensor([0.6, 0.3, 0.1]).log()
    nodes = Batch(0, odds, torch.zeros(40, 2, 1), prior, torch.arange(40) % 3)
    loss = torch.stack([nodes.loss(lambda odds, trust: odds[..., 1], g) for _ in range(50)]).mean()
    wanted = F.cross_entropy(odds[..., 1] + prior, torch.arange(40) % 3)
    torch.testing.assert_close(loss, wanted, atol=0.05, rtol=0)


def test_a_learner_is_saved_and_loaded(learner, tmp_path):
    learner.save(tmp_path / "l.safetensors")
    loaded = EvidenceLearner.load(tmp_path / "l.safetensors")
    assert loaded.provenance == learner.provenance
    assert torch.equal(loaded.refine(graph()).edge_weight, learner.refine(graph()).edge_weight)


def test_files_of_other_versions_and_weights_are_refused(learner, tmp_path):
    path = tmp_path / "l.safetensors"
    learner.save(path)
    tensors, meta = load_tensors(path, "evidence learner")
    facts = {k: v for k, v in meta.items() if k not in ("kind", "version")}
    save_tensors(path, "evidence learner", tensors, {**facts, "evidence_version": 99})
    with pytest.raises(InputError, match="evidence version 3; got version 99"):
        EvidenceLearner.load(path)
    for value, refusal in ((torch.nan, "finite weights"), (None, "weights of shape")):
        tensors.pop("first.out")
        if value is not None:
            tensors["first.out"] = torch.full((64,), value)
        save_tensors(path, "evidence learner", tensors, facts)
        with pytest.raises(InputError, match=refusal):
            EvidenceLearner.load(path)


def test_the_control_has_the_scale_of_the_trained_one():
    control = EvidenceLearner.untrained(0)
    evidence = torch.randn(500, control.first.evidence.shape[0])
    scores = control.pair_scores(0, evidence, torch.zeros(control.first.context.shape[0]))
    slope, intercept = control.scale(0, scores)
    scores = slope * scores + intercept
    expected = control.logit_scale[0]
    torch.testing.assert_close(torch.stack([scores.mean(), scores.std()]), expected)


def test_bad_sources_get_a_sentence():
    with pytest.raises(InputError, match="at least two classes"):
        pretrain_evidence([changed(y=torch.zeros(60, dtype=torch.int64))], TINY)
    with pytest.raises(InputError, match="one value per source"):
        pretrain_evidence([graph()], TINY, weights=[1.0, 2.0])
    with pytest.raises(InputError, match="steps must be"):
        EvidencePretrainConfig(steps=0)


def test_the_shipped_learner_finds_the_classes_of_a_plain_graph():
    data = graph(nodes=150, labels=15)
    refined = EvidenceLearner.load(SHIPPED).refine(data)
    hidden = ~data.train_mask
    right = refined.probabilities.argmax(1) == data.y
    assert right[hidden].float().mean() > 0.9
    y = data.y[refined.edge_index]
    assert (y[0] == y[1]).float().mean() > 0.8
