"""``graphglow.refine``: a better graph and instant predictions, nothing trained."""

import re
import warnings

import pytest
import torch
from torch_geometric.data import Data

import graphglow
from graphglow.graph import synthetic_graph
from graphglow.graph.check import with_random_split
from graphglow.refine import EDGES, input_edges


@pytest.fixture(scope="module")
def wine():
    return graphglow.load_graph("wine")


@pytest.fixture(scope="module")
def refined(wine):
    return graphglow.refine(wine, device="cpu", edges="replace")


def test_it_is_a_graph_with_the_nodes_of_the_input(wine, refined):
    assert isinstance(refined, Data)
    assert {refined[name].shape[-1] for name in EDGES} == {refined.edge_index.shape[1]}
    for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(refined[name], wine[name])
    assert refined.class_names == wine.class_names
    assert (refined.edge_weight > 0).all()
    assert ((refined.edge_probability > 0) & (refined.edge_probability < 1)).all()
    both = {tuple(pair) for pair in refined.edge_index.T.tolist()}
    assert both == {(b, a) for a, b in both}


def test_edges_that_were_there_are_told_from_new_ones(wine, refined):
    old = {tuple(pair) for pair in wine.edge_index.T.tolist()}
    old |= {(b, a) for a, b in old}
    kept = zip(refined.edge_index.T.tolist(), refined.edge_in_input.tolist(), strict=True)
    assert all((tuple(pair) in old) == was for pair, was in kept)
    assert 0 < int(refined.edge_in_input.sum()) < refined.edge_index.shape[1]


def test_the_frame_has_each_edge_once_in_the_users_ids(wine):
    named = wine.clone()
    named.node_id = [f"w{i}" for i in range(wine.num_nodes)]
    made = graphglow.refine(named, device="cpu")
    frame = made.to_frame()
    assert list(frame) == ["source", "target", "weight", "probability", "in_input"]
    assert 2 * len(frame) == made.edge_index.shape[1]
    assert len({frozenset(pair) for pair in zip(frame.source, frame.target, strict=True)}) == len(
        frame
    )
    assert frame.probability.is_monotonic_decreasing
    assert {*frame.source} <= {*named.node_id}


@pytest.mark.parametrize("suffix", [".pt", ".npz", ".graphml"])
def test_what_is_known_of_edges_is_read_back(refined, tmp_path, suffix):
    graphglow.write_graph(refined, tmp_path / f"g{suffix}")
    back = graphglow.load_graph(tmp_path / f"g{suffix}")

    def told(data):
        values = zip(data.edge_probability.tolist(), data.edge_in_input.tolist(), strict=True)
        return dict(zip(map(tuple, data.edge_index.T.tolist()), values, strict=True))

    assert back.edge_in_input.dtype == torch.bool
    assert told(back) == told(refined)


def test_instant_predictions_are_probabilities_and_good_ones(refined):
    probabilities = refined.predict_proba()
    torch.testing.assert_close(probabilities.sum(1), torch.ones(len(probabilities)))
    assert refined.accuracy("test") > 0.9
    assert torch.equal(refined.predict(), probabilities.argmax(1))


def test_no_label_outside_of_the_training_nodes_is_read(wine, refined):
    other = wine.clone()
    other.y = torch.where(wine.train_mask, wine.y, (wine.y + 1) % 3)
    again = graphglow.refine(other, device="cpu", edges="replace")
    assert all(torch.equal(again[name], refined[name]) for name in EDGES)
    assert torch.equal(again.class_probability, refined.class_probability)
    other.y = torch.where(wine.test_mask, (wine.y + 1) % 3, wine.y)  # nor for the verdict
    again = graphglow.refine(other, device="cpu", edges="replace")
    assert again.verdict == refined.verdict


def test_without_labels_there_is_a_graph_and_no_prediction(wine):
    blank = wine.clone()
    blank.y = torch.full_like(wine.y, -1)
    found = graphglow.refine(blank, device="cpu")
    assert found.predict_proba() is None
    assert found.predict() is None
    assert found.accuracy("test") is None
    assert found.edge_index.shape[1] > 0


def test_edges_below_a_probability_are_left_out(wine, refined):
    sure = graphglow.refine(wine, device="cpu", edges="replace", min_probability=0.9)
    assert float(sure.edge_probability.min()) >= 0.9
    assert sure.edge_index.shape[1] == int((refined.edge_probability >= 0.9).sum())


def test_a_graph_without_an_edge_left_is_not_better(wine, refined):
    with pytest.warns(graphglow.InputWarning, match="no edges are left"):
        none = graphglow.refine(wine, device="cpu", edges="replace", min_probability=1)
    assert none.edge_index.shape[1] == 0
    assert none.verdict == (
        "cannot tell: no edges are left, as none is above chance and reaches min_probability 1"
    )
    assert torch.equal(none.class_probability, refined.class_probability)
    assert "predictions are right for" in refined.verdict


def test_refined_edges_are_not_those_that_were_made(wine, refined):
    table = graphglow.load_graph(Data(x=wine.x, y=wine.y))
    for given, made in ((wine, refined), (table, graphglow.refine(table, device="cpu"))):
        assert graphglow.describe(given)["made_of_nearest_neighbours"]
        assert not graphglow.describe(made)["made_of_nearest_neighbours"]


def test_a_bad_probability_is_refused(wine):
    with pytest.raises(graphglow.InputError, match="min_probability must lie in"):
        graphglow.refine(wine, min_probability=2)


def test_edges_of_the_input_are_counted_once():
    pairs = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    assert input_edges(Data(edge_index=pairs, num_nodes=3)) == 2
    assert input_edges(Data(num_nodes=3)) == 0


def test_the_verdict_says_by_what_it_is_better(refined, wine):
    assert re.match(
        r"better: 9\S+% of \d+ labelled edges join one class, against .*\n"
        r"predictions are right for \S+ of 44 validation nodes, over the input for ",
        refined.verdict,
    )
    blank = wine.clone()
    blank.y = torch.full_like(wine.y, -1)
    assert graphglow.refine(blank, device="cpu").verdict == "cannot tell: no labels"


def test_the_verdict_on_noise_is_not_that_it_is_better():
    better = 0
    for seed in range(12):
        draw = torch.Generator().manual_seed(seed)
        order = torch.randperm(60, generator=draw)
        data = Data(
            x=torch.randn(60, 8, generator=draw),
            y=torch.arange(60)[order] % 2,
            edge_index=torch.randint(60, (2, 150), generator=draw),
        )
        for place, name in enumerate(("train_mask", "val_mask", "test_mask")):
            data[name] = torch.arange(60) % 3 == place
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            better += graphglow.refine(data, device="cpu").verdict.startswith("better")
    assert better <= 2


def test_what_is_as_it_was_is_not_better(wine):
    kept = graphglow.refine(wine, device="cpu", edges="keep")
    assert kept.verdict == "no change: every edge is as it was"


def test_weights_may_be_a_column_and_weightless_edges_are_none(wine):
    some = wine.clone()
    across = wine.y[wine.edge_index[0]] != wine.y[wine.edge_index[1]]
    some.edge_weight = (~across).float()[:, None]
    made = graphglow.refine(some, device="cpu", edges="replace")
    assert re.search(r"against 100.0% of \d+ of the input", made.verdict)
    assert input_edges(some) < input_edges(wine)
    assert graphglow.explain_pair(some, 0, 1, device="cpu").probability > 0


def test_a_worse_graph_is_said_once(wine, run, tmp_path):
    best = wine.clone()  # edges within classes only: a learner that knows nothing spoils that
    same = wine.y[wine.edge_index[0]] == wine.y[wine.edge_index[1]]
    best.edge_index = wine.edge_index[:, same]
    best.x = torch.randn(wine.x.shape, generator=torch.Generator().manual_seed(0))
    graphglow.write_graph(best, tmp_path / "best.pt")
    words = ["--target", tmp_path / "best.pt", "--out", tmp_path / "o.pt", "--device", "cpu"]
    _, out, err = run(
        "refine", *words, "--learner", "untrained", "--top-k", "60", "--edges", "augment"
    )
    assert (out + err).count("worse:") == 1
    with pytest.warns(graphglow.InputWarning, match="worse: .* against 100.0% of"):
        graphglow.refine(best, "untrained", top_k=60, device="cpu", edges="augment")


def test_most_edges_left_out_are_said(wine):
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(178, (2, 700), generator=draw)
    given = Data(x=wine.x, y=wine.y, edge_index=edges, train_mask=wine.train_mask, split="given")
    with pytest.warns(graphglow.InputWarning, match=r"\d+ of your \d+ edges are left out"):
        made = graphglow.refine(given, device="cpu", edges="replace")
    assert int(made.edge_in_input.sum()) < input_edges(given)


def test_only_pruned_and_only_grown(wine):
    old = {tuple(pair) for pair in wine.edge_index.T.tolist() if pair[0] != pair[1]}
    pruned = graphglow.refine(wine, device="cpu", edges="prune")
    assert {tuple(pair) for pair in pruned.edge_index.T.tolist()} < old
    grown = graphglow.refine(wine, device="cpu", edges="augment")
    assert {tuple(pair) for pair in grown.edge_index.T.tolist()} > old
    assert (grown.edge_weight[grown.edge_in_input] >= 1).all()


def drawn(homophily: float, **more) -> Data:
    """A graph whose edges join classes that often; its features say little by themselves."""
    settings = {"num_nodes": 300, "num_classes": 3, "average_degree": 10.0, "feature_noise": 2.0}
    return with_random_split(synthetic_graph(homophily=homophily, seed=5, **settings | more), 0)


def fraud() -> Data:
    """Few frauds who deal with each other; the others deal with anybody."""
    draw = torch.Generator().manual_seed(0)
    y = (torch.rand(600, generator=draw) < 0.06).long()
    rare = y.nonzero()[:, 0]
    among = rare[torch.randint(len(rare), (2, 2 * len(rare)), generator=draw)]
    edges = torch.cat([among, torch.randint(600, (2, 900), generator=draw)], 1)
    x = torch.randn(600, 8, generator=draw)
    return with_random_split(Data(x=x, y=y, edge_index=edges, num_nodes=600), 0)


@pytest.mark.parametrize(
    ("data", "choices"),
    [(fraud(), {"keep", "augment"}), (drawn(0.9), {"keep", "augment"}), (drawn(0.33), {"replace"})],
    ids=["fraud", "clean", "useless edges"],
)
def test_leave_one_out_chooses_what_becomes_of_the_edges(data, choices):
    made = graphglow.refine(data, device="cpu")
    assert made.choice in choices
    same = graphglow.refine(data, device="cpu", edges=made.choice)
    assert torch.equal(made.edge_index, same.edge_index)
    if made.choice != "replace":
        assert int(made.edge_in_input.sum()) == 2 * input_edges(data)


def test_as_many_edges_are_kept_as_the_graph_has(wine, refined):
    few = graphglow.refine(wine, device="cpu", top_k=2)
    assert few.edge_index.shape[1] < refined.edge_index.shape[1]
    assert refined.edge_index.shape[1] == 2 * input_edges(wine)
    assert refined.edge_index[0].bincount(minlength=wine.num_nodes).min() >= 1
    assert few.edge_index[0].bincount(minlength=wine.num_nodes).min() >= 1
    with pytest.raises(graphglow.InputError, match="top_k must be >= 1"):
        graphglow.refine(wine, top_k=0)
