"""Graphs as named arrays: ``.npz``, and ``.pt`` with a PyG ``Data`` or a dict of tensors."""

import difflib
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphglow.errors import InputError
from graphglow.graphs.archive import check_unpacked, check_zip
from graphglow.graphs.labels import encode_labels
from graphglow.graphs.npz import read_npz_arrays
from graphglow.graphs.split import SPLITS, mask_from
from graphglow.storage import existing_file

TENSORS = ("x", "y", "edge_index", "edge_weight", "edge_input_weight", "edge_latent_weight")
OWN_NAMES = ("node_id", "class_names")
PARTS_OF_DATA = [GlobalStorage, DataTensorAttr, DataEdgeAttr]
"""Plain containers that PyG itself does not register as safe to load."""


def read_npz(path: Path, need_labels: bool = True) -> Data:
    """Read ``x``, ``y`` and, where given, ``edge_index``, ``edge_weight``, ``train|val|test``."""
    return graph_from_fields(read_npz_arrays(path, "the graph file"), str(path), need_labels)


def read_pt(path: Path, need_labels: bool = True) -> Data:
    """Read a PyG ``Data`` or a dict of tensors; anything that needs unpickling is refused."""
    fields = _fields_of_pt(existing_file(path, "the graph file"))
    for name, value in fields.items():
        if isinstance(value, Tensor):
            _check_tensor(value, f"{name} of {path}", path)
    return graph_from_fields(fields, str(path), need_labels)


def _fields_of_pt(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as raw, zipfile.ZipFile(raw) as archive:
            check_zip(archive, path, packed=False)  # torch.save packs nothing
        with (
            warnings.catch_warnings(),
            torch.serialization.safe_globals(PARTS_OF_DATA),
            torch.sparse.check_sparse_tensor_invariants(True),  # type: ignore[no-untyped-call]
        ):
            warnings.simplefilter("ignore")  # torch warns of foreign archives before it refuses
            content = torch.load(path, map_location="cpu", weights_only=True)
        fields = content.to_dict() if isinstance(content, Data) else content
    except InputError:
        raise
    except Exception as error:  # zipfile, pickle and RuntimeError; torch's advice is unsafe
        raise InputError(
            f"{path} must hold a torch_geometric Data or a dict of tensors; it is damaged, foreign "
            f"or holds other objects ({type(error).__name__})"
        ) from error
    if not isinstance(fields, dict):
        raise InputError(
            f"{path} must hold a torch_geometric Data or a dict of tensors; "
            f"got {type(content).__name__}"
        )
    return {name: value for name, value in fields.items() if isinstance(name, str)}


def _check_tensor(tensor: Tensor, what: str, path: Path) -> None:
    """Raise unless a tensor holds numbers that are in the file, each where it says it is."""
    if tensor.device.type != "cpu" or tensor.is_quantized or tensor.is_nested:
        raise InputError(f"{what} must hold plain numbers; got a tensor of another kind")
    if tensor.layout != torch.strided:
        check_unpacked(tensor.numel() * tensor.element_size(), path)  # as it will be when dense
    elif tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise InputError(
            f"{what} must hold all its numbers; got an expanded tensor of shape "
            f"{tuple(tensor.shape)} (save x.contiguous())"
        )


def graph_from_fields(fields: Mapping[str, object], what: str, need_labels: bool = True) -> Data:
    """Make a graph, not yet checked, from arrays or tensors by name; ``what`` names it in errors.

    Shapes:
        x [N, D], y [N] (integers, or text: then ``class_names`` is set), edge_index [2, E],
        edge_weight [E]; train, val, test: node indices or masks (``train_mask`` is accepted too)
    """
    if fields.get("x") is None or (need_labels and fields.get("y") is None):
        found = ", ".join(sorted(map(str, fields))[:10]) or "nothing"
        raise InputError(f"{what} must hold x{' and y' if need_labels else ''}; got {found}")
    if fields.get("edge_index") is None and fields.get("adj_t") is not None:
        raise InputError(f"{what} must hold edges as edge_index [2, E]; got adj_t only")
    _refuse_misspelt(fields, what)
    data = Data()
    for name in TENSORS:
        value = fields.get(name)
        if name == "y" and isinstance(value, np.ndarray) and value.dtype.kind in "US":
            data.y, data.class_names = encode_labels(_text(value, what), f"y of {what}")
        elif value is not None:
            data[name] = _tensor(value, f"{name} of {what}")
    for name in SPLITS:
        value = fields.get(name, fields.get(f"{name}_mask"))
        if value is not None:
            where = f"{name} of {what}"
            index = _tensor(value, where)
            if index.is_floating_point() or index.is_complex():
                raise InputError(f"{where} must hold node indices or booleans; got {index.dtype}")
            data[f"{name}_mask"] = mask_from(index.numpy(), _num_nodes(data.x), where)
    for name in OWN_NAMES:
        value = fields.get(name)
        if isinstance(value, np.ndarray | Tensor):
            value = value.tolist()
        if isinstance(value, list):
            data[name] = _names(value, f"{name} of {what}")
    if isinstance(fields.get("feature_columns"), dict):  # how a table was encoded
        data.feature_columns = fields["feature_columns"]
    return data


def _names(values: list[Any], what: str) -> list[Any]:
    for value in values:
        if not isinstance(value, str | int | float):
            raise InputError(f"{what} must be text or numbers; got {type(value).__name__}")
    return values


def _text(value: np.ndarray, what: str) -> np.ndarray:
    if value.ndim != 1:
        raise InputError(f"y of {what} must have one label per node; got shape {value.shape}")
    try:
        return value.astype(str)
    except UnicodeError as error:
        raise InputError(f"y of {what} must be plain text; got other bytes") from error


def _num_nodes(x: Tensor) -> int:
    return int(x.shape[0]) if x.ndim else 0


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


def _refuse_misspelt(fields: Mapping[str, object], what: str) -> None:
    """An array called ``tarin`` would be passed over, and a random split used, without a word."""
    known = [*TENSORS, *SPLITS, *OWN_NAMES, *(f"{name}_mask" for name in SPLITS)]
    missing = [name for name in known if name not in fields]
    for name in fields:
        near = difflib.get_close_matches(str(name), missing, n=1, cutoff=0.75)
        if name not in known and near:
            raise InputError(f"{what} must spell {near[0]} so; got {str(name)!r}")
