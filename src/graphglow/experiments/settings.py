"""The settings file: what ``graphglow search`` found best, where ``graphglow reproduce`` reads it.

    {"gcn": {"cora": {"dropout": 0.5, "hidden": 64}},
     "graphglow": {"reed98": {"pretrain": {"episodes": 2}, "transfer": {"dropout": 0.2}}}}

A competitor's entry holds fields of its config; that of graphglow holds those of a
``PretrainConfig`` and of a ``TransferConfig``.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_type_hints

from graphglow.errors import InputError
from graphglow.storage import atomic_path, existing_file, try_lock, wait_for_lock
from graphglow.training.config import RunConfig

Entries = Mapping[str, Mapping[str, Mapping[str, Any]]]
Config = TypeVar("Config", bound=RunConfig)


@dataclass(frozen=True)
class Settings:
    """The best settings known, by method and target.

    The best settings of graphglow depend on its sources too. Its entry for a target is the latest
    one found; those for given sources stand beside it, under ``target < source+source``, and those
    of a given learner, which no table takes, under ``target < learner NAME``.
    """

    entries: Entries = field(default_factory=dict)

    def of(self, method: str, target: str, sources: Sequence[str] = ()) -> dict[str, Any]:
        """The settings of a method on a target, of these sources if known; else empty."""
        known = self.entries.get(method, {})
        found = known.get(_key(target, sources), known.get(target, {}))
        return copy.deepcopy(dict(found))

    def having(
        self,
        method: str,
        target: str,
        settings: Mapping[str, Any],
        sources: Sequence[str] = (),
        *,
        learner: str | None = None,
    ) -> "Settings":
        """The same with one entry replaced; with sources, theirs and the target's latest."""
        both = (target, _key(target, sources))
        keys = both if learner is None else (f"{target} < learner {learner}",)
        new = {key: dict(settings) for key in keys}
        return Settings({**self.entries, method: {**self.entries.get(method, {}), **new}})


def _key(target: str, sources: Sequence[str]) -> str:
    return f"{target} < {'+'.join(sorted(sources))}" if sources else target


def read_settings(path: Path) -> Settings:
    """Read a settings file; one that is absent or empty holds none."""
    path = Path(path).expanduser()
    if not path.exists():
        return Settings()
    text = existing_file(path, "the settings file").read_bytes()
    if not text.strip():  # another process has just made it
        return Settings()
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the settings file must be JSON; got {path} ({error})") from error
    if not _is_nested(entries, 3):
        raise InputError(
            "the settings file must hold settings by method and target "
            f'({{"gcn": {{"cora": {{"dropout": 0.5}}}}}}); got something else in {path}'
        )
    return Settings(entries)


def _is_nested(value: object, depth: int) -> bool:
    """Whether ``value`` is objects in objects, so many deep."""
    return depth == 0 or (
        isinstance(value, dict) and all(_is_nested(item, depth - 1) for item in value.values())
    )


def write_settings(path: Path, settings: Settings) -> None:
    """Replace a settings file, in one step; who changes one reads it too while :func:`locked`."""
    text = json.dumps(settings.entries, indent=2, sort_keys=True, allow_nan=False)
    with atomic_path(Path(path).expanduser()) as temporary:
        temporary.write_text(text + "\n")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time into the block. An absent file is made, empty.

    The lock lies on the file itself, and so nothing is left beside it.
    """
    file = _lock(Path(path).expanduser(), wait_for_lock)
    try:
        yield
    finally:
        file.close()


@contextmanager
def alone(path: Path, refusal: str) -> Iterator[None]:
    """Let one process into the block, and raise ``refusal`` in others that come meanwhile.

    The lock ends with its process, however that ends; the file and its folder, if nothing else is
    in it, with the block.
    """
    file = _lock(path, try_lock)
    if file is None:
        raise InputError(refusal)
    with file:
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()


Lock = TypeVar("Lock", bound=BinaryIO | None)


def _lock(path: Path, take: Callable[[Path], Lock]) -> Lock:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return take(path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"the output path must be writable; got {path} ({reason})") from error


def config_of(kind: type[Config], settings: Mapping[str, Any], **fixed: Any) -> Config:
    """A config from settings as they stand in the file; ``fixed`` ones go before them.

    Dataclasses inside (``ObjectiveConfig``) are built from their own settings. An unknown name is
    refused.
    """
    return _built(kind, {**settings, **fixed}, kind.__name__)


Built = TypeVar("Built")


def _built(kind: type[Built], settings: Mapping[str, Any], what: str) -> Built:
    assert is_dataclass(kind)
    known = [f.name for f in fields(kind) if f.init]
    for name in settings:
        if name not in known:
            raise InputError(f"settings of {what} must be among {', '.join(known)}; got {name!r}")
    hints = get_type_hints(kind)
    values = {}
    for name, value in settings.items():
        inner = hints[name]
        if is_dataclass(inner) and isinstance(inner, type) and not isinstance(value, inner):
            if not isinstance(value, Mapping):
                raise InputError(
                    f"{name} of {what} must hold the settings of a {inner.__name__}; got {value!r}"
                )
            value = _built(inner, value, f"{what}.{name}")
        values[name] = value
    try:
        return kind(**values)
    except TypeError as error:  # a text where a number is compared
        raise InputError(f"settings of {what} must be of the right kind; got {error}") from error
