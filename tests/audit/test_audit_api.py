"""``graphglow.audit``: tables, repair, explanations, and the errors in one sentence."""

import builtins
import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from small_audits import IDS, homophilous, with_false_edges
from torch_geometric.data import Batch, Data

import graphglow
from graphglow.audit import load_auditor
from graphglow.errors import InputError
from graphglow.graph.datasets import add_edges


def test_false_edges_are_told_from_real_ones(damaged_audit):
    audit, real = damaged_audit
    assert roc_auc_score(real.numpy(), audit.probability_real.numpy()) > 0.75
    assert audit.false_share.low <= audit.false_share.estimate <= audit.false_share.high
    assert abs(audit.false_share.estimate - 0.3) < 0.2
    mean = float(1 - audit.probability_real.mean())
    assert mean == pytest.approx(audit.false_share.estimate, abs=0.01)


def test_the_second_look_leaves_out_the_most_doubtful_edges(damaged_audit):
    audit, _ = damaged_audit
    graphs = [look.inputs.graph for look in audit.findings.looks]
    keys = [graph.low.long() * graph.num_nodes + graph.high for graph in graphs]
    edges = torch.stack([graphs[0].low.long(), graphs[0].high.long()])
    found, kept = audit.findings, torch.isin(*keys)
    scores = audit.auditor.scores(found.looks[0], found.facts, edges)
    assert int((~kept).sum()) == int(audit.false_share.estimate * len(kept))
    assert scores[~kept].max() <= scores[kept].min()


def test_a_verdict_says_where_no_edge_can_be_named(damaged_audit):
    audit, _ = damaged_audit
    assert audit.verdict.startswith("Edges that are more likely false than real: ")
    sure = replace(audit.findings, edge_log_odds=torch.ones_like(audit.findings.edge_log_odds))
    found = replace(audit, findings=sure).verdict
    assert f" real: 0 of {len(sure.edge_log_odds)}. Pairs that look like" in found


def test_a_share_that_cannot_be_told_is_said_to_be_unknown(damaged_audit):
    audit, _ = damaged_audit
    wide, narrow = (audit.false_share._replace(low=low, high=0.6) for low in (0.0, 0.4))
    found = replace(audit, findings=replace(audit.findings, false_share=wide)).verdict
    assert found.endswith("The share of false edges cannot be told here: it may be 0 to 60 %.")
    assert (wide.is_known, narrow.is_known) == (False, True)


def test_edges_that_were_made_are_said_to_be(damaged_audit):
    said = "These edges join nearest neighbours; they were made, not given."
    wine = graphglow.load_graph("wine")
    assert graphglow.audit(wine, missing=False).verdict.endswith(f" {said}")
    assert said not in damaged_audit[0].verdict
    assert said not in graphglow.audit(add_edges(wine, 0.3, seed=0)).verdict


def test_suspects_hold_every_edge_once_the_worst_first(damaged_audit):
    audit, real = damaged_audit
    frame = audit.suspects
    assert len(frame) == len(real)
    assert list(frame.columns) == ["source", "target", "probability_real",
                                   "probability_same_class", "against"]  # fmt: skip
    assert frame["probability_real"].is_monotonic_increasing
    assert not frame[["source", "target"]].apply(frozenset, axis=1).duplicated().any()
    assert set(frame["source"]) <= set(IDS)
    assert frame["against"].iloc[0] != ""
    assert frame["probability_same_class"].isna().all()  # no labels here


def test_missing_pairs_are_no_edges_and_as_many_as_asked_for(damaged_audit):
    audit, _ = damaged_audit
    frame = audit.missing
    assert len(frame) == audit.edges.shape[1]
    assert frame["probability_real"].is_monotonic_decreasing
    edges = set(audit.suspects[["source", "target"]].apply(frozenset, axis=1))
    assert not edges & set(frame[["source", "target"]].apply(frozenset, axis=1))
    assert len(graphglow.audit(audit.data, top=7).missing) == 7


def test_contributions_add_up_to_the_log_odds(damaged_audit):
    audit, _ = damaged_audit
    u, v = audit.edges[:, 3].tolist()
    why = audit.explain(IDS[u], IDS[v])
    assert why.facts["input_edge"]
    assert why.score == pytest.approx(
        sum(one["contribution"] for one in why.contributions), abs=1e-2
    )
    assert why.score == pytest.approx(float(audit.findings.edge_log_odds[3]), abs=1e-3)
    assert f"{why.probability:.0%} likely to be a real edge. Most speaks for it: " in why.answer
    a, b = audit.findings.pairs[:, 5].tolist()
    absent = audit.explain(IDS[a], IDS[b])
    assert not absent.facts["input_edge"]
    assert " likely to be a missing edge. " in absent.answer
    assert absent.probability == pytest.approx(
        float(audit.findings.pair_log_odds[5].sigmoid()), abs=1e-3
    )
    with pytest.raises(InputError, match="must be the id of a node"):
        audit.explain("nobody", IDS[0])
    with pytest.raises(InputError, match="two different nodes"):
        audit.explain(IDS[0], IDS[0])


def test_repair_drops_and_adds_by_probability(damaged_audit):
    audit, _ = damaged_audit
    kept = audit.repaired(drop=0.0, add=1.0)
    assert kept.edge_index.shape == audit.data.edge_index.shape
    repaired = audit.repaired(drop=0.5, add=1.0)
    assert repaired.edge_index.shape[1] == int((audit.probability_real >= 0.5).sum())
    assert repaired.num_nodes == 120
    likely = audit.findings.pair_log_odds.sigmoid().max()
    more = audit.repaired(drop=0.0, add=float(likely) - 1e-4)
    assert more.edge_index.shape[1] >= kept.edge_index.shape[1] + 2
    with pytest.raises(InputError, match=r"drop must lie in \[0, 1\]"):
        audit.repaired(drop=2.0)


def test_weights_directions_and_loops():
    data, _ = with_false_edges(0.2)
    turned = data.edge_index.flip(0)
    loops = torch.tensor([[5], [5]])
    data.edge_index = torch.cat([turned, data.edge_index[:, :4], loops], 1)
    data.edge_weight = torch.linspace(1, 2, data.edge_index.shape[1])
    audit = graphglow.audit(data, missing=False)
    frame = audit.suspects
    assert len(frame) == turned.shape[1]
    assert "weight" in frame
    listed = {(IDS[u], IDS[v]) for u, v in turned.T.tolist()}
    assert sum((s, t) in listed for s, t in zip(frame["source"], frame["target"], strict=True)) == (
        len(frame) - 4
    )  # those in both directions are listed from low to high
    repaired = audit.repaired(drop=1.0)
    assert repaired.edge_index.tolist() == [[5], [5]]
    assert repaired.edge_weight.shape == (1,)


def test_labels_are_evidence_and_give_the_class_column():
    data = homophilous()
    auditor = load_auditor()
    audit = graphglow.audit(data, auditor)
    assert audit.auditor is not auditor  # which stays where it is
    for table in (audit.suspects, audit.missing):
        assert table["probability_same_class"].between(0, 1).all()


def test_labels_need_cleanlab_or_say_so(monkeypatch):
    audit = graphglow.audit(homophilous(), missing=False)
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("cleanlab"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "cleanlab", raising=False)
    with pytest.raises(InputError, match=r"graphglow\[audit\]"):
        _ = audit.labels
    nameless, _ = with_false_edges()
    with pytest.raises(InputError, match="labels of at least two classes"):
        _ = graphglow.audit(nameless, missing=False).labels


def test_flipped_labels_are_found():
    pytest.importorskip("cleanlab", reason="needs cleanlab (the audit extra)")
    data = homophilous()
    wrong = torch.arange(0, 120, 15)
    data.y[wrong] = (data.y[wrong] + 1) % 3
    frame = graphglow.audit(data, missing=False).labels
    assert len(frame) == 120
    flipped = frame["id"].isin([IDS[i] for i in wrong.tolist()])
    assert roc_auc_score(flipped, -frame["quality"]) > 0.8


def test_networkx_in_and_out():
    graph = nx.karate_club_graph()
    audit = graphglow.audit(graph)
    assert len(audit.suspects) == graph.number_of_edges()
    back = graphglow.to_networkx(audit.repaired(drop=0.1, add=1.0))
    assert back.number_of_nodes() == 34


@pytest.mark.filterwarnings("ignore:.*known by their edges alone")
def test_a_networkx_graph_of_names_and_weights_alone():
    audit = graphglow.audit(nx.les_miserables_graph())
    assert len(audit.suspects) == 254
    assert audit.explain("Valjean", "Cosette").facts["input_edge"]
    assert audit.suspects["weight"].max() == 31
    grid = graphglow.audit(nx.grid_2d_graph(4, 4), missing=False)
    assert grid.explain((0, 0), (0, 1)).facts["input_edge"]


@pytest.mark.parametrize(("nodes", "left_out"), [(6, 1), (30, 1), (30, 400)])
def test_small_and_nearly_complete_graphs(nodes, left_out):
    pairs = torch.combinations(torch.arange(nodes))[left_out:]
    audit = graphglow.audit(Data(edge_index=pairs.T.contiguous(), num_nodes=nodes + 3))
    assert len(audit.suspects) == len(pairs)
    assert np.isfinite(audit.suspects["probability_real"]).all()
    assert np.isfinite(audit.missing["probability_real"]).all()


def test_what_cannot_be_audited_is_said_in_one_sentence(tmp_path):
    complete = torch.combinations(torch.arange(8)).T
    for index in (torch.empty(2, 0, dtype=torch.int64), complete[:, :9], complete):
        with pytest.raises(InputError, match="must have at least 10 edges"):
            graphglow.audit(Data(edge_index=index, num_nodes=8))
    with pytest.raises(InputError, match="auditor must be audit, untrained, an existing file"):
        graphglow.audit(homophilous(), "nothing")
    (tmp_path / "foreign.safetensors").write_bytes(b"no")
    with pytest.raises(InputError, match="auditor"):
        graphglow.audit(homophilous(), tmp_path / "foreign.safetensors")


def test_the_transform_drops_what_is_surely_false(damaged_audit):
    audit, real = damaged_audit
    drop = float(audit.probability_real.median())
    dropped = graphglow.AuditEdges(drop=drop)(audit.data)
    assert torch.equal(dropped.edge_index, audit.repaired(drop, 1.0).edge_index)
    assert 0.4 < dropped.edge_index.shape[1] / len(real) < 0.6
    assert "drop=0.3" in repr(graphglow.AuditEdges(drop=0.3))
    with pytest.raises(InputError, match="one torch_geometric Data at a time"):
        graphglow.AuditEdges()(Batch.from_data_list([audit.data]))
