"""Which runs of experiments are made, and the tuned settings of methods; no torch at import.

Tuned settings are in ``settings.json`` beside this file; ``benchmarks/search.py`` finds them.

    {"gcn": {"cora": {"dropout": 0.5, "hidden": 64}},
     "graphglow": {"reed98": {"pretrain": {"episodes": 2}, "transfer": {"dropout": 0.2}}}}

Settings of graphglow depend on its sources too: those for given sources stand under
``target < source+source``, the latest ones under the target alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from graphglow.errors import InputError, with_settings
from graphglow.settings import Device, Settings

Tuned = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Settings by method and target."""
ConfigType = TypeVar("ConfigType")
SETTINGS = Path(__file__).with_name("settings.json")


@dataclass(frozen=True, kw_only=True)
class RunsConfig(Settings):
    """Which runs are made, and where."""

    seeds: int = 5
    """Runs of each cell, with seeds that follow each other; one where only the time counts."""
    seed: int = 0
    """The first of these seeds."""
    epochs: int | None = None
    """Training epochs on the target; None takes each method's own number."""
    device: Device = "auto"
    """Where to compute: auto takes the GPU if there is one; on Ray, cuda asks for a GPU a run."""
    workers: int | None = None
    """Runs at the same time, on a Ray of this machine (needs the extra ray); None: one by one."""
    ray: str | None = None
    """Make runs on Ray: local, or the address of a cluster. Needs the extra ray."""
    seconds: float | None = None
    """Stop after about so long; the same command goes on."""
    retry_failed: bool = False
    """Make runs again that failed before (out of memory, a loss that is not finite)."""


def read_settings(name: str | Path = "tuned") -> Tuned:
    """Read the settings of the tables (``tuned``), none (``defaults``), or those of a file."""
    if name == "defaults":
        return {}
    path = SETTINGS if name == "tuned" else Path(name)
    try:
        tuned: Tuned = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no settings file: it must be JSON ({error})") from error
    return tuned


def tuned_settings(
    tuned: Tuned, method: str, target: str, sources: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the settings of a method on a target, for these sources if known; else none."""
    known, key = tuned.get(method, {}), f"{target} < {'+'.join(sorted(sources))}"
    return dict(known.get(key) or known.get(target, {}))


def merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``first`` changed by ``then``; settings inside settings are merged too."""
    out = dict(first)
    for name, value in then.items():
        both = isinstance(value, Mapping) and isinstance(out.get(name), Mapping)
        out[name] = merged(out[name], value) if both else value
    return out


def config_of(kind: type[ConfigType], given: Mapping[str, Any], **fixed: Any) -> ConfigType:
    """Build a config from settings of the file; ``fixed`` ones go before them."""
    return with_settings(kind(), {**given, **fixed})
