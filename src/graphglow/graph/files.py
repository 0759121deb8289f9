"""Graphs and splits as arrays in a file: ``.npz``, and ``.pt`` with a PyG ``Data`` or a dict.

Nothing is unpickled, and no packed file may unpack to more than ``UNPACKED`` bytes, or 200 times
its own size where that is more; ``GRAPHGLOW_UNPACK_LIMIT``, a number of GiB, goes before both.
"""

import difflib
import gzip
import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphglow.errors import InputError, InputWarning
from graphglow.graph.split import MASKS, SPLITS, mask_from
from graphglow.storage import existing_file

UNPACKED = 2**30
VARIABLE = "GRAPHGLOW_UNPACK_LIMIT"
OF_EDGES = ("weight", "probability", "in_input", "input_weight", "latent_weight")
"""What files of ours say of each edge; the weight is how much it counts."""
TENSORS = ("x", "y", "edge_index", "adj_t", *(f"edge_{name}" for name in OF_EDGES))
OWN_NAMES = ("node_id", "class_names")
SPARSE = tuple(f"{of}_{part}" for of in ("adj", "attr") for part in ("data", "indices", "indptr"))
NUMBERS = {*TENSORS, *SPLITS, *MASKS, *SPARSE, "adj_shape", "attr_shape", "attr_matrix"}
"""Arrays that cannot be left out; ``metadata`` and the like may hold objects, and are not read."""
PARTS_OF_DATA = [GlobalStorage, DataTensorAttr, DataEdgeAttr]
"""Plain containers that PyG itself does not register as safe to load."""


@contextmanager
def one_sentence(rule: str) -> Iterator[None]:
    """Whatever somebody else's parser raises: the rule, then the first line of what it said."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "weights_only" in line:  # torch's advice is to read the file unsafely
            raise InputError(rule) from error
        raise InputError(f"{rule} ({line:.200})") from error


def note(sentence: str) -> None:
    """Say that something of the input is not used, or read in a way that might not be meant."""
    warnings.warn(sentence, InputWarning, stacklevel=3)


def own_path(source: str | Path) -> Path:
    """A path with ``~`` filled in, as far as there is such a user."""
    try:
        return Path(source).expanduser()
    except RuntimeError:
        return Path(source)


def is_there(path: Path) -> bool:
    """Whether something is at ``path``; what cannot be the name of a file is not there."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, a zero byte
        return False


def pairs_of_paths(source: str) -> Iterator[tuple[Path, Path]]:
    """Every way to read ``people.csv+relations.csv`` as two paths."""
    for place, letter in enumerate(source):
        if letter == "+" and source[:place] and source[place + 1 :]:
            yield own_path(source[:place]), own_path(source[place + 1 :])


def pair_of_tables(source: str) -> tuple[Path, Path] | None:
    """``people.csv+relations.csv`` as two tables that exist; None if it is something else."""
    return next((pair for pair in pairs_of_paths(source) if all(map(is_there, pair))), None)


def check_unpacked(size: int, path: Path) -> None:
    """Raise if what is in ``path`` would take ``size`` bytes, and that is too much."""
    told = os.environ.get(VARIABLE, "").strip()
    with one_sentence(f"{VARIABLE} must be a number of GiB; got {told!r}"):
        limit = float(told) * 2**30 if told else max(UNPACKED, 200 * path.stat().st_size)
    if size > limit:
        raise InputError(
            f"{path} must unpack to at most {limit / 2**20:,.0f} MiB; got "
            f"{min(size, 2**60) / 2**20:,.0f} MiB in a file of {path.stat().st_size:,} bytes "
            f"({VARIABLE}=GIB in the environment allows more)"
        )


def check_gzip(path: Path) -> None:
    """The same of a ``.gz``, which does not say its size: so much is read, and no more."""
    size = 0
    with gzip.open(path, "rb") as packed:
        while some := packed.read(2**20):
            size += len(some)
            check_unpacked(size, path)


def read_npz_arrays(path: str | Path, what: str) -> dict[str, np.ndarray]:
    """Return the arrays of the file; ``what`` names it in errors, e.g. ``"the split file"``.

    One that holds objects is refused if it is among ``NUMBERS`` or the labels, else left out.
    """
    path = existing_file(path, what)
    rule = (
        f"{what} must be an .npz file of plain arrays; {path} is damaged, foreign or holds objects"
    )
    with one_sentence(rule), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's of what stands in a header
        with zipfile.ZipFile(path) as archive:
            check_unpacked(sum(entry.file_size for entry in archive.infolist()), path)
        with np.load(path, allow_pickle=False) as arrays:
            found = {}
            for name in arrays.files:
                try:
                    found[name] = np.asarray(arrays[name])
                except ValueError as error:
                    if "allow_pickle" not in str(error) or name in {*NUMBERS, "labels"}:
                        raise
            return found


def apply_split_file(data: Data, path: str | Path) -> Data:
    """Return a copy of ``data`` with the masks of a split file.

    A split file is ``.npz`` with index arrays ``train``, ``val`` and ``test``.
    """
    arrays = read_npz_arrays(path, "the split file")
    data = data.clone()
    for name in SPLITS:
        if name not in arrays:
            raise InputError(
                f"{path} must hold the arrays train, val and test; "
                f"got {', '.join(sorted(arrays)) or 'nothing'}"
            )
        where, num_nodes = f"{name} of {path}", int(data.num_nodes or 0)
        data[f"{name}_mask"] = mask_from(arrays[name], num_nodes, where)
    data.split = f"file:{path}"
    return data


def read_npz(path: Path, need_labels: bool = True) -> Data:
    """Read a graph as ``x``, ``y``, ``edge_index`` and so on, or in the field's sparse convention.

    That is ``adj_data``, ``adj_indices``, ``adj_indptr``, ``adj_shape`` of a CSR adjacency,
    ``attr_*`` of CSR features or a dense ``attr_matrix``, and ``labels``. Without attributes each
    node is a feature of its own, as the field does it.
    """
    arrays = read_npz_arrays(path, "the graph file")
    fields = _from_sparse(arrays, path) if arrays.keys() & SPARSE[:3] else arrays
    return graph_from_fields(fields, str(path), need_labels)


def _from_sparse(arrays: dict[str, np.ndarray], path: Path) -> dict[str, Any]:
    """The sparse convention in our own names; entries other than 1 are weights."""
    fields: dict[str, Any] = {
        name: of for name, of in arrays.items() if not name.startswith(("adj_", "attr_", "labels"))
    }
    adjacency = _csr(arrays, "adj", path)
    fields["edge_index"], fields["edge_weight"] = edges_of(adjacency)
    fields["y"] = arrays.get("labels")
    if "attr_matrix" in arrays:
        fields["x"] = arrays["attr_matrix"]
    elif arrays.keys() & SPARSE[3:]:
        features = _csr(arrays, "attr", path)
        check_unpacked(4 * math.prod(features.shape), path)
        fields["x"] = features.astype(np.float32).toarray()
    else:
        note(f"{path} holds no attributes: each node is a feature of its own")
        check_unpacked(4 * math.prod(adjacency.shape), path)
        fields["x"] = np.eye(len(adjacency.indptr) - 1, dtype=np.float32)
    return {name: of for name, of in fields.items() if of is not None}


def edges_of(adjacency: Any) -> tuple[Tensor, Tensor | None]:
    """The entries of a sparse matrix: [2, E], and [E] where any of them is not 1."""
    entries = adjacency.tocoo()
    there = entries.data != 0  # NaN is, and is refused by the check
    ends = np.stack([entries.row[there], entries.col[there]]).astype(np.int64)
    weight = entries.data[there]
    plain = weight.dtype == np.bool_ or bool((weight == 1).all())
    return torch.from_numpy(ends), None if plain else torch.from_numpy(weight.astype(np.float64))


def _csr(arrays: dict[str, np.ndarray], name: str, path: Path) -> Any:
    from scipy.sparse import csr_array

    rule = f"{path} must hold a CSR matrix of numbers as {name}_data, {name}_indices, "
    with one_sentence(f"{rule}{name}_indptr and {name}_shape; got another"):
        shape = tuple(int(size) for size in arrays[f"{name}_shape"])
        parts = tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
        matrix = csr_array(parts, shape=shape)
        matrix.check_format(full_check=True)  # or its indices point anywhere
        if matrix.dtype.kind not in "biuf" or (name == "adj" and shape[0] != shape[1]):
            raise ValueError(f"{name} of type {matrix.dtype} and shape {shape}")
    return matrix


def read_pt(path: Path, need_labels: bool = True) -> Data:
    """Read a PyG ``Data`` or a dict of tensors; anything that needs unpickling is refused."""
    path = existing_file(path, "the graph file")
    rule = f"{path} must hold a torch_geometric Data or a dict of tensors"
    with (
        one_sentence(f"{rule}; it is damaged, foreign or holds other objects"),
        warnings.catch_warnings(),
        torch.serialization.safe_globals(PARTS_OF_DATA),
        torch.sparse.check_sparse_tensor_invariants(True),  # type: ignore[no-untyped-call]
    ):
        warnings.simplefilter("ignore")  # torch warns of foreign archives before it refuses
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type for entry in archive.infolist()):  # torch packs nothing
                raise InputError(f"entries of {path} must be stored, not compressed")
        content = torch.load(path, map_location="cpu", weights_only=True)
        fields = content.to_dict() if isinstance(content, Data) else content
    if not isinstance(fields, dict):
        raise InputError(f"{rule}; got {type(content).__name__}")
    for name, value in fields.items():
        if not isinstance(value, Tensor):
            continue
        size, what = value.numel() * value.element_size(), f"{name} of {path}"
        if value.device.type != "cpu" or value.is_quantized or value.is_nested:
            raise InputError(f"{what} must hold plain numbers; got a tensor of another kind")
        if value.layout != torch.strided:
            check_unpacked(size, path)
        elif size > value.untyped_storage().nbytes():
            raise InputError(
                f"{what} must hold all its numbers; got an expanded tensor of shape "
                f"{tuple(value.shape)} (save x.contiguous())"
            )
    return graph_from_fields(fields, str(path), need_labels)


def graph_from_fields(fields: Mapping[str, object], what: str, need_labels: bool = True) -> Data:
    """Make a graph, not yet checked, from arrays or tensors by name; ``what`` names it in errors.

    Shapes:
        x [N, D], y [N] (integers, or text: then ``class_names`` is set), edge_index [2, E],
        edge_weight [E]; train, val, test: node indices or masks (``train_mask`` is accepted too)
    """
    from graphglow.graph.features import encode_labels

    if fields.get("x") is None or (need_labels and fields.get("y") is None):
        found = ", ".join(sorted(map(str, fields))[:10]) or "nothing"
        raise InputError(f"{what} must hold x{' and y' if need_labels else ''}; got {found}")
    known = {*TENSORS, *OWN_NAMES, *SPLITS, *(f"{name}_mask" for name in SPLITS)}
    for name in set(map(str, fields)) - known:  # a random split would be used in place of "tarin"
        if near := difflib.get_close_matches(name, known - set(fields), n=1, cutoff=0.75):
            raise InputError(f"{what} must spell {near[0]} so; got {name!r}")
    data = Data()
    for name in TENSORS:
        value = fields.get(name)
        if name == "y" and isinstance(value, np.ndarray) and value.dtype.kind in "US":
            text = np.char.decode(value, "utf-8", "replace") if value.dtype.kind == "S" else value
            data.y, data.class_names = encode_labels(text.reshape(-1), f"y of {what}")
        elif value is not None:
            data[name] = _tensor(value, f"{name} of {what}")
    for name in SPLITS:
        value = fields.get(name, fields.get(f"{name}_mask"))
        if value is not None:
            where = f"{name} of {what}"
            index = _tensor(value, where)
            if index.is_floating_point() or index.is_complex():  # NumPy does not know all of them
                raise InputError(f"{where} must hold node indices or booleans; got {index.dtype}")
            num_nodes = len(data.x) if data.x.ndim else 0
            data[f"{name}_mask"] = mask_from(index.numpy(), num_nodes, where)
    for name in OWN_NAMES:
        value = fields.get(name)
        value = value.tolist() if isinstance(value, np.ndarray | Tensor) else value
        if isinstance(value, list):
            if not all(isinstance(one, str | int | float) for one in value):
                raise InputError(f"{name} of {what} must be text or numbers; got others")
            data[name] = value
    if isinstance(fields.get("feature_columns"), dict):  # how a table was encoded
        data.feature_columns = fields["feature_columns"]
    return data


def _tensor(value: object, what: str) -> Tensor:
    if isinstance(value, Tensor):
        if value.layout != torch.strided and not what.startswith("x of "):
            raise InputError(f"{what} must be dense; got a sparse tensor")
        return value.detach()
    if not isinstance(value, np.ndarray):
        raise InputError(f"{what} must be an array; got {type(value).__name__}")
    try:
        return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), copy=False))
    except TypeError as error:  # text, objects, dates
        raise InputError(f"{what} must hold numbers; got {value.dtype}") from error
