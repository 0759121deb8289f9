"""What is said of a refined graph is counted on a graph whose edges are known."""

from dataclasses import replace

import pytest
import torch

from graphglow.graph import load_graph
from graphglow.graph.perturb import add_edges
from graphglow.lab.before_after import describe_refined
from graphglow.lab.open_world.methods import refine_pool
from graphglow.pretrained import evidence_learner


def undirected(edges):
    return {tuple(sorted(pair)) for pair in edges.T.tolist() if pair[0] != pair[1]}


@pytest.fixture(scope="module")
def described():
    """Every third of the input's edges is made doubtful, whatever the learner says."""
    given = load_graph("synthetic-small")
    data = add_edges(given, 0.5, seed=1)
    made = refine_pool(data, evidence_learner(), device="cpu")
    odds = made.pair_log_odds.abs() + 0.1
    odds[made.pair_in_input.nonzero()[::3, 0]] = -1.0
    keep = (odds > 0).nonzero()[:, 0]
    made = replace(made, pair_log_odds=odds, edges=keep)
    gone = undirected(made.pairs[:, made.pair_in_input & (odds < 0)])
    return given, data, gone, describe_refined(made, data, "small", given.edge_index)


def test_dropped_own_is_of_the_graphs_own_edges(described):
    given, data, gone, refined = described
    own = undirected(given.edge_index)
    injected = undirected(data.edge_index) - own
    assert injected
    assert refined.dropped_own == pytest.approx(len(gone & own) / len(own))
    assert refined.dropped_injected == pytest.approx(len(gone & injected) / len(injected))
    assert refined.dropped_own != refined.dropped_injected


def test_edges_that_are_listed_are_dropped_or_new(described):
    _, data, gone, refined = described
    assert all(tuple(sorted(edge.ends)) in gone for edge in refined.dropped)
    assert not {tuple(sorted(edge.ends)) for edge in refined.added} & undirected(data.edge_index)
    known = data.train_mask | data.val_mask
    assert not any(bool(known[list(edge.ends)].all()) for edge in refined.added)


def test_the_refined_graph_has_about_as_many_edges(described):
    _, data, _, refined = described
    edges = len(undirected(data.edge_index))
    assert refined.before.edges == edges
    assert edges <= refined.after.edges <= edges + torch.as_tensor(data.num_nodes)
