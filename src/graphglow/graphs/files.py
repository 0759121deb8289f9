"""Graphs in files of the user's own: which reader for which file.

No reader unpickles: ``.pt`` is read with ``weights_only=True`` and ``.npz`` without pickles.
"""

import os
from pathlib import Path

from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.arrays import read_npz, read_pt
from graphglow.graphs.networkx_graph import read_graphml
from graphglow.graphs.table_folder import read_table_folder

READERS = {".pt": read_pt, ".pth": read_pt, ".npz": read_npz, ".graphml": read_graphml}
ACCEPTED = ".pt, .npz, .graphml, or a folder with a nodes table and an edges table (csv, parquet)"


def read_graph_file(path: Path) -> Data:
    """Read a graph, not yet checked, from a file or folder that exists."""
    if not os.access(path, os.R_OK):
        raise InputError(f"a graph file must be readable; got {path}")
    if path.is_dir():
        return read_table_folder(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"a graph file must be {ACCEPTED}; got {path}")
    if path.stat().st_size == 0:
        raise InputError(f"a graph file must not be empty; got {path}")
    return reader(path)
