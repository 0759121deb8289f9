"""Data sets by name: those of ``DATASETS``, of PyG by class path, and of OGB."""

import contextlib
import inspect
import io
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, download_url, extract_zip
from torch_geometric.utils import index_to_mask

from graphglow.errors import InputError, did_you_mean
from graphglow.graph.formats import read_npz
from graphglow.graph.split import MASKS, mask_from
from graphglow.graph.synthetic import synthetic_graph
from graphglow.graph.table_file import one_sentence
from graphglow.linalg.neighbours import knn_edges

FIELDS = ("x", "y", "edge_index", "edge_weight", *MASKS)
STUDENTS = "students, friendships, profile one-hot"
PYG = "torch_geometric.datasets."
NOT_SETTABLE = ("root", "transform", "pre_transform", "pre_filter")
OGB = "ogb:"
OGB_URL = "http://snap.stanford.edu/ogb/data/nodeproppred/{}.zip"
OGB_NAMES = ("ogbn-arxiv", "ogbn-products")
"""One class per node and one kind of node; the others are of another task."""
OGB_SPLITS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
RAW_FILES = {
    "citation": [f"ind.{{0}}.{part}" for part in PLANETOID_PARTS],
    "social": ["data.mat"],
}
"""Planetoid (Yang et al., 2016), with the public split; Facebook-100 (Traud 2012)."""
CORA = Path(__file__).with_name("cora.npz")
"""Comes with the package (cora_license.txt); made by benchmarks/pack_cora.py."""


class DatasetInfo(NamedTuple):
    """One row of the table of names; ``edges`` counts each undirected edge once."""

    name: str
    kind: str
    """``citation``, ``social``, ``table`` or ``synthetic``."""
    what: str
    nodes: int
    edges: int
    classes: int
    features: int
    homophily: float = 0.0
    """Of a synthetic graph: the share of edges within a class."""

    @property
    def description(self) -> str:
        """What it is, how its edges were made and which split it comes with."""
        drawn = f"; homophily {self.homophily}" if self.kind == "synthetic" else ""
        edges = "; kNN graph" if self.kind == "table" else drawn
        split = "public split" if self.kind == "citation" else "random 50/25/25 split"
        return f"{self.what}{edges}; {split}"

    @property
    def needs_data(self) -> bool:
        """Whether files under the data root (or a download) are needed."""
        return self.kind in ("citation", "social") and self.name != "cora"

    def read(self, data_root: Path) -> Data:
        """The graph, not yet checked; without masks where the split is drawn by a seed."""
        if self.kind in RAW_FILES:
            return read_raw(self.name, self.kind, data_root)
        if self.kind == "table":
            return read_table(self.name)
        seed = [row[0] for row in _ROWS if row[1] == "synthetic"].index(self.name)
        return synthetic_graph(
            num_nodes=self.nodes,
            num_classes=self.classes,
            homophily=self.homophily,
            seed=seed,
        )


def read_table(name: str) -> Data:
    """Make a kNN graph of ``digits``, ``wine`` or ``breast_cancer``, which scikit-learn has."""
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    table, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(table)).float()
    y = torch.from_numpy(target).long()
    return Data(x=x, edge_index=knn_edges(x), y=y, knn_table=True)


_ROWS = (
    ("cora", "citation", "Cora: papers, citations, bag of words", 2708, 5278, 7, 1433),
    ("citeseer", "citation", "CiteSeer: papers, citations, bag of words", 3327, 4552, 6, 3703),
    ("pubmed", "citation", "PubMed: papers, citations, bag of words", 19717, 44324, 3, 500),
    ("amherst41", "social", f"Amherst41: {STUDENTS}", 2235, 90954, 2, 1193),
    ("johnshopkins55", "social", f"JohnsHopkins55: {STUDENTS}", 5180, 186586, 2, 2406),
    ("reed98", "social", f"Reed98: {STUDENTS}", 962, 18812, 2, 745),
    ("cornell5", "social", f"Cornell5: {STUDENTS}", 18660, 790777, 2, 4735),
    ("digits", "table", "Digits: 8 x 8 images of hand-written digits", 1797, 12241, 10, 64),
    ("wine", "table", "Wine: chemical analysis of three cultivars", 178, 1199, 3, 13),
    ("breast_cancer", "table", "Breast cancer: cell nuclei", 569, 4163, 2, 30),
    ("synthetic", "synthetic", "Random graph with helpful edges", 1000, 4000, 5, 32, 0.8),
    ("synthetic-small", "synthetic", "The same, small", 200, 800, 3, 32, 0.8),
    ("synthetic-noisy", "synthetic", "Most edges are wrong", 1000, 4000, 5, 32, 0.35),
    ("synthetic-heterophilous", "synthetic", "Edges avoid the own class", 1000, 4000, 5, 32, 0.1),
)
DATASETS: dict[str, DatasetInfo] = {row[0]: DatasetInfo(*row) for row in _ROWS}
"""Every known name (lower case) and what is known about it."""


def read_raw(name: str, kind: str, root: Path) -> Data:
    """Read a graph of the paper from ``root/name/raw``, or ``root/Name/raw``, as PyG does.

    PyG writes ``processed/`` beside ``raw/``, so it works in a temporary folder that links to the
    raw files. Where files are missing, PyG downloads them; Cora comes with this package.
    """
    from torch_geometric.datasets import LINKXDataset, Planetoid

    folders = [path for path in sorted(root.glob("*")) if path.name.lower() == name]
    raw = (folders[0] if folders else root / name) / "raw"
    complete = all((raw / file.format(name)).is_file() for file in RAW_FILES[kind])
    if name == "cora" and not complete:
        data = read_npz(CORA)
        data.edge_index = data.edge_index.flip(0)  # both directions are there; in PyG's order
        return data
    rule = f"the raw files in {raw} must be those of the data set {name}; PyG cannot read them"
    if not complete:
        rule = (
            f"the raw files of {name} must be in {raw} (set the data root by --data-root or "
            "GRAPHGLOW_DATA); they are missing and PyG cannot download them"
        )
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary, name)
        home.mkdir()
        if complete:
            (home / "raw").symlink_to(raw.resolve(), target_is_directory=True)
        with one_sentence(rule), _quiet():
            build: Any = Planetoid if kind == "citation" else LINKXDataset
            data = _only_fields(build(temporary, name)[0])
        if not complete:
            with contextlib.suppress(OSError):  # a root that cannot be written: again next time
                shutil.copytree(home / "raw", raw, dirs_exist_ok=True)
    return data


def _only_fields(graph: Data) -> Data:
    return Data(**{name: graph[name] for name in FIELDS if graph.get(name) is not None})


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress and the warnings of another package."""
    out = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        warnings.simplefilter("ignore")
        yield


def is_dataset_path(source: str) -> bool:
    """Whether ``source`` is written as a class path (of PyG, or of what will be refused)."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\.[A-Z]\w*(:.*)?", source) is not None


def read_dataset_path(source: str, root: Path, split_seed: int) -> Data:
    """Build ``torch_geometric.datasets.Amazon:name=Computers``; return its graph, not yet checked.

    Only classes that ``torch_geometric.datasets`` lists are taken: a path to anything else would
    run whatever code stands there. PyG keeps their files in ``pyg/`` under the data root.

    Of data sets with several splits (masks [N, S]) the split number ``split_seed`` modulo S is
    taken. Where PyG gives training nodes and no validation nodes, these are drawn by the seed.
    """
    import torch_geometric.datasets as pyg

    path, _, given = source.partition(":")
    name = path.removeprefix(PYG)
    if not path.startswith(PYG) or "." in name:
        raise InputError(
            f"{path!r} is no data set of PyG; other code is not run by its name. Give {PYG}NAME."
        )
    if name not in pyg.__all__:
        raise InputError(f"PyG has no data set {name!r}{did_you_mean(name, pyg.__all__)}.")
    build: Any = getattr(pyg, name)
    arguments = _arguments(given, path)
    if "root" in inspect.signature(build).parameters:
        folder = re.sub(r"[^\w=,.-]", "_", f"{name} {given}".strip())
        arguments["root"] = str(root / "pyg" / folder)
    with one_sentence(f"PyG cannot build {source}"), _quiet():
        dataset: Any = build(**arguments)
        count, graph = len(dataset), dataset[0]
    if count != 1 or not isinstance(graph, Data):
        got = f"{count} graphs" if count != 1 else f"a {type(graph).__name__}"
        raise InputError(
            f"{source} is {got}. Give one graph with one kind of nodes and edges, for node "
            "classification."
        )
    data = _only_fields(graph)
    _choose_split(data, split_seed)
    return data


def _arguments(given: str, path: str) -> dict[str, Any]:
    """``name=Computers,split=random`` as keyword arguments; PyG says which ones it takes."""
    arguments: dict[str, Any] = {}
    for item in filter(None, given.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or key in NOT_SETTABLE:
            raise InputError(
                f"Settings of {path} have {item!r}. Write KEY=VALUE,KEY=VALUE, none of them "
                f"{', '.join(NOT_SETTABLE)}."
            )
        words = {"true": True, "false": False}
        arguments[key] = words.get(value.lower(), int(value) if value.isdecimal() else value)
    return arguments


def _choose_split(data: Data, seed: int) -> None:
    """One of several splits, and validation nodes where there are none; ``data.split`` says so."""
    for name in MASKS:
        mask = data.get(name)
        if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] > 0:
            data[name] = mask[:, seed % mask.shape[1]]
            data.split = f"own number {seed % mask.shape[1]}"
    if data.get("train_mask") is None or data.get("val_mask") is not None or data.y.ndim != 1:
        return
    rest = ~data.train_mask & (data.y >= 0)
    pool = (rest if data.get("test_mask") is None else data.train_mask).nonzero()[:, 0]
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))
    data.val_mask = index_to_mask(pool[order[: max(1, len(pool) // 4)]], len(rest))
    if data.get("test_mask") is None:
        data.test_mask = rest & ~data.val_mask
    data.train_mask = data.train_mask & ~data.val_mask
    data.split = f"own, validation by seed {seed}"


def read_ogb(source: str, root: Path) -> Data:
    """Read ``ogb:ogbn-arxiv`` with its official split, not yet checked; download what is missing.

    The raw tables are read: the package ogb would unpickle what it keeps beside them.
    """
    import pandas as pd

    name = source.removeprefix(OGB)
    if name not in OGB_NAMES:
        raise InputError(f"There is no OGB data set {name!r}. Give one of {', '.join(OGB_NAMES)}.")
    folder = root / "ogb" / name.replace("-", "_")
    rule = (
        f"The files of {name} are not in {folder} and cannot be downloaded. Set the data root by "
        "--data-root or GRAPHGLOW_DATA"
    )

    def table(path: Path) -> np.ndarray:
        array: np.ndarray = pd.read_csv(path, header=None).to_numpy()
        return array

    with one_sentence(rule), _quiet():
        if not (folder / "raw").is_dir():
            _download_ogb(name.removeprefix("ogbn-"), folder)
        raw, (split,) = folder / "raw", (folder / "split").iterdir()
        data = Data(
            x=torch.from_numpy(table(raw / "node-feat.csv.gz").astype(np.float32)),
            y=torch.from_numpy(table(raw / "node-label.csv.gz")[:, 0].astype(np.int64)),
            edge_index=torch.from_numpy(table(raw / "edge.csv.gz").T.astype(np.int64)),
        )
        for theirs, mask in OGB_SPLITS.items():
            index = table(split / f"{theirs}.csv.gz")[:, 0]
            data[mask] = mask_from(index, len(data.y), f"{theirs} of {name}")
    return data


def _download_ogb(name: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    archive = Path(download_url(OGB_URL.format(name), str(folder.parent)))
    extract_zip(str(archive), str(folder.parent))
    archive.unlink()
    (folder.parent / name).rename(folder)
