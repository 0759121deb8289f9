"""``graphglow search``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from torch_geometric.data import Data
from tyro.conf import arg

from graphglow.checks import at_least
from graphglow.commands import terminal
from graphglow.commands.files import check_output
from graphglow.commands.flags import GraphFlags, Json, ManyGraphFlags, OptionalLearner
from graphglow.errors import InputError
from graphglow.graph import DATASETS
from graphglow.graph.load import check_source, data_folder
from graphglow.lab.search.settings import read_settings
from graphglow.lab.search.space import SearchConfig, check_methods, has_learner
from graphglow.pretrained import paper_learner
from graphglow.workers.executor import open_executor, ray_address

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
        sources: Graphs to pre-train graphglow on; a target is left out of its own sources.
        learner: Instead of sources, a learner that comes with graphglow (universal) or a file from
            graphglow pretrain: then only the transfer is searched.
        storage: Where trials are kept: a file (SQLite), or the URL of a database that Optuna takes.
        learners: Where pre-trained learners are kept for other trials and workers.
        settings: Where the best settings are written, beside those of other methods and targets;
            the facts of each search go to search.jsonl beside it.
        split: The split of the Facebook graphs: that of the paper's authors (split.npz beside the
            raw files) or a random one. It must be the one that is reported on later.
        executor: Where trials are made: local, on this machine; ray, on the Ray cluster that this
            machine has or gets; ray:ADDRESS, on another. Needs Ray: pip install "graphglow[ray]".
        processes: Trials (or rounds of --trials-at-once) at the same time. Without it, one; with
            --executor ray, one per CPU of the cluster, or per GPU.
    """
    if not methods or not targets:
        raise InputError("search needs at least one method and one target; got none")
    check_methods(methods, sources, learner)
    at_least("processes", 1 if processes is None else processes, 1)
    for name in (*sources, *targets):
        check_source(name)
    ray = ray_address(executor)
    settings = check_output(settings, overwrite=True, suffixes=(".json",), shared=True)
    read_settings(settings)
    theta = paper_learner(learner) if learner is not None else None
    from graphglow.lab.search import study  # needs Optuna

    rows: list[dict[str, Any]] = []
    with (
        open_executor(processes or (1 if ray is None else None), ray, device=config.device) as jobs,
        terminal.job_bar() as told,
    ):
        others = [_read(name, split, reading)[0] for name in sources]
        for target in targets:
            data, called = _read(target, split, reading)
            left = [graph for graph in others if graph.name != data.name]
            if others and not left:
                raise InputError(f"sources must be other graphs than the target; got only {target}")
            for method in methods:
                row = study.search(
                    method,
                    data,
                    config,
                    storage=storage,
                    learners=learners.expanduser(),
                    settings=settings,
                    sources=left if has_learner(method) else (),
                    learner=theta if has_learner(method) else None,
                    split=called,
                    told=told,
                    executor=jobs,
                )
                rows.append(row)
    if all(row["settings"] is None for row in rows):
        raise InputError(f"a trial must succeed; got none in {len(rows)} ({rows[0]['failure']})")
    if json:
        terminal.print_json({"command": "search", "settings": settings, "rows": rows})
        return
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


def _show(rows: Sequence[dict[str, Any]]) -> None:
    columns = ("method", "target", "split", "trials", "failed", "validation")
    lines = [
        (*(row[name] for name in columns[:3]), f"{row['trials']}/{row['budget']}",
         str(row["failed"]), terminal.percent(row["val_accuracy"]))
        for row in rows
    ]  # fmt: skip
    terminal.show_rows(columns, lines, "Best settings, by validation accuracy")
    for row in rows:
        found = row["failure"] if row["settings"] is None else _dotted(row["settings"])
        terminal.say(f"{row['method']} on {row['target']}: {found}")


def _dotted(settings: dict[str, Any], path: str = "") -> str:
    """Settings on one line; what is nested gets dotted names."""
    return ", ".join(
        _dotted(value, f"{path}{name}.") if isinstance(value, dict) else f"{path}{name} {value}"
        for name, value in settings.items()
    )
