"""The settings file: what ``graphglow search`` found best, where ``graphglow reproduce`` reads it.

    {"gcn": {"cora": {"dropout": 0.5, "hidden": 64}},
     "graphglow": {"reed98": {"pretrain": {"episodes": 2}, "transfer": {"dropout": 0.2}}}}

A competitor's entry holds fields of its config; that of graphglow holds those of a
``PretrainConfig`` and of a ``PaperConfig``.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from graphglow.checks import one_of
from graphglow.competitors import METHODS
from graphglow.errors import InputError
from graphglow.graph import DATASETS
from graphglow.lab.paper import OWN_LINES, PRETRAINED
from graphglow.settings import PaperConfig, PretrainConfig, RunConfig
from graphglow.storage import atomic_path, existing_file, wait_for_lock

SETTINGS = Path("results/settings.json")
"""Where the file is, unless something else is said."""
OF_EVERY_RUN = (("seed", "device", "epochs", "patience"), ("seed", "device"))
"""What ``reproduce`` decides, on the target and before it, for all methods alike: a tuned one would
not be the same protocol."""

PARTS: dict[str, type[RunConfig]] = {"pretrain": PretrainConfig, "transfer": PaperConfig}
"""Of an entry of graphglow."""

Entries = Mapping[str, Mapping[str, Mapping[str, Any]]]
Config = TypeVar("Config")


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
    try:
        entries = json.loads(text.strip() or "{}")  # another process has just made it
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
    with atomic_path(Path(path).expanduser(), make_folder=True) as temporary:
        temporary.write_text(text + "\n")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time into the block; an absent file is made, empty."""
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
    assert is_dataclass(kind)
    if not isinstance(settings, Mapping):
        raise InputError(f"{kind.__name__} must be made of settings; got {settings!r:.40}")
    known, kinds = [f.name for f in fields(kind) if f.init], get_type_hints(kind)
    values = {**settings, **fixed}
    for name, value in values.items():
        if name not in known:
            raise InputError(
                f"settings of {kind.__name__} must be among {', '.join(known)}; got {name!r}"
            )
        if kinds[name] is bool and not isinstance(value, bool):
            raise InputError(f"{name} must be true or false; got {value!r:.40}")
        if is_dataclass(kinds[name]) and not isinstance(value, kinds[name]):
            values[name] = config_of(kinds[name], value)
    return kind(**values)


def check_settings(settings: Settings, path: Path) -> list[str]:
    """Refuse entries that no run could use; return sentences about graphs that are not known.

    These may be the user's own, whose settings ``graphglow search`` has found: no cell asks for
    them.
    """
    unknown = []
    for method, targets in settings.entries.items():
        one_of(f"methods in {path}", method, (*dict.fromkeys([*PRETRAINED, *METHODS, *OWN_LINES]),))
        base = OWN_LINES.get(method, (method,))[0]
        kinds = PARTS if base in PRETRAINED else {"": METHODS[base].config}
        for key, given in targets.items():
            where = f"{method} on {key} in {path}"
            if key.split(" < ")[0] not in DATASETS:
                unknown.append(f"settings of {where} are not used: no graph has that name")
            try:
                for part, values in given.items() if base in PRETRAINED else [("", given)]:
                    one_of("parts", part, tuple(kinds))
                    config_of(kinds[part], values)
                    fixed = OF_EVERY_RUN[part == "pretrain"]
                    if taken := [name for name in fixed if name in values]:
                        raise InputError(
                            f"{', '.join(fixed)} must be given to graphglow reproduce, for all "
                            f"runs alike; got {taken[0]} among the settings"
                        )
            except InputError as error:
                raise InputError(f"{error}, for {where}") from error
    return unknown
