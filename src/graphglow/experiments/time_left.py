"""How long the rest will take, from how long the like of it took."""

from collections.abc import Hashable, Iterable

from graphglow.experiments.cell_run import Job, Learning


class TimeLeft:
    """Mean seconds of jobs by what they are, the nearest kind that is known.

    A job's kinds, from the nearest: the same method on the same target, the same method, any; of
    pre-training, on the same sources, any, and then any job at all.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def learn(self, job: Job, seconds: float) -> None:
        """A job took so long."""
        for kind in _kinds(job):
            total, count = self._seen.get(kind, (0.0, 0))
            self._seen[kind] = total + seconds, count + 1

    def of(self, jobs: Iterable[Job], processes: int) -> float | None:
        """Seconds that these jobs will take, so many at a time; None while nothing is known."""
        if not self._seen:
            return None
        return sum(map(self._mean, jobs)) / processes

    def _mean(self, job: Job) -> float:
        for kind in _kinds(job):
            if kind in self._seen:
                total, count = self._seen[kind]
                return total / count
        return 0.0


def _kinds(job: Job) -> list[Hashable]:
    if isinstance(job, Learning):
        return [("learner", job.sources), "learner", "any"]
    cell = job.cell
    return [(cell.method, cell.target), cell.method, "any"]
