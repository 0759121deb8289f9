"""Flags that several commands share, each said once."""

from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, arg

from graphglow.training.config import Device

UNUSED = "No effect here; every command takes it."

GraphName = Annotated[
    str,
    arg(
        metavar="NAME|FILE",
        help=(
            "The graph: a name (see graphglow datasets), a file or folder, or two tables as "
            "people.csv+relations.csv."
        ),
    ),
]
LearnerName = Annotated[str, arg(metavar="NAME|FILE")]
OptionalLearner = Annotated[str | None, arg(metavar="NAME|FILE", help_behavior_hint="(optional)")]
OptionalFile = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(optional)")]
InFile = Annotated[Path, arg(metavar="FILE")]
OutFile = Annotated[Path, arg(metavar="FILE")]
UnusedSeed = Annotated[int, arg(help=UNUSED)]
UnusedDevice = Annotated[Device, arg(help=UNUSED)]
UnusedDataRoot = Annotated[Path | None, arg(metavar="FOLDER", help=UNUSED, help_behavior_hint="")]
SavedTransfer = Annotated[
    Path, arg(metavar="FILE", help="A saved transfer, from graphglow transfer --out.")
]
Columns = Annotated[
    tuple[str, ...],
    arg(
        metavar="ROLE=NAME ...",
        help=(
            "Which columns of your tables are what, where they are not called so: id=person "
            "label=risk split=part (nodes), source=payer target=payee weight=amount (edges). "
            "leave_out=NAME, once or more, is a column that is not to be read."
        ),
        help_behavior_hint="(optional)",
    ),
]
SkipUnknownEdges = Annotated[
    bool,
    FlagCreatePairsOff,
    arg(
        help=(
            "Leave out edges of your tables that name ids which no node has, and say how many; "
            "otherwise they are an error."
        ),
        help_behavior_hint="",
    ),
]
DataRoot = Annotated[
    Path | None,
    arg(
        metavar="FOLDER",
        help="Where the raw files of named graphs are.",
        help_behavior_hint="(default: $GRAPHGLOW_DATA, else data/)",
    ),
]
Json = Annotated[
    bool,
    FlagCreatePairsOff,
    arg(
        help="Print one JSON object, as the last line of standard output, instead of a table.",
        help_behavior_hint="",
    ),
]
Overwrite = Annotated[
    bool,
    FlagCreatePairsOff,
    arg(help="Replace the output file if it exists.", help_behavior_hint=""),
]
Log = Annotated[
    str | None,
    arg(
        metavar="TOOL:PLACE",
        help="Log every epoch to tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT.",
        help_behavior_hint="(optional)",
    ),
]
EmbeddingSize = Annotated[
    int | None,
    arg(
        metavar="INT",
        help="Width of the embeddings, with --learner random only; a saved learner has its own.",
        help_behavior_hint="(default: that of pretrain)",
    ),
]
