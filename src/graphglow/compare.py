"""The suite's methods on a graph of one's own, and which of them to use.

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
from graphglow.lab import Told, unheard
from graphglow.lab.open_world.methods import (
    BAGS,
    NAMES,
    POOL,
    Entry,
    accuracy,
    fold_of,
    judged_nodes,
    run_methods,
)
from graphglow.pretrained import UNIVERSAL, LearnerName
from graphglow.settings import Device

COMPARED = tuple(name for name in NAMES if name not in ("paper", "mean", "vote", *BAGS))
"""By default: the paper's learner takes as long as all others together."""
SIGNIFICANT = 0.05
FEWEST = 6
"""Labelled nodes without which nothing can be said."""
FOLDS = 3


class Line(NamedTuple):
    """A method: test accuracies over the splits, and seconds of one run."""

    method: str
    mean: float
    std: float | None
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
        """Whether it is as good as the highest, for all that can be said."""
        return self.p is not None and self.p >= SIGNIFICANT

    @property
    def against_highest(self) -> str:
        """In words."""
        return "highest" if self.p is None else "level" if self.level else f"lower, {_p(self.p)}"


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
        best, chosen = self.lines[0], self.recommended
        said = f"{chosen.estimate:.1%} by {chosen.basis}"
        tested = f"{chosen.mean:.1%} of test nodes right"
        if len(self.lines) == 1:
            return f"{NAMES[chosen.method]}: {said}, {tested}; nothing else was run."
        use = (
            f"Use {NAMES[chosen.method]}: its own estimate is the highest, {said} (predict is "
            "estimated by leave-one-out, methods that train by validation)."
        )
        if chosen is best:
            level = [NAMES[line.method] for line in self.lines if line.level]
            which = ", ".join(level) if len(level) < 5 else f"{len(level)} others"
            place = f"level with {which}" if level else "highest"
            return f"{use} Test nodes agree: {tested}, {place}."
        apart = f"{100 * (best.mean - chosen.mean):.1f} points below {NAMES[best.method]}"
        return f"{use} Test nodes: {tested}, {apart}, {_beyond_chance(chosen)}."

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row per method: ``method``, ``name``, ``accuracy``, ``deviation``,
        ``seconds``, ``p``, ``estimate``, its ``basis``, and ``against_highest`` in words.
        """
        import pandas as pd

        columns = ["method", "accuracy", "deviation", "seconds", "p", "estimate"]
        frame = pd.DataFrame(self.lines, columns=columns)
        frame.insert(1, "name", [NAMES[line.method] for line in self.lines])
        in_words = {name: [getattr(line, name) for line in self.lines]
                    for name in ("basis", "against_highest")}  # fmt: skip
        return frame.assign(**in_words)

    def __repr__(self) -> str:
        width = max(len(NAMES[line.method]) for line in self.lines) + 2
        rows = []
        for line in self.lines:
            start = f"{NAMES[line.method]:<{width}}{line.mean:7.1%}"
            spread = "" if line.std is None else f"+- {100 * line.std:.1f}"
            own = f"{line.estimate:7.1%} by {line.basis:<13}"
            rows.append(f"{start} {spread:>8}  {own}{line.seconds:8.1f} s")
        return "\n".join([*rows, self.how, self.verdict])


def _beyond_chance(line: Line) -> str:
    return "within chance" if line.level else f"beyond chance ({_p(line.p)})"


def _p(p: float | None) -> str:
    return f"p = {p:.2g}" if p is not None and p >= 1e-3 else "p < 0.001"


def compare(
    data: Any,
    methods: Sequence[str] = COMPARED,
    *,
    seeds: int = 3,
    seed: int = 0,
    learner: LearnerName = UNIVERSAL,
    device: Device = "auto",
    told: Told = unheard,
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
        told: Called with what is done, how many runs are, and of how many.
    """
    seeds, seed = at_least("seeds", seeds, 1), at_least("seed", seed, 0)
    methods = (methods,) if isinstance(methods, str) else methods
    for method in methods:
        one_of("method", method, tuple(NAMES))
    splits, how = splits_of(_checked(as_graph(data, split=False)), seeds, seed)
    found: dict[str, list[Run]] = {}
    failed: dict[str, str] = {}
    jobs = [(number, method) for number in range(len(splits)) for method in methods]
    for done, (number, method) in enumerate(jobs):
        told(f"{NAMES[method]}, run {number + 1}", done, len(jobs))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)  # the table says it
                for entry in run_methods(
                    splits[number], [method], seed=seed + number, device=device, learner=learner
                ):
                    found.setdefault(method, []).append(_run(entry, splits[number]))
        except InputError as error:
            failed[method] = str(error)
    told("done", len(jobs), len(jobs))
    whole = {name: runs for name, runs in found.items() if len(runs) == len(splits)}
    if not whole:
        raise InputError(f"a method must be able to run on the graph; got {failed}")
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


def _run(entry: Entry, data: Data) -> Run:
    nodes = data.test_mask.nonzero()[:, 0]
    right = (entry.scores.argmax(1) == data.y)[nodes].double()
    own = accuracy(entry.scores, data, judged_nodes(entry.method, data))
    return Run(nodes, right, own, entry.seconds)


def _lines(found: Mapping[str, list[Run]], size: int) -> list[Line]:
    """A line for each method, the highest first; ``size`` is the number of nodes."""
    scores = {name: [run.accuracy for run in runs] for name, runs in found.items()}
    order = sorted(found, key=lambda name: -statistics.mean(scores[name]))
    lines = []
    for name in order:
        each, runs = scores[name], found[name]
        std = statistics.stdev(each) if len(each) > 1 else None
        p = None if name == order[0] else chance(found[order[0]], runs, size)
        spent, own = (
            statistics.mean(v) for v in zip(*((r.seconds, r.estimate) for r in runs), strict=True)
        )
        lines.append(Line(name, statistics.mean(each), std, spent, p, own))
    return lines


def _checked(data: Data) -> Data:
    """A graph without features has a column that says nothing."""
    if data.x is None and data.num_nodes:
        data = data.clone()
        data.x = torch.ones(int(data.num_nodes), 1)
    return check_graph(data, need_validation=False)


def chance(best: Sequence[Run], other: Sequence[Run], size: int) -> float:
    """How likely so large a difference is by chance: of which nodes are tested, and of seeds.

    ``size`` is the number of nodes.
    """
    total, count = torch.zeros(size).double(), torch.zeros(size).double()
    apart = []
    for a, b in zip(best, other, strict=True):
        total[a.nodes] += a.right - b.right
        count[a.nodes] += 1
        apart.append(a.accuracy - b.accuracy)
    each = (total / count)[count > 0]
    variance = float(each.var()) / len(each) if len(each) > 1 else math.inf
    if len(apart) > 1:
        variance += statistics.variance(apart) / len(apart)
    mean = statistics.mean(apart)
    if variance == 0:
        return 1.0 if mean == 0 else 0.0
    return math.erfc(abs(mean) / math.sqrt(2 * variance))


def splits_of(data: Data, seeds: int, seed: int) -> tuple[list[Data], str]:
    """The graph under each split that it is tested on, and how that is, in words."""
    labelled = data.y >= 0
    if int(labelled.sum()) < FEWEST:
        raise InputError(
            f"a comparison needs at least {FEWEST} labelled nodes; got {int(labelled.sum())}"
        )
    if data.split.startswith("random"):
        drawn = [data.clone() for _ in range(seeds)]
        for number, one in enumerate(drawn):
            for name in MASKS:
                one.pop(name, None)
            with_random_split(one, seed + number, by_class=True)
        return drawn, f"{seeds} random splits, half of each class for training"
    train, val, test = masks = [data[name] for name in MASKS]
    if not bool(test.any()):
        made = []
        for fold in range(max(FOLDS, seeds)):
            held = fold_of(data.y, train | val, fold % FOLDS, FOLDS, seed + fold // FOLDS)
            rest = (train | val) & ~held
            judge = fold_of(data.y, rest, 0, 4, seed + fold)
            made.append(_masked(data, rest & ~judge, judge, held))
        return made, f"no test nodes: labelled ones are tested in turn, in {FOLDS} parts"
    if not bool(val.any()):
        made = []
        for number in range(seeds):
            judge = fold_of(data.y, train, 0, 4, seed + number)
            made.append(_masked(data, train & ~judge, judge, test))
        return made, "no validation nodes: a quarter of the training nodes is taken"
    return [_masked(data, *masks)] * seeds, f"its own split, {seeds} seeds"


def _masked(data: Data, *masks: Tensor) -> Data:
    out = data.clone()
    for name, mask in zip(MASKS, masks, strict=True):
        out[name] = mask
    return out
