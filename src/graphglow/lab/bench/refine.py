"""Refinement and audit at size: seconds and peak memory of each stage, and a plain GCN beside them.

graphglow bench refine --targets cora pubmed
python -m graphglow.lab.bench.refine --nodes 1000000 --out results/bench_refine.jsonl
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import torch
from torch_geometric.data import Data

from graphglow.audit import audit
from graphglow.checks import at_least, in_unit_interval, one_of
from graphglow.competitors import fit
from graphglow.evidence.stages import watched
from graphglow.graph import load_graph, synthetic_graph
from graphglow.lab.bench import measure
from graphglow.lab.bench.config import BenchConfig, Row, quotient, stamped
from graphglow.refine import refine
from graphglow.storage import append_line
from graphglow.training.device import resolve_device


@dataclass(frozen=True, kw_only=True)
class RefineBench(BenchConfig):
    """Which graphs, by name or at random."""

    targets: tuple[str, ...] = ()
    """Graphs: names (see graphglow datasets) or files."""
    nodes: tuple[int, ...] = ()
    """Random graphs of so many nodes each."""
    edges: int = 0
    """Of a random graph; 0: ten per node."""
    features: int = 100
    """Of a random graph."""
    labels: float = 0.1
    """Share of a random graph's nodes that have a label."""
    what: Literal["refine", "audit", "both"] = "both"
    """What to measure."""
    gcn_epochs: int = 200
    """Of the plain GCN that is trained beside it; 0: none."""
    repeats: int = 1
    """How often it is measured; the median run is reported."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("what", self.what, ("refine", "audit", "both"))
        in_unit_interval("labels", self.labels)
        at_least("repeats", self.repeats, 1)
        at_least("edges", self.edges, 0)
        at_least("gcn_epochs", self.gcn_epochs, 0)
        for nodes in self.nodes:
            at_least("nodes", nodes, 20)


def run_refine(config: RefineBench, data_root: Path | None) -> Iterator[Row]:
    """One row per stage and one for the whole, of each graph, each in a process of its own."""
    for name in config.targets:
        load_graph(name, data_root=data_root)  # a bad name is refused before any process
    parts = ("refine", "audit") if config.what == "both" else (config.what,)
    targets: list[str | int] = [*config.targets, *config.nodes]
    for target in targets:
        seconds = {}
        for part in parts:
            rows = measure.in_fresh_process(measured, config, target, part, data_root)
            for row in rows or [{"part": part, "stage": "all", "out_of_memory": True}]:
                seconds[part] = row.get("seconds")
                yield config.facts() | {"target": str(target)} | row
        if config.gcn_epochs and isinstance(target, str):
            gcn = measure.in_fresh_process(gcn_seconds, config, target, data_root)
            yield config.facts() | {
                "target": target, "part": "gcn", "stage": "all", "seconds": gcn,
                "ratio": quotient(seconds.get("refine"), gcn),
            }  # fmt: skip


def graph_for(config: RefineBench, target: str | int, data_root: Path | None) -> Data:
    """A graph by name, or a random one."""
    if isinstance(target, str):
        return load_graph(target, data_root=data_root)
    edges = config.edges or 10 * target
    data = synthetic_graph(
        num_nodes=target,
        num_classes=10,
        num_features=config.features,
        average_degree=2 * edges / target,
        seed=config.seed,
    )
    drawn = torch.rand(target, generator=torch.Generator().manual_seed(config.seed))
    data.train_mask = drawn < config.labels
    return data


def measured(
    config: RefineBench, target: str | int, part: str, data_root: Path | None
) -> list[Row]:
    """The stages of the median run, in the order in which they began, and the whole."""
    device = resolve_device(config.device)
    data = graph_for(config, target, data_root)
    _one_run(config, load_graph("synthetic-small"), part, device)  # imports and kernels
    runs = [_one_run(config, data, part, device) for _ in range(config.repeats)]
    return sorted(runs, key=lambda rows: float(rows[-1]["seconds"]))[len(runs) // 2]


def _one_run(config: RefineBench, data: Data, part: str, device: torch.device) -> list[Row]:
    stages: dict[str, Spent] = {}
    highest = 0

    @contextmanager
    def watch(name: str) -> Iterator[None]:
        nonlocal highest
        highest = max(highest, measure.peak_since_reset(device))
        measure.reset_peak(device)
        before = _now(device)
        yield
        spent = stages.get(name, Spent(0.0, 0.0, 0))
        peak = measure.peak_since_reset(device)
        highest = max(highest, peak)
        stages[name] = spent.plus(before, _now(device), peak)

    started = _now(device)
    measure.reset_peak(device)
    with watched(watch):
        if part == "refine":
            made = refine(data, seed=config.seed, device=config.device)
            found = {"search": made.search, "edges": made.edge_index.shape[1] // 2}
        else:
            examined = audit(data, seed=config.seed, device=config.device).findings
            found = {"pairs": examined.pairs.shape[1]}
    ended = _now(device)
    highest = max(highest, measure.peak_since_reset(device))
    sizes = {"nodes": int(data.num_nodes), "input_edges": data.edge_index.shape[1] // 2} | found
    whole = Spent(0.0, 0.0, 0).plus(started, ended, highest)
    rest = [whole[i] - sum(spent[i] for spent in stages.values()) for i in (0, 1)]
    stages |= {"other": Spent(rest[0], rest[1], 0), "all": whole}
    return [
        {"part": part, "stage": name, **spent._asdict(), **sizes} for name, spent in stages.items()
    ]


class Spent(NamedTuple):
    """On one stage; on a machine that others use too, ``cpu_seconds`` are the better measure."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int

    def plus(self, before: tuple[float, float], after: tuple[float, float], peak: int) -> "Spent":
        wall, cpu = after[0] - before[0], after[1] - before[1]
        return Spent(self.seconds + wall, self.cpu_seconds + cpu, max(self.peak_bytes, peak))


def gcn_seconds(config: RefineBench, target: str, data_root: Path | None) -> float:
    """Seconds of training a plain GCN on the same device."""
    data = load_graph(target, data_root=data_root)

    def train(epochs: int) -> float:
        return fit("gcn", data, epochs=epochs, seed=config.seed, device=config.device).train_seconds

    train(5)
    return median(train(config.gcn_epochs) for _ in range(config.repeats))


def _now(device: torch.device) -> tuple[float, float]:
    """Wall and CPU seconds."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter(), time.process_time()


def main() -> None:
    """The same without the command line's packages; rows are added to a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    for field in fields(RefineBench):
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, tuple):
            kind = int if field.name == "nodes" else str
            parser.add_argument(flag, nargs="*", type=kind, default=field.default)
        else:
            parser.add_argument(flag, type=type(field.default), default=field.default)
    given: dict[str, Any] = vars(parser.parse_args())
    given |= {name: tuple(given[name]) for name in ("targets", "nodes")}
    out = given.pop("out")
    config = RefineBench(**given)
    for row in stamped("refine", resolve_device(config.device), run_refine(config, None)):
        append_line(out, json.dumps(row))


if __name__ == "__main__":
    main()
