"""The settings file: what ``graphglow search`` found best, where ``graphglow reproduce`` reads it.

    {"gcn": {"cora": {"dropout": 0.5, "hidden": 64}},
     "graphglow": {"reed98": {"pretrain": {"episodes": 2}, "transfer": {"dropout": 0.2}}}}

A competitor's entry holds fields of its config; that of graphglow holds those of a
``PretrainConfig`` and of a ``TransferConfig``.
"""

import copy
import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from graphglow.baselines.fit import METHODS
from graphglow.errors import InputError
from graphglow.experiments.paper import LEARNED_ON, PRETRAINED, WIDER
from graphglow.graphs import DATASETS
from graphglow.storage import atomic_path, existing_file, wait_for_lock
from graphglow.training import PretrainConfig, TransferConfig
from graphglow.training.config import RunConfig

OF_EVERY_RUN = ("seed", "epochs", "patience", "device")
"""What ``reproduce`` decides, for all methods alike: a tuned one would not be the same protocol."""

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
    if not isinstance(entries, dict) or not all(
        isinstance(targets, dict) and all(isinstance(given, dict) for given in targets.values())
        for targets in entries.values()
    ):
        raise InputError(
            "the settings file must hold settings by method and target "
            f'({{"gcn": {{"cora": {{"dropout": 0.5}}}}}}); got something else in {path}'
        )
    return Settings(entries)


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
    path = Path(path).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = wait_for_lock(path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"the output path must be writable; got {path} ({reason})") from error
    with file:
        yield


def config_of(kind: type[Config], settings: Mapping[str, Any], **fixed: Any) -> Config:
    """A config from settings as they stand in the file; ``fixed`` ones go before them.

    Dataclasses inside (``ObjectiveConfig``) are built from their own settings. An unknown name, or
    a value of another kind, is refused.
    """
    return _built(kind, {**settings, **fixed}, kind.__name__)


Built = TypeVar("Built")


def _built(kind: type[Built], settings: Mapping[str, Any], what: str) -> Built:
    assert is_dataclass(kind)
    known = [f.name for f in fields(kind) if f.init]
    hints, values = get_type_hints(kind), dict(settings)
    for name, value in settings.items():
        if name not in known:
            raise InputError(f"settings of {what} must be among {', '.join(known)}; got {name!r}")
        inner = hints[name]
        if inner is bool and not isinstance(value, bool):
            raise InputError(f"{name} of {what} must be true or false; got {value!r:.40}")
        if is_dataclass(inner) and isinstance(inner, type) and not isinstance(value, inner):
            if not isinstance(value, Mapping):
                raise InputError(f"{name} of {what} must hold settings; got {value!r:.40}")
            values[name] = _built(inner, value, f"{name} of {what}")
    try:
        return kind(**values)
    except TypeError as error:  # a text where a number is compared
        raise InputError(f"settings of {what} must be of the right kind; got {error}") from error


def check_settings(settings: Settings, path: Path) -> list[str]:
    """Refuse entries that no run could use; return sentences about graphs that are not known.

    A name that is nearly that of a graph is taken for a slip, and refused. Others may be the user's
    own graphs, whose settings ``graphglow search`` has found: no cell asks for them.
    """
    unknown = []
    known = dict.fromkeys([*PRETRAINED, *METHODS, *LEARNED_ON, *WIDER])
    for method, targets in settings.entries.items():
        if method not in known:
            raise InputError(
                f"methods in {path} must be among {', '.join(known)}; "
                f"got {method!r}{_meant(method, known, 0.6)}"
            )
        base = {**LEARNED_ON, **WIDER}.get(method, (method,))[0]
        for key, given in targets.items():
            target, where = key.split(" < ")[0], f"{method} on {key} in {path}"
            if target not in DATASETS:
                if meant := _meant(target, DATASETS):
                    raise InputError(
                        f"the target of {where} must be a known graph{meant}; got {target!r}"
                    )
                unknown.append(f"settings of {where} are not used: no graph has that name")
            if base in PRETRAINED:
                for part in given:
                    if part not in ("pretrain", "transfer") or not isinstance(given[part], Mapping):
                        raise InputError(
                            f"settings of {where} must be in the parts pretrain and transfer; "
                            f"got {part} {given[part]!r:.40}"
                        )
                early = f"the pre-training of {where}"
                _check_part(PretrainConfig, given.get("pretrain", {}), early, ("seed", "device"))
                _check_part(TransferConfig, given.get("transfer", {}), where, OF_EVERY_RUN)
            else:
                _check_part(METHODS[base].config, given, where, OF_EVERY_RUN)
    return unknown


def _meant(name: str, known: Iterable[str], cutoff: float = 0.75) -> str:
    near = difflib.get_close_matches(name, list(known), n=2, cutoff=cutoff)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _check_part(
    kind: type[RunConfig], given: Mapping[str, Any], where: str, fixed: Sequence[str]
) -> None:
    for name in fixed:
        if name in given:
            raise InputError(
                f"{', '.join(fixed)} must be given to graphglow reproduce, for all runs alike; "
                f"got {name} among the settings of {where}"
            )
    try:
        _built(kind, given, where)
    except InputError as error:
        text = str(error)
        raise InputError(text if where in text else f"{text}, for {where}") from error
