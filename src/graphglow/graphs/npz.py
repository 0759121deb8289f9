"""Read ``.npz`` files of plain arrays; pickled objects in them are refused."""

from pathlib import Path

import numpy as np

from graphglow.errors import InputError
from graphglow.storage import existing_file


def read_npz_arrays(path: str | Path, what: str) -> dict[str, np.ndarray]:
    """Return all arrays of the file; ``what`` names it in errors, e.g. ``"the split file"``."""
    path = existing_file(path, what)
    try:  # NumPy leaves the file open when it is damaged, so it is opened here
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    except Exception as error:  # zipfile, zlib, numpy and struct errors
        raise InputError(
            f"{what} must be an .npz file of plain arrays; {path} is damaged, foreign or holds "
            f"objects ({type(error).__name__})"
        ) from error
