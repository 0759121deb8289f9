"""DGL graphs, by a stand-in with the few attributes of DGL that are used."""

import pytest
import torch

from graphglow.errors import InputError
from graphglow.graphs import load_graph


class DGLGraph:
    is_homogeneous = True
    ntypes, etypes = ["a", "b"], ["r"]

    def __init__(self, ndata, edata=None):
        self.ndata, self.edata = ndata, edata or {}

    def edges(self):
        return torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor(
            [1, 2, 3], dtype=torch.int32
        )

    def num_nodes(self):
        return 4


DGLGraph.__module__ = "dgl.heterograph"
X, Y = torch.eye(4), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(("x", "y"), [("feat", "label"), ("x", "y")])
def test_features_labels_masks_and_weights(x, y):
    mask = torch.tensor([1, 1, 0, 0], dtype=torch.uint8)
    ndata = {x: X, y: Y, "train_mask": mask, "val_mask": 1 - mask}
    data = load_graph(DGLGraph(ndata, {"w": torch.tensor([1.0, 2.0, 3.0])}))
    assert data.edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert data.edge_weight.tolist() == [1.0, 2.0, 3.0]
    assert torch.equal(data.x, X)
    assert data.y.tolist() == Y.tolist()
    assert data.train_mask.tolist() == [True, True, False, False]


def test_bad_graphs():
    with pytest.raises(InputError, match="must have features, called feat, x, features; got label"):
        load_graph(DGLGraph({"label": Y}))
    with pytest.raises(InputError, match="a graph must have labels y"):
        load_graph(DGLGraph({"feat": X}))
    mixed = DGLGraph({"feat": X, "label": Y})
    mixed.is_homogeneous = False
    with pytest.raises(
        InputError, match=r"one kind of nodes and edges .* got nodes a, b and edges r"
    ):
        load_graph(mixed)
