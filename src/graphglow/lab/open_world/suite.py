"""The runs of the suite: targets under conditions, by methods, over seeds.

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

from graphglow.errors import InputError, one_of
from graphglow.graph.load import data_folder
from graphglow.lab import Progress, no_progress
from graphglow.lab.config import RunsConfig
from graphglow.lab.open_world.methods import (
    BAGS,
    MEMBERS,
    METHOD_TITLES,
    NEED_FEATURES,
    NEED_LEARNER,
    POOL,
    accuracy_on,
    lacks_features,
    run_method,
    settings_of,
)
from graphglow.lab.open_world.targets import CONDITIONS, Target, attacked_files, draw, find_targets
from graphglow.lab.row_files import Row, digest, rows_in
from graphglow.lab.runs import Outcome, Plan, make_plan, make_rows
from graphglow.pretrained import UNIVERSAL, evidence_learner, learner_identity
from graphglow.settings import Device

EXPERIMENT = "open-world"


class SuiteRun(NamedTuple):
    """A method on one target under one condition with one seed."""

    target: Target
    condition: str
    method: str
    seed: int
    learner: str

    @property
    def facts(self) -> Row:
        """What a row says of the run before it is made."""
        config = made_with(self.method, self.learner)
        return {
            "experiment": EXPERIMENT,
            "cell": f"{self.method}/{self.target.name}/{self.condition}",
            "label": METHOD_TITLES[self.method],
            "method": self.method,
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
        return {"learner": Path(learner).stem, "identity": _weights(learner)} | used
    return settings_of(method) | ({"members": MEMBERS} if method in BAGS else {}) | used


@cache
def _weights(learner: str) -> str | None:
    """Return a digest of the learner's weights; None of one that is not made yet."""
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
) -> Plan:
    """Return what :func:`run_suite` would do; unknown names are refused."""
    every, attacked = find_targets(root), attacked_files(root)
    for kind, given, known in (
        ("targets", targets, [target.name for target in every]),
        ("conditions", conditions, [*CONDITIONS, *attacked]),
        ("methods", methods, list(METHOD_TITLES)),
    ):
        for name in given:
            one_of(kind, name, known)
    every = sorted((t for t in every if not targets or t.name in targets), key=lambda t: t.size)

    def asked() -> Iterator[tuple[Row, SuiteRun]]:
        for seed in range(config.seed, config.seed + config.seeds):
            for condition in conditions or [*CONDITIONS, *attacked]:
                for target in every:
                    if condition in attacked:  # files of Cora
                        if target.name != "cora":
                            continue
                        target = target._replace(file=attacked[condition])
                    fold = target.fold
                    own = UNIVERSAL if fold is None else str(learners / f"fold{fold}.safetensors")
                    for method in methods or METHOD_TITLES:
                        run = SuiteRun(target, condition, method, seed, own)
                        yield run.facts, run

    return make_plan(asked(), rows_in(out, [EXPERIMENT]), config, share=False)


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
    plan = plan_suite(out, config, learners, root, targets, conditions, methods)
    needed = {run.learner for run, _ in plan.jobs if run.method in NEED_LEARNER}
    if absent := [name for name in sorted(needed) if _weights(name) is None]:
        files = ", ".join(Path(name).name for name in absent)
        raise InputError(
            f"{learners} lacks learners of held-out families: {files}. Make them with: "
            f"python benchmarks/predictor.py --train {learners}"
        )
    return make_rows(_measure, (root, config.device), plan, out, config, progress)


def _measure(known: tuple[Path, Device], run: SuiteRun) -> Row | None:
    """Run a method; None where the condition, or the method without features, makes no sense."""
    root, device = known
    data = draw(run.target, run.condition, run.seed, root)
    if data is None or (run.method in NEED_FEATURES and lacks_features(data)):
        return None
    entry = run_method(run.method, data, seed=run.seed, device=device, learner=run.learner)
    return {
        "test_accuracy": accuracy_on(entry.scores, data, data.test_mask),
        "val_accuracy": entry.estimate,
        "total_seconds": entry.seconds,
        "device": device,
        "split": str(data.split),
        "metrics": entry.metrics,
    }
