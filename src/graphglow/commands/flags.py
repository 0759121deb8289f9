"""The command line by tyro: shared flags, each said once; settings by heading; one-line errors."""

import contextlib
import functools
import inspect
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro
from torch_geometric.data import Data
from tyro.conf import Fixed, FlagCreatePairsOff, OmitArgPrefixes, Suppress, arg

from graphglow.errors import InputError, nearest
from graphglow.graph import load_graph
from graphglow.graph.load import (
    check_source,
    warn_of_drawn_split,
    warn_of_made_edges,
    without_drawn_split,
)
from graphglow.graph.tables import LISTS
from graphglow.settings import GROUPS, LARGEST_SEED

Command = Callable[..., None]

GRAPH = (
    "The graph: a name (see graphglow datasets), a file or folder, or two tables as "
    "people.csv+relations.csv."
)
COLUMNS = (
    "Columns of your tables that are not called so: id=person label=risk split=part (nodes), "
    "source=payer target=payee weight=amount (edges); leave_out=NAME, once or more, is not read; "
    "category=NAME, such as a zip code, is not taken for a number."
)
SKIP = "Leave out edges that name ids which no node has, and say how many; else they are an error."
LEARNER = (
    "The learner: universal or paper, which come with the package; a file from graphglow pretrain "
    "(./universal, if that is its name); or untrained, as a control."
)
JSON = "Print one JSON object, as the last line of standard output, instead of a table."


def said(text: str | None = None, metavar: str | None = None, hint: str | None = None) -> Any:
    """What the help says of a flag; the hint stands for its default."""
    return arg(help=text, metavar=metavar, help_behavior_hint=hint)


GraphName = Annotated[str, said(GRAPH, "NAME|FILE")]
LearnerFlag = Annotated[str, said(LEARNER, "NAME|FILE")]
OptionalLearner = Annotated[str | None, said(None, "NAME|FILE", "(optional)")]
OptionalFile = Annotated[Path | None, said(None, "FILE", "(optional)")]
File = Annotated[Path, said(None, "FILE")]
Columns = Annotated[tuple[str, ...], said(COLUMNS, "ROLE=NAME ...", "(optional)")]
SkipUnknownEdges = Annotated[bool, FlagCreatePairsOff, said(SKIP, hint="")]
Names = Annotated[tuple[str, ...], said(None, "NAME ...", "(default: all)")]
DataRoot = Annotated[
    Path | None,
    said("Folder of named graphs' files.", "FOLDER", "(default: $GRAPHGLOW_DATA, else data/)"),
]
Json = Annotated[bool, FlagCreatePairsOff, said(JSON, hint="")]
Overwrite = Annotated[bool, FlagCreatePairsOff, said("Replace the output if it exists.", hint="")]


@dataclass(frozen=True, kw_only=True)
class GraphFlags:
    """How graphs are read."""

    columns: Columns = ()
    skip_unknown_edges: SkipUnknownEdges = False
    split_file: OptionalFile = None
    """An .npz file with index arrays train, val and test."""
    split_seed: Annotated[int | None, said(None, "INT", "(default: 0)")] = None
    """Seed of the random 50/25/25 split where a graph has no split of its own."""
    data_root: DataRoot = None
    one_graph: ClassVar[bool] = True
    """Whether a seed must be of use to the graph, and not to some of several."""

    def __post_init__(self) -> None:
        if not 0 <= (self.split_seed or 0) <= LARGEST_SEED:
            raise InputError(f"split_seed must lie in [0, {LARGEST_SEED}]; got {self.split_seed}")

    def read(
        self, name: str, *, need_labels: bool = True, draw: bool = True, tell_split: bool = True
    ) -> tuple[Data, str]:
        """Load a graph by its name or from a file, and say which split it has.

        Without ``draw`` a graph that has no split gets one only if ``--split-seed`` asks for it.
        """
        given: dict[str, Any] = vars(self) | {"columns": read_columns(self.columns)}
        given["need_labels"] = need_labels
        data = load_graph(name, **given | {"split_seed": self.split_seed or 0})
        drawn = data.split.startswith(("random", "own number", "own, validation by seed"))
        if self.one_graph and self.split_seed is not None and not drawn:
            raise InputError(
                "--split-seed draws a split and must not go with a graph that has one; got "
                f"--split-seed {self.split_seed} and {name}, whose split is {data.split}"
            )
        warn_of_made_edges(data)
        if not draw and self.split_seed is None:
            return without_drawn_split(data), data.get("split", "none")
        if self.one_graph and self.split_seed is None and tell_split:
            warn_of_drawn_split(data)
        return data, data.split


@dataclass(frozen=True, kw_only=True)
class ManyGraphFlags(GraphFlags):
    """How graphs are read."""

    split_file: Annotated[Path | None, Fixed, Suppress] = None
    """No flag: no one file has the split of several graphs."""
    one_graph: ClassVar[bool] = False

    def read_all(self, names: Sequence[str]) -> list[Data]:
        """Load graphs; a name that none has is refused before any is read."""
        for name in names:
            check_source(name)
        return [self.read(name)[0] for name in names]


Reading = Annotated[GraphFlags, OmitArgPrefixes]
ReadingMany = Annotated[ManyGraphFlags, OmitArgPrefixes]


def read_columns(given: Sequence[str]) -> dict[str, str | list[str]]:
    """``--columns id=person leave_out=notes`` as ``load_graph`` takes it."""
    columns: dict[str, str | list[str]] = {}
    for text in given:
        role, _, name = text.partition("=")
        role = role.strip().lower().replace("-", "_")
        if not (role and name):
            raise InputError(
                f"--columns must be pairs such as id=person leave_out=notes; got {text!r}"
            )
        if role in columns and role not in LISTS:
            raise InputError(f"--columns must say once which column is {role}; got it twice")
        columns[role] = [*columns.get(role, ()), name] if role in LISTS else name
    return columns


FIRST = ("backbone", "epochs", "seed", "device")
"""Settings among a command's own flags; others stand under the heading of their group."""


def by_heading(config: type[Any]) -> Any:
    """Let tyro make ``config`` from flags under headings; a command annotates its config with it.

    Each heading is a class that has all settings, of which the others are no flags; so flags keep
    the names, defaults and words of the settings. Nested settings come last, with their prefix.
    """
    own = config.__name__.removesuffix("Config").removeprefix("Evidence").lower()
    groups = {group: kind for group, kind in GROUPS.items() if issubclass(config, kind)}
    group_of = {name: group for group, kind in groups.items() for name in kind.__annotations__}
    headings = {own: config.__doc__} | {group: kind.__doc__ for group, kind in groups.items()}
    places: dict[str, list[str]] = {place: [] for place in ("first", *headings, "nested")}
    for one in fields(config):
        if one.init:
            place = "first" if one.name in FIRST else group_of.get(one.name, own)
            places["nested" if is_dataclass(one.type) else place].append(one.name)
    places = {place: names for place, names in places.items() if names}
    markers = {place: OmitArgPrefixes if place in headings else arg(name="") for place in places}
    parts = {p: _part(config, names, headings.get(p)) for p, names in places.items()}
    flags = make_dataclass("Flags", [(p, Annotated[parts[p], markers[p]]) for p in places])

    def build(**given: Any) -> Any:
        return config(**{n: getattr(given[p], n) for p, names in places.items() for n in names})

    build.__annotations__ = flags.__annotations__
    build.__signature__ = inspect.signature(flags)  # type: ignore[attr-defined]
    return arg(name="", constructor=build)


def _part(config: type[Any], shown: Sequence[str], heading: str | None) -> type[Any]:
    """``config`` with flags for some of its settings; it checks nothing, the whole does."""
    plain = config()
    hidden = [
        (one.name, Annotated[one.type, Fixed, Suppress], getattr(plain, one.name))
        for one in fields(config)
        if one.init and one.name not in shown
    ]
    unchecked = {"__post_init__": lambda self: None, "__doc__": heading or ""}
    return make_dataclass(
        config.__name__, hidden, bases=(config,), namespace=unchecked, frozen=True, kw_only=True
    )


def differing(given: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """The flags of what differs from ``plain``, for an error."""
    others = [name for name, value in given.items() if value != plain.get(name)]
    return ", ".join(f"--{name.replace('_', '-')}" for name in others)


def parse(
    name: str, command: Command, arguments: list[str], parts: Mapping[str, Command] | None = None
) -> Callable[[], None]:
    """Return ``command`` bound to its arguments; raise :class:`InputError` on bad usage.

    Where there are ``parts`` (``bench op``), the first argument names the one to bind, and
    ``command`` itself is only its help.
    """
    prog, captured = f"graphglow {name}", io.StringIO()
    read: Callable[..., Callable[[], None]] = functools.partial(tyro.cli, binding(command))
    if parts:
        bindings = {part: binding(one) for part, one in parts.items()}
        read = functools.partial(tyro.extras.subcommand_cli_from_dict, bindings)
    try:
        with contextlib.redirect_stderr(captured):
            return read(prog=prog, args=arguments)
    except SystemExit as request:
        if request.code in (0, None):
            raise
        raise InputError(f"{_one_line(captured.getvalue())}; see {prog} --help") from None


def binding(command: Command) -> Callable[..., Callable[[], None]]:
    """A function with the flags of ``command`` that does not run it yet."""

    @functools.wraps(command)  # tyro reads the signature and docstring of what is wrapped
    def bind(*args: object, **kwargs: object) -> Callable[[], None]:
        return functools.partial(command, *args, **kwargs)

    return bind


OUR_WORDS = (
    (r"^Missing from graphglow [^:]+", "required options are missing"),
    (r"^Error parsing (\S+): invalid literal for int.*?: ", r"\1 must be a whole number; got "),
    (r"^Error parsing (\S+): could not convert \S+ to float: ", r"\1 must be a number; got "),
    (r"^Error parsing (\S+): Could not .* for arguments: \[(.*)\]", r"bad value for \1; got \2"),
    (r"^Error parsing [a-z_]+: ", ""),  # of a heading: our own sentence follows
    (r"^Error parsing (\S+):", r"bad value for \1:"),
    (
        r"^[Ii]nvalid choice (.+) for argument '(.+)'\. Expected one of \((.*)\)",
        lambda m: _one_of(m[1], m[2], m[3].replace("'", "").rstrip(",").split(", ")),
    ),
    (r"^[Mm]issing value for argument '(.+)'\. Expected.*", r"\1 must be followed by a value"),
    (r"\bUnrecognized options", "unknown options"),
)
"""What tyro says, as a pattern, and how we say it."""


def _one_of(got: str, flag: str, known: Sequence[str]) -> str:
    near = nearest(got.strip("'"), known)
    return f"{flag} must be one of {', '.join(known)}; got {got}{near}"


def _one_line(box: str) -> str:
    """Reduce tyro's box, a title and then sections of text between rules, to one line.

    The title is left out, and so are explanations of options and the pointer to the help; a
    section that is a headline and a list (indented by four) keeps both.
    """
    lines = re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines() or [""]
    title = 1 if lines[0].startswith("\u256d") else 2  # where not UTF-8, a rule follows
    body = [line[2:].rstrip(" \u2502") for line in lines[title:] if line[0] != "\u2570"]
    parts = []
    for section in re.split(r"^[\u2500-]+$", "\n".join(body), flags=re.MULTILINE):
        words = [line for line in section.splitlines() if line.strip()]
        if not words or re.match(r"(Argument|For full) helptext", words[0]):
            continue
        listed = [line.strip() for line in words[1:] if re.match(r" {4}\S", line)]
        headline = f"{words[0].rstrip(':')}: {', '.join(listed)}"
        parts.append(headline if listed else " ".join(map(str.strip, words)))
    text = "; ".join(parts)
    for theirs, ours in OUR_WORDS:
        text = re.sub(theirs, ours, text)
    return text[:1].lower() + text[1:].rstrip(". ")
