"""The trials of one study, made by workers of a Ray cluster on the storage that they share."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from typing import Any

from graphglow.errors import InputError
from graphglow.experiments.runs.executor import RayWorkers, RunFailed, result_of

LOOK = 1.0
"""Seconds between looks at how far the workers are."""
PAUSE = 10.0
"""Seconds until workers look again whether a trial, of a worker that is no more, is void."""


def storage_for(storage: str | Path | None, workers: RayWorkers) -> str | Path:
    """The storage as workers can open it; :class:`InputError` if they cannot share it."""
    if storage is None:
        raise InputError("trials of several workers must have a storage; got none")
    is_url = "://" in str(storage)
    in_a_file = not is_url or str(storage).startswith("sqlite")
    if in_a_file and workers.elsewhere:
        raise InputError(
            "the storage of a search on several machines must be a database that all can reach "
            f"(postgresql://..., mysql://...); got the file {storage}"
        )
    return str(storage) if is_url else Path(storage).expanduser().absolute()


def make_by_workers(
    trials: Any,
    workers: RayWorkers,
    begin: Callable[[], None],
    on_trial: Callable[[Sequence[Any]], None],
) -> None:
    """Let every worker make trials until the budget is used up; who dies is replaced.

    The trial of a worker that died is void: at once where its machine lives, else as soon as its
    signs of life have stopped for long. Until then it counts as being made, so that the other
    workers may end before it is replaced; they begin again for it.

    Args:
        trials: The :class:`~graphglow.experiments.trials.Trials`.
        workers: Who makes them.
        begin: What each does: make trials until none is left to begin.
        on_trial: Called now and then with all that are settled.
    """
    while (left := trials.budget - (before := len(trials.settled()))) > 0:
        running = {workers.submit(begin) for _ in range(min(left, workers.processes))}
        lost: RunFailed | None = None
        while running:
            on_trial(trials.settled())
            done, running = wait(running, timeout=LOOK, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    result_of(future)
                except RunFailed as error:
                    lost = error
        if len(trials.settled()) > before:
            continue
        if lost is not None:
            raise InputError(
                "workers of a search must live through a trial; got none that did "
                f"({lost}); the trials that have ended are kept"
            )
        time.sleep(PAUSE)
    on_trial(trials.settled())
