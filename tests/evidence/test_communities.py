"""Communities: as good as networkx's Louvain, one node after the other, on graphs of many kinds."""

import networkx as nx
import pytest
import torch

from graphglow.evidence import communities as module
from graphglow.linalg.rows import sparse_rows

SEEDS = range(5)
LFR_SEEDS = (1, 2, 3, 4, 5)  # others may end in no graph


def edges(graph):
    ends = torch.tensor([sorted(edge) for edge in graph.edges], dtype=torch.int32)
    return ends.reshape(-1, 2).unbind(1)


def communities(low, high, weight, nodes, **kwargs):
    weight = torch.ones(len(low)) if weight is None else weight
    row, col = torch.cat([low, high]), torch.cat([high, low])
    matrix = sparse_rows(row, col, weight.repeat(2), (nodes, nodes))
    return module.communities(matrix, **kwargs)


def groups(label):
    return [set((label == c).nonzero()[:, 0].tolist()) for c in label.unique()]


def planted(p_in, p_out, seed):
    return nx.planted_partition_graph(10, 50, p_in, p_out, seed=seed)


def lfr(seed):
    graph = nx.LFR_benchmark_graph(
        500, 3, 1.5, 0.3, average_degree=8, min_community=20, seed=seed, max_iters=200
    )
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return graph


KINDS = {
    "planted, strong": lambda seed: planted(0.3, 0.01, seed),
    "planted, middling": lambda seed: planted(0.3, 0.02, seed),
    "planted, weak": lambda seed: planted(0.2, 0.02, seed),
    "lfr": lambda seed: lfr(LFR_SEEDS[seed]),
    "karate club": lambda seed: nx.Graph(nx.karate_club_graph().edges),
    "small world": lambda seed: nx.watts_strogatz_graph(500, 8, 0.1, seed=seed),
}


@pytest.mark.parametrize("kind", KINDS)
def test_modularity_is_that_of_networkx(kind):
    behind = []
    for seed in SEEDS:
        graph = KINDS[kind](seed)
        label = communities(*edges(graph), None, len(graph), seed=seed)
        theirs = nx.community.louvain_communities(graph, seed=seed)
        ours = nx.community.modularity(graph, groups(label))
        behind.append(nx.community.modularity(graph, theirs) - ours)
    assert max(behind) < 0.04
    assert sum(behind) / len(behind) < 0.02


@pytest.mark.parametrize("seed", SEEDS)
def test_cliques_in_a_ring_are_found(seed):
    graph = nx.ring_of_cliques(12, 6)
    label = communities(*edges(graph), None, len(graph), seed=seed)
    found = {frozenset(group) for group in groups(label)}
    assert found == {frozenset(range(6 * i, 6 * i + 6)) for i in range(12)}


def test_a_node_without_edges_is_alone():
    nothing = torch.empty(0, dtype=torch.int64)
    assert communities(nothing, nothing, None, 4).sort().values.tolist() == [0, 1, 2, 3]
    assert communities(nothing, nothing, None, 0).tolist() == []
    low, high = torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2])
    assert communities(low, high, None, 4).tolist() == [0, 0, 0, 1]  # the largest comes first
    assert communities(low, high, torch.zeros(3), 4).unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_weights_count(scale):
    low, high = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 2, 3, 3])  # a ring of four
    one = communities(low, high, scale * torch.tensor([9.0, 1, 9, 1]), 4)
    other = communities(low, high, scale * torch.tensor([1.0, 9, 1, 9]), 4)
    assert groups(one) in ([{0, 1}, {2, 3}], [{2, 3}, {0, 1}])
    assert groups(other) in ([{0, 3}, {1, 2}], [{1, 2}, {0, 3}])


def test_a_higher_resolution_gives_more_communities():
    graph = planted(0.2, 0.02, 0)
    count = [int(communities(*edges(graph), None, 500, resolution=r).max()) for r in (1.0, 3.0)]
    assert count[0] < count[1]


def test_numbers_have_no_gaps_and_the_same_seed_gives_the_same():
    graph = planted(0.2, 0.02, 1)
    low, high = edges(graph)
    label = communities(low, high, None, 500, seed=3)
    assert label.dtype == torch.int64
    assert (label.bincount().diff() <= 0).all()
    assert (label.bincount() > 0).all()
    assert torch.equal(label, communities(low.long(), high.long(), None, 500, seed=3))
    order = torch.randperm(len(low), generator=torch.Generator().manual_seed(0))
    weight = torch.full((len(low),), 0.3)
    assert torch.equal(label, communities(high[order], low[order], None, 500, seed=3))
    again = communities(low, high, weight, 500, seed=3)
    assert torch.equal(again, communities(low[order], high[order], weight, 500, seed=3))


@pytest.mark.gpu
def test_a_gpu_gives_the_same_twice():
    low, high = (ends.cuda() for ends in edges(planted(0.2, 0.02, 1)))
    weight = torch.rand(len(low), generator=torch.Generator().manual_seed(0)).cuda()
    label = communities(low, high, weight, 500)
    assert label.is_cuda
    assert torch.equal(label, communities(low, high, weight, 500))
