"""Who lists the nodes in another order gets the same answer."""

import pytest
import torch

import graphglow
from tiny_graphs import relabelled


def keys(edges: torch.Tensor, nodes: int) -> torch.Tensor:
    return edges.amin(0) * nodes + edges.amax(0)


@pytest.fixture(scope="module", params=["dense", "sparse", "none"])
def both(request):
    data = graphglow.load_graph("wine")
    if request.param == "none":
        data.x = torch.ones_like(data.x)  # nodes are told apart by neighbours and labels alone
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))
    other = relabelled(data, order)
    other.edge_index = other.edge_index.flip(1)
    if request.param == "sparse":
        other.x = other.x.to_sparse()
    return data, other, order


def test_an_audit_says_the_same_of_every_edge(both):
    data, other, order = both
    one, two = (graphglow.audit(d, device="cpu") for d in (data, other))
    place = keys(order[two.edges], data.num_nodes).argsort()
    torch.testing.assert_close(one.probability_real, two.probability_real[place])
    assert one.verdict == two.verdict
    u, v = one.edges[:, 0].tolist()
    rank = order.argsort()
    why = [a.explain(i, j) for a, i, j in ((one, u, v), (two, rank[u].item(), rank[v].item()))]
    assert why[0].score == pytest.approx(why[1].score, abs=1e-4)
    assert why[0].probability == pytest.approx(float(one.probability_real[0]), abs=1e-4)


def test_a_refined_graph_is_the_same(both):
    data, other, order = both
    one, two = (graphglow.refine(d, device="cpu") for d in (data, other))
    old, new = (keys(e, data.num_nodes) for e in (one.edge_index, order[two.edge_index]))
    assert torch.equal(old.unique(), new.unique())
    torch.testing.assert_close(one.class_probability[order], two.class_probability)
    assert one.verdict == two.verdict
