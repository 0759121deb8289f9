"""Pre-trained learners on disk, so that all cells with the same sources and settings share one."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.experiments.cell import split_of
from graphglow.experiments.cell_config import as_compared
from graphglow.experiments.provenance import provenance
from graphglow.experiments.search.settings import locked
from graphglow.graphs import DATASETS, load_graph
from graphglow.graphs.load import data_folder
from graphglow.structure import StructureLearner
from graphglow.training import PretrainConfig, pretrain


def load_with_split(name: str, data_root: Path | None) -> Data:
    """A graph with the split that experiments use (:func:`~graphglow.experiments.cell.split_of`).

    That of the paper's authors lies beside the raw files, as ``split.npz``.
    """
    split = data_folder(data_root) / name / "split.npz" if split_of(name) == "authors" else None
    return load_graph(name, data_root=data_root, split_file=split)


def check_data(names: Iterable[str], data_root: Path | None) -> None:
    """Raise, as a run would, where the raw files of a graph or its split are absent.

    Graphs whose files are there are not read; others are, which may fetch them.
    """
    for name in without_files(names, data_root):
        load_with_split(name, data_root)


def without_files(names: Iterable[str], data_root: Path | None) -> list[str]:
    """Those of the graphs whose raw files or split are not in the data root; nothing is read."""
    folder = data_folder(data_root)
    there = {path.parent.name.lower() for path in folder.glob("*/raw") if any(path.iterdir())}

    def complete(name: str) -> bool:
        split = folder / name / "split.npz"
        return name in there and (split_of(name) != "authors" or split.is_file())

    needed = [name for name in dict.fromkeys(names) if name in DATASETS]
    return [name for name in needed if DATASETS[name].needs_data and not complete(name)]


def find_learner(
    folder: Path, sources: tuple[str, ...], config: PretrainConfig
) -> StructureLearner | None:
    """The learner that was trained on these sources with these settings and this seed."""
    for path in _files(folder, sources, config.seed):
        try:
            learner = StructureLearner.load(path)
            made = learner.provenance
            same = as_compared(PretrainConfig, made["config"]) == as_compared(
                PretrainConfig, asdict(config)
            )
            if same and made["splits"] == [split_of(name) for name in sources]:
                return learner
        except (InputError, LookupError, TypeError):  # not one of ours, or damaged
            continue
    return None


def make_learner(
    folder: Path,
    sources: tuple[str, ...],
    graphs: Sequence[Data],
    config: PretrainConfig,
) -> StructureLearner:
    """Find the learner, or train and keep it; another process that wants the same one waits."""
    with locked(folder / f".{_stem(sources, config.seed)}.lock"):
        found = find_learner(folder, sources, config)
        if found is not None:
            return found
        began = time.perf_counter()
        learner = pretrain(graphs, config)
        learner.provenance["seconds"] = time.perf_counter() - began
        learner.provenance["splits"] = [split_of(name) for name in sources]
        learner.provenance["provenance"] = provenance()
        taken = {path.name for path in _files(folder, sources, config.seed)}
        name = next(name for name in _names(sources, config.seed) if name not in taken)
        learner.save(folder / name)
        return learner


def _stem(sources: tuple[str, ...], seed: int) -> str:
    return f"{'+'.join(sources)}-seed{seed}"


def _files(folder: Path, sources: tuple[str, ...], seed: int) -> list[Path]:
    return sorted(folder.glob(f"{_stem(sources, seed)}-*.safetensors"))


def _names(sources: tuple[str, ...], seed: int) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"{_stem(sources, seed)}-{number}.safetensors"
