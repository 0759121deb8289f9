"""Channels: closed forms against the same by hand, and why leaving one out matters."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from graphglow.evidence.channels import (
    EIGEN,
    EXACT_SPREAD,
    FLOOR,
    RIDGES,
    SPREAD_DAMPING,
    SPREAD_GROUPS,
    TEMPERATURES,
    _best,
    _conjugate_gradients,
    _dual,
    _primal,
    _spread_rates,
    leave_one_out_mask,
    leave_one_out_scores,
    ridge_channel,
    spread_channel,
)
from graphglow.graph import synthetic_graph
from graphglow.graph.graph import known_graph
from graphglow.linalg.rows import sparse_rows, unit


def problem(nodes=40, classes=3, labels=18, width=7, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % classes
    x = torch.randn(nodes, width, generator=g) + 2 * torch.eye(classes, width)[y]
    edge_index = torch.randint(nodes, (2, 3 * nodes), generator=g)
    mask = torch.arange(nodes) < labels
    return known_graph(Data(x=x, y=y, edge_index=edge_index, train_mask=mask))


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("eigen", [False, True])
def test_leave_one_out_is_a_fit_without_that_node(by_columns, eigen, monkeypatch):
    monkeypatch.setitem(EIGEN, "cpu", eigen)
    p = problem()
    phi = p.features[p.labelled].double()
    target, ridges = torch.nn.functional.one_hot(p.classes, 3).float() - p.prior, torch.ones(1)
    if by_columns:
        loo, weights = _primal(p.features, p.labelled, target, ridges)
    else:
        loo, alpha = _dual(p.features[p.labelled], target, ridges)
        weights = torch.cat([alpha.sum(1, keepdim=True), p.features[p.labelled].T @ alpha], 1)
    rows = torch.cat([torch.ones(len(phi), 1).double(), phi], 1)
    ridge = rows.square().sum() / len(rows)
    for i in range(len(phi)):
        kept = torch.arange(len(phi)) != i
        gram = rows[kept].T @ rows[kept] + ridge * torch.eye(rows.shape[1])
        w = torch.linalg.solve(gram, rows[kept].T @ target[kept].double())
        torch.testing.assert_close(loo[0, i].double(), rows[i] @ w, atol=1e-5, rtol=1e-4)
    gram = rows.T @ rows + ridge * torch.eye(rows.shape[1])
    w = torch.linalg.solve(gram, rows.T @ target.double())
    torch.testing.assert_close(weights[0].double(), w, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shift", [0.3, 2.0, 50.0])
def test_conjugate_gradients_end_at_the_solution(shift):
    g = torch.Generator().manual_seed(0)
    phi, target = torch.randn(60, 30, generator=g), torch.randn(60, 4, generator=g)
    found = _conjugate_gradients(lambda v: phi @ (phi.T @ v), target, torch.tensor(shift))
    exact = torch.linalg.solve(phi @ phi.T + shift * torch.eye(60), target)
    torch.testing.assert_close(found, exact, atol=2e-3, rtol=1e-2)


def test_the_link_channel_at_size_is_as_good_as_the_exact_one(monkeypatch):
    data = synthetic_graph(num_nodes=1500, num_features=4, homophily=0.7, average_degree=12)
    data.train_mask = torch.arange(1500) % 2 == 0
    p = known_graph(data)
    exact = ridge_channel(p, p.neighbours)
    monkeypatch.setattr("graphglow.evidence.channels.EXACT", 100)
    found = ridge_channel(p, p.neighbours)
    torch.testing.assert_close(found.scores, exact.scores, atol=0.02, rtol=0)
    right = [(c.probabilities.argmax(1) == data.y)[~data.train_mask] for c in (exact, found)]
    assert right[0].float().mean() - right[1].float().mean() < 0.005
    assert right[1].float().mean() > 0.7


@pytest.mark.parametrize("labels", [30, 600])
def test_few_columns_at_once_change_nothing(monkeypatch, labels):
    data = synthetic_graph(num_nodes=700, num_features=40)
    data.train_mask = torch.arange(700) < labels
    p = known_graph(data)
    found = []
    for numbers in (2**26, 5000):
        monkeypatch.setattr("graphglow.evidence.channels.SPREAD_COLUMNS", 1)
        monkeypatch.setattr("graphglow.evidence.channels.NUMBERS", numbers)
        channels = [spread_channel(p, p.adj), ridge_channel(p, p.neighbours)]
        channels += [ridge_channel(p, p.features)]
        found.append([c.probabilities for c in channels])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_sparse_and_dense_rows_give_the_same():
    p = problem(width=30)
    dense = unit((torch.rand(40, 60, generator=torch.Generator().manual_seed(1)) < 0.1).float())
    row, col = dense.nonzero().T
    sparse = sparse_rows(row, col, dense[row, col], (40, 60))
    a, b = ridge_channel(p, dense), ridge_channel(p, sparse)
    torch.testing.assert_close(a.probabilities, b.probabilities, atol=1e-5, rtol=1e-4)


def test_labelled_nodes_look_like_others_only_if_their_own_label_is_left_out():
    """Features of pure noise: a fit is sure of its training nodes, leave-one-out is not."""
    g = torch.Generator().manual_seed(0)
    y = torch.randint(2, (300,), generator=g)
    mask = torch.arange(300) < 100
    x = torch.randn(300, 90, generator=g)
    p = known_graph(Data(x=x, y=y, train_mask=mask, edge_index=torch.empty(2, 0).long()))
    channel = ridge_channel(p, p.features)
    right = channel.probabilities[torch.arange(300), y]
    assert abs(right[:100].mean() - right[100:].mean()) < 0.06
    target = torch.nn.functional.one_hot(p.classes, 2).float() - p.prior
    alpha = _dual(p.features[p.labelled], target, torch.tensor(RIDGES[1:2]))[1][0]
    out = p.features @ p.features[p.labelled].T @ alpha + alpha.sum(0) + p.prior
    fit = (8 * out).softmax(1)[torch.arange(300), y]
    assert fit[:100].mean() - fit[100:].mean() > 0.3  # what goes wrong without


@pytest.mark.parametrize("labels", [30, 600])
def test_spread_labels_leave_out_a_nodes_own(labels):
    """Changing one node's label does not change what the spread says of that node."""
    g = torch.Generator().manual_seed(0)
    nodes = 700
    y = torch.randint(3, (nodes,), generator=g)
    data = Data(
        y=y, train_mask=torch.arange(nodes) < labels, num_nodes=nodes,
        edge_index=torch.randint(nodes, (2, 2000), generator=g),
    )  # fmt: skip
    before = known_graph(data)
    data.y = y.clone()
    data.y[5] = (y[5] + 1) % 3
    after = known_graph(data)
    raw = [_spread_rates(p, p.adj)[0][0][5] * p.counts for p in (before, after)]
    if labels == 30:
        torch.testing.assert_close(raw[0] / raw[0].sum(), raw[1] / raw[1].sum())
    assert spread_channel(before, before.adj).probabilities.sum(1).allclose(torch.ones(nodes))
    power, total = torch.eye(nodes)[:, :labels], torch.zeros(nodes, labels)
    for _ in range(2):  # the first of SPREAD_STEPS
        power = SPREAD_DAMPING * before.adj.to_dense() @ power
        total += power
    group = torch.arange(labels) % (SPREAD_GROUPS if labels > EXACT_SPREAD else labels)
    total[:labels] *= group[:, None] != group
    rates = total @ torch.eye(3)[before.classes] / before.counts
    found, means = _spread_rates(before, before.adj)
    torch.testing.assert_close(found[0] * means[0], rates)
    torch.testing.assert_close(means[0], (rates @ before.prior).mean())


def test_a_class_with_a_single_label_says_nothing_of_that_node():
    p = problem(labels=3)
    channel = ridge_channel(p, p.features)
    torch.testing.assert_close(channel.probabilities[:3], p.prior.expand(3, -1))
    assert channel.scores.tolist() == [0, 0]


def test_scores_are_relative_to_the_class_shares_and_shrunk_for_few_labels():
    p = problem(labels=8)  # 3, 3 and 2 labels
    probabilities = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.7, 0.1]]).repeat(20, 1)
    right = 4 / 8  # nodes 0, 6 and 1, 7 of classes 0 and 1
    log_p = sum(math.log(probabilities[i, i % 3]) for i in range(8)) / 8
    entropy = -sum(n / 8 * math.log(n / 8) for n in (3, 3, 2))
    wanted = [(right - 3 / 8) / (5 / 8) * 8 / 10, (entropy + log_p) / entropy * 8 / 10]
    assert leave_one_out_scores(p, probabilities).tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("labels", [4, 9, 18, 30])
def test_choices_are_those_of_trying_one_after_another(labels):
    p = problem(labels=labels)
    fair = leave_one_out_mask(p)
    loo = torch.randn(6, labels, 3, generator=torch.Generator().manual_seed(labels)) / 4
    loo[3:] += torch.nn.functional.one_hot(p.classes, 3) / 3
    costs = {
        (r, t): 0.15 * ((r - 3) ** 2 + (math.log2(t) - 2) ** 2)
        + float(cross_entropy(t * loo[r, fair], p.classes[fair], reduction="sum"))
        for r in range(6)
        for t in TEMPERATURES
    }
    found = tuple(float(choice) for choice in _best(p, loo))
    assert found == min(costs, key=costs.__getitem__)

    rates, _ = _spread_rates(p, p.adj)
    nodes = p.labelled[fair]

    def logits(i, s, t):
        return p.prior.log() + t * (s + rates[i]).log()

    costs = {
        (i, s, t): 0.3 * (i + abs(j - 2) + abs(k - 1))
        + float(cross_entropy(logits(i, s, t)[nodes], p.classes[fair], reduction="sum"))
        for i in range(3)
        for j, s in enumerate((1e-3, 1e-2, 1e-1, 1.0, 10.0))
        for k, t in enumerate((0.5, 1.0, 2.0))
    }
    best = logits(*min(costs, key=costs.__getitem__)).softmax(1)
    torch.testing.assert_close(
        spread_channel(p, p.adj).probabilities[labels:], best.lerp(p.prior, FLOOR)[labels:]
    )
