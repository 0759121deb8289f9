"""Which job is next: those of a plan in their order, each learner before who needs it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from graphglow.experiments.cell_run import Learning, Runs
from graphglow.experiments.learner_files import find_learner
from graphglow.experiments.plan import Wanted


class Entry(NamedTuple):
    """A job of the plan, the runs that it makes, and the learners that must be there before."""

    job: Runs
    wanted: list[Wanted]
    needs: frozenset[str]


@dataclass
class Lesson:
    """A learner that is not there yet."""

    key: str
    job: Learning
    begun: bool = False


class Schedule:
    """The jobs that are left.

    Args:
        jobs: Each with the runs that it makes.
        learners: The folder with those that are there.
    """

    def __init__(self, jobs: Sequence[tuple[Runs, list[Wanted]]], learners: Path) -> None:
        self._learners = learners
        self._there: set[str] = set()
        self._failed: dict[str, str] = {}
        self.lessons: dict[str, Lesson] = {}
        self.waiting = [Entry(job, wanted, self._needs(job)) for job, wanted in jobs]

    def _needs(self, job: Runs) -> frozenset[str]:
        keys = set()
        for configs in job.configs:
            if configs.pretraining is None:
                continue
            learning = Learning(sources=job.cell.sources, config=configs.pretraining)
            key = json.dumps([learning.sources, asdict(learning.config)], sort_keys=True)
            if key not in self._there and key not in self.lessons:
                if find_learner(self._learners, learning.sources, learning.config) is not None:
                    self._there.add(key)
                else:
                    self.lessons[key] = Lesson(key, learning)
            keys.add(key)
        return frozenset(keys)

    def next(self) -> Entry | Lesson | None:
        """What can begin now; None if all that is left waits for learners, or nothing is left."""
        for number, entry in enumerate(self.waiting):
            missing = [lesson for key, lesson in self.lessons.items() if key in entry.needs]
            if not missing or self.failure(entry):
                return self.waiting.pop(number)
            for lesson in missing:
                if not lesson.begun:
                    lesson.begun = True
                    return lesson
        return None

    def learned(self, lesson: Lesson, failure: str | None = None) -> None:
        """A learner is there, or could not be made."""
        del self.lessons[lesson.key]
        if failure is not None:
            sources = "+".join(lesson.job.sources)
            self._failed[lesson.key] = f"pre-training on {sources} failed: {failure}"

    def failure(self, entry: Entry) -> str | None:
        """Why a job cannot be done, if a learner that it needs could not be made."""
        return next((self._failed[key] for key in entry.needs if key in self._failed), None)

    def split(self, entry: Entry) -> None:
        """Do the runs of a job one by one, next."""
        self.waiting[:0] = [
            Entry(replace(entry.job, configs=(wanted.configs,)), [wanted], entry.needs)
            for wanted in entry.wanted
        ]

    def graphs(self) -> list[str]:
        """Names of the graphs that the jobs read: targets, and sources of learners not there."""
        targets = [entry.job.cell.target for entry in self.waiting]
        sources = [name for lesson in self.lessons.values() for name in lesson.job.sources]
        return list(dict.fromkeys([*targets, *sources]))

    def left(self) -> list[Runs | Learning]:
        """Jobs that have not begun."""
        lessons = [lesson.job for lesson in self.lessons.values() if not lesson.begun]
        return [*lessons, *(entry.job for entry in self.waiting)]
