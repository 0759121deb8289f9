"""Flags that several commands share, each said once; how graphs are read; settings by heading."""

import inspect
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from torch_geometric.data import Data
from tyro.conf import Fixed, FlagCreatePairsOff, OmitArgPrefixes, Suppress, arg

from graphglow.errors import InputError
from graphglow.graphs import load_graph
from graphglow.graphs.tables import LEAVE_OUT
from graphglow.training.config import GROUPS, LARGEST_SEED, Device

UNUSED = "No effect here; every command takes it."
GRAPH = (
    "The graph: a name (see graphglow datasets), a file or folder, or two tables as "
    "people.csv+relations.csv."
)
COLUMNS = (
    "Which columns of your tables are what, where they are not called so: id=person label=risk "
    "split=part (nodes), source=payer target=payee weight=amount (edges). leave_out=NAME, once or "
    "more, is a column that is not to be read."
)
SKIP = (
    "Leave out edges of your tables that name ids which no node has, and say how many; otherwise "
    "they are an error."
)
ROOT = "Where the raw files of named graphs are."
WIDTH = "Width of the embeddings, with --learner untrained only; others have their own."
JSON = "Print one JSON object, as the last line of standard output, instead of a table."


def said(text: str | None = None, metavar: str | None = None, hint: str | None = None) -> Any:
    """What the help says of a flag; the hint stands for its default."""
    return arg(help=text, metavar=metavar, help_behavior_hint=hint)


GraphName = Annotated[str, said(GRAPH, "NAME|FILE")]
OptionalLearner = Annotated[str | None, said(None, "NAME|FILE", "(optional)")]
OptionalFile = Annotated[Path | None, said(None, "FILE", "(optional)")]
File = Annotated[Path, said(None, "FILE")]
SavedTransfer = Annotated[Path, said("A saved transfer, from graphglow transfer --out.", "FILE")]
Columns = Annotated[tuple[str, ...], said(COLUMNS, "ROLE=NAME ...", "(optional)")]
SkipUnknownEdges = Annotated[bool, FlagCreatePairsOff, said(SKIP, hint="")]
SplitSeed = Annotated[int | None, said(None, "INT", "(default: 0)")]
DataRoot = Annotated[Path | None, said(ROOT, "FOLDER", "(default: $GRAPHGLOW_DATA, else data/)")]
EmbeddingSize = Annotated[int | None, said(WIDTH, "INT", "(default: that of pretrain)")]
Json = Annotated[bool, FlagCreatePairsOff, said(JSON, hint="")]
Overwrite = Annotated[bool, FlagCreatePairsOff, said("Replace the output if it exists.", hint="")]
UnusedSeed = Annotated[int, said(UNUSED)]
UnusedDevice = Annotated[Device, said(UNUSED)]
UnusedDataRoot = Annotated[Path | None, said(UNUSED, "FOLDER", "")]


@dataclass(frozen=True, kw_only=True)
class NoEffect:
    """Flags of all commands, for those that have no use for them."""

    seed: UnusedSeed = 0
    device: UnusedDevice = "auto"
    data_root: UnusedDataRoot = None


@dataclass(frozen=True, kw_only=True)
class GraphFlags:
    """How graphs are read."""

    columns: Columns = ()
    skip_unknown_edges: SkipUnknownEdges = False
    split_file: OptionalFile = None
    """An .npz file with index arrays train, val and test."""
    split_seed: SplitSeed = None
    """Seed of the random 50/25/25 split where a graph has no split of its own."""
    data_root: DataRoot = None
    one_graph: ClassVar[bool] = True
    """Whether a seed must be of use to the graph, and not to some of several."""

    def read(self, name: str) -> tuple[Data, str]:
        """Load a graph by its name or from a file, and say which split it has."""
        seed = self.drawn_with()
        data = load_graph(
            name,
            columns=read_columns(self.columns),
            skip_unknown_edges=self.skip_unknown_edges,
            data_root=self.data_root,
            split_file=self.split_file,
            split_seed=seed,
        )
        if self.one_graph and self.split_seed is not None and data.split in ("public", "own"):
            raise InputError(
                "--split-seed draws a split and must not go with a graph that has one; got "
                f"--split-seed {self.split_seed} and {name}, whose split is {data.split}"
            )
        return data, data.split

    def drawn_with(self) -> int:
        """The seed of a random split: the one that was given, or 0."""
        if self.split_seed is None:
            return 0
        if not 0 <= self.split_seed <= LARGEST_SEED:
            raise InputError(f"split_seed must lie in [0, {LARGEST_SEED}]; got {self.split_seed}")
        if self.split_file is not None:
            raise InputError(
                "--split-seed draws a split and must not go with --split-file, which is one; "
                f"got --split-seed {self.split_seed} and --split-file {self.split_file}"
            )
        return self.split_seed


@dataclass(frozen=True, kw_only=True)
class ManyGraphFlags(GraphFlags):
    """How graphs are read."""

    split_file: Annotated[Path | None, Fixed, Suppress] = None
    """No flag: no one file has the split of several graphs."""
    one_graph: ClassVar[bool] = False


Reading = Annotated[GraphFlags, OmitArgPrefixes]
ReadingMany = Annotated[ManyGraphFlags, OmitArgPrefixes]


def read_columns(given: Sequence[str]) -> dict[str, str | list[str]]:
    """``--columns id=person leave_out=notes`` as ``load_graph`` takes it."""
    columns: dict[str, str | list[str]] = {}
    left_out: list[str] = []
    for text in given:
        role, sign, name = text.partition("=")
        role = role.strip().lower().replace("-", "_")
        if not (role and sign and name):
            raise InputError(
                f"--columns must be pairs such as id=person leave_out=notes; got {text!r}"
            )
        if role in columns:
            raise InputError(f"--columns must say once which column is {role}; got it twice")
        if role == LEAVE_OUT:
            left_out.append(name)
        else:
            columns[role] = name
    return columns | ({LEAVE_OUT: left_out} if left_out else {})


FIRST = ("backbone", "epochs", "seed", "device")
"""Settings among a command's own flags; others stand under the heading of their group."""


def by_heading(config: type[Any]) -> Any:
    """Let tyro make ``config`` from flags under headings; a command annotates its config with it.

    Each heading is a class that has all settings, of which the others are no flags; so flags keep
    the names, defaults and words of the settings. Nested settings come last, with their prefix.
    """
    groups = {name: group for group, kind in GROUPS.items() for name in kind.__annotations__}
    own = config.__name__.removesuffix("Config").lower()
    places: dict[str, list[str]] = {}
    for one in fields(config):
        if one.init:
            place = "first" if one.name in FIRST else groups.get(one.name, own)
            place = "nested" if is_dataclass(one.type) else place
            places.setdefault(place, []).append(one.name)
    headings = {own: config.__doc__} | {name: kind.__doc__ for name, kind in GROUPS.items()}
    order = ("first", *headings, "nested")
    places = {place: places[place] for place in order if place in places}
    markers = {place: OmitArgPrefixes if place in headings else arg(name="") for place in places}
    parts = {place: _part(config, names, headings.get(place)) for place, names in places.items()}
    flags = make_dataclass("Flags", [(p, Annotated[parts[p], markers[p]]) for p in places])

    def build(**given: Any) -> Any:
        return config(**{n: getattr(given[p], n) for p, names in places.items() for n in names})

    build.__annotations__ = flags.__annotations__
    build.__signature__ = inspect.signature(flags)  # type: ignore[attr-defined]
    return arg(name="", constructor=build)


def _part(config: type[Any], shown: Sequence[str], heading: str | None) -> type[Any]:
    """``config`` with flags for some of its settings; it checks nothing, the whole does."""
    hidden = [
        (
            one.name,
            Annotated[one.type, Fixed, Suppress],
            field(default_factory=one.default_factory) if one.default is MISSING else one.default,
        )
        for one in fields(config)
        if one.init and one.name not in shown
    ]
    unchecked = {"__post_init__": lambda self: None, "__doc__": heading or ""}
    return make_dataclass(
        config.__name__, hidden, bases=(config,), namespace=unchecked, frozen=True, kw_only=True
    )
