"""The runs of the suite: targets under conditions, by methods, over seeds.

A run is known by target, condition, method and seed, and by the settings or the learner that it is
made with. Runs are ordered so that a suite that is stopped shows a whole picture: all targets under
the first conditions with the first seed, and so on. Learners of held-out families lie in a folder,
``fold0.safetensors`` to ``fold5.safetensors``, which ``benchmarks/predictor.py --train FOLDER``
makes; nothing is pre-trained here.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError, one_of
from graphglow.graph import DATASETS, load_graph
from graphglow.graph.check import few_label_split
from graphglow.graph.datasets import add_edges, delete_edges
from graphglow.graph.load import data_folder
from graphglow.lab import Progress, no_progress
from graphglow.lab.config import RunsConfig
from graphglow.lab.open_methods import (
    BAGS,
    LOGISTIC,
    MEMBERS,
    METHOD_TITLES,
    NEED_FEATURES,
    NEED_LEARNER,
    POOL,
    accuracy_on,
    lacks_features,
    run_method,
    settings_of,
)
from graphglow.lab.paper_tables import GRAPHS as PAPER_GRAPHS
from graphglow.lab.row_files import Row, digest, rows_in
from graphglow.lab.runs import Outcome, Plan, load_with_split, make_plan, make_rows
from graphglow.pretrained import UNIVERSAL, evidence_learner, learner_identity
from graphglow.settings import Device

PACKAGE_TABLES = ("digits", "wine", "breast_cancer")
"""Targets that come with the package, beside Cora."""
FAMILIES = {
    "dblp": "citation", "acm": "citation", "amazon-computers": "co-purchase",
    "coauthor-physics": "co-author", "facebook-pages": "pages", "flickr": "photos",
    "uai2010": "wiki", "squirrel-filtered": "wiki", "minesweeper": "grid",
    "airports-brazil": "airports", "airports-europe": "airports", "german-credit": "tabular",
    "webkb-washington": "web",
}  # fmt: skip
"""Of open graphs; Facebook colleges besides. A graph that is none of these is ``other``."""
FAMILY_FOLDS = {
    "citation": 0, "airports": 0, "colleges": 1, "photos": 2, "grid": 2, "co-purchase": 3, "web": 3,
    "co-author": 4, "wiki": 4, "pages": 5, "tabular": 5,
}  # fmt: skip
"""Families that are held out together: their learner has seen none of them."""


class Target(NamedTuple):
    """A graph by name: one of the paper's or the package's, or an open one by its file."""

    name: str
    family: str
    file: Path | None = None
    size: tuple[int, int] = (0, 0)
    """Nodes and edges."""

    @property
    def fold(self) -> int | None:
        """Whose learner it gets; None: the package's, which has seen none of the family."""
        return FAMILY_FOLDS.get(self.family)

    def load(self, root: Path, seed: int) -> Data:
        """Load it with the paper's split, or one that the seed draws."""
        if self.file is not None or self.name in PACKAGE_TABLES:
            return load_graph(self.file or self.name, split_seed=seed, need_labels=True)
        return load_with_split(self.name, root)


def family_of(name: str) -> str:
    """Return the family of an open graph."""
    return FAMILIES.get(name, "colleges" if name.startswith("facebook-") else "other")


def find_targets(root: Path | None) -> list[Target]:
    """Return the paper's graphs in the data root, open ones (``open/*.npz``), the package's."""
    root = data_folder(root)
    raw = {path.parent.name.lower() for path in root.glob("*/raw")} | {"cora"}
    named = {name: "paper" for name in PAPER_GRAPHS if name in raw} | dict.fromkeys(
        PACKAGE_TABLES, "table"
    )
    found = [
        Target(name, family, size=(DATASETS[name].nodes, DATASETS[name].edges))
        for name, family in named.items()
    ]
    for file in sorted((root / "open").glob("*.npz")):
        with np.load(file) as arrays:  # of arrays in an archive, only those asked for are read
            indptr = arrays["adj_indptr"]
        size = len(indptr) - 1, int(indptr[-1]) // 2
        found.append(Target(file.stem, family_of(file.stem), file, size))
    return found


def few_labels(data: Data, per_class: int, seed: int) -> Data | None:
    """Keep some labels of each class for training, as many for validation, the rest for tests.

    None where too little would be left for tests.
    """
    train, _, _ = few_label_split(data.y, per_class=per_class, seed=seed)
    both, _, _ = few_label_split(data.y, per_class=2 * per_class, seed=seed)
    labelled = data.y >= 0
    if len(both) > 0.6 * int(labelled.sum()) or len(train) == len(both):
        return None
    nodes, out = torch.arange(len(data.y)), data.clone()
    out.train_mask, read = torch.isin(nodes, train), torch.isin(nodes, both)
    out.val_mask, out.test_mask = read & ~out.train_mask, labelled & ~read
    out.split = f"few labels, seed {seed}"
    return out


def shuffled_columns(data: Data, seed: int) -> Data:
    """Deal half of the feature columns out anew among the nodes, each by itself."""
    generator = torch.Generator().manual_seed(seed)
    out = data.clone()
    columns = torch.randperm(data.x.shape[1], generator=generator)[: data.x.shape[1] // 2]
    order = torch.rand(data.x.shape[0], len(columns), generator=generator).argsort(0)
    out.x[:, columns] = data.x[:, columns].gather(0, order)
    return out


AS_IT_IS, NO_FEATURES = "as it is", "no features"
CONDITIONS: dict[str, tuple[str, float]] = {
    AS_IT_IS: ("", 0),
    "false edges 1x": ("false edges", 1),
    "5 labels per class": ("labels per class", 5),
    "lost edges 60%": ("lost edges", 0.6),
    "half the features noise": ("features", 0.5),
    NO_FEATURES: ("features", 1),
    "20 labels per class": ("labels per class", 20),
    "1 label per class": ("labels per class", 1),
    "false edges 2x": ("false edges", 2),
    "lost edges 90%": ("lost edges", 0.9),
    "3 labels per class": ("labels per class", 3),
    "10 labels per class": ("labels per class", 10),
    "false edges 0.5x": ("false edges", 0.5),
    "lost edges 30%": ("lost edges", 0.3),
}
"""By name: what is changed, and how much. The most telling come first: a suite that is stopped has
these."""


def attacked_files(root: Path | None) -> dict[str, Path]:
    """Return the files of attacked Cora in the data root, by condition."""
    folder = data_folder(root) / "open" / "attacked"
    shares = (0, 5, 15, 25)  # per cent of edges that metattack changes in the largest component
    files = {f"metattack {s}%": folder / f"cora-metattack-{s:02}.npz" for s in shares}
    return {name: file for name, file in files.items() if file.is_file()}


def draw(target: Target, condition: str, seed: int, root: Path) -> Data | None:
    """Return a target under a condition; None where the condition makes no sense on it."""
    data = target.load(root, seed)
    what, much = CONDITIONS.get(condition, ("", 0))
    if what == "false edges":
        try:
            return add_edges(data, much, seed=seed)
        except InputError:  # there is no room for so many
            return None
    if what == "lost edges":
        return delete_edges(data, much, seed=seed)
    if what == "labels per class":
        return few_labels(data, int(much), seed)
    if condition == NO_FEATURES:  # one column that says nothing
        data = data.clone()
        data.x = torch.ones(len(data.y), 1)
        return data
    return shuffled_columns(data, seed) if what == "features" else data


EXPERIMENT = "open-world"
METHODS = tuple(name for name in METHOD_TITLES if name != LOGISTIC)


class SuiteRun(NamedTuple):
    """A method on one target under one condition with one seed."""

    target: Target
    condition: str
    method: str
    seed: int
    learner: str

    @property
    def facts(self) -> Row:
        """What a row says of the run before it is made; config is what a result depends on."""
        method = self.method
        if method in NEED_LEARNER:
            name = self.learner
            config: dict[str, Any] = {"learner": Path(name).stem, "identity": _weights(name)}
        else:
            config = settings_of(method) | ({"members": MEMBERS} if method in BAGS else {})
        config |= {"labels": "pool"} if method in POOL else {}
        return {
            "experiment": EXPERIMENT,
            "cell": f"{method}/{self.target.name}/{self.condition}",
            "label": METHOD_TITLES[method],
            "method": method,
            "target": self.target.name,
            "seed": self.seed,
            "series": self.condition,
            "setup": digest(config),
            "config": config,
        }


@cache
def _weights(learner: str) -> str | None:
    """Return a digest of the learner's weights; None of one that is not made yet."""
    if learner != UNIVERSAL and not Path(learner).exists():
        return None
    return learner_identity(evidence_learner(learner))


def suite_runs(
    config: RunsConfig,
    learners: Path,
    root: Path,
    targets: Sequence[str] = (),
    conditions: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> Iterator[SuiteRun]:
    """Yield the runs of the suite, of those that are asked for; unknown names are refused."""
    every, attacked = find_targets(root), attacked_files(root)
    for kind, given, known in (
        ("targets", targets, [target.name for target in every]),
        ("conditions", conditions, [*CONDITIONS, *attacked]),
        ("methods", methods, METHODS),
    ):
        for name in given:
            one_of(kind, name, known)
    every = sorted((t for t in every if not targets or t.name in targets), key=lambda t: t.size)
    seeds = range(config.seed, config.seed + config.seeds)
    for seed, condition, target in product(seeds, conditions or [*CONDITIONS, *attacked], every):
        if condition in attacked:  # files of Cora
            if target.name != "cora":
                continue
            target = target._replace(file=attacked[condition])
        fold = target.fold
        learner = UNIVERSAL if fold is None else str(learners / f"fold{fold}.safetensors")
        for method in methods or METHODS:
            yield SuiteRun(target, condition, method, seed, learner)


def plan_suite(out: Path, config: RunsConfig, learners: Path, root: Path, *asked: Any) -> Plan:
    """Return what :func:`run_suite` would do."""
    runs = suite_runs(config, learners, root, *asked)
    return make_plan(runs, rows_in(out, [EXPERIMENT]), config, share=False)


def run_suite(
    out: Path,
    config: RunsConfig,
    learners: Path,
    root: Path,
    *asked: Sequence[str],
    progress: Progress = no_progress,
) -> Outcome:
    """Make the rows that the file ``out`` lacks, as far as there is time.

    Open graphs are in the folder ``open`` of the data root, held-out ``learners`` in a folder of
    their own. Where targets, conditions or methods are ``asked`` for, there are no others.
    """
    plan = plan_suite(out, config, learners, root, *asked)
    needed = {run.learner for run, _ in plan.jobs if run.method in NEED_LEARNER}
    if absent := [name for name in sorted(needed) if _weights(name) is None]:
        files = ", ".join(Path(name).name for name in absent)
        raise InputError(
            f"{learners} lacks learners of held-out families: {files}. Make them with: "
            f"python benchmarks/predictor.py --train {learners}"
        )
    return make_rows(_measure, (root, config.device), plan, out, config, progress)


def _measure(known: tuple[Path, Device], run: SuiteRun) -> Row | None:
    """Run a method; None where the condition, or the method without features, makes no sense."""
    root, device = known
    data = draw(run.target, run.condition, run.seed, root)
    if data is None or (run.method in NEED_FEATURES and lacks_features(data)):
        return None
    entry = run_method(run.method, data, seed=run.seed, device=device, learner=run.learner)
    return {
        "test_accuracy": accuracy_on(entry.scores, data, data.test_mask),
        "val_accuracy": entry.estimate,
        "total_seconds": entry.seconds,
        "device": device,
        "split": str(data.split),
    }
