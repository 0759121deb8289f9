"""Nearest neighbours of nodes by their features."""

import torch
from torch import Tensor
from torch.nn import functional


def nearest(among: Tensor, k: int, x: Tensor | None = None) -> Tensor:
    """The ``k`` rows of ``among`` nearest to each of x by cosine distance: [M, D] -> [M, k].

    Without x, to each of ``among`` itself, which is not its own neighbour.
    """
    from sklearn.neighbors import NearestNeighbors  # a second to import, and rarely needed

    # Between unit vectors the Euclidean order is the cosine order, and tree search applies.
    index = NearestNeighbors(n_neighbors=k).fit(functional.normalize(among, dim=1).numpy())
    asked = None if x is None else functional.normalize(x, dim=1).numpy()
    return torch.from_numpy(index.kneighbors(asked, return_distance=False))


def knn_edges(x: Tensor, k: int = 10) -> Tensor:
    """Both directions of each node's ``k`` nearest others by cosine distance: [2, E], coalesced."""
    num_nodes = x.shape[0]
    k = min(k, num_nodes - 1)
    if k < 1:
        return torch.empty(2, 0, dtype=torch.int64)
    target = torch.arange(num_nodes).repeat_interleave(k)
    source = nearest(x, k).flatten()
    key = torch.unique(torch.cat([source * num_nodes + target, target * num_nodes + source]))
    return torch.stack([key // num_nodes, key % num_nodes])
