"""Messages as edges against the dense operator lambda A + (1 - lambda) R(G) R(G^T)."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphglow import result
from graphglow.gnn.propagation import FixedStructure
from graphglow.graph.graph import normalised_adjacency
from graphglow.paper.pivots import BlendedStructure
from tiny_graphs import dense_latent, float64, learner, small_data

N = 24
GRAPH = float64(small_data(num_nodes=N))
PIVOTS = torch.tensor([3, 0, 17, 9])


def structure(seed, **changes):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(N, 6, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return learner(seed=seed, **changes).double().structure(z, PIVOTS)


def fixed(seed):
    edges = torch.randint(N, (2, 60), generator=torch.Generator().manual_seed(seed))
    matrix = normalised_adjacency(edges, None, N)
    return FixedStructure(replace(matrix, values=matrix.values.double()))


def as_dense(edges, values):
    out = torch.zeros(N, N, dtype=torch.float64)
    out[edges.edge_index[1], edges.edge_index[0]] = values
    return out


LATENT = {
    "cosine": structure(1),
    "momentum": BlendedStructure(structure(1), structure(2), 0.3),
    "rbf": structure(1, similarity="rbf", threshold=0.3),
    "affine": structure(1, delta="affine"),
    "fixed": fixed(1),
    "nested momentum": BlendedStructure(
        BlendedStructure(structure(1), structure(2), 0.3), structure(3), 0.6
    ),
}


@pytest.mark.parametrize("block_elements", [1, 50, 10**6])
@pytest.mark.parametrize("input_weight", [0.0, 0.35, 1.0])
@pytest.mark.parametrize("name", LATENT)
def test_all_edges_are_the_whole_operator(name, input_weight, block_elements):
    latent = LATENT[name]
    edges = strongest_edges(GRAPH.adj, latent, input_weight, N, block_elements=block_elements)
    given = input_weight * GRAPH.adj.to_dense()
    learned = (1 - input_weight) * dense_latent(latent)
    torch.testing.assert_close(as_dense(edges, edges.edge_weight), given + learned)
    torch.testing.assert_close(as_dense(edges, edges.edge_input_weight), given)
    torch.testing.assert_close(as_dense(edges, edges.edge_latent_weight), learned)
    assert torch.equal(edges.edge_weight, edges.edge_input_weight + edges.edge_latent_weight)


def strongest_edges(adj, latent, input_weight, top_k, *, self_loops=True, block_elements=10**6):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result, "BLOCK_ELEMENTS", block_elements)
        return Data(
            **result.strongest_messages(adj, latent, input_weight, top_k, self_loops=self_loops)
        )


@settings(max_examples=30, deadline=None)
@given(
    block_elements=st.integers(1, 2 * N * N),
    top_k=st.integers(1, N + 5),
    self_loops=st.booleans(),
    name=st.sampled_from(sorted(LATENT)),
)
def test_each_node_keeps_its_strongest_edges_in_any_block_size(
    block_elements, top_k, self_loops, name
):
    edges = strongest_edges(
        GRAPH.adj, LATENT[name], 0.35, top_k, self_loops=self_loops, block_elements=block_elements
    )
    operator = 0.35 * GRAPH.adj.to_dense() + 0.65 * dense_latent(LATENT[name])
    if not self_loops:
        operator.fill_diagonal_(0)
    for node in range(N):
        mine = edges.edge_index[1] == node
        expected = operator[node].sort(descending=True)[0][:top_k]
        torch.testing.assert_close(edges.edge_weight[mine], expected[expected > 0])
        torch.testing.assert_close(
            operator[node, edges.edge_index[0][mine]], edges.edge_weight[mine]
        )
    assert torch.equal(edges.edge_index[1], edges.edge_index[1].sort(stable=True)[0])


@pytest.mark.parametrize("name", LATENT)
def test_zero_entries_are_no_edges(name):
    alone = strongest_edges(GRAPH.adj, LATENT[name], 1.0, N)
    assert len(alone.edge_weight) == len(GRAPH.adj.values)
    assert (alone.edge_weight > 0).all()
    assert (alone.edge_latent_weight == 0).all()
