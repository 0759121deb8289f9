"""Epochs as curves in TensorBoard, MLflow or Weights & Biases; none of them is required.

graphglow transfer --learner universal --target wine --log tensorboard:logs
"""

import dataclasses
import importlib
import re
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from graphglow.errors import InputError, InputWarning

if TYPE_CHECKING:  # it imports torch
    from graphglow.training.loop import Epoch

CURVES = ("loss", "val_loss", "val_accuracy", "refinements")


class Tracker(Protocol):
    """A tool that keeps numbers. A curve belongs to a series: one run on one graph."""

    def write(self, series: str, values: Mapping[str, float], step: int) -> None: ...

    def close(self, *, failed: bool) -> None: ...


class RunLog:
    """An ``on_epoch`` that logs; made by :func:`log_to`.

    Every run of a batch and every source graph has a series of its own, ``<graph>/run<number>``.
    The steps of a series count on where its epochs start again, as in a second visit of
    pre-training. A log that nobody closed is closed when it is no longer used, at the latest when
    Python ends.
    """

    def __init__(self, tracker: Tracker, name: str) -> None:
        self.name = name
        self._tracker = tracker
        self._closing = weakref.finalize(self, tracker.close, failed=False)
        self._steps: Counter[str] = Counter()
        self._lost = False

    def __call__(self, epoch: "Epoch") -> None:
        """Log one epoch."""
        series = series_name(epoch.graph, getattr(epoch, "run", 0))
        self._steps[series] += 1
        values = {name: float(getattr(epoch, name)) for name in CURVES}
        self._write(series, values, self._steps[series])

    def summary(self, facts: Mapping[str, Any], run: int = 0) -> None:
        """Log the numbers of ``result.summary()`` (``run``: the place of the result in a batch)."""
        series = series_name(str(facts.get("target", "graph")), run)
        numbers = {
            name: float(value)
            for name, value in facts.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        self._write(series, numbers, self._steps[series])

    def close(self, *, failed: bool = False) -> None:
        """Write out what is pending and end the run, once."""
        if self._closing.detach() is not None:
            try:
                self._tracker.close(failed=failed)
            except OSError as error:
                if not self._lost:
                    self._lose(error)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(failed=kind is not None)

    def _write(self, series: str, values: Mapping[str, float], step: int) -> None:
        if not self._closing.alive:
            raise InputError(f"a log must be open; got one that was closed ({self.name})")
        if self._lost:
            return
        try:
            self._tracker.write(series, values, step)
        except OSError as error:  # a full disk, a server that has gone
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        """Training is worth more than its log."""
        self._lost = True
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        sentence = f"the log cannot be written any more, and training goes on: {line}"
        warnings.warn(sentence, InputWarning, stacklevel=3)


def log_to(where: str, *, name: str | None = None, settings: Any = None) -> RunLog:
    """Open a log; pass it as ``on_epoch`` and close it, or let ``with`` do that::

        with graphglow.log_to("tensorboard:logs") as log:
            result = graphglow.transfer(learner, data, config, on_epoch=log)
            log.summary(result.summary())

    Args:
        where: ``"tensorboard:FOLDER"``, ``"mlflow:EXPERIMENT"`` or ``"wandb:PROJECT"``. MLflow and
            Weights & Biases read their server, key and mode from their own environment variables.
        name: What to call the run; by default the time. A TensorBoard run whose name is taken gets
            a number behind it, so that two never share a folder.
        settings: A config (or a mapping), logged along with the run.
    """
    kind, colon, place = where.partition(":") if isinstance(where, str) else ("", "", "")
    if kind not in TRACKERS or not colon or not place:
        raise InputError(
            f"a log must be tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT; got {where!r}"
        )
    try:
        tracker = TRACKERS[kind](place, name or time.strftime("%Y%m%d-%H%M%S"), _flat(settings))
    except InputError:
        raise
    except Exception as error:  # no server, no key, a name that the tool does not like
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{kind} must be ready to log to {place!r}; got: {line}") from error
    return RunLog(tracker, tracker.name)


class TensorBoard:
    """One folder of event files per series, which TensorBoard shows as one curve each."""

    def __init__(self, place: str, name: str, settings: dict[str, Any]) -> None:
        self._make = _imported("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self.folder = _new_folder(Path(place).expanduser(), safe(name))
        self.name = self.folder.name
        self._settings = settings
        self._writers: dict[str, Any] = {}

    def write(self, series: str, values: Mapping[str, float], step: int) -> None:
        if series not in self._writers:
            writer = self._writers[series] = self._make(str(self.folder / series))
            if self._settings:
                rows = "".join(f"| {key} | {value} |\n" for key, value in self._settings.items())
                writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
        for key, value in values.items():
            self._writers[series].add_scalar(key, value, step)

    def close(self, *, failed: bool) -> None:
        for writer in self._writers.values():
            writer.close()  # flushes


class MLflow:
    """One run of the experiment per series, named ``<name>/<series>``."""

    def __init__(self, place: str, name: str, settings: dict[str, Any]) -> None:
        self._mlflow = _imported("mlflow", "mlflow")
        self._entities = _imported("mlflow.entities", "mlflow")
        self._client = self._mlflow.MlflowClient()  # no active run: nothing global is touched
        known = self._client.get_experiment_by_name(place)
        if known is not None and known.lifecycle_stage != "active":
            raise InputError(f"an MLflow experiment must not be deleted; got {place!r}, which is")
        self._experiment = (
            self._client.create_experiment(place) if known is None else known.experiment_id
        )
        self.name = name
        self._settings = settings
        self._runs: dict[str, str] = {}

    def write(self, series: str, values: Mapping[str, float], step: int) -> None:
        if series not in self._runs:
            tags = {"mlflow.runName": f"{self.name}/{series}"}
            run = self._client.create_run(self._experiment, tags=tags)
            self._runs[series] = run.info.run_id
            params = [
                self._entities.Param(key, str(value)) for key, value in self._settings.items()
            ]
            self._client.log_batch(run.info.run_id, params=params)
        now = int(time.time() * 1000)
        metrics = [self._entities.Metric(key, value, now, step) for key, value in values.items()]
        self._client.log_batch(self._runs[series], metrics=metrics)

    def close(self, *, failed: bool) -> None:
        for run in self._runs.values():
            self._client.set_terminated(run, status="FAILED" if failed else "FINISHED")


class WeightsAndBiases:
    """One run of the project; its curves are called ``<series>/<curve>``."""

    def __init__(self, place: str, name: str, settings: dict[str, Any]) -> None:
        wandb = _imported("wandb", "wandb")
        self.name = name
        self._run = wandb.init(project=place, name=name, config=settings)
        self._seen: set[str] = set()

    def write(self, series: str, values: Mapping[str, float], step: int) -> None:
        if series not in self._seen:  # a step of its own: the run's must never fall
            self._seen.add(series)
            self._run.define_metric(f"{series}/*", step_metric=f"{series}/epoch")
        named = {f"{series}/{key}": value for key, value in values.items()}
        self._run.log({**named, f"{series}/epoch": step})

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


TRACKERS: dict[str, type[TensorBoard] | type[MLflow] | type[WeightsAndBiases]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def series_name(graph: str, run: int) -> str:
    """One run on one graph, as folders and curves are named: ``cora/run0``."""
    return f"{safe(graph)}/run{run}"


def safe(name: str) -> str:
    """Letters, digits, dot, dash and underscore only, for folders and names of metrics."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".") or "_"


def _imported(module: str, package: str) -> ModuleType:
    """Import what a tracker needs; a missing package is one sentence with the pip line."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"logging to {package} needs the package {package}, which cannot be imported; got "
            f'{error} (pip install "graphglow[{package}]")'
        ) from error


def _new_folder(parent: Path, name: str) -> Path:
    """Make a folder that was not there: ``name``, else ``name-2``, ``name-3``, .."""
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError as error:
            if not parent.is_dir():
                raise InputError(f"the log folder must be a folder; got {parent}") from error
            number += 1
        except OSError as error:
            raise InputError(
                f"the log folder must be writable; got {parent} ({error.strerror})"
            ) from error


def _flat(settings: Any) -> dict[str, Any]:
    """Settings by name; those of a part of a config as ``part.name``."""
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        settings = dataclasses.asdict(settings)
    flat: dict[str, Any] = {}
    for name, value in (settings or {}).items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": inner for key, inner in _flat(value).items()}
        else:
            flat[str(name)] = value
    return flat
