"""Files that are whole or absent: atomic writes, safetensors with JSON metadata, checkpoints.

Nothing here runs what a file says: safetensors holds tensors, metadata is JSON, and torch loads
checkpoints by ``weights_only``.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from graphglow.errors import InputError, number, warn
from graphglow.version import __version__

FORMAT_VERSION = 2
CHECKSUM = "sha256"


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Turn what the system says against writing into one sentence."""
    if "\0" in str(path):
        raise InputError(f"{str(path)!r} is no path: it has a zero byte. Choose another.")
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{path} cannot be written ({reason}): choose another path") from error


@contextmanager
def atomic_path(path: str | Path, *, make_folder: bool = False) -> Iterator[Path]:
    """Yield a temporary sibling of ``path``; rename it onto ``path`` only if the block succeeds.

    What is not a regular file (a folder, a pipe, a device) is never replaced.
    """
    path = Path(path)
    with _writable(path):
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is a folder or device: name a file to write")
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{path.suffix}")
        temporary.touch(exist_ok=False)  # with the permissions of any new file
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # or a power cut may keep the name and lose the content
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def append_line(path: str | Path, line: str) -> None:
    """Add one line to a text file; others may append at the same time."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no regular file: name another")
    data = f"{line}\n".encode()
    with _writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:  # one write, so that lines do not mix
            if file.write(data) != len(data):
                raise OSError("no space left")


def existing_file(path: str | Path, what: str) -> Path:
    """Return ``path`` if it is a readable file; raise one sentence naming ``what`` if not."""
    path = Path(path)
    if not os.path.exists(path):  # where Path.exists raises for what no path can be
        raise InputError(f"{what} must exist; got {path}")
    if not path.is_file() or not os.access(path, os.R_OK):
        got = f"the folder {path}" if path.is_dir() else path
        raise InputError(f"{what} must be a regular file that can be read; got {got}")
    return path


def save_tensors(
    path: str | Path, kind: str, tensors: dict[str, Tensor], meta: dict[str, Any]
) -> None:
    """Write named tensors and JSON metadata as a safetensors file of a kind, with a checksum."""
    facts = json.loads(json.dumps({"kind": kind, "version": FORMAT_VERSION, **meta}))
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"graphglow": json.dumps({**facts, CHECKSUM: checksum(flat, facts)})}
    with atomic_path(path) as temporary:
        temporary.write_bytes(tensors_to_bytes(flat, metadata=header))


def checksum(tensors: dict[str, Tensor], facts: Any = None) -> str:
    """SHA-256 of names, types, shapes and bytes of tensors, on any device, and of JSON facts."""
    total = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def load_tensors(path: str | Path, *kinds: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote; refuse other kinds, and what has changed since."""
    kind = " or ".join(kinds)
    path = existing_file(path, f"the {kind} file")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            meta = json.loads((file.metadata() or {}).get("graphglow", "null"))
            found = meta.get("kind") if isinstance(meta, dict) else "foreign safetensors"
            if found not in kinds:
                raise InputError(f"{path} must be a graphglow {kind}; got a {found!r} file")
            if meta.get("version") != FORMAT_VERSION:
                raise InputError(
                    f"{path} has format {meta.get('version')}, and this graphglow reads "
                    f"{FORMAT_VERSION}: update graphglow, or make the file again"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if meta.pop(CHECKSUM, None) != checksum(tensors, meta):
            raise InputError(f"{path} was damaged or changed (wrong checksum): make it again")
        return tensors, meta
    except InputError:
        raise
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        raise InputError(
            f"{path} must be a graphglow {kind} file; it is foreign or truncated"
        ) from error


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
    """Return the tensors that :func:`prefixed` named, by their first names."""
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


# Checkpoints


Part = Any
"""A part of a training that changes: a module, an optimizer, a generator, or a ``Loop``."""


class Checkpoint:
    """The file from which a training under the paper's learner goes on, on a CPU to the same bits.

    The file of another training (other settings, graphs or versions) is refused. If it cannot be
    written, a warning says so and the training goes on.

    Args:
        path: The file; None writes and reads nothing.
        resume: False ignores what is in the file and starts over.
        every_seconds: Time between two writes: the most work that can be lost.
    """

    def __init__(
        self, path: str | Path | None, *, resume: bool = True, every_seconds: float = 10.0
    ) -> None:
        number("every_seconds", every_seconds, 0)
        self.path = None if path is None else Path(path).expanduser()
        self.resume, self.every_seconds = resume, every_seconds
        self.resumed = False
        """Whether the training went on from the file."""
        self.seconds_before = 0.0
        """Training time of earlier processes."""
        self._states: dict[str, Any] = {}

    def begin(self, training: dict[str, Any]) -> dict[str, Any]:
        """Start the clock; return the facts on file, if there are any.

        ``training`` is what the result depends on, in types that JSON can hold.
        """
        versions = {"graphglow": __version__, "torch": str(torch.__version__)}
        self._training = json.loads(json.dumps(training | versions))
        self._began = self._last = time.monotonic()
        if self.path is None or not self.resume or not self.path.exists():
            return {}
        existing_file(self.path, "the checkpoint")
        try:
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
            known, facts = json.loads(saved["training"]), json.loads(saved["facts"])
        except Exception as error:  # whatever is there, it is not what was written
            raise InputError(f"{self.path} is no checkpoint: it is foreign or truncated") from error
        differing = [n for n, v in self._training.items() if known.get(n) != v]
        if differing:
            raise InputError(
                f"{self.path} is the checkpoint of another training: {', '.join(differing)} "
                "differ (remove it, or start without --resume)"
            )
        self.resumed, self.seconds_before = True, saved["seconds"]
        self._states = saved["parts"]
        return dict(facts)

    def restore(self, parts: Mapping[str, Part]) -> None:
        """Load the states on file into the parts, in place; later calls do nothing."""
        for name, state in self._states.items():
            part = parts[name]
            load = part.set_state if isinstance(part, torch.Generator) else part.load_state_dict
            load(state)
        self._states = {}

    def offer(self, parts: Mapping[str, Part], facts: dict[str, Any] | None = None) -> None:
        """Write the parts, and facts that JSON can hold, if it is time to."""
        now = time.monotonic()
        if self.path is None or now - self._last < self.every_seconds:
            return
        self._last = now
        saved = {
            "parts": {
                name: part.get_state() if isinstance(part, torch.Generator) else part.state_dict()
                for name, part in parts.items()
            },
            "training": json.dumps(self._training),
            "facts": json.dumps(facts or {}),
            "seconds": self.seconds_before + now - self._began,
        }
        try:
            with atomic_path(self.path) as temporary:
                torch.save(saved, temporary)
        except (InputError, MemoryError, RuntimeError) as error:
            warn(f"the checkpoint could not be written, the training goes on: {error}")

    def remove(self) -> None:
        """Remove the file, once the result is safe."""
        with suppress(OSError):
            if self.path is not None:
                self.path.unlink(missing_ok=True)
