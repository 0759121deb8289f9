"""Node data sets of the Open Graph Benchmark: ``ogb:ogbn-arxiv``, by the package ``ogb``.

Its readers of raw files are used. The file that it keeps for itself, ``processed/data_processed``,
is a pickle and never opened; what was read is kept beside it as safetensors.
"""

import contextlib
import difflib
import io
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.split import mask_from
from graphglow.storage import load_tensors, save_tensors

PREFIX = "ogb:"
NAMES = ("ogbn-arxiv", "ogbn-products", "ogbn-papers100M")
"""One class per node and one kind of node; the others are of another task."""
SPLITS = {"train": "train", "valid": "val", "test": "test"}
KEPT = "graphglow.safetensors"


def read_ogb(source: str, root: Path) -> Data:
    """Read a data set with its official split, not yet checked; files are kept in ``root/ogb``."""
    name = source.removeprefix(PREFIX)
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
        hint = f" (nearest: {near[0]})" if near else ""
        raise InputError(f"an OGB data set must be one of {', '.join(NAMES)}{hint}; got {name!r}")
    folder = root / "ogb" / name.replace("-", "_")
    if (folder / KEPT).exists():
        return Data(**load_tensors(folder / KEPT, "ogb")[0])
    try:
        with _quiet():
            facts = known_facts(name)
    except ImportError as error:
        raise InputError(
            f"{source} needs the package ogb, which is not installed; got {error} "
            '(pip install "graphglow[ogb]")'
        ) from error
    try:
        with _quiet():
            tensors = _read(folder, facts)
    except EOFError as error:
        raise InputError(
            f"{name} is more than a gigabyte and must be downloaded by ogb, which asks first: "
            "python -c 'from ogb.nodeproppred import NodePropPredDataset as D; "
            f'D("{name}", "{folder.parent}")\'; got no folder {folder / "raw"}'
        ) from error
    except Exception as error:  # no network, a damaged or missing file
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"the files of {name} must be in {folder} (set the data root by --data-root or "
            f"GRAPHGLOW_DATA) or be downloadable; got: {line}"
        ) from error
    with contextlib.suppress(InputError):  # a folder that may only be read: so again next time
        save_tensors(folder / KEPT, "ogb", tensors, {"name": name})
    return Data(**tensors)


def known_facts(name: str) -> Mapping[str, str]:
    """What the package says about a data set: where it is, and how it lies in its folder."""
    import pandas as pd
    from ogb import nodeproppred

    table = pd.read_csv(Path(nodeproppred.__file__).with_name("master.csv"), index_col=0, dtype=str)
    return {str(key): str(value) for key, value in table[name].items()}


def _read(folder: Path, facts: Mapping[str, str]) -> dict[str, Tensor]:
    """Read raw files: x [N, F], y [N] (-1 for none), edge_index [2, E] and a mask [N] per part."""
    from ogb.io import read_graph_raw

    raw = folder / "raw"
    if not raw.is_dir():
        _download(folder, facts)
    if facts["binary"] == "True":
        graph = read_graph_raw.read_binary_graph_raw(str(raw))[0]
        with np.load(raw / "node-label.npz", allow_pickle=False) as arrays:
            labels = arrays["node_label"].reshape(-1)
    else:
        inverse = facts["add_inverse_edge"] == "True"
        graph = read_graph_raw.read_csv_graph_raw(str(raw), add_inverse_edge=inverse)[0]
        labels = _column(raw / "node-label.csv.gz")
    if labels.dtype.kind == "f":  # blanks of ogbn-papers100M
        labels = np.where(np.isnan(labels), -1, labels)
    tensors = {
        "x": torch.from_numpy(np.asarray(graph["node_feat"])),
        "y": torch.from_numpy(labels.astype(np.int64)),
        "edge_index": torch.from_numpy(np.asarray(graph["edge_index"])),
    }
    for theirs, ours in SPLITS.items():
        index = _column(folder / "split" / facts["split"] / f"{theirs}.csv.gz")
        tensors[f"{ours}_mask"] = mask_from(index, len(labels), f"{theirs} of {folder.name}")
    return tensors


def _column(path: Path) -> np.ndarray:
    """The one column of a table without a header."""
    import pandas as pd

    return np.asarray(pd.read_csv(path, header=None)[0])


def _download(folder: Path, facts: Mapping[str, str]) -> None:
    """Fetch and unpack; the package asks first where it is more than a gigabyte."""
    from ogb.utils import url

    folder.parent.mkdir(parents=True, exist_ok=True)
    if not url.decide_download(facts["url"]):
        raise EOFError
    archive = Path(url.download_url(facts["url"], str(folder.parent)))
    url.extract_zip(str(archive), str(folder.parent))
    archive.unlink()
    (folder.parent / facts["download_name"]).rename(folder)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the package's progress and warnings, and its questions, which nobody could see."""
    out = io.StringIO()
    before = sys.stdin
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        warnings.simplefilter("ignore")
        sys.stdin = io.StringIO()  # an empty answer: EOFError
        try:
            yield
        finally:
            sys.stdin = before
