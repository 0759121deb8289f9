"""An edge is no evidence for itself: adding or removing it changes nothing that is said of it."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from graphglow.auditing.auditor import FACTS, LEVELS, Auditor, missing_candidates
from graphglow.auditing.pair_features import (
    FOLDS,
    GROUPS,
    RAW,
    build_pair_inputs,
    pair_fold,
    raw_features,
)
from graphglow.auditing.reference_tables import (
    CONTEXT,
    EVIDENCE,
    ReferenceTables,
    _facts,
    _fits,
    _log_ratios,
    _regression,
    estimate_false_edge_mix,
    pairs_without_edge,
)
from graphglow.graph.graph import known_graph
from graphglow.linalg.sparse import is_edge


def graph(nodes=60, edges=150, *, features=True, labels=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, 12, generator=generator) if features else None
    index = torch.randint(nodes, (2, edges), generator=generator)
    data = Data(x=x, edge_index=index, num_nodes=nodes)
    if labels:
        data.y = torch.randint(3, (nodes,), generator=generator)
        data.train_mask = torch.rand(nodes, generator=generator) < 0.5
    return data


def inputs(data):
    return build_pair_inputs(known_graph(data), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("labels", [True, False])
def test_adding_or_removing_the_edge_leaves_its_evidence_as_it_was(features, labels):
    data = graph(features=features, labels=labels)
    whole = inputs(data)
    edges = torch.stack([whole.graph.low.long(), whole.graph.high.long()])
    said = raw_features(whole, edges)
    for i in range(0, edges.shape[1], 9):
        u, v = edges[:, i]
        kept = ~((data.edge_index.amin(0) == u) & (data.edge_index.amax(0) == v))
        without = data.clone()
        without.edge_index = data.edge_index[:, kept]
        again = raw_features(inputs(without), edges[:, i : i + 1])[0]
        torch.testing.assert_close(again, said[i], atol=2e-4, rtol=2e-4)


def test_one_and_two_hops_are_those_of_the_graph_without_the_edge():
    """Against plain loops over neighbours."""
    data = graph(nodes=25, edges=50, labels=False)
    whole = inputs(data)
    edges = torch.stack([whole.graph.low.long(), whole.graph.high.long()])
    said = raw_features(whole, edges)
    x = whole.x
    for i in range(0, edges.shape[1], 5):
        u, v = edges[:, i].tolist()
        crow, col = whole.graph.links.crow, whole.graph.links.col
        near = {n: set(col[crow[n] : crow[n + 1]].tolist()) for n in range(25)}
        near[u].discard(v)
        near[v].discard(u)
        mean = torch.stack([x[[n, *near[n]]].mean(0) for n in range(25)])
        wide = torch.stack([mean[[n, *near[n]]].sum(0) for n in range(25)])
        cosine = torch.nn.functional.cosine_similarity
        for name, rows in (("own", x), ("one_hop", mean), ("two_hop", wide)):
            expected = cosine(rows[u], rows[v], dim=0)
            torch.testing.assert_close(said[i, RAW.index(name)], expected, atol=1e-5, rtol=1e-4)
        both, degree = near[u] & near[v], {n: len(of) for n, of in near.items()}
        low, high = sorted((degree[u], degree[v]))
        paths = sum(d * (d - 1) for d in degree.values())
        by_chance = low * high * paths / sum(degree.values()) ** 2
        expected = {
            "common": math.log1p(len(both)),
            "jaccard": len(both) / max(1, len(near[u] | near[v])),
            "adamic": math.log1p(sum(1 / math.log(degree[n] + 1) for n in both)),
            "allocation": math.log(sum(1 / degree[n] for n in both) + 1e-3),
            "surprise": math.log((len(both) + 0.5) / (by_chance + 0.5)),
            "degree_low": math.log1p(low),
            "degree_high": math.log1p(high),
        }
        for name, value in expected.items():
            assert float(said[i, RAW.index(name)]) == pytest.approx(value, abs=1e-4), name


def test_evidence_and_context_have_their_names_and_are_finite():
    for features, labels in ((True, True), (False, False)):
        whole = inputs(graph(features=features, labels=labels))
        tables = ReferenceTables(whole, torch.Generator().manual_seed(0))
        pairs = torch.tensor([[0, 1, 2], [5, 9, 30]])
        evidence = tables.evidence(pairs)
        assert evidence.shape == (3, len(EVIDENCE))
        assert tables.context.shape == (len(CONTEXT),)
        assert bool(evidence.isfinite().all() & tables.context.isfinite().all())
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(RAW)


def test_scores_are_the_odds_against_both_kinds_of_false_edges_mixed_with_those_of_attacks():
    """o = (1 - g) * -log sum_k exp(l_k / 2 + p_k - a_k s_k) + g * attack, as the docstring has."""
    g, auditor = torch.Generator().manual_seed(0), Auditor()
    auditor.missing_scale.copy_(torch.tensor([0.5, -2.0]))
    f, c = torch.randn(7, len(EVIDENCE), generator=g), torch.randn(FACTS, generator=g) / 3
    for missing, scorer in ((False, auditor.edges), (True, auditor.pairs)):
        for weight in scorer.parameters():
            weight.data += torch.randn(weight.shape, generator=g) / 5
        fits = [EVIDENCE.index(f"fit_{kind}") for kind in ("uniform", "degree")]
        s, mix = f[:, fits] + (f @ scorer.out)[:, None], float(c[CONTEXT.index("false_edge_mix")])
        a = (scorer.trust_bias + c @ scorer.trust).exp().log1p()
        share = torch.tensor([1 / (1 + math.exp(mix)), 1 / (1 + math.exp(-mix))])
        odds = share.sqrt() * (scorer.prior_bias + c @ scorer.prior - a * s).exp()
        gate = 1 / (1 + (-scorer.gate_bias - c @ scorer.gate).exp())
        attack = f @ scorer.attack.out + scorer.attack.bias
        score = (gate - 1) * odds.sum(1).log() + gate * attack
        expected = 0.5 * score - 2 if missing else score
        torch.testing.assert_close(auditor.score(f, c, missing), expected)


def test_the_false_edges_are_counted_and_mostly_by_degree():
    """The densities of uniform and degree-drawn pairs, and of real edges, are known."""
    centres = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 6.0]])  # uniform, by degree, real
    shares = torch.tensor([0.05, 0.25, 0.7])
    generator = torch.Generator().manual_seed(0)
    kinds = [torch.full((20_000,), kind) for kind in (0, 1)]
    kinds.append(torch.multinomial(shares, 20_000, replacement=True, generator=generator))

    def log_odds(kind):
        at = centres[kind] + torch.randn(len(kind), 2, generator=generator)
        density = (-(at[:, None] - centres).square().sum(2) / 2).exp()  # [M, 3]
        return ((density @ shares)[:, None] / density[:, :2]).log()

    mix, share = estimate_false_edge_mix(*(log_odds(kinds[i]) for i in (2, 0, 1)))
    assert float(share.sigmoid()) == pytest.approx(0.3, abs=0.05)
    assert float((mix.sigmoid() - 0.1) / 0.8) == pytest.approx(0.7, abs=0.05)  # of the low ones


def test_what_has_no_closed_form_is_that_of_the_edges_of_other_folds():
    """Affinities and the spectrum against dense matrices; 60 nodes have the whole spectrum."""
    whole = inputs(graph())
    low, high = whole.graph.low.long(), whole.graph.high.long()
    torch.testing.assert_close(whole.z.mean(0), torch.zeros(whole.z.shape[1]), atol=1e-5, rtol=0)
    values = torch.linalg.eigvalsh(whole.x.T.cov(correction=0)).flip(0)
    variance = (values / (values + 0.02 * values.mean())).diag()
    torch.testing.assert_close(whole.z.T.cov(correction=0), variance, atol=1e-4, rtol=0)
    for k in range(FOLDS):
        kept = pair_fold(low, high) != k
        a = torch.zeros(60, 60).index_put_((low[kept], high[kept]), torch.tensor(1.0))
        a, z, b = a + a.T, whole.z, whole.beliefs
        degree, ends = a.sum(1), b.T @ a.sum(1)
        expected = z.T @ (a - torch.outer(degree, degree) / degree.sum()) @ z / degree.sum()
        torch.testing.assert_close(whole.feature_affinity[k], expected, atol=1e-5, rtol=1e-4)
        weak, chance = 5 / b.shape[1], torch.outer(ends, ends) / ends.sum()
        expected = (b.T @ a @ b + weak) / (chance + weak)
        torch.testing.assert_close(whole.class_affinity[k], expected, atol=1e-5, rtol=1e-4)
        scale, rows = (degree + degree.mean()).rsqrt(), whole.spectrum[k]
        rebuilt = (rows * whole.signs[k]) @ rows.T
        torch.testing.assert_close(rebuilt, scale[:, None] * a * scale, atol=1e-4, rtol=0)


def test_the_context_of_an_audit_by_name():
    whole = inputs(graph(labels=False))
    found = dict(zip(CONTEXT, _facts(whole), strict=False))
    degree, count = whole.graph.degree, len(whole.graph.low)
    expected = {"size": math.log(count) / 3 - 3, "degree": float(degree.mean().log1p()) / 4}
    expected["unevenness"] = math.log1p(float((degree**2).mean() / degree.mean() ** 2)) / 3
    expected |= {"has_features": 1, "has_labels": 0}
    assert {name: float(fact) for name, fact in found.items()} == pytest.approx(expected, abs=1e-5)
    assert CONTEXT[len(found) :] == ("false_edge_mix", "share")


def test_pairs_without_an_edge_are_drawn_uniformly_and_by_degree():
    p = known_graph(graph(nodes=400, edges=1200))
    drawn = pairs_without_edge(p, 5000, torch.Generator().manual_seed(0))
    for pairs, mean in zip(
        drawn, (p.degree.mean(), (p.degree**2).mean() / p.degree.mean()), strict=True
    ):
        assert pairs.shape == (2, 5000)
        assert bool((pairs[0] < pairs[1]).all())
        assert not bool(is_edge(p.links, pairs).any())
        assert float(p.degree[pairs].mean()) == pytest.approx(float(mean), rel=0.03)


def test_facts_of_a_graph_by_plain_loops():
    g = torch.Generator().manual_seed(0)
    samples = [torch.randn(300, len(EVIDENCE), generator=g) / 2 for _ in range(3)]
    auditor, context = Auditor().frozen(), torch.arange(len(CONTEXT)) / 10
    auditor.attack.out[:] = torch.randn(len(EVIDENCE), generator=g)
    found = auditor.facts(context, samples)
    assert torch.equal(found[: len(CONTEXT)], context)
    facts = found[len(CONTEXT) :].view(-1, 4)
    fits = [EVIDENCE.index(f"fit_{kind}") for kind in ("uniform", "degree")]
    scores = [
        lambda rows: rows[:, fits[0]],
        lambda rows: rows[:, fits[1]],
        lambda rows: rows[:, fits].sum(1),
        lambda rows: rows @ auditor.attack.out / 4,
    ]
    for column, score in enumerate(scores):
        own, *others = map(score, samples)
        expected = [float(own.quantile(q)) for q in LEVELS] + [float((-4 * own).sigmoid().mean())]
        for pairs in others:
            shares = [float((own <= pairs.quantile(q)).float().mean()) for q in LEVELS]
            expected += [
                math.log((s + 3e-3) / (q + 3e-3)) for s, q in zip(shares, LEVELS, strict=True)
            ]
            expected += [float(pairs.mean() - own.mean()), float((-4 * pairs).sigmoid().mean())]
        expected = [min(max(fact, -4), 4) / 2 for fact in expected]
        assert facts[:, column].tolist() == pytest.approx(expected, abs=1e-5)


def test_tables_and_regressions_leave_out_the_fold_of_the_pair():
    """Edges and pairs of fold 2 change places: what is said of fold 2 stays, all else does not."""
    generator = torch.Generator().manual_seed(0)
    raw = [torch.randn(200, 3, generator=generator) + kind for kind in range(3)]
    folds = [torch.arange(200) % FOLDS] * 3
    swapped, own = [part.clone() for part in raw], folds[0] == 2
    swapped[0][own], swapped[1][own] = raw[1][own], raw[0][own]
    tables = [_log_ratios(part, folds)[1].transpose(0, 1) for part in (raw, swapped)]
    weights = [_regression(part[:2], folds[:2]) for part in (raw, swapped)]
    for before, after in (tables, weights):
        same = [torch.allclose(*pair, atol=1e-3) for pair in zip(before, after, strict=True)]
        assert same == [fold == 2 for fold in range(FOLDS)]
    fits = _fits(weights[0][None], raw[2], folds[2])[:, 0]
    own = [float(weights[0][i % FOLDS] @ F.pad(raw[2][i], (1, 0), value=1)) for i in range(200)]
    torch.testing.assert_close(fits, torch.tensor(own))


def test_the_fold_of_a_pair_is_spread_evenly():
    low = torch.arange(10_000)
    counts = torch.bincount(pair_fold(low, low + 7), minlength=FOLDS)
    assert counts.min() > 0.9 * 10_000 / FOLDS


def test_candidates_are_pairs_without_an_edge():
    whole = inputs(graph())
    pairs = missing_candidates(whole, torch.Generator().manual_seed(0))
    assert pairs.shape[1] > 60
    assert bool((pairs[0] < pairs[1]).all())
    assert not bool(is_edge(whole.graph.links, pairs).any())
    assert torch.unique(pairs, dim=1).shape == pairs.shape
