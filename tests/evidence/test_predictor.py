"""The predictor: closed forms against plain loops, and a network that knows no order of classes."""

import copy

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.evidence import predictor as module
from graphglow.evidence.channels import Channel, community_channel
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.pair_features import moments
from graphglow.evidence.predictor import CHANNELS, RESIDUALS, Predictor, stack_channel
from graphglow.evidence.pretraining import Together, fit_one_cycle
from graphglow.evidence.votes import Voter
from graphglow.graph.graph import known_graph, normalised_adjacency
from graphglow.linalg import rows as row_module
from graphglow.linalg.rows import HiddenLayer, SideBySide, take, times, unit
from graphglow.settings import EvidencePretrainConfig


def graph(nodes=40, edges=90, classes=3, labels=15, seed=0) -> Data:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (nodes,), generator=g)
    y[:classes] = torch.arange(classes)
    mask = torch.zeros(nodes, dtype=torch.bool)
    mask[:labels] = True
    x = torch.randn(nodes, 6, generator=g) + F.one_hot(y, 6)
    return Data(x=x, y=y, train_mask=mask, edge_index=torch.randint(nodes, (2, edges), generator=g))


def inputs(nodes=7, classes=4, seed=0):
    predictor = trained_by_chance()
    g = torch.Generator().manual_seed(seed)
    width = predictor.layers[0].shape[0] - len(CHANNELS) - 4  # backbone, probability, .. are made
    odds = torch.randn(nodes, classes, len(CHANNELS), generator=g)
    trust = torch.randn(nodes, len(CHANNELS), predictor.attention.trust.shape[0], generator=g)
    more = torch.randn(nodes, classes, width, generator=g)
    return predictor, odds, trust, more


def trained_by_chance() -> Predictor:
    predictor = Predictor(seed=1)
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in predictor.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=g)
    return predictor


def test_untrained_it_is_an_attention_and_nothing_is_corrected():
    predictor = Predictor()
    _, odds, trust, more = inputs()
    assert torch.equal(predictor(odds, trust, more)[1], predictor.attention(odds, trust))


def test_classes_and_nodes_have_no_order():
    predictor, odds, trust, more = inputs()
    out = predictor(odds, trust, more)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(predictor(odds[:, order], trust, more[:, order]), out[:, :, order])
    back = torch.arange(7).flip(0)
    torch.testing.assert_close(predictor(odds[back], trust[back], more[back]), out[:, back])


def test_classes_that_are_not_there_change_nothing():
    predictor, odds, trust, more = inputs()
    padded = [F.pad(t, (0, 0, 0, 3), value=9.0) for t in (odds, more)]
    present = torch.arange(7).expand(7, -1) < 4
    out = predictor(padded[0], trust, padded[1], present)[..., :4]
    torch.testing.assert_close(out, predictor(odds, trust, more))


def test_the_answer_is_the_mean_of_the_members_and_half_of_the_stack():
    predictor, odds, trust, more = inputs()
    stack = CHANNELS.index("stack")
    odds[2, :, stack] = 0  # absent at one node
    mean = predictor(odds, trust, more).mean(0)
    wanted = (mean + odds[..., stack]) / 2
    wanted[2] = mean[2]
    torch.testing.assert_close(predictor.answer(odds, trust, more), wanted)
    weight, added = predictor.parts(odds, trust, more)
    torch.testing.assert_close((odds @ weight[..., None])[..., 0] + added, wanted)


def test_residuals_are_carried_as_a_plain_loop_carries_them():
    data = graph()
    problem = known_graph(data)
    g = torch.Generator().manual_seed(3)
    p = torch.rand(40, 3, generator=g)
    channels = {name: Channel(p / p.sum(1, keepdim=True), torch.zeros(2)) for name in RESIDUALS}
    weight = torch.rand(90, generator=g)
    s = normalised_adjacency(data.edge_index, weight, 40)
    carried, masses = module._carried(problem, channels, s)
    dense_s = module._off_diagonal(s).to_dense()
    residual = torch.zeros(3, 40, 3)
    known = torch.zeros(40)
    for node, label in zip(problem.labelled, problem.classes, strict=True):
        one = F.one_hot(label, 3)
        residual[0, node] = one - problem.prior
        residual[1:, node] = one - channels["vote"].probabilities[node]
        known[node] = 1
    for g_number, w in enumerate((problem.links.to_dense(), dense_s)):
        for node in range(40):
            for step in (1, 2):
                total, mass = torch.zeros(3, 3), 0.0
                for v in range(40):
                    if step == 1:
                        total += w[node, v] * residual[:, v]
                        mass += w[node, v] * known[v]
                        continue
                    for u in range(40):
                        if u != node and w[node, v] > 0:
                            share = w[node, v] * w[v, u] / w[v].sum()
                            total += share * residual[:, u]
                            mass += share * known[u]
                place = 3 * (2 * g_number + step - 1)
                found = carried[node, :, place : place + 3].T
                torch.testing.assert_close(found, total / (mass + 1), atol=1e-4, rtol=1e-4)
                said = masses[node, 2 * g_number + step - 1]
                assert float(said) == pytest.approx(float(np.log1p(float(mass)) / 2), abs=1e-4)
    assert torch.isfinite(carried).all()


def test_stack_weights_are_where_a_general_optimizer_finds_them():
    g = torch.Generator().manual_seed(0)
    odds, own = torch.randn(50, 3, 4, generator=g), torch.randint(3, (50,), generator=g)
    prior, kept = torch.tensor([0.5, 0.3, 0.2]), torch.ones(2, 50)
    kept[1, ::3] = 0
    found = module._stack_weights(odds, own, prior, kept)
    for weights, some in zip(found, kept.bool(), strict=True):

        def cost(w, some=some):
            logits = odds[some].double() @ torch.tensor(w) + prior.double().log()
            away = ((w - 1.5 / 4) ** 2).sum() * module.STACK_PRIOR / 2
            return float(F.cross_entropy(logits, own[some], reduction="sum")) + away

        best = minimize(cost, np.full(4, 0.4), method="BFGS").x
        np.testing.assert_allclose(weights.numpy(), best, atol=1e-3)


def test_a_labelled_node_is_stacked_without_its_own_label():
    data = graph(labels=20)
    problem = known_graph(data)
    g = torch.Generator().manual_seed(0)
    p = torch.rand(2, 40, 3, generator=g).softmax(2)
    channels = {str(i): Channel(one, torch.zeros(2)) for i, one in enumerate(p)}
    before = stack_channel(problem, channels).probabilities
    node = 7
    changed = data.clone()
    changed.y[node] = (data.y[node] + 1) % 3
    other = copy.copy(known_graph(changed))
    vars(other).update(prior=problem.prior, counts=problem.counts)  # of which it is a part
    after = stack_channel(other, channels).probabilities
    torch.testing.assert_close(after[node], before[node])
    assert not torch.allclose(after[8], before[8])


def test_a_community_speaks_without_the_label_of_the_node_itself():
    data = graph()
    problem = known_graph(data)
    member = torch.arange(40) % 4
    p = community_channel(problem, [member]).probabilities
    for node in range(40):
        others = [i for i in range(15) if i != node and member[i] == member[node]]
        counts = torch.bincount(data.y[others], minlength=3).float()
        fits = [
            (counts + s * problem.prior) / (counts.sum() + s) for s in (0.1, 0.3, 1.0, 3.0, 10.0)
        ]
        fits = [f.lerp(problem.prior, 1e-3) for f in fits]
        assert any(torch.allclose(p[node], f, atol=1e-4) for f in fits)


def test_a_hidden_layer_in_blocks_is_the_one_at_once(monkeypatch):
    g = torch.Generator().manual_seed(0)
    rows = SideBySide.of([unit(torch.randn(50, d, generator=g)) for d in (5, 9)])
    whole = HiddenLayer.of(rows, 32)
    monkeypatch.setattr(row_module, "AT_ONCE", 0)
    monkeypatch.setattr(row_module, "ROWS", 7)
    lazy = HiddenLayer.of(rows, 32)
    dense, weight = take(whole, torch.arange(50)), torch.randn(32, 3, generator=g)
    torch.testing.assert_close(times(lazy, weight), dense @ weight, atol=1e-4, rtol=1e-4)
    some = torch.tensor([4, 0, 49])
    torch.testing.assert_close(take(lazy, some), dense[some], atol=1e-5, rtol=1e-5)


def test_a_hidden_layer_does_not_depend_on_the_axes():
    g = torch.Generator().manual_seed(0)
    rows = unit(torch.randn(60, 8, generator=g))
    turn = torch.linalg.qr(torch.randn(8, 8, generator=g))[0]
    layers = [HiddenLayer.of(one, 16) for one in (rows, rows @ turn)]
    first, second = (take(layer, torch.arange(60)) for layer in layers)
    torch.testing.assert_close(first, second, atol=1e-4, rtol=0)


def test_moments_are_those_of_all_pairs():
    view = unit(torch.randn(30, 5, generator=torch.Generator().manual_seed(0)))
    view[3] = 0
    cosine = (view @ view.T)[~torch.eye(30, dtype=torch.bool)]
    assert moments(view) == pytest.approx((float(cosine.mean()), float(cosine.std())), rel=1e-3)


def test_networks_trained_together_are_those_trained_alone():
    g = torch.Generator().manual_seed(0)
    odds, trust = torch.randn(20, 3, 17, generator=g), torch.randn(20, 17, 8, generator=g)
    truth = torch.randint(3, (20,), generator=g)
    config = EvidencePretrainConfig(steps=5)
    alone = [Voter(17, seed=s) for s in (0, 1)]
    together = Together([copy.deepcopy(one) for one in alone])

    def of_all(generator):
        out = together(odds.expand(2, -1, -1, -1), trust.expand(2, -1, -1, -1))
        return 2 * F.cross_entropy(out.flatten(0, 1), truth.repeat(2))

    fit_one_cycle(together, of_all, config)
    together.write_back()
    for one, other in zip(alone, together.networks, strict=True):
        fit_one_cycle(one, lambda _, net=one: F.cross_entropy(net(odds, trust), truth), config)
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_answers_do_not_depend_on_unlabelled_classes():
    data = graph()
    other = data.clone()
    other.y[~data.train_mask] = 0
    learner = EvidenceLearner.untrained()
    first, second = (learner.refine(one).probabilities for one in (data, other))
    assert torch.equal(first, second)
