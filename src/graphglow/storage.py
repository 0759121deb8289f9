"""Files that are whole or absent: atomic writes, locks, and safetensors with JSON metadata.

Nothing here, and nothing that reads through here, unpickles: safetensors holds tensors only and
the metadata is JSON.
"""

import errno
import fcntl
import hashlib
import io
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from graphglow.errors import InputError

FORMAT_VERSION = 2
"""Files of version 1 may lack a checksum. No single flipped bit makes a 2 a 1."""
CHECKSUM = "sha256"


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """What the system says against writing, as one sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"the output path must be writable; got {path} ({reason})") from error


@contextmanager
def atomic_path(path: str | Path, *, make_folder: bool = False) -> Iterator[Path]:
    """Yield a temporary sibling of ``path``; rename it onto ``path`` only if the block succeeds.

    An existing file is replaced in one step, or kept as it was when anything fails, a power cut
    included. What is not a regular file (a folder, a pipe, a device) is never replaced. Of two
    processes that write ``path`` the last one wins; :func:`claimed` refuses the second.
    """
    path = Path(path)
    with _writable(path):
        if path.is_dir():
            raise InputError(f"the output path must be a file; got the folder {path}")
        if path.exists() and not path.is_file():
            raise InputError(f"the output path must be a regular file; got {path}")
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        check_folder(path)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{path.suffix}")
        temporary.touch(exist_ok=False)  # with the permissions of any new file
        try:
            yield temporary
            _to_disk(temporary)  # or a power cut may keep the new name and lose what it stands for
            temporary.replace(path)
            with suppress(OSError):  # some file systems cannot
                _to_disk(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def check_folder(path: Path) -> None:
    """Raise unless the folder of ``path`` is there: nobody wants one by a mistyped name."""
    folder = path.absolute().parent
    try:
        folder.stat()
    except FileNotFoundError as error:
        raise InputError(
            f"the folder of an output must exist; got {path}, and there is no folder {folder}"
        ) from error


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Be the one process that writes ``path`` while the block runs; another is refused.

    The claim is a lock on a hidden file beside it, which goes with the block. One that a killed
    process has left behind is nobody's.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        file = try_lock(lock)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        yield  # a file system without locks
        return
    if file is None:
        raise InputError(f"one run at a time must write a file; got {path}, which another writes")
    with file:
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk itself."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def try_lock(path: Path) -> BinaryIO | None:
    """Take the lock that lies on ``path``, or return None where another process has it."""
    try:
        return wait_for_lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def wait_for_lock(path: Path, how: int = fcntl.LOCK_EX) -> io.FileIO:
    """Take the lock that lies on ``path`` as soon as nobody else has it.

    It is held until the file, open to read and append, is closed, or the process ends in whatever
    way. An absent file is made; what is not a regular file is refused, and not waited for.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
        with ExitStack() as on_failure:
            file = on_failure.enter_context(io.FileIO(handle, "ab+"))
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InputError(f"a lock must lie on a regular file; got {path}")
            fcntl.flock(file, how)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                on_failure.pop_all()
                return file
        # else it was removed or replaced meanwhile by the one that had it


def append_line(path: str | Path, line: str) -> None:
    """Add one line to a text file, whole or not at all; others may append at the same time.

    If an earlier writer was killed in the middle of a line, the new one still gets its own.
    """
    path = Path(path)
    with _writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(path) as file:
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


def existing_file(path: str | Path, what: str) -> Path:
    """Return ``path`` if it is a readable file; raise one sentence naming ``what`` if not."""
    path = Path(path)
    if not os.path.exists(path):
        raise InputError(f"{what} must exist; got {path}")
    if path.is_dir():
        raise InputError(f"{what} must be a file; got the folder {path}")
    if not path.is_file() or not os.access(path, os.R_OK):
        raise InputError(f"{what} must be a regular file that can be read; got {path}")
    return path


def save_tensors(
    path: str | Path,
    kind: str,
    tensors: dict[str, Tensor],
    meta: dict[str, Any],
    *,
    make_folder: bool = False,
) -> None:
    """Write tensors and JSON metadata as one safetensors file with a checksum, atomically.

    Args:
        path: Where to write; an existing file is replaced.
        kind: What the file is (``"learner"``, ``"result"``); :func:`load_tensors` asks for it.
        tensors: Named tensors, any device.
        meta: Anything JSON can hold.
        make_folder: Whether its folder is made, if it is not there.
    """
    facts = json.loads(json.dumps({"kind": kind, "version": FORMAT_VERSION, **meta}))
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"graphglow": json.dumps({**facts, CHECKSUM: checksum(flat, facts)})}
    with atomic_path(path, make_folder=make_folder) as temporary:
        temporary.write_bytes(tensors_to_bytes(flat, metadata=header))


def checksum(tensors: dict[str, Tensor], facts: Any = None) -> str:
    """SHA-256 of names, types, shapes and bytes of tensors, on any device, and of JSON facts."""
    total = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(whole.view(torch.uint8).numpy().data)
    return total.hexdigest()


def load_tensors(
    path: str | Path, kind: str, *, signed: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote; refuse anything else in one sentence.

    A file of which a single bit has changed is refused too; those of version 1 without a checksum
    are read as they are, unless it must be ``signed``.
    """
    path = existing_file(path, f"the {kind} file")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            meta = json.loads((file.metadata() or {}).get("graphglow", "null"))
            _check_meta(meta, kind, path)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            written = meta.pop(CHECKSUM, None)
            unsigned = written is None and meta["version"] == 1 and not signed
            if not unsigned and written != checksum(tensors, meta):
                raise InputError(
                    f"{path} must be as graphglow wrote it; got a file that was damaged or changed "
                    "since (its checksum is wrong or gone)"
                )
            return tensors, meta
    except InputError:
        raise
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        raise InputError(
            f"{path} must be a graphglow {kind} file; it is foreign or truncated"
        ) from error


def kind_of(path: str | Path) -> str | None:
    """The kind of a file that :func:`save_tensors` wrote; None for any other file."""
    if not os.path.isfile(path):  # a pipe would never end
        return None
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            meta = json.loads((file.metadata() or {}).get("graphglow", "null"))
            return str(meta["kind"])
    except (SafetensorError, TypeError, LookupError, ValueError, RecursionError, OSError):
        return None


def _check_meta(meta: Any, kind: str, path: Path) -> None:
    if not isinstance(meta, dict) or meta.get("kind") != kind:
        found = repr(meta.get("kind")) if isinstance(meta, dict) else "foreign safetensors"
        raise InputError(f"{path} must be a graphglow {kind}; got a {found} file")
    version = meta.get("version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise InputError(
            f"{path} must have format version 1 to {FORMAT_VERSION}; got {version} "
            "(if a newer graphglow wrote it, update graphglow)"
        )


def fill(module: nn.Module, tensors: dict[str, Tensor], origin: str) -> None:
    """Load weights into a module; other shapes, NaN and infinity are refused in one sentence."""
    expected = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    received = {name: tuple(t.shape) for name, t in tensors.items()}
    if received != expected:
        raise InputError(f"{origin} must hold weights of shape {expected}; got {received}")
    if not all(t.is_floating_point() and bool(t.isfinite().all()) for t in tensors.values()):
        raise InputError(f"{origin} must hold finite weights; got NaN, infinity or integers")
    module.load_state_dict(tensors)


def prefixed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Named tensors as a part of something larger; :func:`within` takes them out again."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def within(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those that :func:`prefixed` made, by their own names."""
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
