"""``graphglow.predict``: what a user may rely on, however good the learner is."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import graphglow
from graphglow import InputError, InputWarning, predict
from graphglow.graph.tables import read_new_nodes
from graphglow.scores import conformal_sets, weighted_accuracy
from tiny_graphs import relabelled


def graph(*, nodes=120, classes=3, seed=0, share=0.4, masks=True, noise=1.5):
    """A random graph, of which a share of the nodes is for training, half the rest for tests."""
    data = graphglow.synthetic_graph(
        num_nodes=nodes, num_classes=classes, num_features=12, homophily=0.6,
        average_degree=4.0, feature_noise=noise, seed=seed,
    )  # fmt: skip
    if masks:
        draw = torch.rand(nodes, generator=torch.Generator().manual_seed(seed))
        data.train_mask = draw < share
        data.val_mask = ~data.train_mask & (draw < (1 + share) / 2)
        data.test_mask = ~data.train_mask & ~data.val_mask
    return data


def run(data, **settings):
    return predict(data, **{"learner": "untrained", "device": "cpu"} | settings)


@pytest.fixture(scope="module")
def found():
    return run(graph(), coverage=0.8)


def test_every_node_has_a_class_and_probabilities(found):
    data = found.data
    assert found.probabilities.shape == (120, 3)
    assert torch.equal(found.classes, found.probabilities.argmax(1))
    torch.testing.assert_close(found.probabilities.sum(1), torch.ones(120))
    assert torch.equal(found.labelled, data.train_mask)
    assert found.class_names == ["0", "1", "2"]
    assert found.labels == found.classes.tolist()
    assert found.refined.update is not None
    text = repr(found)
    assert "120 nodes: 3 classes" in text
    assert "leave-one-out over" in text
    assert "test accuracy" in text


@pytest.mark.filterwarnings("ignore:worse")
def test_refine_hands_back_the_same(found):
    refined = graphglow.refine(found.data, "untrained", device="cpu")
    torch.testing.assert_close(refined.class_probability, found.probabilities)


def test_labels_that_were_not_given_are_never_read(found):
    other = found.data.clone()
    hidden = ~other.train_mask
    other.y[hidden] = (other.y[hidden] + 1) % 3
    assert torch.equal(run(other).probabilities, found.probabilities)
    other.y[hidden] = -1
    assert torch.equal(run(other).probabilities, found.probabilities)


def test_which_labels_are_given(found):
    data = found.data
    both = run(data, labels="train+val")
    assert torch.equal(both.labelled, data.train_mask | data.val_mask)
    bare = graph(masks=False)
    bare.y[:50] = -1
    assert torch.equal(run(bare).labelled, bare.y >= 0)
    tested = graph()
    del tested.train_mask, tested.val_mask
    assert torch.equal(run(tested).labelled, ~tested.test_mask)  # test labels are never given
    with pytest.raises(InputError, match=r"needs a val_mask, and this graph has none"):
        run(bare, labels="train+val")


def test_the_order_of_nodes_makes_no_difference(found):
    data, order = found.data, torch.randperm(120, generator=torch.Generator().manual_seed(3))
    found_there = run(relabelled(data, order)).probabilities
    assert torch.equal(found_there, found.probabilities[order])


@pytest.mark.parametrize("features", [True, False])
def test_the_order_of_classes_makes_no_difference(features):
    data, names = graph(seed=1), torch.tensor([2, 0, 1])
    data.x = data.x if features else None
    other = data.clone()
    other.y = names[data.y]
    one, two = run(data).probabilities, run(other).probabilities
    torch.testing.assert_close(two[:, names], one, atol=1e-4, rtol=0)


def test_the_same_seed_gives_the_same(found):
    assert torch.equal(run(found.data).probabilities, found.probabilities)
    assert run(found.data, seed=1).seed == 1


@pytest.mark.parametrize("missing", ["x", "edge_index", "masks", "variance"])
def test_what_may_be_absent(missing):
    data = graph(masks=missing != "masks")
    if missing == "variance":
        data.x = torch.ones(120, 4)
    elif missing != "masks":
        data[missing] = None
    answer = run(data)
    assert bool(torch.isfinite(answer.probabilities).all())
    if missing in ("x", "variance"):
        assert not {"x", "ax"} & set(answer.channels.channel)


def test_one_label_per_class():
    data = graph()
    data.train_mask = torch.zeros(120, dtype=torch.bool)
    data.train_mask[[int((data.y == c).nonzero()[0]) for c in range(3)]] = True
    data.val_mask = data.test_mask = None
    answer = run(data)
    assert (answer.accuracy.count, math.isnan(answer.accuracy.value)) == (0, True)
    assert "unknown" in repr(answer)
    assert len(answer.channels) == 0
    assert answer.explain(0).facts["predicted"] in "012"
    with pytest.warns(InputWarning, match="needs at least 9 labels .* got 0"):
        assert bool(run(data, coverage=0.9).sets.all())


def test_three_hundred_classes():
    data = graph(nodes=400, share=0.8)
    data.y = torch.randperm(400, generator=torch.Generator().manual_seed(0)) % 300
    answer = run(data)
    assert answer.probabilities.shape == (400, 300)
    assert answer.score("test").auroc is not None


def test_a_name_or_table_without_a_split_gives_every_label():
    frame = pd.DataFrame({"id": range(60), "a": torch.randn(60).numpy(), "label": ["p", "q"] * 30})
    frame.loc[50:, "label"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        answer = run(frame)
    assert int(answer.labelled.sum()) == 50
    assert answer.class_names == ["p", "q"]
    assert answer.labels == [["p", "q"][c] for c in answer.classes.tolist()]
    assert list(answer.to_frame().columns[:5]) == ["id", "predicted", "probability", "p_p", "p_q"]


@pytest.mark.parametrize(
    ("change", "settings", "rule"),
    [
        ({"y": None}, {}, "predict needs labels, and this graph has no y"),
        ({"y": torch.zeros(120).long()}, {}, "two classes or more, but all .* are of class 0"),
        ({"y": torch.full((120,), -1)}, {}, "two classes or more, but there are none"),
        ({"train_mask": torch.zeros(120).bool()}, {}, "there are none"),
        ({}, {"labels": "some"}, "labels must be one of train, train\\+val, all"),
        ({}, {"coverage": 1.0}, "coverage must lie between 0 and 1"),
        ({}, {"coverage": "most"}, "coverage must be a number"),
        ({}, {"seed": -1}, "seed must be >= 0"),
    ],
)
def test_what_is_refused(change, settings, rule):
    data = graph()
    for name, value in change.items():
        data[name] = value
    with pytest.raises(InputError, match=rule):
        run(data, **settings)
    with pytest.raises(InputError, match="is no graph"):
        run(3)


def test_all_labels_are_at_work_whatever_the_masks(found):
    every = run(found.data, labels="all")
    assert every.labelled.tolist() == (found.data.y >= 0).tolist()
    assert f"{len(found.data.y)} of {len(found.data.y)} labels" in str(every)


def test_leave_one_out_accuracy_has_an_interval(found):
    accuracy, train = found.accuracy, found.data.train_mask
    right = (found.classes == found.data.y)[train]
    weight = (found.refined.shares / found.refined.graph.prior)[found.data.y[train]].double()
    assert accuracy.value == pytest.approx(float((weight * right).sum() / weight.sum()))
    assert accuracy.low < accuracy.value < accuracy.high
    assert accuracy.count == int(train.sum())
    right, even = torch.arange(100) < 81, torch.ones(100)
    wilson = "81.0 % (72.2 to 87.5 %, leave-one-out over 100 labels)"
    assert str(weighted_accuracy(right, even)) == wilson
    assert str(weighted_accuracy(right, 3 * even)) == wilson
    assert weighted_accuracy(right[:5], even[:5]).high == 1.0
    some = weighted_accuracy(torch.tensor([True, False]), torch.tensor([3.0, 1.0]))
    assert some.value == pytest.approx(0.75)
    uneven = torch.tensor([0.2, 1.8]).repeat(50)
    assert weighted_accuracy(right, uneven).high > 0.878  # as of 61 tests


def test_scores_of_two_classes_and_of_more(found):
    from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

    test, data = found.score("test"), found.data
    nodes = data.test_mask
    y, p = data.y[nodes].numpy(), found.probabilities[nodes].double()
    p /= p.sum(1, keepdim=True)
    assert test.nodes == len(y)
    assert test.log_loss == pytest.approx(log_loss(y, p.numpy(), labels=[0, 1, 2]), abs=1e-6)
    assert test.auroc == pytest.approx(roc_auc_score(y, p, multi_class="ovr"))
    assert test.average_precision is None
    two = graph(classes=2, noise=3.0)
    two.y[(two.y == 0) & (torch.arange(120) % 4 > 0)] = -1  # class 0 is the rarer one
    answer = run(two)
    two_scores = answer.score("test")
    nodes = two.test_mask & (two.y >= 0)
    rare, p = (two.y[nodes] == 0).numpy(), answer.probabilities[nodes, 0].numpy()
    assert two_scores.auroc == pytest.approx(roc_auc_score(rare, p))
    assert two_scores.average_precision == pytest.approx(average_precision_score(rare, p))
    assert two_scores.majority == pytest.approx(1 - rare.mean())
    with pytest.raises(InputError, match=r"score\('test'\) needs a test_mask"):
        run(graph(masks=False)).score()
    with pytest.raises(InputError, match="part must be one of"):
        found.score("exam")


def test_the_table_of_nodes(found, tmp_path):
    frame = found.to_frame()
    columns = ["id", "predicted", "probability", "p_0", "p_1", "p_2", "labelled", "classes"]
    assert list(frame) == columns
    assert frame.labelled.tolist() == found.labelled.tolist()
    held = [[str(c) for c in range(3) if row[c]] for row in found.sets.tolist()]
    assert [text.split("|") for text in frame.classes] == held
    found.write(tmp_path / "p.csv")
    assert len(pd.read_csv(tmp_path / "p.csv")) == 120
    with pytest.raises(InputError, match=r"must be \.csv or \.parquet"):
        found.write(tmp_path / "p.txt")


def test_channels_are_ranked_by_leave_one_out_accuracy(found):
    table = found.channels
    assert list(table) == ["channel", "about", "accuracy", "log_loss"]
    assert table.accuracy.is_monotonic_decreasing
    assert {"x", "spread", "vote", "ppr"} <= set(table.channel)
    assert (table.about != table.channel).all()  # every channel has a name in words


def test_sets_always_hold_the_predicted_class(found):
    assert bool(found.sets.gather(1, found.classes[:, None]).all())
    p = torch.tensor([[0.6, 0.4], [0.1, 0.9]])
    tested, y = torch.tensor([[0.9, 0.1]] * 9 + [[0.3, 0.7]]), torch.zeros(10, dtype=torch.int64)
    even, rare = torch.ones(10), torch.tensor([1.0] * 9 + [0.0])
    assert conformal_sets(p, tested, y, even, 0.8).tolist() == [[True, False], [False, True]]
    assert conformal_sets(p, tested, y, even, 0.9).tolist() == [[True, True], [False, True]]
    assert conformal_sets(p, tested, y, rare, 0.9).tolist() == [[True, False], [False, True]]
    tested = torch.tensor([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5], [0.7, 0.3]])
    uneven = torch.tensor([2.0, 0.4, 0.8, 0.8])  # 0.9, 0.7 and 0.5 weigh 2 of the 2.5 it takes
    assert conformal_sets(p[:1], tested, y[:4], uneven, 0.5).tolist() == [[True, True]]


def test_sets_hold_the_true_class_as_often_as_asked():
    held, size = [], []
    for seed in range(6):
        data = graph(nodes=300, classes=4, seed=seed, noise=2.5, share=0.5)
        answer, test = run(data, coverage=0.9), ~data.train_mask
        held.append(answer.sets[test].gather(1, data.y[test, None]).double().mean())
        size.append(answer.sets.sum(1).double().mean())
    assert 0.88 <= float(torch.stack(held).mean()) <= 0.92
    assert 1 <= float(torch.stack(size).mean()) < 3


def test_a_new_node_by_itself_and_from_a_file(found, tmp_path):
    data, node = found.data, int((~found.labelled).nonzero()[0])
    touching = (data.edge_index == node).any(0)
    ends = data.edge_index[:, touching]
    pairs = torch.where(ends == node, len(data.y), ends)
    pairs = pairs[:, pairs[0] != pairs[1]]
    new = found.predict_new(data.x[[node]], pairs)
    torch.testing.assert_close(new[0], found.probabilities[node], atol=1e-3, rtol=0)  # a copy
    found.save(tmp_path / "p.safetensors")
    again = graphglow.Prediction.load(tmp_path / "p.safetensors")
    assert torch.equal(again.probabilities, found.probabilities)
    assert str(again) == str(found)
    torch.testing.assert_close(again.predict_new(data.x[[node]], pairs), new)


# New nodes from tables


def table(count, first=0):
    """Two groups that differ in age and town."""
    number = range(first, first + count)
    frame = pd.DataFrame({"id": [f"p{n}" for n in number]})
    frame["age"] = [30 + 20 * (n % 2) + n % 7 for n in number]
    frame["town"] = [("Ulm", "York")[n % 2] for n in number]
    return frame


def ring(count):
    ids = [f"p{n}" for n in range(count)]
    return pd.DataFrame({"source": ids, "target": [ids[(n + 2) % count] for n in range(count)]})


@pytest.fixture(scope="module")
def people():
    """A prediction over tables with edges, and one over a table alone."""
    nodes = table(40).assign(label=["chess", "rowing"] * 20)
    return {
        "edges": run(graphglow.load_graph((nodes, ring(40)))),
        "no edges": run(graphglow.load_graph(nodes)),
    }


def test_new_nodes_from_tables_are_those_of_predict_new(people):
    found, new = people["edges"], table(4, first=40).assign(town=["Ulm", "York", "Rome", ""])
    joined = pd.DataFrame({"source": ["p40", "p41", "p42"], "target": ["p2", "p3", "p41"]})
    joined["weight"] = [1.0, 2.0, 0.5]
    with pytest.warns(InputWarning, match="'Rome'"):
        frame = found.predict_new_tables(new, joined)
    assert list(frame) == ["id", "predicted", "probability", "p_chess", "p_rowing"]
    assert frame.id.tolist() == ["p40", "p41", "p42", "p43"]
    facts = found.data.feature_columns["columns"]
    x = torch.zeros(4, 3)
    x[:, 0] = (torch.tensor(new.age.to_numpy()) - facts[0]["mean"]) / facts[0]["scale"]
    x[0, 1] = x[1, 2] = 1
    pairs = torch.tensor([[40, 41, 42], [2, 3, 41]])
    expected = found.predict_new(x, pairs, edge_weight=torch.tensor([1.0, 2.0, 0.5]))
    torch.testing.assert_close(torch.tensor(frame[["p_chess", "p_rowing"]].to_numpy()), expected)


def test_without_edges_new_nodes_join_their_nearest(people):
    found, new = people["no edges"], table(6, first=40)
    frame = found.predict_new_tables(new)
    assert frame.predicted.tolist() == ["chess", "rowing"] * 3
    none = found.predict_new_tables(new, pd.DataFrame({"source": [], "target": []}))
    assert not np.allclose(frame.p_chess, none.p_chess, atol=1e-4)
    x = read_new_nodes(new, None, found.data, 3).x
    unit = torch.nn.functional.normalize(found.data.x, dim=1)
    near = (torch.nn.functional.normalize(x, dim=1) @ unit.T).topk(10).indices
    pairs = torch.stack([40 + torch.arange(6).repeat_interleave(10), near.flatten()])
    expected = found.predict_new(x, pairs)[:, 0]
    torch.testing.assert_close(torch.tensor(frame.p_chess.to_numpy()), expected)


@pytest.mark.parametrize("kind", ["edges", "no edges"])
def test_a_saved_prediction_reads_the_tables_of_new_nodes(people, kind, tmp_path):
    found, new = people[kind], table(4, first=40)
    found.save(tmp_path / "p.safetensors")
    again = graphglow.Prediction.load(tmp_path / "p.safetensors")
    expected, got = (one.predict_new_tables(new) for one in (found, again))
    pd.testing.assert_frame_equal(got, expected, atol=1e-5)
    assert again.explain("p3").score == pytest.approx(found.explain("p3").score, abs=1e-4)


@pytest.mark.parametrize("made", ["edges alone", "arrays"])
def test_new_nodes_of_graphs_without_columns(made):
    if made == "arrays":  # a column for each feature, in order, and ids that are numbers
        found, new = run(graph()), pd.DataFrame(torch.randn(2, 12).numpy())
    else:
        nodes = table(40)[["id"]].assign(label=["chess", "rowing"] * 20)
        with pytest.warns(InputWarning, match="no features"):
            found = run(graphglow.load_graph((nodes, ring(40))))
        new = pd.DataFrame(index=range(2))
    new.insert(0, "id", [500, 501])
    old = found.to_frame().id[:2]
    edges = pd.DataFrame({"source": [500, 501], "target": old})
    frame = found.predict_new_tables(new, edges)
    assert frame.id.astype(str).tolist() == ["500", "501"]
    assert frame.probability.between(0, 1).all()


def test_similar_nodes_are_candidates_by_the_probability_of_one_class(tmp_path):
    data = graphglow.load_graph("wine")
    prediction = graphglow.predict(data)
    found = prediction.similar(5, count=4)
    assert found.probability_same_class.is_monotonic_decreasing
    assert len(found) == len(set(found.id)) == 4
    assert 5 not in set(found.id)
    linked = data.edge_index[1][data.edge_index[0] == 5].tolist()
    assert found.linked.tolist() == [i in linked for i in found.id]
    pair = graphglow.explain_pair(data, 5, int(found.id[0])).probability
    assert pair == pytest.approx(found.probability_same_class[0], abs=1e-4)


def test_a_threshold_has_the_precision_or_recall_on_labelled_nodes():
    prediction = graphglow.predict("breast_cancer")
    chance = prediction.probabilities[prediction.labelled, 1]
    right = prediction.data.y[prediction.labelled] == 1
    least = prediction.threshold(1, precision=0.95)
    assert right[chance >= least].double().mean() >= 0.95
    for c in chance[chance < least]:  # lower ones are too low, or find no more
        found = right & (chance >= c)
        assert (
            right[chance >= c].double().mean() < 0.95 or found.sum() == right[chance >= least].sum()
        )
    most = prediction.threshold("1", recall=0.9)
    assert (chance[right] >= most).double().mean() >= 0.9
    higher = chance[right & (chance >= most)].min()
    assert (chance[right] > higher).double().mean() < 0.9
    with pytest.raises(InputError, match="a precision or a recall"):
        prediction.threshold(1)
    with pytest.raises(InputError, match="label must be one of 0, 1"):
        prediction.threshold("x", recall=0.5)


def test_columns_that_speak_for_a_class_are_named(tmp_path):
    draw = torch.Generator().manual_seed(0)
    bad = torch.arange(80) % 2 == 1
    frame = pd.DataFrame({"id": range(80), "label": ["bad" if b else "good" for b in bad]})
    frame["debt"] = 3.0 * bad.numpy() + torch.randn(80, generator=draw).numpy()
    frame["noise"] = torch.randn(80, generator=draw).numpy()
    frame["job"] = ["cook" if b or i % 3 else "smith" for i, b in enumerate(bad)]
    with pytest.warns(InputWarning, match="no edges of its own"):
        prediction = graphglow.predict(frame)
    found = prediction.columns("bad")
    assert found.column[0] == "debt"
    assert found.weight[0] > 0
    assert set(found.column) == {"debt", "noise", "job=cook", "job=smith"}
    weights = dict(zip(found.column, found.weight, strict=True))
    assert weights["job=smith"] < 0 < weights["job=cook"]
    prediction.save(tmp_path / "p.safetensors")
    again = graphglow.Prediction.load(tmp_path / "p.safetensors").columns("bad")
    pd.testing.assert_frame_equal(found, again, rtol=1e-4)
    with pytest.raises(InputError, match="label must be one of bad, good"):
        prediction.columns("x")
