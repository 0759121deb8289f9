"""The suite's methods on a graph of one's own, and which of them to use.

graphglow compare --target people.csv+relations.csv
"""

import math
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least, one_of
from graphglow.errors import InputError, InputWarning
from graphglow.experiments import Told, unheard
from graphglow.experiments.open_world.methods import NAMES, run_methods
from graphglow.graphs import as_graph, check_graph
from graphglow.graphs.split import MASKS, with_random_split
from graphglow.pretrained import UNIVERSAL, LearnerName
from graphglow.training.config import Device

COMPARED = tuple(name for name in NAMES if name != "paper")
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
    def verdict(self) -> str:
        """Which to use, and how sure that is."""
        best, *rest = self.lines
        said = f"{NAMES[best.method]}: {best.mean:.1%} of test nodes right"
        if not rest:
            return f"{said}; nothing else was run."
        level = [line for line in rest if line.level]
        if not level:
            apart = f"{100 * (best.mean - rest[0].mean):.1f} points"
            return f"Use {said}, {apart} above {NAMES[rest[0].method]}, the next ({_p(rest[0].p)})."
        names = ", ".join(NAMES[line.method] for line in level)
        which = names if len(level) < 5 else f"{len(level)} of {len(rest)} others"
        cheap = min((best, *level), key=lambda line: line.seconds)
        name = NAMES[best.method]
        use = f"Use {name}, or {NAMES[cheap.method]}, the fastest of them ({cheap.seconds:.1f} s)"
        use = f"Use {name}: it is the fastest of them, too" if cheap is best else use
        return f"Highest is {said}, but level with it, within chance: {which}. {use}."

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row per method: ``method``, ``name``, ``accuracy``, ``deviation``,
        ``seconds``, ``p`` and ``against_highest`` in words.
        """
        import pandas as pd

        columns = ["method", "accuracy", "deviation", "seconds", "p"]
        frame = pd.DataFrame(self.lines, columns=columns)
        frame.insert(1, "name", [NAMES[line.method] for line in self.lines])
        return frame.assign(against_highest=[line.against_highest for line in self.lines])

    def __repr__(self) -> str:
        width = max(len(NAMES[line.method]) for line in self.lines) + 2
        rows = []
        for line in self.lines:
            start = f"{NAMES[line.method]:<{width}}{line.mean:7.1%}"
            spread = "" if line.std is None else f"+- {100 * line.std:.1f}"
            rows.append(f"{start} {spread:>8}{line.seconds:8.1f} s")
        return "\n".join([*rows, self.how, self.verdict])


def _p(p: float | None) -> str:
    return f"p = {p:.2g}" if p is not None and p >= 1e-3 else "p < 0.001"


Runs = list[tuple[Tensor, Tensor]]
"""Of each split the nodes tested [n], and whether they are right [n]."""


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

    A graph with a split of its own keeps it, and seeds are those of weights; else each seed draws
    a split. Where there are no test nodes, labelled ones are tested in turn (cross-fitting); where
    there are no validation nodes, a quarter of the training nodes is taken.

    Args:
        data: The graph: a ``Data``, whose ``x`` may be None, or what :func:`load_graph` takes.
        methods: Names in ``graphglow.experiments.open_world.methods.NAMES``.
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
    right: dict[str, Runs] = {}
    seconds: dict[str, list[float]] = {}
    failed: dict[str, str] = {}
    jobs = [(number, method) for number in range(len(splits)) for method in methods]
    for done, (number, method) in enumerate(jobs):
        told(f"{NAMES[method]}, run {number + 1}", done, len(jobs))
        one = splits[number]
        nodes = one.test_mask.nonzero()[:, 0]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)  # the table says it
                entries = [*run_methods(one, [method], seed=seed + number, device=device,
                                        learner=learner)]  # fmt: skip
        except InputError as error:
            failed[method] = str(error)
            continue
        for entry in entries:
            found = (entry.scores.argmax(1) == one.y)[nodes].double()
            right.setdefault(entry.method, []).append((nodes, found))
            seconds.setdefault(entry.method, []).append(entry.seconds)
    whole = {name: runs for name, runs in right.items() if len(runs) == len(splits)}
    if not whole:
        raise InputError(f"a method must be able to run on the graph; got {failed}")
    scores = {name: [float(r.mean()) for _, r in runs] for name, runs in whole.items()}
    order = sorted(whole, key=lambda name: -statistics.mean(scores[name]))
    lines = []
    for name in order:
        each, spent = scores[name], statistics.mean(seconds[name])
        std = statistics.stdev(each) if len(each) > 1 else None
        p = None if name == order[0] else chance(whole[order[0]], whole[name], len(splits[0].y))
        lines.append(Line(name, statistics.mean(each), std, spent, p))
    return Comparison(lines, how, failed)


def _checked(data: Data) -> Data:
    """A graph without features has a column that says nothing."""
    if data.x is None and data.num_nodes:
        data = data.clone()
        data.x = torch.ones(int(data.num_nodes), 1)
    return check_graph(data, need_validation=False)


def chance(best: Runs, other: Runs, size: int) -> float:
    """How likely so large a difference is by chance: of which nodes are tested, and of seeds.

    ``size`` is the number of nodes.
    """
    total, count = torch.zeros(size).double(), torch.zeros(size).double()
    apart = []
    for (nodes, a), (_, b) in zip(best, other, strict=True):
        total[nodes] += a - b
        count[nodes] += 1
        apart.append(float((a - b).mean()))
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
            held = _fold(data.y, train | val, fold % FOLDS, FOLDS, seed + fold // FOLDS)
            rest = (train | val) & ~held
            judge = _fold(data.y, rest, 0, 4, seed + fold)
            made.append(_masked(data, rest & ~judge, judge, held))
        return made, f"no test nodes: labelled ones are tested in turn, in {FOLDS} parts"
    if not bool(val.any()):
        made = []
        for number in range(seeds):
            judge = _fold(data.y, train, 0, 4, seed + number)
            made.append(_masked(data, train & ~judge, judge, test))
        return made, "no validation nodes: a quarter of the training nodes is taken"
    return [_masked(data, *masks)] * seeds, f"its own split, {seeds} seeds"


def _fold(y: Tensor, among: Tensor, fold: int, folds: int, seed: int) -> Tensor:
    """One of several parts of the nodes in a mask, alike in classes: [N]."""
    nodes = among.nonzero()[:, 0]
    order = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))]
    order = order[y[order].argsort(stable=True)]
    part = torch.zeros_like(among)
    part[order[fold::folds]] = True
    return part


def _masked(data: Data, *masks: Tensor) -> Data:
    out = data.clone()
    for name, mask in zip(MASKS, masks, strict=True):
        out[name] = mask
    return out
