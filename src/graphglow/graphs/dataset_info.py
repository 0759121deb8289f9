"""What is known about a data set that has a name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch_geometric.data import Data


@dataclass(frozen=True)
class DatasetInfo:
    """One row of the table of names; ``edges`` counts each undirected edge once."""

    name: str
    kind: str
    """``citation``, ``social``, ``table`` or ``synthetic``."""
    description: str
    nodes: int
    edges: int
    classes: int
    features: int
    needs_data: bool
    """Whether files under the data root (or a download) are needed."""
    read: Callable[[Path, int], Data]
    """``(data_root, split_seed) -> Data``, not yet checked."""
