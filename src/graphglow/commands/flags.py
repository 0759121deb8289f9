"""Flags that commands share, each described once, and how graphs are read by them.

Nothing here imports torch, so that help and a mistyped flag answer at once.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, arg

from graphglow.errors import LARGEST_INTEGER, InputError
from graphglow.settings import Device as AnyDevice

if TYPE_CHECKING:
    from torch_geometric.data import Data

GRAPH = (
    "The graph: a name (see graphglow datasets), a file or folder, or two tables as "
    "people.csv+relations.csv."
)
COLUMNS = (
    "Columns of your tables that have other names: id=person label=risk split=part (nodes), "
    "source=payer target=payee weight=amount (edges); leave_out=NAME, once or more, is not read; "
    "category=NAME, such as a zip code, is not taken for a number."
)
LEARNER = (
    "The learner: universal or paper, which come with the package; a file from graphglow pretrain "
    "(./universal, if that is its name); or untrained, as a control."
)
AUDITOR = "The auditor: audit, which comes with the package, or a file from graphglow pretrain."
RAW_FILES = "Folder of the named graphs' raw files."
SHOWN_DEFAULT = "(default: $GRAPHGLOW_DATA, else data/)"
GraphName = Annotated[str, arg(help=GRAPH, metavar="NAME|FILE")]
GraphOrSaved = Annotated[
    str | None, arg(help=GRAPH, metavar="NAME|FILE", help_behavior_hint="(or --saved)")
]
LearnerName = Annotated[str, arg(help=LEARNER, metavar="NAME|FILE")]
AuditorName = Annotated[str, arg(help=AUDITOR, metavar="NAME|FILE")]
File = Annotated[Path, arg(metavar="FILE")]
OptionalFile = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(optional)")]
OptionalInt = Annotated[int | None, arg(metavar="INT", help_behavior_hint="(optional)")]
OptionalFloat = Annotated[float | None, arg(metavar="SHARE", help_behavior_hint="(optional)")]
OptionalClass = Annotated[str | None, arg(metavar="CLASS", help_behavior_hint="(optional)")]
Names = Annotated[tuple[str, ...], arg(metavar="NAME ...", help_behavior_hint="(default: all)")]
DataRoot = Annotated[
    Path | None, arg(help=RAW_FILES, metavar="FOLDER", help_behavior_hint=SHOWN_DEFAULT)
]
Switch = Annotated[bool, arg(help_behavior_hint="")]
Json = Annotated[
    bool, arg(help="Print one JSON object as the last line, not tables.", help_behavior_hint="")
]
Overwrite = Annotated[bool, arg(help="Replace outputs that exist.", help_behavior_hint="")]
Device = Annotated[AnyDevice, arg(help="Where to compute: auto takes the GPU if there is one.")]


@dataclass(frozen=True, kw_only=True)
class GraphFlags:
    """How graphs are read."""

    columns: Annotated[
        tuple[str, ...],
        arg(help=COLUMNS, metavar="ROLE=NAME ...", help_behavior_hint="(optional)"),
    ] = ()
    skip_unknown_edges: Switch = False
    """Leave out edges with an id that no node has, and say how many; else they are an error."""
    split_file: OptionalFile = None
    """An .npz file with index arrays train, val and test."""
    split_seed: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 0)")] = None
    """Seed of the random 50/25/25 split where a graph has no split of its own."""
    data_root: DataRoot = None

    def __post_init__(self) -> None:
        if not 0 <= (self.split_seed or 0) <= LARGEST_INTEGER:
            raise InputError(
                f"split_seed must lie in [0, {LARGEST_INTEGER}]; got {self.split_seed}"
            )

    def load(self, name: str, *, need_labels: bool = True) -> "Data":
        """Load a graph by its name or from a file."""
        from graphglow.graph import load_graph

        return load_graph(
            name,
            columns=read_columns(self.columns),
            skip_unknown_edges=self.skip_unknown_edges,
            need_labels=need_labels,
            data_root=self.data_root,
            split_file=self.split_file,
            split_seed=self.split_seed or 0,
        )

    def read(
        self, name: str, *, need_labels: bool = True, draw: bool = True, tell_split: bool = True
    ) -> "tuple[Data, str]":
        """Load one graph, and say which split it has.

        Without ``draw`` a graph that has no split gets one only if ``--split-seed`` asks for it.
        """
        from graphglow.graph import load

        data = self.load(name, need_labels=need_labels)
        drawn = data.split.startswith(("random", "own number", "own, validation by seed"))
        if self.split_seed is not None and not drawn:
            raise InputError(
                f"--split-seed draws a split, but {name} has one ({data.split}): leave it out"
            )
        load.warn_of_made_edges(data)
        if self.split_seed is None and not draw:
            data = load.without_drawn_split(data)
        elif self.split_seed is None and tell_split:
            load.warn_of_drawn_split(data)
        return data, data.get("split", "none")


@dataclass(frozen=True, kw_only=True)
class Running:
    """What is random, and who computes."""

    seed: int = 0
    """Seeds the random projections, and --learner untrained."""
    device: Device = "auto"
    workers: OptionalInt = None
    """Ray workers that share the work, on CPUs; by default this process alone."""
    ray: Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="(optional)")] = None
    """local, a Ray of this machine; or the address of a cluster: auto or ray://HOST:10001."""


Reading = OmitArgPrefixes[GraphFlags]
Working = OmitArgPrefixes[Running]


def read_columns(given: Sequence[str]) -> dict[str, str | list[str]]:
    """Turn ``--columns id=person leave_out=notes`` into what ``load_graph`` takes."""
    columns: dict[str, str | list[str]] = {}
    for text in given:
        role, _, name = text.partition("=")
        role = role.strip().lower().replace("-", "_")
        if not (role and name):
            raise InputError(
                f"--columns takes pairs such as id=person leave_out=notes; got {text!r}"
            )
        if role in ("leave_out", "category"):
            columns[role] = [*columns.get(role, ()), name]
        elif role in columns:
            raise InputError(f"--columns names two columns as {role}: leave one out")
        else:
            columns[role] = name
    return columns


def refuse_beside(flag: str, command: Callable[..., None], **given: Any) -> None:
    """Raise if flags that have no effect beside ``flag`` differ from the command's defaults."""
    default = {name: one.default for name, one in inspect.signature(command).parameters.items()}
    default |= vars(GraphFlags()) | vars(Running())
    named = [f"--{name.replace('_', '-')}" for name in given if given[name] != default[name]]
    if named:
        raise InputError(f"{', '.join(named)} has no effect with {flag}: leave it out")
