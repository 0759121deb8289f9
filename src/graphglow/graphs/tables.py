"""Tables of scikit-learn as graphs: standardised features and a kNN graph. No files needed."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphglow.graphs.dataset_info import DatasetInfo
from graphglow.ops.knn import knn_edges


def read_table(name: str, root: Path, split_seed: int = 0) -> Data:
    """Load ``digits``, ``wine`` or ``breast_cancer``; the check draws the split by seed."""
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    loaders: dict[str, Any] = {
        "digits": datasets.load_digits,
        "wine": datasets.load_wine,
        "breast_cancer": datasets.load_breast_cancer,
    }
    table, target = loaders[name](return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(table)).float()
    return Data(x=x, edge_index=knn_edges(x), y=torch.from_numpy(target).long())


def _info(name: str, what: str, nodes: int, edges: int, classes: int, features: int) -> DatasetInfo:
    return DatasetInfo(
        name=name,
        kind="table",
        description=f"{what}; kNN graph; random 50/25/25 split",
        nodes=nodes,
        edges=edges,
        classes=classes,
        features=features,
        needs_data=False,
        read=partial(read_table, name),
    )


TABLES = (
    _info("digits", "Digits: 8 x 8 images of hand-written digits", 1797, 12241, 10, 64),
    _info("wine", "Wine: chemical analysis of three cultivars", 178, 1199, 3, 13),
    _info("breast_cancer", "Breast cancer: cell nuclei, malignant or benign", 569, 4163, 2, 30),
)
