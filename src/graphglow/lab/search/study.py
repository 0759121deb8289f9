"""Search the settings of a method on validation accuracy; trials are drawn and stored by Optuna.

A rerun goes on where the last one ended, up to ``--trials`` in all, and several processes may run
the same command with the same ``--storage``. A study is its method, space, graphs, seeds and
schedule: if one of them changes, another begins; where a method's code changes, begin with a new
storage. A trial is settled if it has a score, or failed with a sentence of its own. What was
interrupted or killed counts for nothing, and neither does what other processes have in hand: the
first trials that are settled, as many as the budget has, are the study.
"""

import json
import math
import random
import re
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from graphglow.competitors.method import Space
from graphglow.errors import InputError
from graphglow.lab import Told, unheard
from graphglow.lab.provenance import provenance
from graphglow.lab.search import space as spaces
from graphglow.lab.search.settings import locked, read_settings, write_settings
from graphglow.lab.search.space import Candidate, Scores, SearchConfig, blinded
from graphglow.paper import StructureLearner
from graphglow.storage import append_line
from graphglow.training.checkpoint import learner_identity
from graphglow.workers.executor import RunFailed, Workers, open_executor, result_of

try:
    import optuna
    import sqlalchemy
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.storages import BaseStorage, RDBStorage
    from optuna.trial import FrozenTrial, Trial, TrialState
except ModuleNotFoundError as error:
    raise InputError(
        'graphglow search needs Optuna; got a Python without it (pip install "graphglow[search]")'
    ) from error

REDRAWS = 50
"""Draws by TPE that are given up because they have been tried, before one is made at random."""
SQLITE_PATIENCE = 120
"""Seconds to wait for other processes that write to the same file."""


def search(
    method: str,
    data: Data,
    config: SearchConfig | None = None,
    *,
    storage: str | Path | None = None,
    learners: Path | None = None,
    settings: Path | None = None,
    sources: Sequence[Data] = (),
    learner: StructureLearner | None = None,
    split: str | None = None,
    told: Told = unheard,
    executor: Workers | None = None,
) -> dict[str, Any]:
    """Find the settings of ``method`` with the best mean validation accuracy on ``data``.

    Test nodes and their labels are taken out of the graph before anything else. A trial that does
    not fit in memory, or whose loss is not finite, counts as failed. Of equally good trials the
    first wins.

    Args:
        method: One of ``METHODS``, or graphglow.
        data: The target.
        config: Budget and schedule.
        storage: Where trials are kept: a file, or an Optuna URL; None keeps them in memory.
        learners: A folder for pre-trained learners; None keeps none.
        settings: The settings file, which gets the best ones; a row goes to search.jsonl beside it.
        sources: For graphglow, to pre-train on.
        learner: For graphglow, instead of sources.
        split: What the split of the target is called, for the row.
        told: Told what is searched and the best score so far, trials settled, and of how many.
        executor: What makes the trials, instead of this process, which alone has the storage.

    Returns:
        The row: ``settings`` and ``val_accuracy`` of the best trial, None if all failed, and the
        facts of the study.
    """
    spaces.check_methods([method], sources, learner)
    config = config or SearchConfig()
    executor = executor or open_executor(1, device=config.device)
    config = replace(config, device=executor.device)
    target, others = blinded(data), [blinded(source) for source in sources]
    del data, sources  # nothing below can read a test label
    with nullcontext(learners) if learners else tempfile.TemporaryDirectory() as folder:
        candidate = Candidate(
            method=method,
            target=target,
            config=config,
            learner=learner,
            sources=others,
            folder=Path(folder).absolute(),
        )
        known = open_storage(storage)
        trials = Trials(known, candidate.study, candidate.space, config.trials, config.seed)
        for settled in trials.run(candidate.scores, executor, at_once=config.trials_at_once):
            scores = [trial.value for trial in settled if trial.value is not None]
            high = f"{max(scores):.1%}" if scores else "-"
            told(f"{method} on {target.name}, best {high}", len(settled), trials.budget)
    origin, called = {"sources": [graph.name for graph in others]}, None
    if learner is not None:
        origin = learner.provenance
        called = str(origin.get("name") or learner_identity(learner)[:12])
    settled = trials.settled()  # others' trials among them
    failures = [trial.user_attrs["failure"] for trial in settled if trial.value is None]
    scored = [trial for trial in settled if trial.value is not None]
    best = max(scored, key=lambda trial: trial.value or 0, default=None)
    row = {
        "experiment": "search",
        "method": method,
        "target": target.name,
        "split": split,
        "sources": list(map(str, origin.get("sources", ()))) or None,
        "learner": called,
        "study": candidate.study,
        "seeds_per_trial": config.seeds_per_trial,
        "epochs": config.epochs,
        "patience": config.patience,
        "seed": config.seed,
        "device": config.device,
        "sampler": "grid" if trials.every else "tpe",
        "budget": trials.budget,
        "trials": len(settled),
        "failed": len(failures),
        "failure": max(failures, key=failures.count, default=None),
        "best_trial": best and best.number,
        "val_accuracy": best and best.value,
        "val_accuracies": best and best.user_attrs["scores"],
        "settings": best and spaces.nested(best.params),
        "trial_seconds": sum(t.duration.total_seconds() for t in settled if t.duration),
        "optuna": version("optuna"),
        "provenance": provenance(),
    }
    row["provenance"]["command"] = without_password(row["provenance"]["command"])
    if settings is not None:
        with locked(settings):
            if best:
                about = (method, target.name, row["settings"], row["sources"] or ())
                write_settings(settings, read_settings(settings).having(*about, learner=called))
            append_line(settings.with_name("search.jsonl"), json.dumps(row))
    return row


class Trials:
    """The trials of one study, in a storage that other processes may share.

    Every trial has settings of its own: the whole space if it is no larger than the budget, else
    draws by TPE. Each draw is a function of the seed and of what is settled, so that a search that
    was interrupted goes on as if it had not been. (Optuna's GridSampler takes what was interrupted
    for done, and TPE draws categories again that it has drawn before.)
    """

    def __init__(
        self, storage: BaseStorage, name: str, space: Space, budget: int, seed: int
    ) -> None:
        self.choices = {n: list(map(spaces.encoded, values)) for n, values in sorted(space.items())}
        size = math.prod(map(len, self.choices.values()))
        self.every, self.budget, self.seed = size <= budget, min(size, budget), seed
        self.study = optuna.create_study(
            storage=storage, study_name=name, direction="maximize", load_if_exists=True
        )

    def run(
        self,
        evaluate: Callable[[Sequence[Mapping[str, Any]]], list[Scores]],
        executor: Workers,
        *,
        at_once: int = 1,
    ) -> Iterator[list[FrozenTrial]]:
        """Try settings until the budget is used up; yield what is settled, at first and as it is.

        ``evaluate`` makes of stored values of some trials, ``at_once`` in one call, what came of
        each. What it raises ends the search, and voids the trials in hand; the trials of a process
        that dies are void too, and others take their place.
        """
        running: dict[Future[list[Scores]], list[Trial]] = {}
        in_hand: list[Trial] = []
        lost = 0
        try:
            while True:
                yield self.settled()
                left = self.budget - len(self.settled()) - len(in_hand)
                while left > 0 and len(running) < executor.processes:
                    drawn = [self._drawn(in_hand) for _ in range(min(left, at_once))]
                    left -= len(drawn)
                    running[executor.submit(evaluate, [trial.params for trial in drawn])] = drawn
                if not running:
                    return
                future = next(iter(wait(running, return_when=FIRST_COMPLETED).done))
                outcomes: list[Scores | None] = [None] * len(running[future])
                try:
                    outcomes, lost = [*result_of(future)], 0
                except RunFailed as error:
                    lost += 1
                    if lost > 2 * executor.processes:
                        raise InputError(
                            "workers of a search must live through a trial; got none that did "
                            f"({error}); the trials that have ended are kept"
                        ) from error
                for trial, outcome in zip(running.pop(future), outcomes, strict=True):
                    in_hand.remove(trial)
                    self._tell(trial, outcome)
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
        """Put a new trial to those in hand, with settings that nobody tries or has tried.

        Where few are left, they may be some that another process has in hand: it may be dead.
        """
        draw = random.Random(f"{self.seed} {len(self.settled()) + len(in_hand)}")
        known = self.study.get_trials(deepcopy=False)
        done = {_key(trial.params) for trial in (*filter(_counts, known), *in_hand)}
        taken = done | {_key(t.params) for t in known if t.state == TrialState.RUNNING}
        space: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in self.choices.items()
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self.study.sampler = optuna.samplers.TPESampler(
                seed=draw.getrandbits(32), multivariate=True, constant_liar=True
            )
        for _ in range(0 if self.every else REDRAWS):
            in_hand.append(self.study.ask(space))
            if _key(in_hand[-1].params) not in taken:
                return in_hand[-1]
            self._tell(in_hand.pop(), None)
        for attempt in count(1):
            values = {name: draw.choice(among) for name, among in self.choices.items()}
            if _key(values) not in (taken if attempt < 1000 else done):
                break
        self.study.enqueue_trial(values)
        in_hand.append(self.study.ask(space))
        return in_hand[-1]

    def _tell(self, trial: Trial, outcome: Scores | None) -> None:
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


def open_storage(storage: str | Path | None) -> BaseStorage:
    """Open a file or an Optuna URL; None keeps trials in memory. Optuna is silent from here on."""
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    if storage is None:
        return optuna.storages.InMemoryStorage()
    try:
        if "://" in str(storage):
            return RDBStorage(str(storage))
        path = Path(storage).expanduser().absolute()
        url = sqlalchemy.URL.create("sqlite", database=str(path)).render_as_string()
        with locked(path):  # or two processes make the same tables
            return RDBStorage(url, engine_kwargs={"connect_args": {"timeout": SQLITE_PATIENCE}})
    except (ImportError, sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]  # the database's own words
        raise InputError(
            "the storage must be a file or a database that Optuna can open; "
            f"got {without_password(str(storage))} ({reason})"
        ) from error


def without_password(text: str) -> str:
    """A URL, or a command with one in it, as it may be shown."""
    return re.sub(r"(://[^/:@\s]*):\S*@", r"\1:***@", text)
