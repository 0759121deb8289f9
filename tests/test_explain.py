"""What a score is made of: the parts must add up to it, whatever is explained."""

import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import graphglow
from graphglow.errors import InputError
from graphglow.evidence.pair_features import GROUPS, MEANINGS, logit
from graphglow.explain import OUTCOMES
from tiny_graphs import small_data

NAMES = ["red", "green", "blue"]
NODES = 60


def total(why):
    return sum(one["contribution"] for one in why.contributions)


def named_data(*left_out, **changes):
    data = small_data(**changes)
    data.node_id = [f"n{i}" for i in range(len(data.y))]
    data.class_names = NAMES
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        if name in data:
            data[name][7] = -1 if name == "y" else False
    kept = Data(**{k: v for k, v in data.to_dict().items() if k not in left_out})
    kept.num_nodes = len(data.y)
    return kept


# A class, by a prediction


@pytest.fixture(scope="module")
def prediction():
    return graphglow.predict(named_data(num_nodes=NODES))


@pytest.mark.parametrize("model", ["untrained", "universal"])
def test_the_parts_of_a_prediction_give_its_probabilities(model):
    found = graphglow.predict(named_data(num_nodes=NODES), model)
    for node in (0, 8, int(found.labelled.nonzero()[0])):
        parts = [found.explain(f"n{node}", name) for name in NAMES]
        for one in parts:
            assert total(one) == pytest.approx(one.score, abs=1e-9)
            assert one.to_frame().contribution.sum() == pytest.approx(one.score)
            scores = dict(one.facts["scores"])
            own = scores.pop(one.facts["explained"])
            assert one.score == pytest.approx(own - max(scores.values()))
            assert scores[one.facts["other_class"]] == max(scores.values())
            assert one.facts["other_class"] in one.answer
        scores = torch.tensor([*parts[0].facts["scores"].values()], dtype=torch.float64)
        expected = found.probabilities[node].double()
        torch.testing.assert_close(scores.softmax(0), expected, atol=1e-5, rtol=1e-3)


def test_labelled_nodes_around_it_are_listed(prediction):
    data, node = prediction.data, int(prediction.labelled.nonzero()[0])
    why = prediction.explain(f"n{node}")
    assert (why.facts["id"], why.facts["labelled"]) == (f"n{node}", True)
    rows = pd.DataFrame(why.tables["labelled nodes around it"])
    nodes = [int(name[1:]) for name in rows.id]
    assert node not in nodes  # its own label has no part
    assert prediction.labelled[nodes].all()
    assert rows.label.tolist() == [NAMES[c] for c in data.y[nodes]]
    around = set(data.edge_index[1][data.edge_index[0] == node].tolist())
    assert {n for n, edge in zip(nodes, rows.input_edge, strict=True) if edge} <= around
    assert around & set(prediction.labelled.nonzero()[:, 0].tolist()) <= set(nodes)
    assert (rows.input_weight + rows.refined_weight)[rows.steps.notna()].is_monotonic_decreasing
    step = torch.zeros(NODES, NODES).index_put_(tuple(data.edge_index), torch.tensor(1.0))
    step = step / step.sum(1, keepdim=True).clamp_min(1)
    walks = (step + step @ step)[node] / 2  # of one or two steps with even odds
    assert rows.input_weight.tolist() == pytest.approx(walks[nodes].tolist(), abs=1e-6)


# A pair

GRAPHS = {
    "whole": named_data(num_nodes=NODES, seed=1),
    "no labels": named_data("y", "train_mask", "val_mask", "test_mask", num_nodes=NODES, seed=1),
    "no features": named_data("x", num_nodes=NODES, seed=1),
    "no edges": named_data("edge_index", "edge_weight", num_nodes=NODES, seed=1),
    "nothing but nodes": Data(num_nodes=5),
}


def kinds_of_pairs(data, refined):
    """An input edge, a candidate that is none, and a pair that was not looked at, if there are."""
    nodes = refined.graph.num_nodes
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
@pytest.mark.parametrize("model", ["universal", "untrained"])
def test_the_evidence_about_a_pair_adds_up_to_its_log_odds(name, model):
    data, found = GRAPHS[name], graphglow.load_learner(model)
    refined = found.refine(data)
    pairs = kinds_of_pairs(data, refined)
    assert "other" in pairs
    for kind, pair in pairs.items():
        u, v = (data.node_id[i] if "node_id" in data else i for i in pair)
        why = graphglow.explain_pair(data, u, v, found, device="cpu")
        assert total(why) == pytest.approx(why.score, abs=1e-5)
        assert why.score == pytest.approx(logit(why.probability), abs=1e-4)
        kinds = {one["name"] for one in why.contributions}
        assert kinds == set(MEANINGS)
        assert set(GROUPS) - kinds == {"first round"}  # the others speak in it
        assert why.facts["input_edge"] == (kind == "edge")
        real = why.facts["probability_real"]
        assert (real is not None) == ("another question is whether" in why.answer.lower())
        assert (why.facts["outcome"] in ("kept", "dropped")) == why.facts["input_edge"]
        assert OUTCOMES[why.facts["outcome"]] in why.answer
        kept = why.facts["outcome"] in ("kept", "added")
        assert (", but the" in why.answer) == (why.probability > why.facts["chance"] and not kept)


def test_a_candidate_is_explained_as_it_was_scored_in_either_direction():
    data, found = GRAPHS["whole"], graphglow.load_learner("untrained")
    refined = graphglow.refine(data, found, device="cpu")
    u, v = (f"n{end}" for end in refined.edge_index[:, 3].tolist())
    why = graphglow.explain_pair(data, u, v, found, device="cpu")
    assert why.probability == float(refined.edge_probability[3])
    assert why.facts["outcome"] in ("kept", "added")
    turned = graphglow.explain_pair(data, v, u, found, device="cpu")
    assert turned.contributions == why.contributions


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


# All of them


def test_the_table_is_in_text_file_and_json(prediction, tmp_path):
    pair = graphglow.explain_pair(GRAPHS["whole"], "n5", "n9", device="cpu")
    for why in (pair, prediction.explain("n5")):
        assert why.text().startswith(f"{why.answer}\n")
        assert f"score: {why.score:+.3f}, the sum of these" in why.text()
        assert len(why.to_dict()["contributions"]) == len(why.contributions)
        for name in ("why.csv", "why.parquet"):
            why.write(tmp_path / name)
            read = pd.read_parquet if name.endswith("t") else pd.read_csv
            assert read(tmp_path / name).contribution.tolist() == pytest.approx(
                [one["contribution"] for one in why.contributions]
            )
        with pytest.raises(InputError, match=r"\.html page must be \.csv or \.parquet"):
            why.write(tmp_path / "why.txt")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.explain("n99"), r"the id of a node \(nearest: n"),
        (lambda p: p.explain("N5"), r"nearest: n5,"),
        (lambda p: p.explain("n5", label="pink"), "classes red, green, blue; got 'pink'"),
        (
            lambda p: graphglow.explain_pair(p.data, "n1", "n1"),
            "two different nodes; got 'n1' twice",
        ),
    ],
)
def test_bad_questions_are_one_sentence(prediction, call, message):
    with pytest.raises(InputError, match=message):
        call(prediction)


@pytest.mark.parametrize("node", [5, -1, "x", 1.5])
def test_an_index_out_of_range(node):
    with pytest.raises(InputError, match=r"an index in \[0, 4\]; got"):
        graphglow.explain_pair(GRAPHS["nothing but nodes"], 1, node)


def test_the_audit_and_an_explained_pair_say_the_same_of_an_edge():
    data = named_data(num_nodes=NODES, seed=1)
    audit = graphglow.audit(data, device="cpu")
    for row in audit.suspects.iloc[[0, -1]].to_dict("records"):
        why = graphglow.explain_pair(data, row["source"], row["target"], device="cpu")
        assert why.facts["probability_real"] == pytest.approx(row["probability_real"], abs=1e-4)
        if row["probability_same_class"] == row["probability_same_class"]:  # looked at
            assert why.probability == pytest.approx(row["probability_same_class"], abs=1e-4)
