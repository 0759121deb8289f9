"""Trials of settings, drawn and stored by Optuna.

A trial is settled if it has a score, or failed with a sentence of its own. What was interrupted,
or killed, or turned out to be one too many, is void: it counts for nothing.
"""

import itertools
import json
import math
import os
import random
import socket
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from graphglow.baselines.method import Space
from graphglow.errors import InputError
from graphglow.experiments.trial_storage import alive, begun, void_stale

REDRAWS = 50
"""Draws by TPE, and then at random, that are given up because others have tried them."""

Values = dict[str, Any]
Outcome = list[float] | InputError
"""The scores of a trial's runs, or why there are none."""
Evaluate = Callable[[list[Values]], Sequence[Outcome]]
"""Settings of some trials, by name and as the space has them, to what came of each."""


class Settled(NamedTuple):
    """A trial that counts: with scores, or with the sentence that says why it has none."""

    number: int
    values: Values
    scores: list[float]
    failure: str | None
    seconds: float

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)


class Trials:
    """The trials of one study, in a storage that other processes may share.

    Every trial has settings of its own: the whole space if it is no larger than the budget, else
    draws by TPE. Each is a function of the seed, its place and what is settled, so that a search
    that was interrupted goes on as if it had not been.

    Args:
        storage: As :func:`~graphglow.experiments.trial_storage.opened` gives it.
        name: Of the study; the same name goes on with the same trials.
        space: Values by setting.
        budget: Trials in all.
        seed: Of the draws.
    """

    def __init__(
        self, storage: BaseStorage, name: str, space: Space, *, budget: int, seed: int
    ) -> None:
        self.choices = {n: {encoded(v): v for v in values} for n, values in sorted(space.items())}
        self.storage = storage
        size = math.prod(map(len, self.choices.values()))
        self.every = size <= budget
        self.budget = min(size, budget)
        self.study = optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            sampler=_Draw({n: list(c) for n, c in self.choices.items()}, seed, every=self.every),
            load_if_exists=True,
        )

    def run(
        self,
        evaluate: Evaluate,
        on_trial: Callable[[list[Settled]], None],
        *,
        at_once: int = 1,
    ) -> None:
        """Try settings until the budget is used up, by all workers together.

        Args:
            evaluate: An :class:`InputError` among what it returns fails that trial; what it raises
                ends the search, and voids the trials that it was given.
            on_trial: Called before each round and at the end, with all that are settled.
            at_once: Trials in one round; they are drawn without knowing each other's scores.
        """
        while True:
            self._bury()
            on_trial(self.settled())
            left = self.budget - len(_taken(self.study))
            if left <= 0:
                return
            drawn = [self._drawn() for _ in range(min(left, at_once))]
            ours = [one for one in drawn if one is not None]
            if not ours:
                continue
            try:
                with alive(self.storage, [trial for trial, _ in ours]):
                    outcomes = evaluate([values for _, values in ours])
                for (trial, _), outcome in zip(ours, outcomes, strict=True):
                    self._tell(trial, outcome)
            except BaseException:
                for trial, _ in ours:
                    self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
                raise

    def settled(self) -> list[Settled]:
        """The trials that count, in order, as many as the budget has; of two alike, the first."""
        found: dict[str, Settled] = {}
        for trial in self.study.get_trials(deepcopy=False):
            if _is_settled(trial):
                began, ended = trial.datetime_start, trial.datetime_complete
                assert began is not None
                assert ended is not None
                one = Settled(
                    trial.number,
                    {name: self.choices[name][value] for name, value in trial.params.items()},
                    trial.user_attrs.get("scores", []),
                    trial.user_attrs.get("failure"),
                    (ended - began).total_seconds(),
                )
                found.setdefault(_key(trial.params), one)
        return list(found.values())[: self.budget]

    def _drawn(self) -> tuple[optuna.Trial, Values] | None:
        """A new trial and its settings; None if another worker was faster, with the last one of
        the budget or with the same settings.
        """
        trial = begun(self.storage, self.study, {"worker": _worker(os.getpid())})
        drawn = {n: trial.suggest_categorical(n, list(c)) for n, c in self.choices.items()}
        ahead = _taken(self.study, before=trial.number)
        if len(ahead) >= self.budget or _key(drawn) in ahead:
            self.study.tell(trial, state=TrialState.FAIL)
            return None
        return trial, {name: self.choices[name][value] for name, value in drawn.items()}

    def _tell(self, trial: optuna.Trial, outcome: Outcome) -> None:
        if isinstance(outcome, InputError):
            trial.set_user_attr("failure", str(outcome))
            self.study.tell(trial, state=TrialState.FAIL)
        else:
            trial.set_user_attr("scores", outcome)
            self.study.tell(trial, statistics.fmean(outcome))

    def _bury(self) -> None:
        """Void the trials of processes that are no more, at once on this machine."""
        void_stale(self.storage, self.study)
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if _is_gone(trial.user_attrs.get("worker", "")):
                with suppress(UpdateFinishedTrialError):  # another worker was faster
                    self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


class _Draw(BaseSampler):
    """New settings for each trial.

    Optuna's GridSampler is not used: it takes what was interrupted for done. TPE is, but draws
    categories it has drawn before, and with one seed the same in every worker.
    """

    def __init__(self, choices: dict[str, list[Any]], seed: int, *, every: bool) -> None:
        self.choices, self.seed, self.every = choices, seed, every

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        space = {name: CategoricalDistribution(c) for name, c in self.choices.items()}
        return {name: choice for name, choice in space.items() if not choice.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Values:
        taken = _taken(study)
        generator = random.Random(f"{self.seed} {_place(study, trial)}")
        if self.every:
            values = self._of_grid(generator, taken)
            return {name: values[name] for name in search_space}
        for redraw in range(2 * REDRAWS):
            values = self._uniform(generator)
            if redraw < REDRAWS:  # TPE gives nothing in the first trials
                seed = generator.getrandbits(32)
                tpe = TPESampler(seed=seed, multivariate=True, constant_liar=True)
                values |= tpe.sample_relative(study, trial, search_space)
            if _key(values) not in taken:
                break
        return {name: values[name] for name in search_space}

    def sample_independent(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("every setting with a choice is drawn relatively")

    def _uniform(self, generator: random.Random) -> Values:
        return {name: generator.choice(choices) for name, choices in self.choices.items()}

    def _of_grid(self, generator: random.Random, taken: set[str]) -> Values:
        product = itertools.product(*self.choices.values())
        grid = [dict(zip(self.choices, values, strict=True)) for values in product]
        return generator.choice([v for v in grid if _key(v) not in taken] or grid)


def _key(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def _is_settled(trial: FrozenTrial) -> bool:
    failed = trial.state == TrialState.FAIL and "failure" in trial.user_attrs
    return trial.state == TrialState.COMPLETE or failed


def _taken(study: optuna.Study, before: int | None = None) -> set[str]:
    """Settings that are settled, or being tried (by a trial with a number below ``before``)."""
    return {
        _key(trial.params or {"": trial.number})  # of one that has just begun, not yet known
        for trial in study.get_trials(deepcopy=False)
        if _is_settled(trial)
        or (trial.state == TrialState.RUNNING and (before is None or trial.number < before))
    }


def _place(study: optuna.Study, trial: FrozenTrial) -> int:
    """The trial's number, void ones not counted."""
    return sum(
        _is_settled(other) or not other.state.is_finished()
        for other in study.get_trials(deepcopy=False)
        if other.number < trial.number
    )


def plain(value: Any) -> Any:
    """A value of a space as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value


def encoded(value: Any) -> Any:
    """A value of a space as Optuna can store it: a scalar, or text that is the same every time."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(plain(value), sort_keys=True)


def _worker(pid: int) -> str:
    """A process: its machine (and container, which has numbers of its own), and its number."""
    space = ""
    with suppress(OSError):
        space = str(Path("/proc/self/ns/pid").readlink())
    return f"{socket.gethostname()} {space} {pid}"


def _is_gone(worker: str) -> bool:
    """Whether this process ran on this machine, and does no more."""
    pid = worker.rpartition(" ")[2]
    if not pid.isdecimal() or worker != _worker(int(pid)):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
