"""Parts of equal cost, no part empty, few edges between parts where the graph has places to cut."""

import importlib.machinery
import sys
import types

import numpy as np
import pytest

from graphglow.errors import InputError
from graphglow.training.distributed import partition as module
from graphglow.training.distributed.partition import NODE_COST, partition


def ring(n, seed=0):
    """A ring of n nodes with shuffled numbers."""
    names = np.random.default_rng(seed).permutation(n)
    return np.stack([names, np.roll(names, 1)])


def cut_edges(edges, part):
    return int((part[edges[0]] != part[edges[1]]).sum())


@pytest.mark.parametrize("method", ["near", "given"])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_have_equal_cost(method, parts):
    rng = np.random.default_rng(1)
    hubs = rng.integers(0, 5, 2000)  # a few nodes have most of the edges
    edges = np.stack([hubs, rng.integers(0, 300, 2000)])
    part = partition(edges, 300, parts, method)
    both = np.unique(np.sort(edges, axis=0), axis=1) if method == "near" else edges
    if method == "near":
        both = both[:, both[0] != both[1]]
    cost = NODE_COST + np.bincount(both.ravel(), minlength=300)
    loads = np.bincount(part, cost, parts)
    assert set(part) == set(range(parts))
    assert loads.max() - loads.min() <= 2 * cost.max()


def test_near_cuts_a_shuffled_ring_at_two_places_or_so():
    edges = ring(400)
    assert cut_edges(edges, partition(edges, 400, 2, "near")) <= 4
    assert cut_edges(edges, partition(edges, 400, 2, "given")) > 100


def test_given_keeps_the_order_and_looks_at_blocks(monkeypatch):
    edges = np.random.default_rng(0).integers(0, 50, (2, 333))
    whole = partition(edges, 50, 4, "given")
    monkeypatch.setattr(module, "BLOCK", 10)
    assert (partition(edges, 50, 4, "given") == whole).all()
    assert (np.diff(whole) >= 0).all()


def test_every_part_has_a_node_even_where_one_node_has_all_the_cost():
    edges = np.stack([np.zeros(10_000, dtype=int), np.arange(10_000) % 4 + 1])
    for method in ("near", "given"):
        assert sorted(partition(edges, 5, 5, method)) == [0, 1, 2, 3, 4]


def test_metis_is_used_where_it_is_there(monkeypatch):
    asked = {}

    def part_graph(parts, *, xadj, adjncy, vweights):
        asked.update(parts=parts, degree=np.diff(xadj), weights=vweights)
        return 0, [i % parts for i in range(len(xadj) - 1)]

    fake = types.ModuleType("pymetis")
    fake.part_graph = part_graph
    fake.__spec__ = importlib.machinery.ModuleSpec("pymetis", None)
    monkeypatch.setitem(sys.modules, "pymetis", fake)
    part = partition(ring(10), 10, 2, "auto")
    assert part.tolist() == [0, 1] * 5
    assert asked["parts"] == 2
    assert (asked["degree"] == 2).all()
    assert asked["weights"] == [NODE_COST + 2] * 10


def test_without_metis_auto_reorders_and_huge_graphs_stay_as_they_are(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    edges = ring(100)
    assert (partition(edges, 100, 2) == partition(edges, 100, 2, "near")).all()
    monkeypatch.setattr(module, "IN_MEMORY", 99)
    assert (partition(edges, 100, 2) == partition(edges, 100, 2, "given")).all()
    with pytest.raises(InputError, match=r"pymetis; got none installed"):
        partition(edges, 100, 2, "metis")


def test_what_cannot_be_is_refused():
    for parts in (0, 11):
        with pytest.raises(InputError, match=rf"parts must lie in \[1, 10\].*got {parts}"):
            partition(ring(10), 10, parts)
    with pytest.raises(InputError, match="partition must be one of"):
        partition(ring(10), 10, 2, "best")
