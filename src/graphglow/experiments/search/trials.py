"""Trials of settings, drawn and stored by Optuna.

A trial is settled if it has a score, or failed with a sentence of its own. What was interrupted or
killed counts for nothing, and neither does what other processes have in hand: the first trials that
are settled, as many as the budget has, are the study.
"""

import itertools
import json
import math
import random
import re
import sqlite3
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from graphglow.baselines.method import Space
from graphglow.errors import InputError
from graphglow.experiments.runs.executor import RunFailed, Workers, result_of
from graphglow.experiments.search.settings import locked
from graphglow.experiments.search.space import encoded

try:
    import optuna
    import sqlalchemy
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.exceptions import StorageInternalError
    from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
    from optuna.trial import FrozenTrial, Trial, TrialState
except ModuleNotFoundError as error:
    raise InputError(
        'graphglow search needs Optuna; got a Python without it (pip install "graphglow[search]")'
    ) from error

REDRAWS = 50
"""Draws by TPE that are given up because they have been tried, before one is made at random."""
SQLITE_PATIENCE = 120
"""Seconds to wait for other processes that write to the same file."""
Values = dict[str, Any]
Outcome = list[float] | InputError
"""The scores of a trial's runs, or why there are none."""


class Trials:
    """The trials of one study, in a storage that other processes may share.

    Every trial has settings of its own: the whole space if it is no larger than the budget, else
    draws by TPE. Each draw is a function of the seed and of what is settled, so that a search that
    was interrupted goes on as if it had not been. (Optuna's GridSampler takes what was interrupted
    for done, and TPE draws categories again that it has drawn before.)

    Args:
        storage: As :func:`opened` gives it.
        name: Of the study; the same name goes on with the same trials.
        space: Values by setting.
        budget: Trials in all.
        seed: Of the draws.
    """

    def __init__(
        self, storage: BaseStorage, name: str, space: Space, *, budget: int, seed: int
    ) -> None:
        self.choices = {n: list(map(encoded, values)) for n, values in sorted(space.items())}
        size = math.prod(map(len, self.choices.values()))
        self.every, self.budget, self.seed = size <= budget, min(size, budget), seed
        self.study = optuna.create_study(
            storage=storage, study_name=name, direction="maximize", load_if_exists=True
        )

    def run(
        self,
        evaluate: Callable[[list[Values]], Sequence[Outcome]],
        on_trials: Callable[[list[FrozenTrial]], None],
        executor: Workers,
        *,
        at_once: int = 1,
    ) -> None:
        """Try settings until the budget is used up.

        Args:
            evaluate: Stored values of some trials to what came of each. What it raises ends the
                search, and voids the trials in hand.
            on_trials: Called at the beginning and as trials end, with all that are settled.
            executor: Calls ``evaluate``. The trials of a process that dies are void, and others
                take their place.
            at_once: Trials in one call; they are drawn without knowing each other's scores.
        """
        on_trials(self.settled())
        in_hand: list[Trial] = []
        lost = 0
        running: dict[Future[Sequence[Outcome]], list[Trial]] = {}
        try:
            while True:
                left = self.budget - len(self.settled()) - len(in_hand)
                while left > 0 and len(running) < executor.processes:
                    drawn = [self._drawn(in_hand) for _ in range(min(left, at_once))]
                    left -= len(drawn)
                    values = [trial.params for trial in drawn]
                    running[executor.submit(evaluate, values)] = drawn
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    try:
                        outcomes: list[Outcome | None] = [*result_of(future)]
                        lost = 0
                    except RunFailed as error:
                        outcomes = [None] * len(running[future])
                        lost += 1
                        if lost > 2 * executor.processes:
                            raise InputError(
                                "workers of a search must live through a trial; got none that did "
                                f"({error}); the trials that have ended are kept"
                            ) from error
                    for trial, outcome in zip(running.pop(future), outcomes, strict=True):
                        self._tell(trial, outcome)
                        in_hand.remove(trial)
                    on_trials(self.settled())
        finally:
            for trial in in_hand:
                self._tell(trial, None)

    def settled(self) -> list[FrozenTrial]:
        """The trials that count, in order, as many as the budget has; of two alike, the first."""
        found: dict[str, FrozenTrial] = {}
        for trial in filter(_counts, self.study.get_trials(deepcopy=False)):
            found.setdefault(_key(trial.params), trial)
        return list(found.values())[: self.budget]

    def _drawn(self, in_hand: list[Trial]) -> Trial:
        """Put a new trial to those in hand, with settings that nobody tries or has tried."""
        space: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in self.choices.items()
        }
        draw = random.Random(f"{self.seed} {len(self.settled()) + len(in_hand)}")
        for redraw in itertools.count():
            known = self.study.get_trials(deepcopy=False)
            done = {_key(trial.params) for trial in (*filter(_counts, known), *in_hand)}
            taken = done | {_key(t.params) for t in known if t.state == TrialState.RUNNING}
            at_random = self.every or redraw >= REDRAWS
            if at_random:
                self.study.enqueue_trial(self._untried(draw, taken, done))
            self.study.sampler = optuna.samplers.TPESampler(
                seed=draw.getrandbits(32), multivariate=True, constant_liar=True
            )
            in_hand.append(self.study.ask(space))
            key = _key(in_hand[-1].params)
            meanwhile = self.study.get_trials(deepcopy=False)[len(known) : in_hand[-1].number]
            if (at_random or key not in taken) and key not in {_key(t.params) for t in meanwhile}:
                break
            self._tell(in_hand.pop(), None)
        return in_hand[-1]

    def _untried(self, draw: random.Random, taken: set[str], done: set[str]) -> Values:
        """Settings that are not taken; where few are left, some that another process has in hand:
        it may have been killed.
        """
        for attempt in itertools.count():
            values = {name: draw.choice(among) for name, among in self.choices.items()}
            if _key(values) not in (taken if attempt < 1000 else done):
                break
        return values

    def _tell(self, trial: Trial, outcome: Outcome | None) -> None:
        """Settle a trial, or with None, void it."""
        if isinstance(outcome, list):
            trial.set_user_attr("scores", outcome)
            self.study.tell(trial, statistics.fmean(outcome))
            return
        if outcome is not None:
            trial.set_user_attr("failure", str(outcome))
        self.study.tell(trial, state=TrialState.FAIL)


def _counts(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.COMPLETE or "failure" in trial.user_attrs


def _key(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


@contextmanager
def opened(storage: str | Path | None) -> Iterator[BaseStorage]:
    """Open a file or an Optuna URL, with Optuna silent meanwhile; None keeps trials in memory."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if storage is None:
                yield InMemoryStorage()
                return
            database = _database(storage)
            try:
                yield database
            except (StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
                raise _unusable(storage, error) from error
            finally:
                database.remove_session()
                database.engine.dispose()
    finally:
        optuna.logging.set_verbosity(before)


def _database(storage: str | Path) -> RDBStorage:
    try:
        if "://" in str(storage):
            return RDBStorage(str(storage))
        path = Path(storage).expanduser().absolute()
        if path.exists() and not path.is_file():
            raise InputError(f"the storage must be a file or an Optuna URL; got {path}")
        url = sqlalchemy.URL.create("sqlite", database=str(path)).render_as_string()
        with locked(path):  # or two processes make the same tables
            with closing(sqlite3.connect(path, timeout=SQLITE_PATIENCE)) as connection:
                if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                    raise sqlite3.DatabaseError("it is damaged")
            return RDBStorage(
                url.replace("{", "{{").replace("}", "}}"),  # Optuna fills in what is in braces
                engine_kwargs={"connect_args": {"timeout": SQLITE_PATIENCE}},
            )
    except InputError:
        raise
    except Exception as error:  # whatever a driver, SQLAlchemy, Optuna or alembic says
        raise _unusable(storage, error) from error


def _unusable(storage: str | Path, error: BaseException) -> InputError:
    while error.__cause__ is not None:  # the database's own words
        error = error.__cause__
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return InputError(
        "the storage must be a file or a database that Optuna can open; "
        f"got {without_password(str(storage))} ({reason})"
    )


def without_password(storage: str) -> str:
    """The storage as it may be shown."""
    return re.sub(r"(://[^/:@]*):.*@", r"\1:***@", storage)
