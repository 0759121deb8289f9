"""Flags that several commands share, each said once."""

from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, arg

UNUSED = "No effect here; every command takes it."

GraphName = Annotated[str, arg(metavar="NAME|FILE")]
LearnerName = Annotated[str, arg(metavar="NAME|FILE")]
OptionalLearner = Annotated[str | None, arg(metavar="NAME|FILE", help_behavior_hint="(optional)")]
OptionalFile = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(optional)")]
OutFile = Annotated[Path, arg(metavar="FILE")]
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
