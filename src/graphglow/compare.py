"""Methods side by side on a graph of one's own, and which of them to use.

graphglow compare --target people.csv+relations.csv
"""

import math
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError, InputWarning, at_least, one_of
from graphglow.graph import as_graph, check_graph
from graphglow.graph.check import MASKS, with_random_split
from graphglow.lab import Progress, no_progress
from graphglow.lab.open_methods import (
    BAGS,
    LOGISTIC,
    METHOD_TITLES,
    NEED_FEATURES,
    POOL,
    Entry,
    lacks_features,
    part_of,
    run_method,
)
from graphglow.pretrained import UNIVERSAL, LearnerName
from graphglow.scores import Scores, scores_of
from graphglow.settings import Device

DEFAULT_METHODS = tuple(name for name in METHOD_TITLES if name not in ("paper", LOGISTIC, *BAGS))
"""The paper's learner takes as long as all others together."""
SIGNIFICANCE_LEVEL = 0.05
LEAST_LABELLED = 6
"""Labelled nodes without which nothing can be said."""
RANKED = ("auroc", "average_precision")
TEST_PARTS = 3
"""In which labelled nodes are tested in turn where there are no test nodes."""


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
    auroc: float | None = None
    average_precision: float | None = None
    """Of two classes, for the one with fewer labels."""

    @property
    def name(self) -> str:
        """The method as people call it."""
        return METHOD_TITLES[self.method]

    @property
    def basis(self) -> str:
        """What the estimate comes from."""
        if self.method in (LOGISTIC, *BAGS):
            return "out of fold"
        return "leave-one-out" if self.method in POOL else "validation"

    @property
    def against_highest(self) -> str:
        """The test against the highest, in words; level where chance explains the distance."""
        if self.p is None:
            return "highest"
        if self.p >= SIGNIFICANCE_LEVEL:
            return "level"
        return f"lower, p = {self.p:.2g}" if self.p >= 1e-3 else "lower, p < 0.001"


@dataclass(frozen=True)
class Comparison:
    """How methods do on a graph, the highest first."""

    lines: list[Line]
    how: str
    """What was tested on, in words."""
    failed: dict[str, str]
    """Methods that could not run, and why."""
    majority: dict[str, float | None] | None = None
    """Measures of a constant answer; None where accuracy alone says enough."""

    @property
    def recommended(self) -> Line:
        """The method with the highest estimate of its own; of several, the fastest."""
        return max(self.lines, key=lambda line: (round(line.estimate, 6), -line.seconds))

    @property
    def verdict(self) -> str:
        """Which to use, by what, and what the test nodes say of it."""
        chosen, best = self.recommended, self.lines[0]
        by = f"{chosen.estimate:.1%} by {chosen.basis}"
        right = f"{by}; {chosen.accuracy:.1%} of test nodes right"
        if len(self.lines) == 1:
            return f"{chosen.name}: {right}. Nothing else was run."
        use = f"Use {chosen.name}: its own estimate is the highest, {right}"
        if chosen is not best:
            apart = 100 * (best.accuracy - chosen.accuracy)
            below = f"{apart:.1f} points below {best.name} ({chosen.against_highest})"
            return f"{use}, {below}."
        level = [o.name for o in self.lines if o.against_highest == "level"]
        names = ", ".join(level) if len(level) < 5 else f"{len(level)} others"
        return f"{use}, {f'level with {names}' if level else 'the highest'}."

    def records(self) -> list[dict[str, Any]]:
        """Return a row per method: its line, its name, and words."""
        return [
            {"method": line.method, "name": line.name}
            | line._asdict()
            | {"basis": line.basis, "against_highest": line.against_highest}
            for line in self.lines
        ]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row per method."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def table(self) -> str:
        """Return the frame as text, less what most do not ask for, and what was tested on."""
        columns, frame = ["name", "accuracy"], self.to_frame()
        if self.majority is not None:
            columns += [name for name in RANKED if self.majority[name] is not None]
            frame.loc[len(frame)] = {"name": "always the majority"} | self.majority
        shown = frame[[*columns, "estimate", "seconds", "against_highest"]]
        table: str = shown.to_string(index=False, float_format="{:.3f}".format, na_rep="")
        return f"{table}\n{self.how}"

    def __repr__(self) -> str:
        return f"{self.table()}\n{self.verdict}"


def compare(
    data: Any,
    methods: Sequence[str] = DEFAULT_METHODS,
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
    all of them, and choose nothing. A graph with a split of its own keeps it, and seeds are those
    of weights; else each seed draws a split.

    Args:
        data: The graph: a ``Data``, whose ``x`` may be None, or what :func:`load_graph` takes.
        methods: Names in ``graphglow.lab.open_methods.METHOD_TITLES``.
        seeds: Runs of each method.
        seed: The first of the seeds.
        learner: The evidence learner.
        device: Where to compute.
        progress: Called with the method that runs next, runs that have ended, and all runs.
    """
    seeds, seed = at_least("seeds", seeds, 1), at_least("seed", seed, 0)
    methods = (methods,) if isinstance(methods, str) else methods
    for method in methods:
        one_of("method", method, tuple(METHOD_TITLES))
    graph = check_graph(as_graph(data, split=False), need_validation=False)
    splits, how = splits_of(graph, seeds, seed)
    if lacks_features(graph):
        methods = [method for method in methods if method not in NEED_FEATURES]
    where: dict[str, Any] = {"learner": learner, "device": device, "progress": progress}
    return side_by_side(splits, how, methods, seed=seed, **where)


def side_by_side(
    splits: Sequence[Data],
    how: str,
    methods: Sequence[str],
    *,
    seed: int,
    learner: LearnerName = UNIVERSAL,
    device: Device = "auto",
    progress: Progress = no_progress,
) -> Comparison:
    """Run methods on graphs with the same nodes, each with a seed of its own from ``seed`` on."""
    right = {method: torch.full((len(splits), len(splits[0].y)), math.nan) for method in methods}
    entries: dict[str, list[Entry]] = {method: [] for method in methods}
    quality: dict[str, list[Scores]] = {method: [] for method in methods}
    failed: dict[str, str] = {}
    jobs = list(product(enumerate(splits), methods))
    for done, ((number, split), method) in enumerate(jobs):
        progress(METHOD_TITLES[method], done, len(jobs))
        given: Any = {"seed": seed + number, "device": device, "learner": learner}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)  # the table says it
                entry = run_method(method, split, **given)
        except InputError as error:
            failed[method] = str(error)
            continue
        correct, tested = entry.scores.argmax(1) == split.y, split.test_mask & (split.y >= 0)
        right[method][number, tested] = correct[tested].float()
        entries[method].append(entry)
        chances = entry.scores if method in POOL else entry.scores.softmax(1)
        quality[method].append(scores_of(split.y[tested], chances[tested]))
    progress("done", len(jobs), len(jobs))
    means = {m: float(right[m].double().nanmean(1).mean()) for m in methods if m not in failed}
    if not means:
        raise InputError(f"No method could run on this graph: {failed}")
    lines: list[Line] = []
    for method in sorted(means, key=lambda method: -means[method]):
        p = p_value(right[lines[0].method], right[method]) if lines else None
        deviation = float(right[method].double().nanmean(1).std()) if len(splits) > 1 else None
        seconds = statistics.mean(entry.seconds for entry in entries[method])
        estimate = statistics.mean(entry.estimate for entry in entries[method])
        ranked = [_mean(quality[method], name) for name in RANKED]
        lines.append(Line(method, means[method], deviation, seconds, p, estimate, *ranked))
    measured = quality[lines[0].method]
    if not any(one.skewed for one in measured):
        return Comparison(lines, how, failed)
    most = statistics.mean(one.majority for one in measured)
    rarer = None if lines[0].average_precision is None else 1 - most
    constant = {"accuracy": most, "auroc": 0.5, "average_precision": rarer}
    return Comparison(lines, how, failed, constant)


def _mean(quality: list[Scores], name: str) -> float | None:
    values = [value for one in quality if (value := getattr(one, name)) is not None]
    return statistics.mean(values) if values else None


def p_value(best: Tensor, other: Tensor) -> float:
    """Return how likely so large a difference is by chance: of test nodes, and of seeds.

    Shapes:
        best, other [S, N]: whether each node is right under each split; NaN where it is not tested
    """
    apart = best.double() - other.double()
    leads, each = apart.nanmean(1), apart.nanmean(0)  # by split, by node
    each = each[~each.isnan()]
    variance = float(each.var()) / len(each) if len(each) > 1 else math.inf
    variance += float(leads.var()) / len(leads) if len(leads) > 1 else 0
    mean = float(leads.mean())
    if variance == 0:
        return 1.0 if mean == 0 else 0.0
    return math.erfc(abs(mean) / math.sqrt(2 * variance))


def splits_of(data: Data, seeds: int, seed: int) -> tuple[list[Data], str]:
    """Return the graph under each split that it is tested on, and how that is, in words."""
    labelled = int((data.y >= 0).sum())
    if labelled < LEAST_LABELLED:
        raise InputError(
            f"{labelled} labelled nodes are too few to compare: {LEAST_LABELLED} are needed."
        )
    numbers = range(seed, seed + seeds)
    if data.split.startswith("random"):
        bare = data.clone()
        for name in MASKS:
            bare.pop(name, None)
        drawn = [with_random_split(bare.clone(), number, by_class=True) for number in numbers]
        return drawn, f"{seeds} random splits, half of each class for training"
    train, val, test = (data[name] for name in MASKS)
    if not bool(test.any()):
        made = []
        for number in range(max(TEST_PARTS, seeds)):
            turn, part = divmod(number, TEST_PARTS)
            held = part_of(data.y, train | val, part, TEST_PARTS, seed + turn)
            made.append(_quartered(data, (train | val) & ~held, held, seed + number))
        return made, f"no test nodes: labelled ones are tested in turn, in {TEST_PARTS} parts"
    if not bool(val.any()):
        made = [_quartered(data, train, test, number) for number in numbers]
        return made, "no validation nodes: a quarter of the training nodes is taken"
    return [data] * seeds, f"its own split, {seeds} seeds"


def _quartered(data: Data, train: Tensor, test: Tensor, seed: int) -> Data:
    """Return the graph with these test nodes, and a quarter of the training nodes to validate."""
    out, val = data.clone(), part_of(data.y, train, 0, 4, seed)
    out.train_mask, out.val_mask, out.test_mask = train & ~val, val, test
    return out
