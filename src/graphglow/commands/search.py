"""``graphglow search``."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from torch_geometric.data import Data
from tyro.conf import arg

from graphglow.checks import at_least
from graphglow.commands import terminal
from graphglow.commands.files import check_output
from graphglow.commands.flags import GraphFlags, Json, ManyGraphFlags, OptionalLearner
from graphglow.errors import InputError
from graphglow.experiments.runs.executor import open_executor, ray_address
from graphglow.experiments.search import study
from graphglow.experiments.search.settings import read_settings
from graphglow.experiments.search.space import SearchConfig, check_methods, has_learner
from graphglow.graphs import DATASETS
from graphglow.graphs.load import data_folder
from graphglow.pretrained import load_learner

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
        learner: Instead of sources, a learner that comes with graphglow (universal) or a file from
            graphglow pretrain: then only the transfer is searched.
        storage: Where trials are kept: a file (SQLite), or the URL of a database that Optuna takes.
        learners: Where pre-trained learners are kept for other trials and workers.
        settings: Where the best settings are written, beside those of other methods and targets;
            the facts of each search go to search.jsonl beside it.
        split: The split of the Facebook graphs: that of the paper's authors (split.npz beside the
            raw files) or a random one. It must be the one that is reported on later: training
            and validation labels are seen here.
        executor: Where trials are made: local, on this machine; ray, on the Ray cluster that this
            machine has, or one that is started for it; ray:ADDRESS, on a cluster elsewhere. A
            worker that dies is replaced. Needs Ray: pip install "graphglow[ray]".
        processes: Trials (or rounds of --trials-at-once) at the same time. Without it, one; with
            --executor ray, one per CPU of the cluster, or per GPU.
    """
    if not methods or not targets:
        what = "method" if not methods else "target"
        raise InputError(f"search needs at least one {what}; got none")
    check_methods(methods, sources, learner)
    if processes is not None:
        at_least("processes", processes, 1)
    ray = ray_address(executor)
    settings = check_output(settings, overwrite=True, suffixes=(".json",))
    read_settings(settings)
    theta = load_learner(learner) if learner is not None else None
    work = study.Work(storage=storage, learners=learners.expanduser(), settings=settings)
    rows: list[dict[str, Any]] = []
    with (
        open_executor(processes or (1 if ray is None else None), ray, device=config.device) as jobs,
        _bar(len(methods) * len(targets), config.trials) as on_progress,
    ):
        others = {name: _read(name, split, reading)[0] for name in sources}
        for target in targets:
            data, called = _read(target, split, reading)
            for method in methods:
                glow = has_learner(method)
                row = study.search(
                    method,
                    data,
                    config,
                    work=work,
                    sources=_sources(others, data) if glow else (),
                    learner=theta if glow else None,
                    split=called,
                    on_progress=on_progress,
                    executor=jobs,
                )
                rows.append(row)
    if all(row["settings"] is None for row in rows):
        raise InputError(f"a trial must succeed; got none in {len(rows)} ({rows[0]['failure']})")
    if json:
        terminal.print_json({"command": "search", "settings": settings, "rows": rows})
    else:
        _show(rows)
        terminal.say(f"settings: {settings}")


def _read(name: str, split: Split, reading: GraphFlags) -> tuple[Data, str]:
    """Load a graph, and say which split it has."""
    known = DATASETS.get(name.lower())
    if split == "random" or known is None or known.kind != "social":
        return reading.read(name)
    file = data_folder(reading.data_root) / known.name / "split.npz"
    if not file.exists():
        raise InputError(
            f"the authors' split of {known.name} must be in {file}; got no such file "
            "(--split random draws one)"
        )
    return replace(reading, split_file=file, split_seed=None).read(name)[0], "authors"


def _sources(graphs: dict[str, Data], target: Data) -> list[Data]:
    """The sources of a target: never itself."""
    left = [graph for graph in graphs.values() if graph.name != target.name]
    if graphs and not left:
        raise InputError(f"sources must be other graphs than the target; got only {target.name}")
    return left


@contextmanager
def _bar(studies: int, trials: int) -> Iterator[Callable[[study.Progress], None] | None]:
    """Yield what moves a bar over the trials of all studies, or None where nobody watches."""
    if not terminal.interactive():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("searching", total=studies * trials)
        seen: dict[tuple[str, str], study.Progress] = {}

        def on_progress(now: study.Progress) -> None:
            seen[now.method, now.target] = now
            best = f", best {terminal.percent(now.best)}" if now.best is not None else ""
            bar.update(
                task,
                description=escape(f"{now.method} on {now.target}{best}"),
                total=sum(one.total for one in seen.values()) + (studies - len(seen)) * trials,
                completed=sum(one.done for one in seen.values()),
            )

        yield on_progress


def _show(rows: Sequence[dict[str, Any]]) -> None:
    table = Table(title="Best settings, by validation accuracy", title_justify="left")
    for name in ("method", "target", "split", "trials", "failed", "validation"):
        table.add_column(name, overflow="fold")
    for row in rows:
        names = (escape(terminal.printable(row[name])) for name in ("method", "target", "split"))
        done, best = f"{row['trials']}/{row['budget']}", terminal.percent(row["val_accuracy"])
        table.add_row(*names, done, str(row["failed"]), best)
    terminal.show(table)
    for row in rows:
        found = row["failure"] if row["settings"] is None else _dotted(row["settings"])
        terminal.say(f"{row['method']} on {row['target']}: {found}")


def _dotted(settings: dict[str, Any], path: str = "") -> str:
    """Settings on one line; what is nested gets dotted names."""
    return ", ".join(
        _dotted(value, f"{path}{name}.") if isinstance(value, dict) else f"{path}{name} {value}"
        for name, value in settings.items()
    )
