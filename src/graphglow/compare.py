"""Methods side by side on a graph of one's own, and which of them to use.

graphglow compare --target people.csv+relations.csv
"""

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least, one_of
from graphglow.errors import InputError, InputWarning
from graphglow.graph import as_graph, check_graph
from graphglow.graph.split import MASKS, with_random_split
from graphglow.lab import Progress, no_progress
from graphglow.lab.open_world.methods import (
    BAGS,
    NAMES,
    NEED_FEATURES,
    POOL,
    lacks_features,
    part_of,
    run_method,
)
from graphglow.pretrained import UNIVERSAL, LearnerName
from graphglow.settings import Device

COMPARED = tuple(name for name in NAMES if name not in ("paper", *BAGS))
"""By default: the paper's learner takes as long as all others together."""
SIGNIFICANT = 0.05
FEWEST = 6
"""Labelled nodes without which nothing can be said."""
FOLDS = 3


class Line(NamedTuple):
    """A method: test accuracies over the splits, and seconds of one run."""

    method: str
    accuracy: float
    deviation: float | None
    seconds: float
    p: float | None
    """That the highest is not ahead of it, by test nodes and seeds; None for the highest."""
    estimate: float
    """The accuracy that the method itself expects, without test labels: see :attr:`basis`."""

    @property
    def basis(self) -> str:
        """What the estimate comes from."""
        if self.method in BAGS:
            return "out of fold"
        return "leave-one-out" if self.method in POOL else "validation"

    @property
    def level(self) -> bool:
        """Whether chance explains its distance from the highest."""
        return self.p is not None and self.p >= SIGNIFICANT

    @property
    def against_highest(self) -> str:
        """The test against the highest, in words."""
        if self.p is None:
            return "highest"
        said = f"p = {self.p:.2g}" if self.p >= 1e-3 else "p < 0.001"
        return "level" if self.level else f"lower, {said}"


@dataclass(frozen=True)
class Comparison:
    """How methods do on a graph, the highest first."""

    lines: list[Line]
    how: str
    """What was tested on, in words."""
    failed: dict[str, str]
    """Methods that could not run, and why."""

    @property
    def recommended(self) -> Line:
        """The method with the highest estimate of its own; of several, the fastest."""
        return max(self.lines, key=lambda line: (round(line.estimate, 6), -line.seconds))

    @property
    def verdict(self) -> str:
        """Which to use, by what, and what the test nodes say of it."""
        chosen, best = self.recommended, self.lines[0]
        said = f"{chosen.estimate:.1%} by {chosen.basis}; {chosen.accuracy:.1%} of test nodes right"
        if len(self.lines) == 1:
            return f"{NAMES[chosen.method]}: {said}. Nothing else was run."
        use = f"Use {NAMES[chosen.method]}: its own estimate is the highest, {said}"
        if chosen is best:
            level = [NAMES[line.method] for line in self.lines if line.level]
            which = ", ".join(level) if len(level) < 5 else f"{len(level)} others"
            return f"{use}, {f'level with {which}' if level else 'the highest'}."
        apart = 100 * (best.accuracy - chosen.accuracy)
        return f"{use}, {apart:.1f} points below {NAMES[best.method]} ({chosen.against_highest})."

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row per method."""
        import pandas as pd

        frame = pd.DataFrame(self.lines, columns=list(Line._fields))
        frame.insert(1, "name", [NAMES[line.method] for line in self.lines])
        words = ("basis", "against_highest")
        return frame.assign(**{name: [getattr(one, name) for one in self.lines] for name in words})

    def __repr__(self) -> str:
        shown = self.to_frame()[["name", "accuracy", "estimate", "seconds", "against_highest"]]
        table = shown.to_string(index=False, float_format="{:.3f}".format)
        return f"{table}\n{self.how}\n{self.verdict}"


def compare(
    data: Any,
    methods: Sequence[str] = COMPARED,
    *,
    seeds: int = 3,
    seed: int = 0,
    learner: LearnerName = UNIVERSAL,
    device: Device = "auto",
    progress: Progress = no_progress,
) -> Comparison:
    """Run the methods of the open-world suite on a graph, and say which to use.

    That is the method whose own estimate is the highest: leave-one-out of ``predict``, which has
    training and validation labels at work, and validation of methods that train. Test nodes judge
    all of them, and choose nothing.

    A graph with a split of its own keeps it, and seeds are those of weights; else each seed draws
    a split. Where there are no test nodes, labelled ones are tested in turn (cross-fitting); where
    there are no validation nodes, a quarter of the training nodes is taken.

    Args:
        data: The graph: a ``Data``, whose ``x`` may be None, or what :func:`load_graph` takes.
        methods: Names in ``graphglow.lab.open_world.methods.NAMES``.
        seeds: Runs of each method.
        seed: The first of the seeds.
        learner: The evidence learner.
        device: Where to compute.
        progress: Called with the method that has run, how many runs have, and of how many.
    """
    seeds, seed = at_least("seeds", seeds, 1), at_least("seed", seed, 0)
    methods = (methods,) if isinstance(methods, str) else methods
    for method in methods:
        one_of("method", method, tuple(NAMES))
    splits, how = splits_of(
        check_graph(as_graph(data, split=False), need_validation=False), seeds, seed
    )
    runs: dict[str, list[Run]] = {}
    failed: dict[str, str] = {}
    if lacks_features(splits[0]):
        methods = [method for method in methods if method not in NEED_FEATURES]
    jobs = [(number, method) for number in range(len(splits)) for method in methods]
    for done, (number, method) in enumerate(jobs):
        progress(NAMES[method], done, len(jobs))
        one, own = splits[number], seed + number
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)  # the table says it
                entry = run_method(method, one, seed=own, device=device, learner=learner)
        except InputError as error:
            failed[method] = str(error)
            continue
        nodes = one.test_mask.nonzero()[:, 0]
        right = (entry.scores.argmax(1) == one.y)[nodes].double()
        runs.setdefault(method, []).append(Run(nodes, right, entry.estimate, entry.seconds))
    progress("done", len(jobs), len(jobs))
    whole = {name: made for name, made in runs.items() if len(made) == len(splits)}
    if not whole:
        raise InputError(f"No method could run on this graph: {failed}")
    return Comparison(_lines(whole, len(splits[0].y)), how, failed)


class Run(NamedTuple):
    """One method on one split: the nodes tested [n], and whether they are right [n]."""

    nodes: Tensor
    right: Tensor
    estimate: float
    seconds: float

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())


def _lines(found: Mapping[str, list[Run]], size: int) -> list[Line]:
    """Return a line for each method, the highest first; ``size`` is the number of nodes."""
    means = {name: statistics.mean(run.accuracy for run in runs) for name, runs in found.items()}
    order = sorted(found, key=lambda name: -means[name])
    lines = []
    for name in order:
        runs = found[name]
        std = statistics.stdev(run.accuracy for run in runs) if len(runs) > 1 else None
        p = None if name == order[0] else chance(found[order[0]], runs, size)
        seconds = statistics.mean(run.seconds for run in runs)
        estimate = statistics.mean(run.estimate for run in runs)
        lines.append(Line(name, means[name], std, seconds, p, estimate))
    return lines


def chance(best: Sequence[Run], other: Sequence[Run], size: int) -> float:
    """Return how likely so large a difference is by chance: of test nodes, and of seeds.

    ``size`` is the number of nodes.
    """
    total, count = torch.zeros(size).double(), torch.zeros(size).double()
    for a, b in zip(best, other, strict=True):
        total[a.nodes] += a.right - b.right
        count[a.nodes] += 1
    each = (total / count)[count > 0]
    variance = float(each.var()) / len(each) if len(each) > 1 else math.inf
    apart = [a.accuracy - b.accuracy for a, b in zip(best, other, strict=True)]
    if len(apart) > 1:
        variance += statistics.variance(apart) / len(apart)
    mean = statistics.mean(apart)
    if variance == 0:
        return 1.0 if mean == 0 else 0.0
    return math.erfc(abs(mean) / math.sqrt(2 * variance))


def splits_of(data: Data, seeds: int, seed: int) -> tuple[list[Data], str]:
    """Return the graph under each split that it is tested on, and how that is, in words."""
    labelled = int((data.y >= 0).sum())
    if labelled < FEWEST:
        raise InputError(f"{labelled} labelled nodes are too few to compare: {FEWEST} are needed.")
    numbers = range(seed, seed + seeds)
    if data.split.startswith("random"):
        bare = data.clone()
        for name in MASKS:
            bare.pop(name, None)
        drawn = [with_random_split(bare.clone(), number, by_class=True) for number in numbers]
        return drawn, f"{seeds} random splits, half of each class for training"
    train, val, test = (data[name] for name in MASKS)
    made = []
    if not bool(test.any()):
        for fold in range(max(FOLDS, seeds)):
            held = part_of(data.y, train | val, fold % FOLDS, FOLDS, seed + fold // FOLDS)
            made.append(_quartered(data, (train | val) & ~held, held, seed + fold))
        return made, f"no test nodes: labelled ones are tested in turn, in {FOLDS} parts"
    if not bool(val.any()):
        made = [_quartered(data, train, test, number) for number in numbers]
        return made, "no validation nodes: a quarter of the training nodes is taken"
    return [data] * seeds, f"its own split, {seeds} seeds"


def _quartered(data: Data, train: Tensor, test: Tensor, seed: int) -> Data:
    """Return the graph with these test nodes, and a quarter of the training nodes to validate."""
    out, val = data.clone(), part_of(data.y, train, 0, 4, seed)
    out.train_mask, out.val_mask, out.test_mask = train & ~val, val, test
    return out
