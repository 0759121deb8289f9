"""Search the settings of a method on validation accuracy.

graphglow search --methods gcn appnp --targets cora --trials 30

A rerun goes on where the last one ended, up to ``--trials`` in all, and several processes may run
the same command with the same ``--storage``. A study is its method, space, graphs, seeds and
schedule: if one of them changes, another begins; where a method's code changes, begin with a new
storage. What is found goes into the settings file, and a row with the facts into ``search.jsonl``
beside it.
"""

import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch_geometric.data import Data

from graphglow.baselines.method import Space
from graphglow.errors import InputError
from graphglow.experiments.provenance import provenance
from graphglow.experiments.runs.executor import Workers, open_executor
from graphglow.experiments.search.blind import blinded
from graphglow.experiments.search.settings import locked, read_settings, write_settings
from graphglow.experiments.search.space import Candidate, SearchConfig, check_methods, nested
from graphglow.storage import append_line
from graphglow.structure import StructureLearner
from graphglow.training.run_identity import learner_identity
from graphglow.version import __version__

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@dataclass(frozen=True, kw_only=True)
class Work:
    """Where a search keeps its trials, learners and results; None keeps nothing on disk."""

    storage: str | Path | None = None
    """A file, or an Optuna URL."""
    learners: Path | None = None
    """A folder for pre-trained learners."""
    settings: Path | None = None
    """The settings file; rows go to search.jsonl beside it."""


class Progress(NamedTuple):
    """Where a study stands: trials settled, of how many, and the best mean score so far."""

    method: str
    target: str
    done: int
    total: int
    best: float | None


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
    on_progress: Callable[[Progress], None] | None = None,
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
        work: Where to keep things.
        sources: For graphglow, to pre-train on.
        learner: For graphglow, instead of sources.
        pretrain_space: For graphglow, what of pre-training is searched, if not Appendix C's.
        split: What the split of the target is called, for the row.
        on_progress: Called before the first trial and as trials end.
        executor: What makes the trials, instead of this process, which alone has the storage.

    Returns:
        The row: ``settings`` and ``val_accuracy`` of the best trial, None if all failed, and the
        facts of the study.
    """
    from graphglow.experiments.search.trials import Trials, opened, without_password  # need Optuna

    check_methods([method], sources, learner)
    config, work = config or SearchConfig(), work or Work()
    executor = executor or open_executor(1, device=config.device)
    config = replace(config, device=executor.device)
    target = blinded(data)
    blind_sources = [blinded(source) for source in sources]
    del data, sources  # nothing below can read a test label
    learners = nullcontext(work.learners) if work.learners else tempfile.TemporaryDirectory()
    with learners as folder, opened(work.storage) as storage:
        candidate = Candidate(
            method=method,
            target=target,
            config=config,
            learner=learner,
            sources=blind_sources,
            folder=Path(folder).absolute(),
            pretrain_space=pretrain_space,
        )
        study = _study_name(candidate)
        trials = Trials(storage, study, candidate.space, budget=config.trials, seed=config.seed)

        def tell(settled: Sequence["FrozenTrial"]) -> None:
            best = max((t.value for t in settled if t.value is not None), default=None)
            if on_progress is not None:
                on_progress(Progress(method, target.name, len(settled), trials.budget, best))

        trials.run(
            partial(_evaluated, candidate),
            tell,
            executor,
            at_once=config.trials_at_once,
        )
        row = {
            "experiment": "search",
            "method": method,
            "target": target.name,
            "split": split,
            **_origins(candidate),
            "study": study,
            "seeds_per_trial": config.seeds_per_trial,
            "epochs": config.epochs,
            "patience": config.patience,
            "seed": config.seed,
            "device": config.device,
            "sampler": "grid" if trials.every else "tpe",
            "budget": trials.budget,
        }
        with locked(work.settings) if work.settings is not None else nullcontext():
            row |= _outcome(trials.settled())  # others' trials among them
            row["optuna"] = version("optuna")
            shown, made = str(work.storage), provenance()
            made["command"] = made["command"].replace(shown, without_password(shown))
            row["provenance"] = made
            if work.settings is not None:
                _keep(row, work.settings)
    return row


def _evaluated(
    candidate: Candidate, drawn: Sequence[dict[str, Any]]
) -> list[list[float] | InputError]:
    """What comes of some trials: to be called in whatever process makes them."""
    return candidate.scores([nested(values) for values in drawn])


def _study_name(candidate: Candidate) -> str:
    """The same for trials that compare, whatever their number; readable at its beginning."""
    whole = {
        "version": __version__,
        "space": {name: [repr(v) for v in values] for name, values in candidate.space.items()},
        "target": candidate.target.digest,
        "runs": [{**run, "device": "auto"} for run in candidate.config.runs()],
        **candidate.facts(),
    }
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]
    return f"{candidate.method} on {candidate.target.name} {digest}"


def _origins(candidate: Candidate) -> dict[str, Any]:
    """What graphglow was pre-trained on; a learner goes by its name, if it has one."""
    learner = candidate.learner
    if learner is None:
        return {"sources": [source.name for source in candidate.sources] or None, "learner": None}
    sources = [str(name) for name in learner.provenance.get("sources", [])]
    called = learner.provenance.get("name") or learner_identity(learner)[:12]
    return {"sources": sources or None, "learner": str(called)}


def _outcome(settled: Sequence["FrozenTrial"]) -> dict[str, Any]:
    """What the trials of a study have shown."""
    scored = [trial for trial in settled if trial.value is not None]
    failures = [trial.user_attrs["failure"] for trial in settled if trial.value is None]
    best = max(scored, key=lambda trial: trial.value or 0, default=None)
    took = [trial.duration.total_seconds() for trial in settled if trial.duration is not None]
    return {
        "trials": len(settled),
        "failed": len(failures),
        "failure": max(failures, key=failures.count, default=None),
        "best_trial": best.number if best else None,
        "val_accuracy": best.value if best else None,
        "val_accuracies": best.user_attrs["scores"] if best else None,
        "settings": nested(best.params) if best else None,
        "trial_seconds": math.fsum(took),
    }


def _keep(row: dict[str, Any], path: Path) -> None:
    """Write the settings beside those of other methods and targets, and the row if it is new."""
    if row["settings"] is not None:
        about = (row["method"], row["target"], row["settings"], row["sources"] or ())
        write_settings(path, read_settings(path).having(*about, learner=row["learner"]))
    rows = path.with_name("search.jsonl")
    known = set()
    for line in rows.read_text().splitlines() if rows.exists() else ():
        with suppress(ValueError, TypeError, AttributeError):  # cut short by a kill
            before = json.loads(line)
            known.add((before.get("study"), before.get("trials")))
    if (row["study"], row["trials"]) not in known:
        append_line(rows, json.dumps(row))
