"""Data sets by name: those of ``DATASETS``, of PyG by class path, and of OGB."""

import contextlib
import inspect
import io
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data, download_url, extract_zip
from torch_geometric.utils import index_to_mask

from graphglow.errors import LARGEST_RATE, InputError, at_least, did_you_mean, number
from graphglow.graph.check import MASKS, mask_from, without_edges
from graphglow.graph.formats import read_npz
from graphglow.graph.tables import one_sentence
from graphglow.linalg.neighbours import knn_edges

FIELDS = ("x", "y", "edge_index", "edge_weight", *MASKS)
STUDENTS = "students, friendships, profile one-hot"
PYG = "torch_geometric.datasets."
NOT_SETTABLE = ("root", "transform", "pre_transform", "pre_filter")
OGB = "ogb:"
OGB_URL = "http://snap.stanford.edu/ogb/data/nodeproppred/{}.zip"
OGB_NAMES = ("ogbn-arxiv", "ogbn-products")
"""One class per node and one kind of node; the others are of another task."""
PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
RAW_FILE_NAMES = {
    "citation": [f"ind.{{0}}.{part}" for part in PLANETOID_PARTS],
    "social": ["data.mat"],
}
"""Planetoid (Yang et al., 2016), with the public split; Facebook-100 (Traud 2012)."""
SET_ROOT = "set the data root by --data-root or GRAPHGLOW_DATA"
CORA = Path(__file__).with_name("cora.npz")
"""Comes with the package (cora_license.txt), packed from Planetoid's raw files."""


class DatasetInfo(NamedTuple):
    """What is known of a name; ``edges`` counts each undirected edge once."""

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
        made = {"table": "; kNN graph", "synthetic": f"; homophily {self.homophily}"}
        split = "public split" if self.kind == "citation" else "random 50/25/25 split"
        return f"{self.what}{made.get(self.kind, '')}; {split}"

    @property
    def needs_data(self) -> bool:
        """Whether files under the data root (or a download) are needed."""
        return self.kind in RAW_FILE_NAMES and self.name != "cora"

    def read(self, data_root: Path) -> Data:
        """The graph, not yet checked; without masks where the split is drawn by a seed."""
        if self.kind in RAW_FILE_NAMES:
            return read_raw(self.name, self.kind, data_root)
        if self.kind == "table":  # of scikit-learn, with a kNN graph
            from sklearn import datasets
            from sklearn.preprocessing import StandardScaler

            table, target = getattr(datasets, f"load_{self.name}")(return_X_y=True)
            x = torch.from_numpy(StandardScaler().fit_transform(table)).float()
            y = torch.from_numpy(target).long()
            return Data(x=x, edge_index=knn_edges(x), y=y, knn_table=True)
        return synthetic_graph(
            num_nodes=self.nodes,
            num_classes=self.classes,
            homophily=self.homophily,
            seed=[row[0] for row in _ROWS if row[1] == "synthetic"].index(self.name),
        )


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
    complete = all((raw / file.format(name)).is_file() for file in RAW_FILE_NAMES[kind])
    if name == "cora" and not complete:
        data = read_npz(CORA)
        data.edge_index = data.edge_index.flip(0)  # both directions are there; in PyG's order
        return data
    rule = f"the raw files in {raw} must be those of the data set {name}; PyG cannot read them"
    if not complete:
        rule = f"{raw} lacks raw files, and PyG cannot download them; {SET_ROOT}"
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary, name)
        home.mkdir()
        if complete:
            (home / "raw").symlink_to(raw.resolve(), target_is_directory=True)
        with one_sentence(rule), _quiet():
            build: Any = Planetoid if kind == "citation" else LINKXDataset
            graph = build(temporary, name)[0]
        if not complete:
            with contextlib.suppress(OSError):  # a root that cannot be written: again next time
                shutil.copytree(home / "raw", raw, dirs_exist_ok=True)
    return Data(**{name: graph[name] for name in FIELDS if graph.get(name) is not None})


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress and the warnings of another package."""
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        warnings.catch_warnings(),
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
        got = f"{path!r} is no data set of PyG; other code is not run by its name"
        raise InputError(f"{got}. Give {PYG}NAME.")
    if name not in pyg.__all__:
        raise InputError(f"PyG has no data set {name!r}{did_you_mean(name, pyg.__all__)}.")
    arguments: dict[str, Any] = {}  # PyG says which ones it takes
    for item in filter(None, given.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or key in NOT_SETTABLE:
            how = f"Write KEY=VALUE,KEY=VALUE, none of them {', '.join(NOT_SETTABLE)}"
            raise InputError(f"Settings of {path} have {item!r}. {how}.")
        words = {"true": True, "false": False}
        arguments[key] = words.get(value.lower(), int(value) if value.isdecimal() else value)
    build: Any = getattr(pyg, name)
    if "root" in inspect.signature(build).parameters:
        folder = re.sub(r"[^\w=,.-]", "_", f"{name} {given}".strip())
        arguments["root"] = str(root / "pyg" / folder)
    with one_sentence(f"PyG cannot build {source}"), _quiet():
        dataset: Any = build(**arguments)
        count, graph = len(dataset), dataset[0]
    if count != 1 or not isinstance(graph, Data):
        got = f"{count} graphs" if count != 1 else f"a {type(graph).__name__}"
        raise InputError(f"{source} is {got}. Give one graph with one kind of nodes and edges.")
    data = Data(**{name: graph[name] for name in FIELDS if graph.get(name) is not None})
    for name in MASKS:
        mask = data.get(name)
        if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] > 0:
            data[name] = mask[:, split_seed % mask.shape[1]]
            data.split = f"own number {split_seed % mask.shape[1]}"
    if data.get("train_mask") is None or data.get("val_mask") is not None or data.y.ndim != 1:
        return data
    rest = ~data.train_mask & (data.y >= 0)
    pool = (rest if data.get("test_mask") is None else data.train_mask).nonzero()[:, 0]
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(split_seed))
    data.val_mask = index_to_mask(pool[order[: max(1, len(pool) // 4)]], len(rest))
    if data.get("test_mask") is None:
        data.test_mask = rest & ~data.val_mask
    data.train_mask = data.train_mask & ~data.val_mask
    data.split = f"own, validation by seed {split_seed}"
    return data


def read_ogb(source: str, root: Path) -> Data:
    """Read ``ogb:ogbn-arxiv`` with its official split, not yet checked; download what is missing.

    The raw tables are read: the package ogb would unpickle what it keeps beside them.
    """
    name = source.removeprefix(OGB)
    if name not in OGB_NAMES:
        raise InputError(f"There is no OGB data set {name!r}. Give one of {', '.join(OGB_NAMES)}.")
    folder = root / "ogb" / name.replace("-", "_")
    rule = f"The files of {name} are not in {folder} and cannot be downloaded; {SET_ROOT}"

    def table(path: Path) -> Any:
        return pd.read_csv(path, header=None).to_numpy()

    with one_sentence(rule), _quiet():
        if not (folder / "raw").is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            packed = name.removeprefix("ogbn-")
            archive = download_url(OGB_URL.format(packed), str(folder.parent))
            extract_zip(archive, str(folder.parent))
            Path(archive).unlink()
            (folder.parent / packed).rename(folder)
        raw, (split,) = folder / "raw", (folder / "split").iterdir()
        data = Data(
            x=torch.from_numpy(table(raw / "node-feat.csv.gz").astype(np.float32)),
            y=torch.from_numpy(table(raw / "node-label.csv.gz")[:, 0].astype(np.int64)),
            edge_index=torch.from_numpy(table(raw / "edge.csv.gz").T.astype(np.int64)),
            split="public",
        )
        for theirs, mask in zip(("train", "valid", "test"), MASKS, strict=True):
            index = table(split / f"{theirs}.csv.gz")[:, 0]
            data[mask] = mask_from(index, len(data.y), f"{theirs} of {name}")
    return data


def synthetic_graph(
    *,
    num_nodes: int = 1000,
    num_classes: int = 5,
    num_features: int = 32,
    homophily: float = 0.8,
    average_degree: float = 8.0,
    feature_noise: float = 3.0,
    seed: int = 0,
) -> Data:
    """Draw a graph in which the share ``homophily`` of the edges joins nodes of one class.

    Classes have equal sizes, up to one, and at least two nodes. Edges are drawn uniformly from the
    pairs within classes and from those across, at most half of them. Features are the class
    centroids, drawn from a unit normal, and noise of the standard deviation ``feature_noise``. Time
    and memory are O(N D + E).

    Shapes:
        x [N, D], y [N], edge_index [2, 2 E] with both directions of each edge
    """
    at_least("num_classes", num_classes, 2)
    at_least("num_features", num_features, 1)
    number("homophily", homophily, 0, 1)
    number("feature_noise", feature_noise, 0, LARGEST_RATE)
    if num_nodes < (least := 2 * num_classes):
        raise InputError(f"num_nodes must be at least two per class ({least}); got {num_nodes}")
    number("average_degree", average_degree, 2 / num_nodes, num_nodes - 1)
    num_edges = round(num_nodes * average_degree / 2)
    within = round(homophily * num_edges)
    across = num_edges - within
    small, larger = divmod(num_nodes, num_classes)  # `larger` classes have one node more
    pairs_within = num_classes * small * (small - 1) // 2 + larger * small
    pairs_across = num_nodes * (num_nodes - 1) // 2 - pairs_within
    if 2 * within > pairs_within or 2 * across > pairs_across:  # or many draws are duplicates
        raise InputError(
            "average_degree must use at most half of the pairs within and across the classes "
            f"({pairs_within}, {pairs_across}); got {within} and {across} edges"
        )
    generator = torch.Generator().manual_seed(at_least("seed", seed, 0))
    y = torch.arange(num_nodes) % num_classes
    y = y[torch.randperm(num_nodes, generator=generator)]
    centroid = torch.randn(num_classes, num_features, generator=generator)
    noise = torch.randn(num_nodes, num_features, generator=generator)
    inside = _pairs(y, num_classes, within, True, generator)
    low, high = torch.cat([inside, _pairs(y, num_classes, across, False, generator)], dim=1)  # [E]
    edge_index = torch.stack([torch.cat([low, high]), torch.cat([high, low])])
    return Data(x=centroid[y] + feature_noise * noise, edge_index=edge_index, y=y)


def _pair_keys(u: Tensor, v: Tensor, num_nodes: int) -> Tensor:
    """One number for each pair, whatever its direction: [E]."""
    return torch.minimum(u, v) * num_nodes + torch.maximum(u, v)


def _pairs(
    y: Tensor, num_classes: int, count: int, same: bool, generator: torch.Generator
) -> Tensor:
    """Draw ``count`` distinct pairs ``low < high`` within a class or across classes: [2, count]."""
    num_nodes = len(y)
    by_class = y.argsort(stable=True)  # class c is by_class[start[c] : start[c] + size[c]]
    size = torch.bincount(y, minlength=num_classes)
    start = size.cumsum(0) - size
    keys = torch.empty(0, dtype=torch.int64)
    while len(keys) < count:
        draws = int(1.3 * (count - len(keys))) + 16
        u = torch.randint(num_nodes, (draws,), generator=generator)
        if same:
            target = y[u]
        else:
            shift = torch.randint(1, num_classes, (draws,), generator=generator)
            target = (y[u] + shift) % num_classes
        place = torch.rand(draws, generator=generator, dtype=torch.float64) * size[target]
        v = by_class[start[target] + place.long()]
        keys = torch.unique(torch.cat([keys, _pair_keys(u, v, num_nodes)[u != v]]))
    keys = keys[torch.randperm(len(keys), generator=generator)[:count]]
    return torch.stack([keys // num_nodes, keys % num_nodes])


def delete_edges(data: Data, ratio: float, *, seed: int) -> Data:
    """Return a copy without the share ``ratio`` of its undirected edges, drawn at random.

    Both directions of an edge, and its duplicates, go together; self-loops count as none and stay.
    """
    keys, known = _listed_and_known(data)
    gone = round(number("ratio", ratio, 0, 1) * len(known))
    drawn = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))[:gone]
    kept, changed = ~torch.isin(keys, known[drawn]), without_edges(data.clone())
    changed.edge_index = data.edge_index[:, kept]
    if (weight := data.get("edge_weight")) is not None:
        changed.edge_weight = weight[kept]
    return changed


def add_edges(data: Data, ratio: float, *, seed: int) -> Data:
    """Return a copy with random edges more: the share ``ratio`` of the undirected ones it has.

    Pairs of different nodes that are no edge yet are drawn, each alike. Where edges weigh, new
    ones weigh what those of the graph do in the mean.
    """
    (_, known), num_nodes = _listed_and_known(data), int(data.num_nodes)
    wanted = round(number("ratio", ratio, 0, LARGEST_RATE) * len(known))
    if 4 * (len(known) + wanted) > num_nodes * (num_nodes - 1) and wanted:
        raise InputError(
            f"ratio must leave half of the pairs of nodes without an edge; got {ratio}"
        )
    generator, new = torch.Generator().manual_seed(seed), known.new_empty(0)
    while len(new) < wanted:
        draws = int(1.3 * (wanted - len(new))) + 16  # some are edges already
        u, v = torch.randint(num_nodes, (2, draws), generator=generator)
        keys = _pair_keys(u, v, num_nodes)[u != v]
        new = torch.cat([new, keys[~torch.isin(keys, known)]])
        new = torch.tensor(list(dict.fromkeys(new.tolist())))  # each once, in the order they came
    low, high = new[:wanted] // num_nodes, new[:wanted] % num_nodes
    both = torch.stack([torch.cat([low, high]), torch.cat([high, low])])
    changed = without_edges(data.clone())
    changed.edge_index = torch.cat([data.edge_index, both], dim=1)
    if (weight := data.get("edge_weight")) is not None:
        more = weight.new_full((2 * wanted,), float(weight.mean()))
        changed.edge_weight = torch.cat([weight, more])
    return changed


def _listed_and_known(data: Data) -> tuple[Tensor, Tensor]:
    """A number for each edge as it is listed [E], and each undirected edge once, sorted [M]."""
    u, v = data.edge_index
    keys = _pair_keys(u, v, int(data.num_nodes))
    return keys, torch.unique(keys[u != v])


def shuffle_features(data: Data, ratio: float, *, seed: int) -> Data:
    """Return a copy in which the share ``ratio`` of the nodes, drawn, swap features in a ring."""
    count = round(number("ratio", ratio, 0, 1) * data.num_nodes)
    generator, changed = torch.Generator().manual_seed(seed), data.clone()
    nodes = torch.randperm(int(data.num_nodes), generator=generator)[:count]
    changed.x[nodes] = data.x[nodes.roll(1)]
    return changed


PERTURBATIONS: dict[str, Callable[..., Data]] = {
    "delete": delete_edges,
    "add": add_edges,
    "shuffle": shuffle_features,
}
"""``(data, ratio, *, seed) -> Data``, by name."""
