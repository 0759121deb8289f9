"""Read a PyG data set without writing to the user's data root.

PyG wants to write ``processed/`` beside ``raw/``. Here it works in a temporary folder that links to
the raw files, and the result is kept, with sparse features, as one small file in the user's cache
(``$XDG_CACHE_HOME/graphglow`` or ``~/.cache/graphglow``). Its name holds a hash of the raw files,
so changed raw files are read anew. No cache folder is no error.
"""

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.storage import atomic_path, existing_file

FIELDS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")


def read_pyg_dataset(
    build: Callable[[str], Any], root: Path, folder: str, files: Sequence[str]
) -> Data:
    """Return the one graph of a PyG data set.

    Args:
        build: Makes the PyG data set from a root folder, e.g. ``lambda r: Planetoid(r, "Cora")``.
        root: The data root; raw files are expected in ``root/folder/raw``.
        folder: The folder name that PyG uses for this data set.
        files: The raw files that PyG needs.
    """
    raw = _raw_folder(root, folder)
    if any(not (raw / file).is_file() for file in files):
        return _download(build, raw, folder)
    cache = _cache_file(raw, folder, files)
    data = _read_cache(cache)
    if data is None:
        data = _process(build, raw, folder)
        _write_cache(cache, data)
    return data


def _raw_folder(root: Path, folder: str) -> Path:
    """``root/folder/raw``, where upper and lower case of ``folder`` do not matter."""
    with contextlib.suppress(OSError):
        for entry in sorted(root.iterdir()):
            if entry.name.lower() == folder.lower() and (entry / "raw").is_dir():
                return entry / "raw"
    return root / folder / "raw"


def _process(build: Callable[[str], Any], raw: Path, folder: str) -> Data:
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary, folder)
        home.mkdir()
        try:
            (home / "raw").symlink_to(raw.resolve(), target_is_directory=True)
        except OSError:  # no links on this file system
            shutil.copytree(raw, home / "raw")
        try:
            return _built(build, temporary)
        except Exception as error:  # whatever PyG, pickle or scipy say of damaged files
            raise InputError(
                f"the raw files in {raw} must be those of the data set {folder}; "
                f"PyG cannot read them ({_first_line(error)})"
            ) from error


def _download(build: Callable[[str], Any], raw: Path, folder: str) -> Data:
    with tempfile.TemporaryDirectory() as temporary:
        try:
            data = _built(build, temporary)
        except Exception as error:  # no network, or PyG cannot read what it got
            raise InputError(
                f"the raw files of {folder} must be in {raw} (set the data root by --data-root or "
                f"GRAPHGLOW_DATA); they are missing and cannot be downloaded ({_first_line(error)})"
            ) from error
        with contextlib.suppress(OSError):  # a root that cannot be written: download next time
            shutil.copytree(Path(temporary, folder, "raw"), raw, dirs_exist_ok=True)
        return data


def _built(build: Callable[[str], Any], root: str) -> Data:
    """Build without PyG's warnings about old pickles and without its chatter on stderr."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        graph = build(root)[0]
    return Data(**{name: graph[name] for name in FIELDS if graph.get(name) is not None})


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _cache_file(raw: Path, folder: str, files: Sequence[str]) -> Path | None:
    key = hashlib.blake2b(f"{torch.__version__} {torch_geometric.__version__}".encode())
    for file in files:
        key.update(existing_file(raw / file, f"the raw file of {folder}").read_bytes())
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return None
    return base / "graphglow" / f"{folder.lower()}-{key.hexdigest()[:16]}.pt"


def _read_cache(path: Path | None) -> Data | None:
    try:
        if path is None or not path.is_file():
            return None
        fields = torch.load(path, weights_only=True)
        fields["x"] = fields["x"].to_dense()
        return Data(**fields)
    except Exception:  # damaged: made anew
        return None


def _write_cache(path: Path | None, data: Data) -> None:
    if path is None:
        return
    fields = {name: data[name] for name in FIELDS if name in data}
    fields["x"] = fields["x"].to_sparse()
    with contextlib.suppress(InputError, OSError, RuntimeError), atomic_path(path) as temporary:
        torch.save(fields, temporary)
