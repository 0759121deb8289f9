import torch

from graphglow.linalg.knn import knn_edges


def test_neighbours_are_the_nearest_by_cosine():
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(x, dim=1)
    similarity = unit @ unit.T - 2 * torch.eye(40)
    nearest = similarity.topk(3, dim=1).indices
    expected = {(u, v) for u in range(40) for v in nearest[u].tolist()}
    got = set(map(tuple, knn_edges(x, k=3).T.tolist()))
    assert got == expected | {(v, u) for u, v in expected}


def test_few_nodes():
    assert knn_edges(torch.ones(1, 2)).shape == (2, 0)
    assert knn_edges(torch.eye(2)).tolist() == [[0, 1], [1, 0]]
    assert knn_edges(torch.zeros(3, 2)).shape == (2, 6)  # ties and zero rows do no harm
