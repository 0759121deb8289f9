"""Episodes, training and files of the auditor."""

from dataclasses import replace

import pytest
import torch
from small_audits import homophilous, quick_auditor
from torch_geometric.data import Data

import graphglow
from graphglow.audit import load_auditor
from graphglow.auditing import Auditor
from graphglow.auditing.auditor import PLACES, ShareHead
from graphglow.auditing.episodes import KINDS, attack, damaged, draw_damaged
from graphglow.auditing.pretraining import (
    episode_evidence,
    fit_auditor,
    fit_share,
    pretrain_auditor,
)
from graphglow.errors import InputError
from graphglow.evidence import EvidenceLearner
from graphglow.settings import AuditPretrainConfig


@pytest.mark.parametrize("kind", KINDS)
def test_false_edges_are_new_and_as_many_as_asked_for(kind):
    data = homophilous()
    generator = torch.Generator().manual_seed(0)
    made = damaged(data, generator, kinds=[kind], false_share=0.25, hidden_share=0.2)
    assert float(1 - made.real.float().mean()) == pytest.approx(0.25, abs=0.05)
    key = made.data.edge_index[0] * 120 + made.data.edge_index[1]
    assert len(torch.unique(key)) == len(key)
    low, high = data.edge_index.amin(0), data.edge_index.amax(0)
    original = torch.unique(low * 120 + high)
    assert bool((torch.isin(key, original) == made.real).all())
    hidden = made.hidden[0] * 120 + made.hidden[1]
    assert bool(torch.isin(hidden, original).all())
    assert not bool(torch.isin(hidden, key).any())
    if kind == "across":
        false = made.data.edge_index[:, ~made.real]
        assert bool((data.y[false[0]] != data.y[false[1]]).all())


def test_an_episode_follows_from_its_generator():
    one, two = (draw_damaged(homophilous(), torch.Generator().manual_seed(3), 100) for _ in "ab")
    assert torch.equal(one.data.edge_index, two.data.edge_index)
    assert torch.equal(one.data.train_mask, two.data.train_mask)
    assert one.data.num_nodes <= 100


def test_a_batch_follows_from_its_source_and_number():
    config = AuditPretrainConfig(max_nodes=300)
    one, two, other = (episode_evidence(homophilous(), number, config) for number in (3, 3, 4))
    assert torch.equal(one.edges, two.edges)
    assert torch.equal(one.false_share, two.false_share)
    assert not torch.equal(one.edges, other.edges)


def test_graphs_that_leave_no_episode_are_refused():
    tiny = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 0]), num_nodes=3)
    with pytest.raises(InputError, match="No episode was left"):
        pretrain_auditor([tiny], AuditPretrainConfig(episodes=1, random_episodes=0))


def test_episodes_without_a_hidden_edge_train_the_rest():
    config = AuditPretrainConfig(max_nodes=300, steps=4)
    episode = episode_evidence(homophilous(), 3, config)
    auditor = fit_auditor([replace(episode, hidden=torch.zeros_like(episode.hidden))], config)
    assert bool(auditor.edges.out.any())
    assert not bool(auditor.pairs.out.any())
    assert auditor.missing_scale.tolist() == [1, 0]


def test_attacks_take_pairs_that_harm_a_gnn_more_than_others_do():
    data = homophilous()
    generator = torch.Generator().manual_seed(0)
    edges = torch.stack([data.edge_index.amin(0), data.edge_index.amax(0)])
    pairs = attack(data, edges, 40, generator)
    assert bool((pairs[0] < pairs[1]).all())
    assert float((data.y[pairs[0]] != data.y[pairs[1]]).float().mean()) > 0.8


def test_the_gate_tells_graphs_under_attack_from_those_with_random_edges():
    data = graphglow.synthetic_graph(
        num_nodes=400,
        num_classes=3,
        num_features=8,
        homophily=0.9,
        average_degree=8.0,
        feature_noise=0.5,
        seed=0,
    )
    auditor, odds = load_auditor(), {}
    for kind in ("random", "attack"):
        made = damaged(data, torch.Generator().manual_seed(0), kinds=[kind], false_share=0.3)
        facts = graphglow.audit(made.data, missing=False).findings.facts
        odds[kind] = float(auditor.edges.attacked(facts))
    assert odds["random"] < odds["attack"]


def test_an_auditor_is_saved_and_read(tmp_path):
    auditor = quick_auditor()
    auditor.save(tmp_path / "a.safetensors")
    again = Auditor.load(tmp_path / "a.safetensors")
    for name, tensor in auditor.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert again.provenance["trained"]
    assert not any(p.requires_grad for p in again.parameters())
    with pytest.raises(InputError, match="must be a graphglow evidence learner"):
        EvidenceLearner.load(tmp_path / "a.safetensors")


def test_the_share_and_its_interval_are_learned_from_facts():
    """All facts say the share, up to noise."""
    generator = torch.Generator().manual_seed(0)
    truth = 0.6 * torch.rand(900, generator=generator)
    facts = truth[:, None] + 0.2 * torch.randn(900, PLACES, generator=generator)
    families = [f"family {i % 7}" for i in range(900)]
    share, config = ShareHead(), AuditPretrainConfig(steps=200)
    check = fit_share(share, facts, truth, torch.ones(900), families, config)
    with torch.no_grad():
        middle, scale = share.estimate(facts)
    error = (middle - truth).abs()
    assert check["error"] == pytest.approx(float(error.mean()), abs=0.01)
    assert float(error.mean()) < 0.05
    assert check["covered"] == pytest.approx(0.9, abs=0.03)
    covered = float((error <= share.reach * scale).float().mean())
    assert 0.9 <= covered <= 0.97  # more than of families that are left out
