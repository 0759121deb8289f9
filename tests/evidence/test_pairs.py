"""Pair evidence and candidates, against the same by hand."""

import math

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.data import Data

from graphglow.device import map_blocks
from graphglow.evidence.channels import Channel
from graphglow.evidence.pair_features import (
    FIRST_CHANNELS,
    FIRST_CONTEXT,
    FIRST_EVIDENCE,
    GROUPS,
    SECOND_EVIDENCE,
    comparisons,
    contributions,
    first_context,
    labelled_homophily,
    structure,
)
from graphglow.evidence.refined import calibration, first_round
from graphglow.evidence.views import belief_view, candidate_pairs, role_degrees, role_view
from graphglow.graph.graph import known_graph
from graphglow.linalg.rows import low_rank, sparse_rows, take, times, transposed, unit


def graph(nodes=50, seed=0):
    g = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(nodes, 12, generator=g),
        y=torch.arange(nodes) % 3,
        train_mask=torch.arange(nodes) < 20,
        edge_index=torch.randint(nodes, (2, 4 * nodes), generator=g),
    )


def test_every_number_is_in_one_group():
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == sorted(SECOND_EVIDENCE)


def test_the_first_round_has_a_number_for_every_name():
    first = first_round(known_graph(graph()), torch.Generator().manual_seed(0))
    evidence = first.evidence(first.pairs)
    assert evidence.shape == (first.pairs.shape[1], len(FIRST_EVIDENCE))
    assert first.context.shape == (len(FIRST_CONTEXT),)
    assert evidence.isfinite().all()
    assert evidence.abs().max() <= 4
    edge = evidence[:, FIRST_EVIDENCE.index("edge")]
    assert int(edge.sum()) == len(first.graph.low)  # every input edge is a candidate


def test_common_neighbours_are_those_of_the_dense_matrix():
    p = known_graph(graph())
    dense = (p.neighbours.to_dense() > 0).float()
    u, v = torch.triu_indices(50, 50, 1)
    found = structure(p, torch.stack([u, v]))
    common = (dense @ dense)[u, v]
    torch.testing.assert_close(found[:, 0], common.log1p() / 2)
    degree = dense.sum(1)
    share = common / (degree[u] * degree[v]).sqrt().clamp_min(1)
    torch.testing.assert_close(found[:, 1], share)
    rarity = (degree + 1).log().clamp_min(0.5).reciprocal()
    torch.testing.assert_close(found[:, 2], ((dense * rarity) @ dense)[u, v].log1p())
    assert torch.equal(found[:, 3], dense[u, v])
    ends = torch.stack([degree[u], degree[v]], 1).sort(1).values
    torch.testing.assert_close(found[:, 4:], ends.log1p() / 4)


def test_pairs_are_compared_by_cosine_z_score_and_log_odds_over_chance():
    p, generator = known_graph(graph()), torch.Generator().manual_seed(0)
    view, pairs = unit(torch.randn(50, 3, generator=generator)), torch.triu_indices(50, 50, 1)
    classes = (3 * torch.randn(50, 3, generator=generator)).softmax(1)
    found = comparisons(p, [(view, (0.1, 0.2))], [Channel(classes, torch.zeros(2))], pairs)
    cosine, same = ((rows @ rows.T)[tuple(pairs)] for rows in (view, classes))
    torch.testing.assert_close(found[:, 0], cosine)
    torch.testing.assert_close(found[:, 1], ((cosine - 0.1) / 0.2).clamp(-4, 12) / 4)
    over = same.logit() - math.log(p.chance / (1 - p.chance))
    torch.testing.assert_close(found[:, 2], over.clamp(-8, 8) / 4)


def test_the_context_of_a_graph_by_name():
    p, g = known_graph(graph()), torch.Generator().manual_seed(0)
    classes = {name: torch.randn(50, 3, generator=g).softmax(1) for name in FIRST_CHANNELS}
    channels = {n: Channel(one, torch.rand(2, generator=g)) for n, one in classes.items()}
    edges, near = torch.stack([p.low, p.high]).long(), torch.triu_indices(20, 20, 1)[:, ::3]
    found = first_context(p, channels, near).tolist()
    same = (classes["x"] @ classes["x"].T)[tuple(edges)].mean() - p.chance
    expected = [float(score) for name in FIRST_CHANNELS for score in channels[name].scores]
    expected += [float(same), *(float(labelled_homophily(p, some)) for some in (edges, near))]
    expected += [math.log1p(20 / 3) / 4, math.log(3) / 3, p.chance]
    expected += [math.log1p(2 * len(p.low) / 50) / 4, 1.0, 1.0, 1.0]
    assert found == pytest.approx(expected, abs=1e-6)
    assert FIRST_CONTEXT[-7:] == (
        *("labels_per_class", "classes", "chance", "degree"),
        *("has_features", "has_edges", "has_labels"),
    )


def test_what_two_kinds_of_evidence_say_together_is_shared():
    parts = contributions(
        lambda f: f[:, 0] * f[:, 1] + f[:, 2] + 1, torch.tensor([[2.0, 3, 5]]), [[0], [1], [2]]
    )
    assert parts.tolist() == [[3, 3, 5, 1]]


def test_candidates_are_each_pair_once():
    p = known_graph(graph())
    first = first_round(p, torch.Generator().manual_seed(0))
    assert (first.pairs[0] < first.pairs[1]).all()
    assert torch.unique(first.pairs, dim=1).shape == first.pairs.shape
    near = [first.views["x"], belief_view([first.channels["x"]])]
    again, how = candidate_pairs(near, first.pairs, map_blocks)
    assert how == "exact"
    assert again.shape[1] >= first.pairs.shape[1]


def test_sparse_rows_behave_like_dense_ones():
    g = torch.Generator().manual_seed(0)
    dense = torch.randn(9, 13, generator=g) * (torch.rand(9, 13, generator=g) < 0.4)
    row, col = dense.nonzero().T
    shuffled = torch.randperm(len(row), generator=g)
    row, col = row[shuffled], col[shuffled]
    sparse = sparse_rows(row, col, dense[row, col], (9, 13))
    other = torch.randn(13, 3, generator=g)
    torch.testing.assert_close(times(sparse, other), dense @ other)
    torch.testing.assert_close(times(transposed(sparse), dense @ other), dense.T @ dense @ other)
    some = torch.tensor([4, 0, 8])
    torch.testing.assert_close(take(sparse, some).to_dense(), dense[some])


def test_low_rank_keeps_cosines():
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(60, 5, generator=g) @ torch.randn(5, 80, generator=g)
    low = low_rank(rows, 8, g)
    assert low.shape == (60, 5)  # the rest is rounding
    cosines = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=2)
    torch.testing.assert_close(low @ low.T, cosines, atol=1e-3, rtol=0)


def test_hubs_are_alike_and_leaves_are_alike():
    star = torch.stack([torch.zeros(20, dtype=torch.int64), torch.arange(1, 21)])
    data = Data(num_nodes=43, edge_index=torch.cat([star, star + 21], 1))  # and one node alone
    degrees = role_degrees(known_graph(data))
    role = role_view(degrees, degrees)
    torch.testing.assert_close(role.norm(dim=1), torch.ones(43))
    cosine = role @ role.T
    torch.testing.assert_close(cosine[0, 21], torch.tensor(1.0))
    torch.testing.assert_close(cosine[1, 40], torch.tensor(1.0))
    assert cosine[0, 1] < 0.5
    nothing = role_degrees(known_graph(Data(num_nodes=3)))
    assert role_view(nothing, nothing).shape == (3, 0)


def test_homophily_weighs_pairs_with_two_labels_and_five_at_chance():
    p = known_graph(graph())
    pairs = torch.tensor([[0, 0, 1, 2], [3, 1, 5, 40]])  # of one class, of two, of two, unknown
    weight = torch.tensor([3.0, 1.0, 2.0, 9.0])  # of three pairs: 1.5, 0.5 and 1
    even = (1 + 5 * p.chance) / (3 + 5) - p.chance
    assert float(labelled_homophily(p, pairs)) == pytest.approx(even, abs=1e-6)
    uneven = (1.5 + 5 * p.chance) / (3 + 5) - p.chance
    assert float(labelled_homophily(p, pairs, weight)) == pytest.approx(uneven, abs=1e-6)


@pytest.mark.parametrize("count", [30, 150])  # of pairs; they weigh at most twice the 20 labels
def test_the_calibration_is_where_a_general_optimizer_finds_it(count):
    p, generator = known_graph(graph()), torch.Generator().manual_seed(1)
    pairs = torch.triu_indices(20, 20, 1)[:, torch.randperm(190, generator=generator)[:count]]
    unlabelled = torch.randint(20, 50, (2, 40), generator=generator)
    log_odds = 1.5 + torch.randn(count + 40, generator=generator).double()
    same = (p.y[pairs[0]] == p.y[pairs[1]]).double()
    weight, chance = min(1, 40 / count), torch.tensor(p.chance).double().logit()

    def cost(shift):
        logits = log_odds[:count] + chance + shift
        loss = binary_cross_entropy_with_logits(logits, same, reduction="sum")
        return float(weight * loss) + shift**2 / (2 * 0.7**2)

    found = calibration(p, torch.cat([pairs, unlabelled], 1), log_odds)
    assert found == pytest.approx(minimize_scalar(cost).x, abs=1e-5)
