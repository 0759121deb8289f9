"""The predictor: closed forms against plain loops, and a network that knows no order of classes."""

import copy
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.evidence import predictor as module
from graphglow.evidence.channels import Channel, community_channel
from graphglow.evidence.pair_features import FIRST_CONTEXT, moments
from graphglow.evidence.predictor import (
    CHANNELS,
    RECORDS,
    SHARPNESS,
    TRUST,
    Voter,
    class_shares,
    label_update,
    predict_classes,
    sharpened,
    unlabelled_records,
    vote_inputs,
)
from graphglow.evidence.refined import GraphEvidence
from graphglow.evidence.views import PPR_STEPS, PPR_TELEPORT, page_rank
from graphglow.graph.graph import known_graph, normalised_adjacency
from graphglow.linalg import rows as row_module
from graphglow.linalg.rows import HiddenLayer, SideBySide, take, times, unit


def graph(nodes=40, edges=90, classes=3, labels=15, seed=0) -> Data:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (nodes,), generator=g)
    y[:classes] = torch.arange(classes)
    mask = torch.zeros(nodes, dtype=torch.bool)
    mask[:labels] = True
    x = torch.randn(nodes, 6, generator=g) + F.one_hot(y, 6)
    return Data(x=x, y=y, train_mask=mask, edge_index=torch.randint(nodes, (2, edges), generator=g))


def trained_by_chance() -> Voter:
    voter = Voter(len(CHANNELS), seed=1)
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in voter.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=g)
    return voter.requires_grad_(False)


def inputs(nodes=7, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    odds = torch.randn(nodes, classes, len(CHANNELS), generator=g)
    return odds, torch.randn(nodes, len(CHANNELS), len(TRUST), generator=g)


def test_classes_and_nodes_have_no_order():
    predictor, (odds, trust) = trained_by_chance(), inputs()
    update = torch.linspace(-0.2, 0.3, len(CHANNELS) + 1)
    out = predictor(odds, trust, update)
    order, back = torch.tensor([2, 0, 3, 1]), torch.arange(7).flip(0)
    torch.testing.assert_close(predictor(odds[:, order], trust, update), out[:, order])
    torch.testing.assert_close(predictor(odds[back], trust[back], update), out[back])


def test_an_answer_is_the_sum_over_channels_of_weight_times_log_odds():
    predictor, (odds, trust) = trained_by_chance(), inputs()
    nothing = torch.zeros(len(CHANNELS) + 1)
    torch.testing.assert_close(predictor(odds, trust, nothing), predictor(odds, trust))
    update = nothing.clone()
    update[3], update[-1] = 0.25, 0.5
    wanted = 1.5 * predictor(odds, trust) + 0.25 * odds[..., 3]
    torch.testing.assert_close(predictor(odds, trust, update), wanted)


def test_updates_are_where_a_general_optimizer_finds_them(monkeypatch):
    monkeypatch.setattr(module, "WEIGHT_PRECISION", 3.0)
    monkeypatch.setattr(module, "SCALE_PRECISION", 2.0)
    predictor, (odds, trust) = trained_by_chance(), inputs(nodes=50, classes=3)
    own = torch.randint(3, (50,), generator=torch.Generator().manual_seed(0))
    prior, kept = torch.tensor([0.5, 0.3, 0.2]), torch.ones(2, 50, dtype=torch.bool)
    kept[1, ::3] = False
    found = label_update(predictor, odds, trust, own, prior, kept)
    frozen = predictor(odds, trust).double()
    precision = torch.tensor([3.0] * len(CHANNELS) + [2.0]).double()
    for update, some in zip(found, kept, strict=True):

        def cost(w, some=some):
            w = torch.tensor(w)
            logits = frozen * (1 + w[-1]) + odds.double() @ w[:-1] + prior.double().log()
            loss = F.cross_entropy(logits[some], own[some], reduction="sum")
            return float(loss + (precision * w.square()).sum() / 2)

        best = minimize(cost, np.zeros(len(CHANNELS) + 1), method="BFGS").x
        np.testing.assert_allclose(update.numpy(), best, atol=2e-3)


def test_few_labels_move_weights_less_than_many():
    predictor, (odds, trust) = trained_by_chance(), inputs(nodes=400, classes=3)
    own, prior = odds[..., 2].argmax(1), torch.full((3,), 1 / 3)
    every = torch.arange(400)
    kept = torch.stack([every < 4, every < 400])
    few, many = label_update(predictor, odds, trust, own, prior, kept)
    assert few.abs().max() < 0.1
    assert many[2] > 0.3  # the channel that is always right


def labelled_unevenly(per_class: list[int], shares: list[float], nodes=3000):
    """A graph with so many labels of each class, and logits that a perfect model would have."""
    g = torch.Generator().manual_seed(0)
    y = torch.multinomial(torch.tensor(shares), nodes, replacement=True, generator=g)
    mask = torch.zeros(nodes, dtype=torch.bool)
    for c, count in enumerate(per_class):
        mask[(y == c).nonzero()[:count, 0]] = True
    x = torch.randn(nodes, generator=g) + 2.0 * y
    logits = -0.5 * (x[:, None] - 2.0 * torch.arange(len(shares))).square()
    data = Data(x=x[:, None], y=y, train_mask=mask, edge_index=torch.tensor([[0], [1]]))
    return known_graph(data), logits


def test_class_shares_come_from_predictions_where_labels_were_drawn_evenly():
    graph, logits = labelled_unevenly([30, 30], [0.8, 0.2])
    right = (logits[graph.labelled].argmax(1) == graph.classes).double().mean()
    weight = float((0.02 + 1 / 30) / (2 * right - 1))
    shares = torch.tensor([0.5, 0.5])
    for _ in range(200):  # what EM settles at
        posterior = (logits / 2 + shares.log()).softmax(1).mean(0)
        shares = (posterior + weight * 0.5) / (1 + weight)
    found = class_shares(graph, logits)
    torch.testing.assert_close(found, shares, atol=1e-4, rtol=0)
    assert abs(found[0] - 0.8) < 0.05
    noise = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))
    weak = class_shares(graph, logits + 9 * noise)
    assert (weak - 0.5).abs().max() < 0.2  # predictions that are mostly wrong say little


def test_class_shares_are_the_labels_where_these_were_drawn_at_random():
    graph, logits = labelled_unevenly([40, 20], [0.8, 0.2])
    torch.testing.assert_close(class_shares(graph, logits), torch.tensor([2 / 3, 1 / 3]))


def test_records_are_those_of_plain_loops():
    data = graph()
    known = known_graph(data)
    p = torch.rand(3, 40, 3, generator=torch.Generator().manual_seed(3)).softmax(2)
    records = unlabelled_records(known, [Channel(one, torch.zeros(2)) for one in p])
    pairs = list(zip(known.low.tolist(), known.high.tolist(), strict=True))
    for k, one in enumerate(p):
        others = (p.sum(0) - one) / 2
        same = sum(float(one[v] @ others[v]) for v in range(40)) / 40
        chance = float(one.mean(0) @ others.mean(0))
        joined = sum(float(one[u] @ one[v]) for u, v in pairs) / len(pairs)
        alone = float(one.mean(0) @ one.mean(0))
        share = one.mean(0)
        wanted = [
            (same - chance) / (1 - chance),
            (joined - alone) / (1 - alone),
            float(one.max(1).values.mean()),
            float((share * (share / known.prior).log()).sum()) / 2,
        ]
        assert records[k].tolist() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_sharpness_is_that_of_least_leave_one_out_log_loss(scale):
    data = graph(labels=25)
    known, right = known_graph(data), F.one_hot(data.y, 3).float()
    noise = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    logits, prior = scale * (2 * right + noise), known.prior.log()
    costs = {
        s: 2 * math.log(s) ** 2
        + float(F.cross_entropy((s * logits + prior)[:25], data.y[:25], reduction="sum"))
        for s in SHARPNESS
    }
    best, found = min(costs, key=costs.__getitem__), sharpened(known, logits)
    assert float(found.chosen["sharpness"]) == pytest.approx(best)
    torch.testing.assert_close(found.probabilities, (best * logits + prior).softmax(1))


def test_page_rank_is_the_truncated_series():
    adjacency = normalised_adjacency(graph().edge_index, None, 40)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    s, a, n = adjacency.to_dense(), PPR_TELEPORT, PPR_STEPS
    terms = [a * (1 - a) ** k * torch.linalg.matrix_power(s, k) @ x for k in range(n)]
    wanted = sum(terms) + (1 - a) ** n * torch.linalg.matrix_power(s, n) @ x
    torch.testing.assert_close(page_rank(adjacency, x), wanted)


def random_evidence(known):
    """Channels that say anything, with records and scores of their own."""
    g = torch.Generator().manual_seed(0)
    p = torch.rand(len(CHANNELS), 40, 3, generator=g).softmax(2)
    scores = torch.rand(len(CHANNELS), 2, generator=g)
    channels = {n: Channel(q, s) for n, q, s in zip(CHANNELS, p, scores, strict=True)}
    records = {"predictor": unlabelled_records(known, list(channels.values()))}
    context, nothing = torch.linspace(0, 1, 40), torch.zeros(2, 0)
    return GraphEvidence(known, {}, {}, channels, nothing, context, "exact", records=records)


def test_the_inputs_of_a_vote_have_their_names():
    known = known_graph(graph())
    evidence, nodes = random_evidence(known), torch.tensor([3, 20, 39])
    odds, trust = vote_inputs(evidence, "predictor", nodes)
    p = torch.stack([channel.probabilities[nodes] for channel in evidence.channels.values()], 1)
    torch.testing.assert_close(odds, (p / known.prior).log().transpose(1, 2))
    scores = torch.stack([channel.scores for channel in evidence.channels.values()])
    records, place = evidence.records["predictor"], FIRST_CONTEXT.index("labels_per_class")
    wanted = dict(zip(("accuracy", "likelihood", *RECORDS), [*scores.T, *records.T], strict=True))
    wanted |= {f"{name}_behind": wanted[name] - wanted[name].max() for name in [*wanted][:4]}
    wanted |= {"sureness": p.amax(2), "agreement_here": (p * p.mean(1, keepdim=True)).sum(2)}
    wanted["degree"] = known.degree[nodes, None].log1p() / 4
    wanted["labels_per_class"], wanted["classes"] = evidence.context[place : place + 2]
    for name, found in zip(TRUST, trust.unbind(2), strict=True):
        torch.testing.assert_close(found, wanted[name].expand_as(found), msg=name)


def test_a_labelled_node_is_answered_without_its_own_label():
    data = graph(labels=20)
    known = known_graph(data)
    evidence = random_evidence(known)

    def predicted(graph):
        inputs_of = partial(vote_inputs, replace(evidence, graph=graph), "predictor")
        return predict_classes(graph, trained_by_chance(), inputs_of).probabilities

    before = predicted(known)
    changed = data.clone()
    changed.y[7] = (data.y[7] + 1) % 3
    other = copy.copy(known_graph(changed))
    vars(other).update(prior=known.prior, counts=known.counts)  # of which it is a part
    after = predicted(other)
    torch.testing.assert_close(after[7], before[7])
    assert not torch.equal(after[8], before[8])


def test_a_community_speaks_without_the_label_of_the_node_itself():
    data = graph()
    problem = known_graph(data)
    member = torch.arange(40) % 4
    p = community_channel(problem, member).probabilities
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
