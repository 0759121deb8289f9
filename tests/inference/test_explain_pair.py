"""Which evidence speaks about a pair: the parts must add up, whatever the graph lacks."""

import math

import pytest
import torch
from torch_geometric.data import Data

import graphglow
from graphglow.errors import InputError
from graphglow.evidence import EvidenceLearner
from graphglow.evidence.pair_features import GROUPS, logit
from graphglow.inference.explain_pair import OUTCOMES
from tiny_graphs import learner as paper_learner
from tiny_graphs import small_data, transfer_config

NODES = 60


def graph(*left_out):
    data = small_data(num_nodes=NODES, seed=1)
    data.node_id = [f"n{i}" for i in range(NODES)]
    data.class_names = ["red", "green", "blue"]
    kept = Data(**{k: v for k, v in data.to_dict().items() if k not in left_out})
    kept.num_nodes = NODES
    return kept


GRAPHS = {
    "whole": graph(),
    "no labels": graph("y", "train_mask", "val_mask", "test_mask"),
    "no features": graph("x"),
    "no edges": graph("edge_index", "edge_weight"),
    "nothing but nodes": Data(num_nodes=5),
}


def pairs_of(data, refined):
    """An input edge, a candidate that is none, and a pair that was not looked at, if there are."""
    nodes = refined.num_nodes
    every = torch.combinations(torch.arange(nodes)).T
    key = every[0] * nodes + every[1]
    candidate = torch.isin(key, refined.pairs[0] * nodes + refined.pairs[1])
    edge = torch.zeros_like(candidate)
    if data.get("edge_index") is not None:
        ends = data.edge_index.sort(0).values
        edge = torch.isin(key, ends[0] * nodes + ends[1])
    sorts = {"edge": edge, "candidate": candidate & ~edge, "other": ~candidate}
    return {name: every[:, where][:, 0].tolist() for name, where in sorts.items() if where.any()}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("learner", ["universal", "untrained"])
def test_the_contributions_add_up_to_the_log_odds(name, learner):
    data = GRAPHS[name]
    found = graphglow.load_learner(learner)
    refined = found.refine(data)
    pairs = pairs_of(data, refined)
    assert "other" in pairs
    for sort, pair in pairs.items():
        u, v = (data.node_id[i] if "node_id" in data else i for i in pair)
        why = graphglow.explain_pair(data, u, v, found, device="cpu")
        assert sum(why.contributions.values()) == pytest.approx(why.log_odds, abs=1e-5)
        assert why.log_odds == pytest.approx(logit(why.probability), abs=1e-4)
        assert set(GROUPS) - set(why.contributions) == {"first round"}  # it is said by the others
        assert (why.input_edge, why.candidate) == (sort == "edge", sort != "other")
        assert why.chance == refined.chance
        assert (why.predicted is None) == (refined.probabilities is None)
        assert why.outcome in OUTCOMES
        assert (why.outcome in ("kept", "dropped")) == why.input_edge


@pytest.mark.parametrize("learner", ["universal", "untrained"])
def test_looking_at_other_pairs_changes_nothing(learner):
    data, found = GRAPHS["whole"], graphglow.load_learner(learner)
    alone = found.refine(data)
    also = torch.combinations(torch.arange(NODES)).T.flip(0)
    more = found.refine(data, also=also)
    assert more.pairs.shape[1] == NODES * (NODES - 1) // 2
    known = alone.num_candidates
    assert known == alone.pairs.shape[1] == more.num_candidates
    for name in ("edge_index", "edge_weight", "edge_probability", "edge_in_input", "probabilities"):
        assert torch.equal(getattr(alone, name), getattr(more, name)), name
    for name in ("pairs", "pair_log_odds"):
        assert torch.equal(getattr(alone, name), getattr(more, name)[..., :known]), name
    assert (alone.context, alone.calibration) == (more.context, more.calibration)
    assert torch.equal(alone.dropped(), more.dropped())


def test_a_candidate_is_explained_as_it_was_scored_in_either_direction():
    data, found = GRAPHS["whole"], graphglow.load_learner("untrained")
    refined = graphglow.refine(data, found, device="cpu")
    u, v = (f"n{end}" for end in refined.edge_index[:, 3].tolist())
    why = graphglow.explain_pair(data, u, v, found, device="cpu")
    assert why.probability == float(refined.edge_probability[3])
    turned = graphglow.explain_pair(data, v, u, found, device="cpu")
    assert turned.contributions == why.contributions


def test_the_text_names_the_strongest_evidence_on_both_sides():
    why = graphglow.explain_pair(GRAPHS["whole"], "n0", "n3", device="cpu")
    text = why.summary()
    assert text.startswith("n0 and n3 are ")
    assert repr(why) == f"PairExplanation({text})"
    assert why.text().startswith(f"{text}\n")
    assert why.text().endswith(f"\nlog-odds: {why.log_odds:+.3f}, the sum of these")
    assert OUTCOMES[why.outcome] in text
    frame = why.to_frame()
    assert list(frame) == ["evidence", "contribution", "about"]
    assert frame.about.astype(bool).all()  # a kind of evidence without a meaning needs one
    assert frame.contribution.is_monotonic_decreasing
    own = frame[~frame.evidence.isin(["chance", "this graph", "labelled pairs"])]
    for row in (own.iloc[0], own.iloc[-1]):
        if abs(row.contribution) >= 0.05:
            assert f"{row.evidence} ({row.contribution:+.1f})" in text


def test_surroundings_are_of_the_input_graph():
    edges = torch.tensor([[0, 1, 0, 1, 0, 2, 3], [2, 2, 3, 4, 1, 3, 4]])
    data = Data(x=torch.eye(6)[:, :3], edge_index=edges, node_id=list("abcdef"))
    around = graphglow.explain_pair(data, "a", "b", device="cpu").surroundings
    assert (around.common, around.of_u, around.of_v) == (["c"], ["d"], ["e"])
    assert {frozenset(edge) for edge in around.edges} == {frozenset("cd"), frozenset("de")}
    assert around.left_out == 0
    star = Data(edge_index=torch.stack([torch.zeros(20, dtype=torch.int64), torch.arange(1, 21)]))
    star.num_nodes = 22
    lone = graphglow.explain_pair(star, 0, 21, device="cpu").surroundings
    assert (len(lone.of_u), lone.left_out) == (6, 14)


def test_labels_outside_of_the_training_nodes_are_not_read():
    data, other = graph(), graph()
    other.y[~other.train_mask] = 0
    assert graphglow.explain_pair(data, "n1", "n9", device="cpu") == graphglow.explain_pair(
        other, "n1", "n9", device="cpu"
    )


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        (("n1", "n1"), "two different nodes; got 'n1' twice"),
        (("n1", "m1"), r"the id of a node \(nearest: .*\); got 'm1'"),
    ],
)
def test_bad_pairs_are_refused(pair, sentence):
    with pytest.raises(InputError, match=sentence):
        graphglow.explain_pair(GRAPHS["whole"], *pair)


def test_what_is_no_graph_is_refused():
    with pytest.raises(InputError, match="Data"):
        graphglow.explain_pair(3, 1, 2)


def test_the_papers_learner_has_no_evidence_to_name():
    with pytest.raises(InputError, match="needs an evidence learner"):
        graphglow.explain_pair(GRAPHS["whole"], "n1", "n2", "paper")
    result = graphglow.transfer(small_data(), paper_learner(), transfer_config(epochs=1))
    with pytest.raises(InputError, match="under an evidence learner; got one under the paper's"):
        result.explain_pair(1, 2)
    assert result.explain(1).to_frame().probability.isna().all()


# a trained result


@pytest.fixture(scope="module")
def result():
    config = graphglow.TransferConfig(epochs=3, hidden=8, device="cpu")
    return graphglow.transfer(graph(), config=config)


def test_a_result_explains_its_pairs_as_its_graph_has_them(result, tmp_path):
    result.save(tmp_path / "r.safetensors")
    loaded = graphglow.TransferResult.load(tmp_path / "r.safetensors")
    ends = result.edge_index[:, 0].tolist()
    for one in (result, loaded):
        why = one.explain_pair(f"n{ends[0]}", f"n{ends[1]}")
        assert why.outcome == ("kept" if bool(result.edge_in_input[0]) else "added")
        assert why.probability == pytest.approx(float(result.edge_probability[0]), abs=1e-6)
        assert sum(why.contributions.values()) == pytest.approx(why.log_odds, abs=1e-5)
        names = ["red", "green", "blue"]
        assert why.predicted == tuple(names[int(result.predict()[end])] for end in ends)


def test_a_nodes_refined_neighbours_say_why(result):
    joined = {
        (int(u), int(v)): float(p)
        for (u, v), p in zip(result.edge_index.T, result.edge_probability, strict=True)
    }
    seen = 0
    for node in range(0, NODES, 6):
        why = result.explain(f"n{node}", 10**6)
        for one in why.contributions:
            assert one.probability == joined.get((node, one.node))
            assert (one.evidence_for is None) == (one.probability is None)
            if one.probability is not None and not math.isclose(one.probability, 0.5):
                pair = result.explain_pair(f"n{node}", one.id)
                assert one.evidence_for in pair.summary()
                assert one.evidence_against in pair.summary()
                seen += 1
                break
        parts = why.bias + why.own + why.input_total + why.latent_total
        assert parts == pytest.approx(why.score, abs=1e-4)
    assert seen > 3


def test_an_evidence_learner_of_ones_own_explains_too():
    learner = EvidenceLearner(seed=4, trained=True).frozen()
    why = graphglow.explain_pair(GRAPHS["whole"], "n2", "n40", learner, device="cpu")
    assert sum(why.contributions.values()) == pytest.approx(why.log_odds, abs=1e-5)
