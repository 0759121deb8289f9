"""A k-nearest-neighbour graph for data that has features and no edges."""

import torch
from torch import Tensor


def knn_edges(x: Tensor, k: int = 10) -> Tensor:
    """Return both directions of each node's ``k`` nearest others by cosine distance.

    Shapes:
        x [N, D] -> edge_index [2, E], coalesced; empty for a single node
    """
    from sklearn.neighbors import NearestNeighbors  # a second to import, and rarely needed

    num_nodes = x.shape[0]
    k = min(k, num_nodes - 1)
    if k < 1:
        return torch.empty(2, 0, dtype=torch.int64)
    unit = torch.nn.functional.normalize(x, dim=1).numpy()
    # Between unit vectors the Euclidean order is the cosine order, and tree search applies.
    index = NearestNeighbors(n_neighbors=k).fit(unit).kneighbors(return_distance=False)
    target = torch.arange(num_nodes).repeat_interleave(k)
    source = torch.from_numpy(index).flatten()
    key = torch.cat([source * num_nodes + target, target * num_nodes + source])
    key = torch.unique(key)
    return torch.stack([key // num_nodes, key % num_nodes])
