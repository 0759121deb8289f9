"""``graphglow search``."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from torch_geometric.data import Data
from tyro.conf import arg

from graphglow.checks import at_least
from graphglow.commands import terminal
from graphglow.commands.files import check_output
from graphglow.commands.flags import GraphFlags, Json, ManyGraphFlags, OptionalLearner
from graphglow.errors import InputError
from graphglow.experiments.candidates import SearchConfig
from graphglow.experiments.runs.executor import RayWorkers, ray_address
from graphglow.experiments.search import Work, check_method, has_learner
from graphglow.experiments.search import search as search_one
from graphglow.experiments.settings import read_settings
from graphglow.experiments.trial_progress import OnProgress, Progress
from graphglow.graphs import DATASETS
from graphglow.graphs.load import data_folder
from graphglow.pretrained import load_learner
from graphglow.training.config import Device
from graphglow.training.device import resolve_device

Split = Literal["authors", "random"]
Names = tuple[str, ...]


def search(  # noqa: D417 (the flags and the config say the rest)
    methods: Annotated[Names, arg(metavar="NAME ...")],
    targets: Annotated[Names, arg(metavar="NAME|FILE ...")],
    reading: Annotated[ManyGraphFlags, arg(name="")],
    config: Annotated[SearchConfig, arg(name="")],
    sources: Annotated[Names, arg(metavar="NAME|FILE ...", help_behavior_hint="(optional)")] = (),
    learner: OptionalLearner = None,
    storage: Annotated[str, arg(metavar="FILE|URL")] = "runs/search/trials.db",
    learners: Annotated[Path, arg(metavar="FOLDER")] = Path("runs/search/learners"),
    settings: Annotated[Path, arg(metavar="FILE")] = Path("results/settings.json"),
    split: Split = "authors",
    executor: Annotated[str, arg(metavar="local|ray[:ADDRESS]")] = "local",
    processes: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(optional)")] = None,
    json: Json = False,
) -> None:
    """Search the settings of methods by validation accuracy, with one budget for all.

    Settings are drawn from each method's space (Appendix C of the paper) by Optuna's TPE, or all
    of them are tried where they are few. Test labels are never seen. There is no --resume, since
    it always resumes: Ctrl-C or a kill keeps the finished trials, and the same command goes on
    from there; several processes or machines may run it at once on one storage.
    Needs Optuna: pip install "graphglow[search]".

    Example: graphglow search --methods gcn appnp --targets wine --trials 10 --epochs 100

    Args:
        methods: What to search settings of: names from graphglow fit --help, or graphglow;
            graphglow-backbone and random-backbone choose the GNN too.
        targets: The graphs: names (see graphglow datasets) or files.
        sources: Graphs that graphglow is pre-trained on, once for each learner's settings; a target
            is left out of its own sources.
        learner: Instead of sources, a learner that comes with graphglow (universal, sharp,
            citation, social) or a file from graphglow pretrain: then only the transfer is searched.
        storage: Where trials are kept: a file (SQLite), or the URL of a database that Optuna takes.
        learners: Where pre-trained learners are kept for other trials and workers.
        settings: Where the best settings are written, beside those of other methods and targets;
            the facts of each search go to search.jsonl beside it.
        split: The split of the Facebook graphs: that of the paper's authors (split.npz beside the
            raw files) or a random one. It must be the one that is reported on later: training
            and validation labels are seen here.
        executor: Where trials are made: local, on this machine; ray, on the Ray cluster that this
            machine has, or one that is started for it; ray:ADDRESS, on a cluster elsewhere (needs a
            storage that all machines reach). A worker that dies is replaced.
            Needs Ray: pip install "graphglow[ray]".
        processes: With --executor ray, trials (or rounds of --trials-at-once) at the same time;
            without it, one per CPU of the cluster, or per GPU.
    """
    _check_names(methods, targets, sources, learner)
    if processes is not None:
        at_least("processes", processes, 1)
    if ray_address(executor) is None:
        resolve_device(config.device)
        if processes is not None:
            raise InputError(f"--processes must go with --executor ray; got {executor}")
    settings = check_output(settings, overwrite=True, suffixes=(".json",))
    read_settings(settings)
    theta = load_learner(learner) if learner is not None else None
    work = Work(storage=storage, learners=learners.expanduser(), settings=settings)
    rows: list[dict[str, Any]] = []
    with (
        _workers(executor, processes, config.device) as workers,
        _bar(len(methods) * len(targets), config.trials) as on_progress,
    ):
        others = {name: _read(name, split, reading)[0] for name in sources}
        for target in targets:
            data, called = _read(target, split, reading)
            for method in methods:
                glow = has_learner(method)
                row = search_one(
                    method,
                    data,
                    config,
                    work=work,
                    sources=_sources(others, data) if glow else (),
                    learner=theta if glow else None,
                    split=called,
                    on_progress=on_progress,
                    workers=workers,
                )
                rows.append(row)
    if all(row["settings"] is None for row in rows):
        raise InputError(f"a trial must succeed; got none in {len(rows)} ({rows[0]['failure']})")
    if json:
        terminal.print_json({"command": "search", "settings": settings, "rows": rows})
    else:
        terminal.show(_table(rows))
        for row in rows:
            found = row["failure"] if row["settings"] is None else _shown(row["settings"])
            terminal.say(terminal.printable(f"{row['method']} on {row['target']}: {found}"))
        terminal.say(f"settings: {settings}")


def _workers(
    executor: str, processes: int | None, device: Device
) -> AbstractContextManager[RayWorkers | None]:
    """Who makes the trials; None: this process."""
    address = ray_address(executor)
    if address is None:
        return nullcontext()
    return RayWorkers(address, processes, device)


def _check_names(
    methods: Sequence[str], targets: Sequence[str], sources: Sequence[str], learner: str | None
) -> None:
    """Refuse what could only fail later."""
    if not methods or not targets:
        what = "method" if not methods else "target"
        raise InputError(f"search needs at least one {what}; got none")
    for method in methods:
        check_method(method)
    given = "--sources" if sources else "--learner"
    if not any(map(has_learner, methods)) and (sources or learner is not None):
        raise InputError(f"{given} must go with --methods graphglow; got {', '.join(methods)}")
    if any(map(has_learner, methods)) and bool(sources) == (learner is not None):
        raise InputError(
            "graphglow must have either --sources to pre-train on or a --learner; "
            f"got {'both' if sources else 'neither'}"
        )


def _read(name: str, split: Split, reading: GraphFlags) -> tuple[Data, str]:
    """Load a graph, and say which split it has."""
    known = DATASETS.get(name.lower())
    if split == "authors" and known is not None and known.kind == "social":
        file = data_folder(reading.data_root) / known.name / "split.npz"
        if not file.exists():
            raise InputError(
                f"the authors' split of {known.name} must be in {file}; got no such file "
                "(--split random draws one)"
            )
        return replace(reading, split_file=file, split_seed=None).read(name)[0], "authors"
    return reading.read(name)


def _sources(graphs: dict[str, Data], target: Data) -> list[Data]:
    """The sources of a target: never itself."""
    left = [graph for graph in graphs.values() if graph.name != target.name]
    if graphs and not left:
        raise InputError(f"sources must be other graphs than the target; got only {target.name}")
    return left


@contextmanager
def _bar(studies: int, trials: int) -> Iterator[OnProgress | None]:
    """Yield what moves a bar over the trials of all studies, or None where nobody watches."""
    if not terminal.interactive():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("searching", total=studies * trials, facts="")
        first: dict[tuple[str, str], Progress] = {}  # what was there before is no work
        last: dict[tuple[str, str], Progress] = {}

        def on_progress(now: Progress) -> None:
            key = (now.method, now.target)
            first.setdefault(key, now)
            last[key] = now
            left = sum(one.total - one.done for one in first.values())
            best = f"  best {terminal.percent(now.best)}" if now.best is not None else ""
            bar.update(
                task,
                description=escape(f"{now.method} on {now.target}"),
                total=left + (studies - len(first)) * trials,
                completed=sum(last[key].done - first[key].done for key in first),
                facts=f"trial {min(int(now.done) + 1, now.total)}/{now.total}{best}",
            )

        yield on_progress


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Best settings, by validation accuracy", title_justify="left")
    for name in ("method", "target", "split", "trials", "failed", "validation"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(
            escape(row["method"]),
            escape(terminal.printable(row["target"])),
            escape(terminal.printable(row["split"])),
            f"{row['trials']}/{row['budget']}",
            str(row["failed"]),
            terminal.percent(row["val_accuracy"]),
        )
    return table


def _shown(settings: dict[str, Any], path: str = "") -> str:
    """Settings on one line; what is nested gets dotted names."""
    parts = []
    for name, value in settings.items():
        inner = isinstance(value, dict)
        parts.append(_shown(value, f"{path}{name}.") if inner else f"{path}{name} {value}")
    return ", ".join(parts)
