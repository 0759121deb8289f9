"""Graphs as experiments split them, and learners on disk, which cells with one pre-training share.

Who makes a learner hands it on as the bytes of its file: it may be on another machine.
"""

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import NamedTuple

from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.load import data_folder
from graphglow.lab.paper.cells import split_of
from graphglow.lab.provenance import provenance
from graphglow.lab.runs.config import SourceConfig, as_compared
from graphglow.paper import StructureLearner
from graphglow.pretrain import pretrain
from graphglow.pretrained import Learner, load_learner
from graphglow.settings import PretrainConfig
from graphglow.storage import atomic_path


def load_with_split(name: str, data_root: Path | None) -> Data:
    """A graph with the split that experiments use (:func:`~.paper.cells.split_of`).

    That of the paper's authors lies beside the raw files, as ``split.npz``.
    """
    split = data_folder(data_root) / name / "split.npz" if split_of(name) == "authors" else None
    return load_graph(name, data_root=data_root, split_file=split)


def without_files(names: Iterable[str], data_root: Path | None) -> list[str]:
    """Those of the graphs whose raw files or split are not in the data root; nothing is read."""
    folder = data_folder(data_root)
    there = {path.parent.parent.name.lower() for path in folder.glob("*/raw/*")}

    def complete(name: str) -> bool:
        split = folder / name / "split.npz"
        return name in there and (split_of(name) != "authors" or split.is_file())

    known = [DATASETS[name] for name in dict.fromkeys(names) if name in DATASETS]
    return [one.name for one in known if one.needs_data and not complete(one.name)]


class Lesson(NamedTuple):
    """A learner that is asked for."""

    sources: tuple[str, ...]
    config: SourceConfig

    @property
    def kind(self) -> type[Learner]:
        """Of the learner, by the settings of its pre-training."""
        return StructureLearner if isinstance(self.config, PretrainConfig) else EvidenceLearner

    @property
    def pattern(self) -> str:
        """Of files that may hold it."""
        kind = "" if self.kind is StructureLearner else "evidence-"
        return f"{kind}{'+'.join(self.sources)}-seed{self.config.seed}-{{}}.safetensors"


def find_learner(folder: Path, lesson: Lesson) -> Path | None:
    """The file of the learner that was trained on these sources with these settings and seed."""
    paths = sorted(folder.glob(lesson.pattern.format("*")))
    return next((path for path in paths if holds(path, lesson)), None)


def holds(path: Path, lesson: Lesson) -> bool:
    """Whether a file is the learner that is asked for."""
    try:
        made = lesson.kind.load(path).provenance
        both = made["config"], asdict(lesson.config)
        stored, wanted = (as_compared(type(lesson.config), config) for config in both)
        return stored == wanted and made["splits"] == list(map(split_of, lesson.sources))
    except (InputError, LookupError, TypeError):  # not one of ours, or damaged
        return False


def make_learner(lesson: Lesson, graphs: Sequence[Data]) -> bytes:
    """Pre-train on the graphs of its sources; what its file should hold."""
    began = time.perf_counter()
    learner: Learner = pretrain(graphs, lesson.config)
    learner.provenance["seconds"] = time.perf_counter() - began
    learner.provenance["splits"] = [split_of(name) for name in lesson.sources]
    learner.provenance["provenance"] = provenance()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.safetensors"
        learner.save(path)
        return path.read_bytes()


def keep_learner(folder: Path, lesson: Lesson, content: bytes) -> Path:
    """Write a learner to a file of its own."""
    paths = (folder / lesson.pattern.format(number) for number in count(1))
    path = next(path for path in paths if not path.exists())
    with atomic_path(path, make_folder=True) as temporary:
        temporary.write_bytes(content)
    return path


def learner_from(content: bytes) -> Learner:
    """The learner of a file's content."""
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(content)
        file.flush()
        return load_learner(Path(file.name))
