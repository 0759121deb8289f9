"""A settings file, checked before anything runs: names of methods, graphs and settings, values."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from graphglow.baselines import METHODS
from graphglow.errors import InputError
from graphglow.experiments.paper.lines import OWN_LINES, PRETRAINED
from graphglow.experiments.runs.config import config_kind, in_parts
from graphglow.experiments.settings import Settings, config_of
from graphglow.graphs import DATASETS
from graphglow.training import PretrainConfig
from graphglow.training.config import RunConfig

OF_EVERY_RUN = ("seed", "epochs", "patience", "device")
"""What ``reproduce`` decides, for all methods alike: a tuned one would not be the same protocol."""
OF_PRETRAINING = ("seed", "device")


def check_settings(settings: Settings, path: Path) -> list[str]:
    """Refuse entries that no run could use; return sentences about graphs that are not known.

    A name that is nearly that of a graph is taken for a slip, and refused. Others may be the user's
    own graphs, whose settings ``graphglow search`` has found: no cell asks for them.
    """
    unknown = []
    for method, targets in settings.entries.items():
        known = list(dict.fromkeys([*PRETRAINED, *METHODS, *OWN_LINES]))
        if method not in known:
            raise InputError(
                f"methods in {path} must be among {', '.join(known)}; "
                f"got {method!r}{_meant(method, known, 0.6)}"
            )
        for key, given in targets.items():
            target = key.split(" < ")[0]
            where = f"{method} on {key} in {path}"
            if target not in DATASETS:
                meant = _meant(target, DATASETS)
                if meant:
                    raise InputError(f"the target of {where} must be a known graph{meant}; "
                                     f"got {target!r}")  # fmt: skip
                unknown.append(f"settings of {where} are not used: no graph has that name")
            _check_entry(OWN_LINES[method][0] if method in OWN_LINES else method, given, where)
    return unknown


def _meant(name: str, known: Iterable[str], cutoff: float = 0.75) -> str:
    near = difflib.get_close_matches(name, list(known), n=2, cutoff=cutoff)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _check_entry(method: str, given: Mapping[str, Any], where: str) -> None:
    kind = config_kind(method)
    if method not in PRETRAINED:
        _check_run(kind, given, where, OF_EVERY_RUN)
        return
    for part in ("pretrain", "transfer"):
        if not isinstance(given.get(part, {}), Mapping):
            raise InputError(f"{part} of {where} must hold settings; got {given[part]!r:.40}")
    before, after = in_parts(given)
    _check_run(PretrainConfig, before, f"the pre-training of {where}", OF_PRETRAINING)
    _check_run(kind, after, where, OF_EVERY_RUN)


def _check_run(
    kind: type[RunConfig], given: Mapping[str, Any], where: str, fixed: Collection[str]
) -> None:
    for name in fixed:
        if name in given:
            raise InputError(
                f"{', '.join(fixed)} must be given to graphglow reproduce, for all runs alike; "
                f"got {name} among the settings of {where}"
            )
    _check_kinds(kind(), given, where, fixed)
    try:
        config_of(kind, given)
    except InputError as error:
        raise InputError(f"{error}, for {where}") from error


def _check_kinds(
    default: Any, given: Mapping[str, Any], where: str, fixed: Collection[str] = ()
) -> None:
    """Names must be those of ``default``, a config, and values of the kind that it has there."""
    known = [field.name for field in fields(default) if field.init and field.name not in fixed]
    for name, value in given.items():
        if name not in known:
            raise InputError(f"settings of {where} must be among {', '.join(known)}; got {name!r}")
        usual = getattr(default, name)
        wanted = _kind_of(usual)
        if wanted == "settings" and isinstance(value, Mapping):
            _check_kinds(usual, value, f"{name} of {where}")
        elif _kind_of(value) != wanted and not (usual is None and value is None):
            raise InputError(f"{name} of {where} must be {wanted}; got {value!r:.40}")


def _kind_of(value: Any) -> str:
    if is_dataclass(value):
        return "settings"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "text"
    return "a number" if value is None or isinstance(value, int | float) else "of another kind"
