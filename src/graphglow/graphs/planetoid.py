"""The citation graphs of the paper, with the public split (Yang et al., 2016)."""

from functools import partial
from pathlib import Path

from torch_geometric.data import Data

from graphglow.graphs.dataset_info import DatasetInfo
from graphglow.graphs.pyg_dataset import read_pyg_dataset

RAW_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def read_planetoid(folder: str, root: Path, split_seed: int = 0) -> Data:
    """Read ``Cora``, ``CiteSeer`` or ``PubMed``; the split is public, so the seed does nothing."""
    from torch_geometric.datasets import Planetoid

    files = [f"ind.{folder.lower()}.{part}" for part in RAW_PARTS]
    return read_pyg_dataset(lambda r: Planetoid(r, folder), root, folder, files)


def _info(folder: str, nodes: int, edges: int, classes: int, features: int) -> DatasetInfo:
    return DatasetInfo(
        name=folder.lower(),
        kind="citation",
        description=f"{folder}: papers, citations, bag of words; public split",
        nodes=nodes,
        edges=edges,
        classes=classes,
        features=features,
        needs_data=True,
        read=partial(read_planetoid, folder),
    )


PLANETOID = (
    _info("Cora", 2708, 5278, 7, 1433),
    _info("CiteSeer", 3327, 4552, 6, 3703),
    _info("PubMed", 19717, 44324, 3, 500),
)
