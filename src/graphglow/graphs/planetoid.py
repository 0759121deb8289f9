"""The citation graphs of the paper, with the public split (Yang et al., 2016).

Their raw files are pickles of 2016, which PyG reads. Before it does, they are read here by one that
makes arrays, sparse matrices and lists and nothing else: a file that asks for more is refused.
"""

import io
import pickle
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.dataset_info import DatasetInfo
from graphglow.graphs.pyg_dataset import read_pyg_dataset

PLAIN = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("scipy.sparse.csr", "csr_matrix"),
    ("scipy.sparse._csr", "csr_matrix"),
    ("collections", "defaultdict"),
    ("builtins", "list"),
    ("__builtin__", "list"),
}
"""All that a raw file may name."""
RAW_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def read_planetoid(folder: str, root: Path, split_seed: int = 0) -> Data:
    """Read ``Cora``, ``CiteSeer`` or ``PubMed``; the split is public, so the seed does nothing."""
    from torch_geometric.datasets import Planetoid

    class Checked(Planetoid):  # type: ignore[misc]
        """PyG's, which reads no file that is not plain data, downloaded or not."""

        def process(self) -> None:
            for path in map(Path, self.raw_paths):
                if path.suffix != ".index":
                    check_plain_pickle(path)
            super().process()

    files = [f"ind.{folder.lower()}.{part}" for part in RAW_PARTS]
    return read_pyg_dataset(lambda r: Checked(r, folder), root, folder, files)


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PLAIN:
            raise pickle.UnpicklingError(f"{module}.{name} is no plain data")
        return super().find_class(module, name)


def check_plain_pickle(path: Path) -> None:
    """Raise unless the pickle in ``path`` makes arrays, sound sparse matrices and lists only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's and SciPy's of old names
        try:
            content = _PlainUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
            if hasattr(content, "check_format"):
                content.check_format(full_check=True)  # or its indices point anywhere
        except Exception as error:  # whatever NumPy and SciPy say of damaged ones
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(
                f"the raw file {path.name} must hold plain arrays; got something else ({line:.100})"
            ) from error


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
