"""The flags that say how graphs are read, and the reading."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from torch_geometric.data import Data
from tyro.conf import Fixed, Suppress, arg

from graphglow.commands.flags import Columns, DataRoot, OptionalFile, SkipUnknownEdges
from graphglow.errors import InputError
from graphglow.graphs import load_graph
from graphglow.graphs.table_columns import LEAVE_OUT
from graphglow.training.config import LARGEST_SEED

SplitSeed = Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 0)")]


@dataclass(frozen=True, kw_only=True)
class GraphFlags:
    """How a graph is read; flags.py says what has no docstring here."""

    columns: Columns = ()
    skip_unknown_edges: SkipUnknownEdges = False
    split_file: OptionalFile = None
    """An .npz file with index arrays train, val and test."""
    split_seed: SplitSeed = None
    """Seed of the random 50/25/25 split where the graph has no split of its own."""
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
    """How several graphs are read: no one file has the split of them all."""

    split_file: Annotated[Path | None, Fixed, Suppress] = None
    """No flag."""
    split_seed: SplitSeed = None
    """Seed of the random 50/25/25 split where a graph has no split of its own."""
    one_graph: ClassVar[bool] = False


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
