"""The social graphs of the paper: four of the Facebook-100 (Traud 2012; Lim et al., 2021)."""

from functools import partial
from pathlib import Path

from torch_geometric.data import Data

from graphglow.graphs.dataset_info import DatasetInfo
from graphglow.graphs.pyg_dataset import read_pyg_dataset


def read_facebook100(name: str, root: Path, split_seed: int = 0) -> Data:
    """Read one college; no masks, so the check draws 50/25/25 of the labelled nodes by seed.

    The label is the gender that the user stated, -1 if none.
    """
    from torch_geometric.datasets import LINKXDataset

    return read_pyg_dataset(lambda r: LINKXDataset(r, name), root, name, ["data.mat"])


def _info(title: str, nodes: int, edges: int, features: int) -> DatasetInfo:
    return DatasetInfo(
        name=title.lower(),
        kind="social",
        description=f"{title}: students, friendships, profile one-hot; random 50/25/25 split",
        nodes=nodes,
        edges=edges,
        classes=2,
        features=features,
        needs_data=True,
        read=partial(read_facebook100, title.lower()),
    )


FACEBOOK100 = (
    _info("Amherst41", 2235, 90954, 1193),
    _info("JohnsHopkins55", 5180, 186586, 2406),
    _info("Reed98", 962, 18812, 745),
    _info("Cornell5", 18660, 790777, 4735),
)
