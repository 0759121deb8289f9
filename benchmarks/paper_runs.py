"""Make the runs of the paper's tables in processes that share a GPU, several at once in each.

    python benchmarks/paper_runs.py table2 table1 --out rows --seconds 400 --together 8

The rows are those of ``graphglow reproduce``, which makes one run after the other. Seeds come in
rounds of five, small graphs first, so that what is left when the time is over is the least missed.
Several processes share a GPU well only under MPS: start ``nvidia-cuda-mps-control -d`` first.
"""

import argparse
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch

from graphglow.competitors import METHODS
from graphglow.device import resolve_device
from graphglow.gnn.train import Loop, Task, accuracy
from graphglow.graph import Graph, check_graph, training_graph
from graphglow.lab import runs
from graphglow.lab.config import RunsConfig, read_settings
from graphglow.lab.paper_tables import TRANSFERRED, select_cells
from graphglow.lab.row_files import Row, as_line, file_of, provenance, rows_in
from graphglow.paper.algorithms import PaperTask
from graphglow.paper.learner import StructureLearner
from graphglow.storage import append_line
from measuring import RESULTS
from search import LARGE
from together import Interleaved, as_they_end, train_together

Group = list[tuple[runs.CellRun, list[Row]]]
LINES = ("graphglow-on", "random-on", "equal-on", "gcn", "graphglow", "random-theta")
ROUND = 5
"""Seeds that are made before the next ones of any line."""


@cache
def graph_of(name: str, root: Path | None, device: str) -> tuple[Graph, torch.Tensor, torch.Tensor]:
    """Return a graph on its device, its test nodes and their labels."""
    data = check_graph(runs.load_with_split(name, root))
    graph = training_graph(data).to(resolve_device(device))
    nodes = data.test_mask.nonzero().flatten()
    return graph, nodes.to(graph.device), data.y[nodes].to(graph.device)


def task_of(run: runs.CellRun, graph: Graph, folder: Path) -> Task:
    """Return what is trained in a run."""
    if run.cell.method not in TRANSFERRED:
        return METHODS[run.cell.method].build(graph, run.config)
    assert run.pretraining is not None
    learner = StructureLearner.load(learner_file(folder, run.pretraining))
    learner = learner.to(graph.device).requires_grad_(False).eval()
    return PaperTask(graph, learner, run.config)  # type: ignore[arg-type]


def learner_file(folder: Path, wanted: runs.Pretraining) -> Path:
    return folder / f"{wanted.key}.safetensors"


def make(job: tuple[str, Any, Path, Path | None]) -> tuple[str, Any, list[Row] | None]:
    """Pre-train a learner or make a group of runs; return it and its rows, None where it failed."""
    name, what, folder, root = job
    torch.set_float32_matmul_precision("highest")
    began = time.perf_counter()
    try:
        if isinstance(what, runs.Pretraining):
            runs.pretrained_learner(root, what)[1].save(learner_file(folder, what))
            made: list[Row] = []
        else:
            made = group_rows(what, folder, root, began)
    except Exception as error:
        print(f"lost {name}: {runs.sentence(error)}", flush=True)
        return name, what, None
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return name, what, made


def group_rows(group: Group, folder: Path, root: Path | None, began: float) -> list[Row]:
    """Train all runs of a group, which have a graph in common; return their rows."""
    first = group[0][0]
    graph, nodes, labels = graph_of(first.cell.target, root, first.config.device)
    tasks = [task_of(run, graph, folder) for run, _ in group]
    loops: list[Loop]
    if len(group) > 1:
        each = [(task, run.config) for task, (run, _) in zip(tasks, group, strict=True)]
        loops = [Interleaved(task, config.epochs, config.patience) for task, config in each]
        train_together(loops)  # type: ignore[arg-type]
        histories = [loop.history for loop in loops]  # type: ignore[attr-defined]
    else:
        loops = [Loop(tasks[0], first.config.epochs, first.config.patience)]
        histories = [loops[0].run()]
    rows, origin = [], provenance()
    for (_, asked), task, loop, history in zip(group, tasks, loops, histories, strict=True):
        found = {
            "test_accuracy": float(accuracy(task.logits(), nodes, labels)),
            "val_accuracy": history[int(loop.best) - 1].val_accuracy,
            "epochs": len(history),
            "together": len(group),
            "group_seconds": round(time.perf_counter() - began, 2),
            "device": str(graph.device),
            "provenance": origin,
        }
        rows += [facts | found for facts in asked]
    return rows


class Jobs:
    """Hands out what can be made now: learners first, then groups whose learners are there."""

    def __init__(self, plan: runs.Plan, args: argparse.Namespace, folder: Path) -> None:
        self.folder, self.args = folder, args
        self.asked, self.made = set[str](), set[str]()  # keys of learners
        self.again = list[Any]()  # what failed once
        groups: dict[tuple[Any, ...], Group] = {}
        for run, rows in plan.jobs:
            round_, large = run.config.seed // ROUND, run.cell.target in LARGE
            experiment = args.experiments.index(run.cell.experiment)
            key = (round_, experiment, large, run.cell.target, run.cell.line)
            groups.setdefault(key, []).append((run, rows))
        self.groups: list[Group] = []
        for key in sorted(groups):
            size = 1 if key[2] else args.together
            whole = groups[key]
            self.groups += [whole[at : at + size] for at in range(0, len(whole), size)]

    def next(self) -> tuple[str, Any, Path, Path | None] | None:
        """Return the first group whose learners are there, or a learner that one needs."""
        for group in self.groups:
            wanted = {run.pretraining for run, _ in group if run.pretraining}
            lacking = [one for one in wanted if one.key not in self.asked]
            if lacking:
                self.asked.add(lacking[0].key)
                return f"learner {lacking[0].key}", lacking[0], self.folder, self.args.data_root
            if {one.key for one in wanted} <= self.made:
                self.groups.remove(group)
                cell = group[0][0].cell
                return f"{cell.line} on {cell.target}", group, self.folder, self.args.data_root
        return None

    def put_back(self, what: Any) -> None:
        """Try a job that failed once more."""
        if any(what is one or what == one for one in self.again):
            return
        self.again.append(what)
        if isinstance(what, runs.Pretraining):
            self.asked.discard(what.key)
        else:
            self.groups.append(what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--lines", nargs="+", default=LINES)
    parser.add_argument("--targets", nargs="+", default=())
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--together", type=int, default=1, help="runs of a process at once")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--settings", default="tuned")
    parser.add_argument("--out", type=Path, default=RESULTS / "reproduce", help="folder of rows")
    parser.add_argument("--data-root", type=Path)
    args = parser.parse_args()
    config = RunsConfig(seeds=args.seeds, device=args.device)
    found = [c for name in args.experiments for c in select_cells(name, (), args.targets)]
    cells = [cell for cell in found if cell.line in args.lines]
    tuned = read_settings(args.settings)
    plan = runs.plan_cells(cells, rows_in(args.out, args.experiments), config, tuned)
    args.out.mkdir(parents=True, exist_ok=True)
    for row in plan.copies:
        append_line(file_of(args.out, row["experiment"]), as_line(row))
    began, count = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        jobs = Jobs(plan, args, Path(folder))
        print(f"{len(plan.jobs)} runs", flush=True)
        ended = as_they_end(make, jobs.next, processes=args.processes, seconds=args.seconds)
        for result in ended:
            if isinstance(result, BaseException):
                print(f"lost: {result!r}", flush=True)
                continue
            name, what, made = result
            if made is None:
                jobs.put_back(what)
                continue
            if isinstance(what, runs.Pretraining):
                jobs.made.add(what.key)
            for row in made:
                append_line(file_of(args.out, row["experiment"]), as_line(row))
                count += 1
            print(f"{time.monotonic() - began:.0f} s, {count} rows: {name}", flush=True)
        ended.close()
    print(f"{count} rows")


if __name__ == "__main__":
    main()
