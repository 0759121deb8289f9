"""Files that are whole or absent: atomic writes, and safetensors with JSON metadata.

Nothing here, and nothing that reads through here, unpickles: safetensors holds tensors only and
the metadata is JSON.
"""

import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from graphglow.errors import InputError

FORMAT_VERSION = 1


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``path``; rename it onto ``path`` only if the block succeeds.

    An existing file is replaced in one step, or kept as it was when anything fails. What is not
    a regular file (a folder, a pipe, a device) is never replaced.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        if path.is_dir():
            raise InputError(f"the output path must be a file; got the folder {path}")
        if path.exists() and not path.is_file():
            raise InputError(f"the output path must be a regular file; got {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent
        )
        os.close(handle)
        temporary = Path(name)
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"the output path must be writable; got {path} ({reason})") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def append_line(path: str | Path, line: str) -> None:
    """Add one line to a text file, whole or not at all; others may append at the same time.

    If an earlier writer was killed in the middle of a line, the new one still gets its own.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
            broken = size > 0 and file.read(1) != b"\n"
            data = (b"\n" if broken else b"") + line.encode() + b"\n"
            try:
                if file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"the output path must be writable; got {path} ({reason})") from error


def existing_file(path: str | Path, what: str) -> Path:
    """Return ``path`` if it is a readable file; raise one sentence naming ``what`` if not."""
    path = Path(path)
    try:
        if not path.exists():
            raise InputError(f"{what} must exist; got {path}")
        if path.is_dir():
            raise InputError(f"{what} must be a file; got the folder {path}")
        if not path.is_file():
            raise InputError(f"{what} must be a regular file; got {path}")
    except OSError as error:  # a name that is too long, a folder that may not be searched
        raise InputError(f"{what} must exist; got {path} ({error.strerror})") from error
    if not os.access(path, os.R_OK):
        raise InputError(f"{what} must be readable; got {path}")
    return path


def save_tensors(
    path: str | Path, kind: str, tensors: dict[str, Tensor], meta: dict[str, Any]
) -> None:
    """Write tensors and JSON metadata as one safetensors file, atomically.

    Args:
        path: Where to write; an existing file is replaced.
        kind: What the file is (``"learner"``, ``"result"``); :func:`load_tensors` asks for it.
        tensors: Named tensors, any device.
        meta: Anything JSON can hold.
    """
    header = {"graphglow": json.dumps({"kind": kind, "version": FORMAT_VERSION, **meta})}
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        temporary.write_bytes(tensors_to_bytes(flat, metadata=header))


def load_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote; refuse anything else in one sentence."""
    path = existing_file(path, f"the {kind} file")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            header = (file.metadata() or {}).get("graphglow")
            if header is None:
                raise InputError(
                    f"{path} must be a graphglow {kind}; got a foreign safetensors file"
                )
            meta = json.loads(header)
            if not isinstance(meta, dict):
                raise InputError(f"{path} must be a graphglow {kind}; got damaged metadata")
            if meta.get("kind") != kind:
                raise InputError(
                    f"{path} must be a graphglow {kind}; got a {meta.get('kind')!r} file"
                )
            version = meta.get("version")
            if not isinstance(version, int) or version > FORMAT_VERSION:
                raise InputError(
                    f"{path} must have format version {FORMAT_VERSION} or older; got {version} "
                    "(a newer graphglow wrote it: update graphglow)"
                )
            return {name: file.get_tensor(name) for name in file.keys()}, meta  # noqa: SIM118
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} must be a graphglow {kind} file; it is foreign or truncated ({error})"
        ) from error
