"""Read ``.npz`` files of plain arrays; pickled objects in them are refused.

Sizes are looked up before anything is unpacked or allocated: those in the archive's directory, and
the shape in each array's header, which must be that of the bytes behind it.
"""

import math
import warnings
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from graphglow.errors import InputError
from graphglow.graphs.archive import check_zip
from graphglow.storage import existing_file

HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz_arrays(path: str | Path, what: str) -> dict[str, np.ndarray]:
    """Return all arrays of the file; ``what`` names it in errors, e.g. ``"the split file"``."""
    path = existing_file(path, what)
    try:
        with path.open("rb") as raw, zipfile.ZipFile(raw) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's of what stands in a header
            check_zip(archive, path)
            return {
                entry.filename.removesuffix(".npy"): _array(archive, entry)
                for entry in archive.infolist()
            }
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib, numpy and struct errors
        raise InputError(
            f"{what} must be an .npz file of plain arrays; {path} is damaged, foreign or holds "
            f"objects ({type(error).__name__})"
        ) from error


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as file:
        _check_header(file, entry.file_size)
    with archive.open(entry) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _check_header(file: IO[bytes], size: int) -> None:
    """Raise unless the header is that of plain values, as many as there are bytes for."""
    shape, _, dtype = HEADERS[np.lib.format.read_magic(file)](file)
    if dtype.hasobject or dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError("objects, or values of no size")
    if math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError("a shape that is not that of the data")
