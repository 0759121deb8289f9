"""Run what is missing of the suite: targets under conditions, by methods, over seeds.

A run is known by target, condition, method and seed, and by the settings or the learner that it is
made with. Runs are ordered so that a suite that is stopped shows a whole picture: all targets under
the first conditions with the first seed, and so on. Learners of held-out families lie in a folder,
``fold0.safetensors`` to ``fold5.safetensors``, which ``benchmarks/predictor.py --train FOLDER``
makes; nothing is pre-trained here.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphglow.checks import one_of
from graphglow.errors import InputError
from graphglow.graph.load import data_folder
from graphglow.lab import Progress, no_progress
from graphglow.lab.config import RunsConfig
from graphglow.lab.open_world.methods import (
    BAGS,
    FOLDS,
    NAMES,
    NEED_FEATURES,
    NEED_LEARNER,
    POOL,
    accuracy,
    lacks_features,
    run_method,
    settings_of,
)
from graphglow.lab.open_world.targets import CONDITIONS, Target, attacked_files, draw, find_targets
from graphglow.lab.rows import Row, digest, provenance, rows_in
from graphglow.lab.runs import Outcome, make_rows, sentence
from graphglow.pretrained import UNIVERSAL, evidence_learner, learner_identity
from graphglow.settings import Device

EXPERIMENT = "open-world"
ATTACKED = "cora"
"""The target of which attacked files are conditions."""


class Job(NamedTuple):
    """Methods on one target under one condition with one seed."""

    target: Target
    condition: str
    seed: int
    learner: str
    methods: tuple[str, ...]

    def facts(self, method: str) -> Row:
        """What a row says of a run before it is made."""
        config = made_with(method, self.learner)
        return {
            "experiment": EXPERIMENT,
            "cell": f"{method}/{self.target.name}/{self.condition}",
            "label": NAMES[method],
            "method": method,
            "target": self.target.name,
            "seed": self.seed,
            "series": self.condition,
            "setup": digest(config),
            "config": config,
        }


def made_with(method: str, learner: str) -> dict[str, Any]:
    """Return what a result depends on beside its cell and seed."""
    used: dict[str, Any] = {"labels": "pool"} if method in POOL else {}
    if method in NEED_LEARNER:
        return {"learner": Path(learner).stem, "identity": _identity(learner)} | used
    return settings_of(method) | ({"members": FOLDS} if method in BAGS else {}) | used


@cache
def _identity(learner: str) -> str | None:
    """A digest of the learner's weights; None of one that is not made yet."""
    if learner != UNIVERSAL and not Path(learner).exists():
        return None
    return learner_identity(evidence_learner(learner))


def plan_suite(
    out: Path,
    config: RunsConfig,
    learners: Path,
    root: Path,
    targets: Sequence[str] = (),
    conditions: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> list[Job]:
    """Return the jobs that :func:`run_suite` would do; unknown names are refused."""
    every, attacked = find_targets(root), attacked_files(root)
    for kind, given, known in (
        ("targets", targets, [target.name for target in every]),
        ("conditions", conditions, [*CONDITIONS, *attacked]),
        ("methods", methods, list(NAMES)),
    ):
        for name in given:
            one_of(kind, name, known)
    ended = {
        (row["cell"], row["seed"], row["setup"])
        for row in rows_in(out, [EXPERIMENT])
        if "test_accuracy" in row or ("error" in row and not config.retry_failed)
    }

    def missing() -> Iterator[Job]:
        chosen = [target for target in every if not targets or target.name in targets]
        for seed in range(config.seed, config.seed + config.seeds):
            for condition in conditions or [*CONDITIONS, *attacked]:
                for target in sorted(chosen, key=lambda target: target.size):
                    if condition in attacked:
                        if target.name != ATTACKED:
                            continue
                        target = target._replace(file=attacked[condition])
                    fold = target.fold
                    own = UNIVERSAL if fold is None else str(learners / f"fold{fold}.safetensors")
                    job = Job(target, condition, seed, own, ())
                    facts = [job.facts(method) for method in methods or NAMES]
                    keys = {f["method"]: (f["cell"], f["seed"], f["setup"]) for f in facts}
                    yield job._replace(methods=tuple(m for m, k in keys.items() if k not in ended))

    return [job for job in missing() if job.methods]


def absent_learners(jobs: Sequence[Job]) -> list[str]:
    """Return the files of learners that jobs need and that are not there."""
    needed = (job.learner for job in jobs if {*job.methods} & {*NEED_LEARNER})
    return [name for name in dict.fromkeys(needed) if _identity(name) is None]


def run_suite(
    out: Path,
    config: RunsConfig,
    *,
    learners: Path,
    data_root: Path | None = None,
    targets: Sequence[str] = (),
    conditions: Sequence[str] = (),
    methods: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Outcome:
    """Make the rows that the file ``out`` lacks, as far as there is time.

    Open graphs are in the folder ``open`` of the data root, held-out ``learners`` in a folder of
    their own. Where targets, conditions or methods are named, there are no others.
    """
    root = data_folder(data_root)
    jobs = plan_suite(out, config, learners, root, targets, conditions, methods)
    if absent := absent_learners(jobs):
        files = ", ".join(Path(name).name for name in absent)
        raise InputError(
            f"{learners} lacks learners of held-out families: {files}. Make them with: "
            f"python benchmarks/predictor.py --train {learners}"
        )
    origin = {name: provenance()[name] for name in ("commit", "date", "machine")}
    return make_rows(perform, Shared(root, config.device, origin), jobs, out, config, progress)


class Shared(NamedTuple):
    """What all jobs need."""

    root: Path
    device: Device
    origin: dict[str, Any]


def perform(shared: Shared, job: Job) -> list[Row]:
    """Make the rows of a job; none where the condition makes no sense."""
    try:
        data = draw(job.target, job.condition, job.seed, shared.root)
    except Exception as error:
        said = {"error": sentence(error), "provenance": shared.origin}
        return [job.facts(method) | said for method in job.methods]
    if data is None:
        return []
    rows = []
    for method in job.methods:
        if method in NEED_FEATURES and lacks_features(data):
            continue
        try:
            given: Any = {"seed": job.seed, "device": shared.device, "learner": job.learner}
            entry = run_method(method, data, **given)
            measured: Row = {
                "test_accuracy": accuracy(entry.scores, data, data.test_mask),
                "val_accuracy": entry.estimate,
                "total_seconds": entry.seconds,
                "device": shared.device,
                "split": str(data.split),
                "metrics": entry.metrics,
            }
        except Exception as error:
            measured = {"error": sentence(error)}
        rows.append(job.facts(method) | measured | {"provenance": shared.origin})
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return rows
