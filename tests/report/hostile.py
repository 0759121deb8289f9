"""Names that would do harm on a page that takes them for HTML."""

import torch
from torch_geometric.data import Data

import graphglow

HOSTILE = "</script><script>hacked()</script>\"'& %{x}"
NODE = "<img src=x onerror=hacked()> {}"
CLASSES = ["</script><script>hacked()</script>", "<b>bold</b> & %{x}", "plain"]


def hostile_graph() -> Data:
    """60 nodes in three classes, one of them unlabelled."""
    torch.set_num_threads(1)
    data = graphglow.synthetic_graph(num_nodes=60, num_classes=3, num_features=8, seed=0)
    data.y[0] = -1
    data.node_id = [NODE.format(i) for i in range(60)]
    data.class_names = CLASSES
    data.name = "hostile </title>"
    return data
