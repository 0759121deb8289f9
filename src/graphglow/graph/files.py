"""Graphs and splits as arrays in a file: ``.npz``, and ``.pt`` with a PyG ``Data`` or a dict.

Nothing is unpickled.
"""

import warnings
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

from graphglow.errors import InputError, did_you_mean, warn
from graphglow.graph.features import encode_labels
from graphglow.graph.split import MASKS, SPLITS, mask_from
from graphglow.storage import existing_file

OF_EDGES = ("weight", "probability", "in_input", "input_weight", "latent_weight")
"""What our own files say of each edge; the weight is how much it counts."""
TENSORS = ("x", "y", "edge_index", "adj_t", *(f"edge_{name}" for name in OF_EDGES))
OWN_NAMES = ("node_id", "class_names")
SPARSE = tuple(f"{of}_{part}" for of in ("adj", "attr") for part in ("data", "indices", "indptr"))
NUMBERS = {*TENSORS, *SPLITS, *MASKS, *SPARSE, "adj_shape", "attr_shape", "attr_matrix", "labels"}
"""Arrays that cannot be left out; ``metadata`` and the like may hold objects, and are not read."""


@contextmanager
def one_sentence(rule: str) -> Iterator[None]:
    """Turn whatever a parser raises into the rule and the first line of what it said."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "weights_only" in line or "pickle" in line:  # advice to read the file unsafely
            raise InputError(rule) from error
        raise InputError(f"{rule} ({line:.200})") from error


def read_npz_arrays(path: str | Path, what: str) -> dict[str, np.ndarray]:
    """Return the arrays of the file; ``what`` names it in errors, e.g. ``"the split file"``.

    Arrays of objects are refused if they are among ``NUMBERS``, else left out.
    """
    path = existing_file(path, what)
    arrays = {}
    rule = f"{what} {path} is no .npz file of plain arrays; it is damaged, foreign or holds objects"
    with one_sentence(rule), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's of what stands in a header
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for name in archive.files:
                try:
                    arrays[name] = np.asarray(archive[name])
                except ValueError as error:
                    if "allow_pickle" not in str(error) or name in NUMBERS:
                        raise
    return arrays


def apply_split_file(data: Data, path: str | Path) -> Data:
    """Return a copy of ``data`` with the masks of a split file.

    A split file is ``.npz`` with index arrays ``train``, ``val`` and ``test``.
    """
    arrays = read_npz_arrays(path, "the split file")
    data = data.clone()
    for name in SPLITS:
        if name not in arrays:
            held = ", ".join(sorted(arrays)) or "nothing"
            raise InputError(f"{path} holds {held}. Save the arrays train, val and test.")
        where = f"{name} of {path}"
        data[f"{name}_mask"] = mask_from(arrays[name], int(data.num_nodes or 0), where)
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
        fields["x"] = _csr(arrays, "attr", path).astype(np.float32).toarray()
    else:
        warn(f"{path} holds no attributes: each node is a feature of its own")
        fields["x"] = np.eye(adjacency.shape[0], dtype=np.float32)
    return {name: value for name, value in fields.items() if value is not None}


def edges_of(adjacency: Any) -> tuple[Tensor, Tensor | None]:
    """The entries of a sparse matrix: [2, E], and [E] where any of them is not 1."""
    entries = adjacency.tocoo()
    present = entries.data != 0  # NaN is, and is refused by the check
    ends = np.stack([entries.row[present], entries.col[present]]).astype(np.int64)
    weight = entries.data[present]
    plain = weight.dtype == np.bool_ or bool((weight == 1).all())
    return torch.from_numpy(ends), None if plain else torch.from_numpy(weight.astype(np.float64))


def _csr(arrays: dict[str, np.ndarray], name: str, path: Path) -> Any:
    from scipy.sparse import csr_array

    parts = [f"{name}_{part}" for part in ("data", "indices", "indptr", "shape")]
    with one_sentence(f"{path} has no CSR matrix of numbers in {', '.join(parts)}"):
        values, indices, indptr, shape = (arrays[part] for part in parts)
        matrix = csr_array((values, indices, indptr), shape=tuple(int(size) for size in shape))
        matrix.check_format(full_check=True)  # or its indices point anywhere
        if matrix.dtype.kind not in "biuf" or (name == "adj" and shape[0] != shape[1]):
            raise ValueError(f"{name} of type {matrix.dtype} and shape {matrix.shape}")
    return matrix


def read_pt(path: Path, need_labels: bool = True) -> Data:
    """Read a PyG ``Data`` or a dict of tensors; anything that needs unpickling is refused."""
    path = existing_file(path, "the graph file")
    rule = f"{path} holds no torch_geometric Data and no dict of tensors"
    with (
        one_sentence(f"{rule}; it is damaged, foreign or holds other objects"),
        warnings.catch_warnings(),
        torch.serialization.safe_globals([GlobalStorage, DataTensorAttr, DataEdgeAttr]),
        torch.sparse.check_sparse_tensor_invariants(True),  # type: ignore[no-untyped-call]
    ):
        warnings.simplefilter("ignore")  # torch warns of foreign archives before it refuses
        content = torch.load(path, map_location="cpu", weights_only=True)
        fields = content.to_dict() if isinstance(content, Data) else content
    if not isinstance(fields, dict):
        raise InputError(f"{rule}, but a {type(content).__name__}.")
    return graph_from_fields(fields, str(path), need_labels)


def graph_from_fields(fields: Mapping[str, object], what: str, need_labels: bool = True) -> Data:
    """Make a graph, not yet checked, from arrays or tensors by name; ``what`` names it in errors.

    Shapes:
        x [N, D], y [N] (integers, or text: then ``class_names`` is set), edge_index [2, E],
        edge_weight [E]; train, val, test: node indices or masks (``train_mask`` is accepted too)
    """
    if fields.get("x") is None or (need_labels and fields.get("y") is None):
        found = ", ".join(sorted(map(str, fields))[:10]) or "nothing"
        raise InputError(f"{what} must hold x{' and y' if need_labels else ''}; got {found}")
    known = {*TENSORS, *OWN_NAMES, *SPLITS, *MASKS}
    for name in set(map(str, fields)) - known:  # a random split would be used in place of "tarin"
        if near := did_you_mean(name, known - set(fields), 0.75):
            raise InputError(f"{what} has {name!r}{near}, which is not read. Rename it.")
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
            data[f"{name}_mask"] = mask_from(
                index.numpy(), len(data.x) if data.x.ndim else 0, where
            )
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
        dense = value.layout == torch.strided or what.startswith("x of ")
        if not dense or value.is_quantized or value.is_nested or value.device.type != "cpu":
            raise InputError(f"{what} must be a dense tensor of plain numbers; got another kind")
        return value.detach()
    if not isinstance(value, np.ndarray):
        raise InputError(f"{what} must be an array; got {type(value).__name__}")
    try:
        return torch.from_numpy(value.astype(value.dtype.newbyteorder("="), copy=False))
    except TypeError as error:  # text, objects, dates
        raise InputError(f"{what} must hold numbers; got {value.dtype}") from error
