"""Search the settings of a method on validation accuracy.

graphglow search --methods gcn appnp --targets cora --trials 30

Any number of processes, on one machine or several, may run the same command with the same
``--storage``: together they make the trials that one would make. A rerun goes on where the last
one ended, up to ``--trials`` in all. A study is its method, space, graphs, seeds and schedule: if
one of them changes, another begins; where a method's code changes, begin with a new storage. What
is found goes into the settings file, and a row with the facts into ``search.jsonl`` beside it.
"""

import difflib
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from torch_geometric.data import Data

from graphglow.baselines import METHODS
from graphglow.baselines.method import Space
from graphglow.errors import InputError
from graphglow.experiments.blind import BlindGraph, blinded
from graphglow.experiments.candidates import (
    Candidate,
    FitCandidate,
    GlowCandidate,
    SearchConfig,
    scores_of,
)
from graphglow.experiments.paper.lines import WIDER
from graphglow.experiments.provenance import provenance
from graphglow.experiments.runs.executor import RayWorkers
from graphglow.experiments.search_spaces import base_and_extra, nested
from graphglow.experiments.settings import locked, read_settings, write_settings
from graphglow.experiments.trial_progress import Meter, OnProgress
from graphglow.experiments.trial_workers import make_by_workers, storage_for
from graphglow.storage import append_line
from graphglow.structure import StructureLearner
from graphglow.training.checkpoint import learner_identity
from graphglow.training.device import resolve_device
from graphglow.version import __version__

GLOW = "graphglow"
"""The method itself, which unlike those of ``METHODS`` needs sources or a learner."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Where a search keeps its trials, learners and results; None keeps nothing on disk."""

    storage: str | Path | None = None
    """A file, or an Optuna URL."""
    learners: Path | None = None
    """A folder for pre-trained learners."""
    settings: Path | None = None
    """The settings file; rows go to search.jsonl beside it."""


def search(
    method: str,
    data: Data,
    config: SearchConfig | None = None,
    *,
    work: Work | None = None,
    sources: Sequence[Data] = (),
    learner: StructureLearner | None = None,
    pretrain_space: Space | None = None,
    split: str | None = None,
    on_progress: OnProgress | None = None,
    workers: RayWorkers | None = None,
) -> dict[str, Any]:
    """Find the settings of ``method`` with the best mean validation accuracy on ``data``.

    Test nodes and their labels are taken out of the graph before anything else. A trial that does
    not fit in memory, or whose loss is not finite, counts as failed. Of equally good trials the
    first wins.

    Args:
        method: One of ``METHODS``, or graphglow.
        data: The target.
        config: Budget and schedule.
        work: Where to keep things.
        sources: For graphglow, to pre-train on.
        learner: For graphglow, instead of sources.
        pretrain_space: For graphglow, what of pre-training is searched, if not Appendix C's.
        split: What the split of the target is called, for the row.
        on_progress: Called after every epoch; with workers, as trials end.
        workers: To make the trials, instead of this process; they need a storage.

    Returns:
        The row: ``settings`` and ``val_accuracy`` of the best trial, None if all failed, and the
        facts of the study.
    """
    trials, trial_storage = _with_optuna()
    config, work = config or SearchConfig(), work or Work()
    check_method(method)
    if workers is not None:
        config = replace(config, device=workers.device)  # of the nodes, not of this machine
        learners = work.learners.absolute() if work.learners is not None else None
        work = replace(work, storage=storage_for(work.storage, workers), learners=learners)
    device = config.device if workers is not None else resolve_device(config.device).type
    if not has_learner(method) and (sources or learner is not None):
        raise InputError(f"sources and a learner must go with graphglow; got {method}")
    target = blinded(data)
    blind_sources = [blinded(source) for source in sources]
    del data, sources  # nothing below can read a test label
    asked = Asked(method, target, config, work, blind_sources, learner, pretrain_space)
    candidate = asked.candidate()
    study = _study_name(method, target, candidate, config)
    facts = {
        "experiment": "search",
        "method": method,
        "target": target.name,
        "split": split,
        "sources": _source_names(blind_sources, learner),
        "learner": None if learner is None else _called(learner),
        "study": study,
        "seeds_per_trial": config.seeds_per_trial,
        "epochs": config.epochs,
        "patience": config.patience,
        "seed": config.seed,
        "device": device,
    }
    with trial_storage.opened(work.storage) as storage:
        all_trials = trials.Trials(
            storage, study, candidate.space, budget=config.trials, seed=config.seed
        )
        meter = Meter(method, target.name, all_trials.budget, on_progress)
        if workers is None:
            _make_trials(all_trials, candidate, config, meter)
        else:
            make_by_workers(all_trials, workers, partial(_take_part, asked, study), meter.on_trial)
        facts["sampler"] = "grid" if all_trials.every else "tpe"
        facts["budget"] = all_trials.budget
        with locked(work.settings) if work.settings is not None else nullcontext():
            row = facts | _outcome(all_trials.settled(), trials.plain)  # others' trials among them
            row["optuna"] = version("optuna")
            row["provenance"] = _origin(str(work.storage), trial_storage.hidden_password)
            if work.settings is not None:
                _keep(row, work.settings)
    return row


def check_method(name: str) -> None:
    """Raise unless settings of this method can be searched."""
    known = [*METHODS, GLOW, *WIDER]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise InputError(f"method must be one of {', '.join(known)}; got {name!r}{hint}")


def has_learner(method: str) -> bool:
    """Whether the method is graphglow, whatever of it is searched."""
    return base_and_extra(method)[0] == GLOW


def _with_optuna() -> tuple[ModuleType, ModuleType]:
    """The modules that need Optuna, an optional dependency."""
    try:
        from graphglow.experiments import trial_storage, trials
    except ModuleNotFoundError as error:
        if error.name not in ("optuna", "sqlalchemy"):
            raise
        raise InputError(
            "graphglow search needs Optuna; got a Python without it "
            '(pip install "graphglow[search]")'
        ) from error
    return trials, trial_storage


class Asked(NamedTuple):
    """What settings are searched of, and how: all that a worker must know, and no test label."""

    method: str
    target: BlindGraph
    config: SearchConfig
    work: Work
    sources: Sequence[BlindGraph]
    learner: StructureLearner | None
    pretrain_space: Space | None

    def candidate(self) -> Candidate:
        method, target, config = self.method, self.target, self.config
        name, extra = base_and_extra(method)
        if name != GLOW:
            return FitCandidate(name, target, config, extra=extra)
        return GlowCandidate(
            target,
            config,
            sources=self.sources,
            learner=self.learner,
            extra=extra,
            pretrain_space=self.pretrain_space,
            folder=self.work.learners,
        )


def _make_trials(all_trials: Any, candidate: Candidate, config: SearchConfig, meter: Meter) -> None:
    """Try settings in this process, until no trial is left."""
    trials, _ = _with_optuna()

    def evaluate(drawn: list[dict[str, Any]]) -> list[list[float] | InputError]:
        each = [nested({n: trials.plain(value) for n, value in one.items()}) for one in drawn]
        meter.begin(sum(map(candidate.epochs, each)), len(each))
        return scores_of(candidate, each, meter.on_epoch)

    all_trials.run(evaluate, meter.on_trial, at_once=config.trials_at_once)


def _take_part(asked: Asked, study: str) -> None:
    """In a worker: make trials of a study, as the others do, until none is left."""
    trials, trial_storage = _with_optuna()
    candidate, config = asked.candidate(), asked.config
    with trial_storage.opened(asked.work.storage) as storage:
        all_trials = trials.Trials(
            storage, study, candidate.space, budget=config.trials, seed=config.seed
        )
        meter = Meter(asked.method, asked.target.name, all_trials.budget, None)
        _make_trials(all_trials, candidate, config, meter)


def _source_names(
    sources: Sequence[BlindGraph], learner: StructureLearner | None
) -> list[str] | None:
    names = [source.name for source in sources]
    if learner is not None:
        names = [str(name) for name in learner.provenance.get("sources", [])]
    return names or None


def _called(learner: StructureLearner) -> str:
    """Its name, if it comes with the package; else its fingerprint."""
    return str(learner.provenance.get("name") or learner_identity(learner)[:12])


def _study_name(method: str, target: BlindGraph, candidate: Candidate, config: SearchConfig) -> str:
    """The same for trials that compare, whatever their number; readable at its beginning."""
    whole = {
        "version": __version__,
        "space": {name: [repr(v) for v in values] for name, values in candidate.space.items()},
        "target": target.digest,
        "runs": [{**run, "device": "auto"} for run in config.runs()],
        **candidate.facts(),
    }
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]
    return f"{method} on {target.name} {digest}"


def _outcome(settled: Sequence[Any], plain: Callable[[Any], Any]) -> dict[str, Any]:
    """What the trials of a study have shown."""
    scored = [trial for trial in settled if trial.scores]
    failures = [trial.failure for trial in settled if trial.failure is not None]
    best = max(scored, key=lambda trial: trial.mean, default=None)
    values = {name: plain(value) for name, value in best.values.items()} if best else {}
    return {
        "trials": len(settled),
        "failed": len(failures),
        "failure": max(failures, key=failures.count, default=None),
        "best_trial": best.number if best else None,
        "val_accuracy": best.mean if best else None,
        "val_accuracies": best.scores if best else None,
        "settings": nested(values) if best else None,
        "trial_seconds": math.fsum(trial.seconds for trial in settled),
    }


def _origin(storage: str, hidden: Callable[[str], str]) -> dict[str, Any]:
    """Where the row comes from, without the password that a URL may hold."""
    origin = provenance()
    origin["command"] = origin["command"].replace(storage, hidden(storage))
    return origin


def _keep(row: dict[str, Any], path: Path) -> None:
    """Write the settings beside those of other methods and targets, and the row if it is new."""
    if row["settings"] is not None:
        known = read_settings(path)
        sources = row["sources"] or ()
        about = (row["method"], row["target"], row["settings"], sources)
        write_settings(path, known.having(*about, learner=row["learner"]))
    rows = path.with_name("search.jsonl")
    if (row["study"], row["trials"]) not in _known_rows(rows):
        append_line(rows, json.dumps(row))


def _known_rows(path: Path) -> set[tuple[str, int]]:
    """Study and number of trials of each row; a line that was cut short is none."""
    known = set()
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError, TypeError, AttributeError):
            row = json.loads(line)
            known.add((row.get("study"), row.get("trials")))
    return known
