"""What a decision is made of: every sum must give the model's own logits back."""

import pandas as pd
import pytest
import torch

from graphglow.errors import InputError
from graphglow.gnn import BACKBONES
from graphglow.training import TransferResult, transfer
from tiny_graphs import computing_in_float64, learner, small_data, transfer_config

ABLE = sorted(name for name, kind in BACKBONES.items() if kind.explainable())
NAMES = ["red", "green", "blue"]


def named_data(**changes):
    data = small_data(**changes)
    data.node_id = [f"n{i}" for i in range(len(data.y))]
    data.class_names = NAMES
    data.y[7] = -1
    data.train_mask[7] = data.val_mask[7] = data.test_mask[7] = False
    return data


def trained(theta=None, **changes):
    return transfer(named_data(), theta or learner(), transfer_config(epochs=3, **changes))


@pytest.fixture(scope="module")
def result():
    return trained(structure_momentum=0.6, input_weight=0.4)


VARIANTS = {
    "momentum": ({}, {"structure_momentum": 0.6, "input_weight": 0.4}),
    "input graph alone": ({}, {"input_weight": 1.0}),
    "learned graph alone": ({}, {"input_weight": 0.0}),
    "affine": ({"delta": "affine"}, {}),
    "rbf": ({"similarity": "rbf"}, {}),
    "few neighbours": ({"neighbours": 3}, {}),
    "three layers": ({}, {"num_layers": 3}),
    "mlp encoder": ({}, {"encoder": "mlp"}),
}


def assert_adds_up(result):
    logits = result.refinement.logits
    for node in (0, 3, 7, 21):
        for label, name in enumerate(NAMES):
            why = result.explain(f"n{node}", 10**6, label=name)
            parts = why.bias + why.own + why.input_total + why.latent_total
            assert parts == pytest.approx(float(logits[node, label]), abs=1e-10)
            assert why.score == pytest.approx(parts, abs=1e-10)
            frame = why.to_frame()
            assert frame.input_part.sum() == pytest.approx(why.input_total, abs=1e-10)
            assert frame.latent_part.sum() == pytest.approx(why.latent_total, abs=1e-10)
            assert (why.others_input, why.others_latent) == pytest.approx((0, 0), abs=1e-12)
            assert why.num_others == 0


@pytest.mark.parametrize("backbone", ABLE)
def test_the_parts_are_the_logits_of_every_class(backbone):
    with computing_in_float64():
        assert_adds_up(trained(backbone=backbone, input_weight=0.4, structure_momentum=0.6))


@pytest.mark.parametrize("name", VARIANTS)
def test_the_parts_are_the_logits_whatever_the_structure(name):
    of_learner, of_run = VARIANTS[name]
    with computing_in_float64():
        assert_adds_up(trained(learner(**of_learner), **of_run))


def test_with_gcn_nothing_but_the_bias_stands_beside_the_messages(result):
    why = result.explain("n5")
    assert why.own == 0
    label = NAMES.index(why.explained)
    assert why.bias == pytest.approx(float(result.gnn.biases[-1][label]))


def test_a_message_is_the_last_hidden_layer_times_the_last_weight(result):
    """The decomposition of the GCN by hand: lambda A_uv + (1 - lambda) L_uv, times (h_v W)_c."""
    final, u = result.refinement, 5
    latent = final.latent

    def dense(part):
        gamma = part.gamma()
        return (gamma / gamma.sum(1, keepdim=True).clamp_min(1e-12)) @ (
            gamma / gamma.sum(0).clamp_min(1e-12)
        ).T

    learned = 0.6 * (0.6 * dense(latent.current) + 0.4 * dense(latent.first))
    given = 0.4 * result.graph.adj.to_dense()
    why = result.explain("n5", 10**6)
    for one in why.contributions:
        assert one.input_weight == pytest.approx(float(given[u, one.node]), abs=1e-6)
        assert one.latent_weight == pytest.approx(float(learned[u, one.node]), abs=1e-6)
        assert one.input_part == pytest.approx(one.input_weight * one.message)
        assert one.latent_part == pytest.approx(one.latent_weight * one.message)
        assert one.contribution == pytest.approx(one.input_part + one.latent_part)
    refined = result.refined_graph(top_k=40)
    mine = refined.edge_index[1] == u
    weights = dict(
        zip(refined.edge_index[0][mine].tolist(), refined.edge_weight[mine].tolist(), strict=True)
    )
    shown = {one.node: one.input_weight + one.latent_weight for one in why.contributions}
    assert shown == pytest.approx(weights, abs=1e-6)


def test_the_strongest_are_listed_and_the_rest_is_summed(result):
    whole, few = result.explain("n5", 10**6), result.explain("n5", 4)
    assert len(few.contributions) == 4
    assert [one.node for one in few.contributions] == [c.node for c in whole.contributions[:4]]
    size = [abs(one.contribution) for one in whole.contributions]
    assert size == sorted(size, reverse=True)
    left = whole.contributions[4:]
    assert few.others_input == pytest.approx(sum(one.input_part for one in left), abs=1e-6)
    assert few.others_latent == pytest.approx(sum(one.latent_part for one in left), abs=1e-6)
    assert few.num_others == len(left)
    assert sum(abs(one.share) for one in whole.contributions) == pytest.approx(1)
    for one in whole.contributions:
        assert one.share * one.contribution >= 0


def test_words_are_few_in_a_repr_and_all_in_a_text(result):
    why = result.explain("n3", 4)
    assert repr(why) == f"Explanation({why.summary()})"
    assert len(repr(why)) < 500
    said = why.text().splitlines()
    assert said[0] == why.summary()
    assert [line.split()[0] for line in said[2:6]] == [one.id for one in why.contributions]
    assert said[6].startswith(f"score: {why.score:+.4f}, the sum of these")


def test_classes_together_are_all_nodes(result):
    why = result.explain("n5", 10**6)
    for voice in why.by_class:
        mine = [one for one in why.contributions if one.predicted == voice.predicted]
        assert voice.nodes == len(mine)
        for name in ("input_weight", "latent_weight", "input_part", "latent_part"):
            total = sum(getattr(one, name) for one in mine)
            assert getattr(voice, name) == pytest.approx(total, abs=1e-6)
    assert sum(voice.nodes for voice in why.by_class) == len(why.contributions)


def test_ids_classes_and_splits_are_the_users_own(result):
    why = result.explain("n5", 10**6)
    data, predicted = result.data, result.predict()
    assert (why.node, why.id, why.target) == (5, "n5", "small-0")
    assert why.predicted == why.explained == NAMES[int(predicted[5])]
    assert why.probability == pytest.approx(float(result.predict_proba()[5].max()))
    by_node = {one.node: one for one in why.contributions}
    assert by_node[7].label is None
    assert by_node[7].split == ""
    neighbours = set(data.edge_index[1][data.edge_index[0] == 5].tolist())
    neighbours |= set(data.edge_index[0][data.edge_index[1] == 5].tolist())
    assert {node for node, one in by_node.items() if one.input_edge} == neighbours | {5}
    for node, one in by_node.items():
        assert one.id == f"n{node}"
        assert one.predicted == NAMES[int(predicted[node])]
        assert one.split == "" or bool(data[f"{one.split}_mask"][node])
        assert node == 7 or one.label == NAMES[int(data.y[node])]


def test_against_explains_the_lead_over_another_class(result):
    logits = result.refinement.logits[5]
    why = result.explain("n5", label="red", against="blue")
    assert why.score == pytest.approx(float(logits[0] - logits[2]), abs=1e-6)
    assert why.bias + why.input_total + why.latent_total == pytest.approx(why.score, abs=1e-5)
    assert (why.explained, why.against) == ("red", "blue")


def test_numbers_stand_in_for_ids_and_names():
    plain = transfer(small_data(), learner(), transfer_config(epochs=1))
    why = plain.explain(5, label=2)
    assert (why.id, why.explained) == (5, "2")
    assert plain.explain(torch.tensor(5)).node == 5
    assert plain.explain("5").node == 5


def test_a_saved_result_explains_the_same(result, tmp_path):
    result.save(tmp_path / "r.safetensors")
    loaded = TransferResult.load(tmp_path / "r.safetensors")
    assert loaded.explain("n5") == result.explain("n5")


@pytest.mark.parametrize("name", ["why.csv", "why.parquet"])
def test_the_table_is_written(result, name, tmp_path):
    why = result.explain("n5")
    why.write(tmp_path / name)
    back = (pd.read_parquet if name.endswith("t") else pd.read_csv)(tmp_path / name)
    assert list(back) == list(why.to_frame())
    assert back.id.tolist() == [one.id for one in why.contributions]
    assert back.contribution.tolist() == pytest.approx([o.contribution for o in why.contributions])


def test_the_frame_of_no_neighbours_has_its_columns(result):
    assert "contribution" in result.explain("n5", 1).to_frame().columns


@pytest.mark.parametrize("backbone", sorted(set(BACKBONES) - set(ABLE)))
def test_a_backbone_whose_scores_are_no_sum_is_refused(backbone):
    with pytest.raises(InputError, match=r"a sum over neighbours \(appnp, gat, gcn, gpr, sage\)"):
        trained(backbone=backbone).explain("n5")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: r.explain("n99"), r"the id of a node \(nearest: n"),
        (lambda r: r.explain(5), "the id of a node"),
        (lambda r: r.explain("N5"), r"nearest: n5,"),
        (lambda r: r.explain("n5", 0), "top_k must be >= 1"),
        (lambda r: r.explain("n5", label="pink"), "one of red, green, blue; got 'pink'"),
        (lambda r: r.explain("n5", label="red", against="red"), "another class; got red twice"),
        (lambda r: r.explain("n5").write("why.txt"), r"must be \.csv or \.parquet"),
    ],
)
def test_bad_questions_are_one_sentence(result, call, said):
    with pytest.raises(InputError, match=said):
        call(result)


@pytest.mark.parametrize("node", [40, -1, "x", 1.5])
def test_an_index_out_of_range(node):
    plain = transfer(small_data(), learner(), transfer_config(epochs=1))
    with pytest.raises(InputError, match=r"an index in \[0, 39\]; got"):
        plain.explain(node)
