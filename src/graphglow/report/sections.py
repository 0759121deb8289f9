"""What a page says about an experiment or a transfer, before it becomes HTML."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from graphglow.experiments.paper import cells
from graphglow.experiments.paper.lines import NAMES
from graphglow.experiments.wording import by_degree, counted, shortened
from graphglow.report.comparison import Comparison, compare, line_names, target_column
from graphglow.report.experiment_texts import EXPERIMENTS
from graphglow.report.figure import Chart
from graphglow.report.learned_structure import LearnedStructure, ListedEdge, Share
from graphglow.report.measured_graphs import (
    Measured,
    meaning,
    measured_graphs,
    of_two_graphs,
    spread,
)
from graphglow.report.result_rows import OURS, ResultRow
from graphglow.report.sweeps import INPUT, Sweep, sweeps, swept
from graphglow.report.theme import SeriesStyle, series_styles
from graphglow.report.verdicts import Verdicts, verdict_tables, verdicts
from graphglow.training import TransferConfig


@dataclass(frozen=True)
class SpreadTable:
    """Metrics, mean and standard deviation, by line: ``rows`` holds (target, line, values)."""

    metrics: list[str]
    rows: list[tuple[str, str, list[tuple[float, float | None] | None]]]


@dataclass
class ExperimentSection:
    """One experiment. ``charts`` are by heading; the page fills them in."""

    name: str
    title: str
    about: tuple[str, ...]
    """Paragraphs."""
    verdicts: list[str]
    judged: list[Verdicts]
    notes: list[str]
    table: Comparison | None
    swept_tables: list[tuple[str, Comparison]]
    metrics: SpreadTable | None
    graphs: list[Measured]
    sweeps: list[Sweep]
    charts: dict[str, list[Chart]] = field(default_factory=dict)


def experiment_sections(rows: Sequence[ResultRow]) -> list[ExperimentSection]:
    """A section for each experiment, known ones first and in the paper's order."""
    known = list(EXPERIMENTS)
    names = sorted(
        dict.fromkeys(row.experiment for row in rows),
        key=lambda name: known.index(name) if name in known else len(known),
    )
    return [_section(name, _of_experiment(name, rows)) for name in names]


def _of_experiment(name: str, rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Its rows, in the order of the paper's tables whatever the order in which they were made."""
    known = cells.EXPERIMENTS[name]() if name in cells.EXPERIMENTS else ()
    places = {cell.key: place for place, cell in enumerate(known)}
    mine = [row for row in rows if row.experiment == name]
    return sorted(mine, key=lambda row: places.get(row.cell, len(places)))


def _section(name: str, rows: list[ResultRow]) -> ExperimentSection:
    plain = [row for row in rows if row.x is None]
    column = target_column(rows)
    table = compare(plain, column) if any(r.test_accuracy is not None for r in plain) else None
    title, *about = EXPERIMENTS.get(name, (name,))
    graphs = measured_graphs(rows)
    return ExperimentSection(
        name=name,
        title=title,
        about=tuple(about),
        verdicts=meaning(graphs) or (verdicts(table) if table else []),
        judged=verdict_tables(table) if table else [],
        notes=_notes(rows),
        table=table,
        swept_tables=_swept_tables([row for row in rows if row.x is not None]),
        metrics=_metrics(rows),
        graphs=graphs,
        sweeps=sweeps(rows),
    )


def _swept_tables(rows: list[ResultRow]) -> list[tuple[str, Comparison]]:
    """The figures behind the curves: one table per target and swept setting."""
    column = target_column(rows)
    groups: dict[tuple[str, str], list[ResultRow]] = {}
    for row in sorted(rows, key=lambda row: row.x or 0.0):
        groups.setdefault((column(row), swept(row)), []).append(row)
    return [
        (f"{target} by {axis}", compare(group, lambda row: f"{row.x:g}"))
        for (target, axis), group in groups.items()
        if any(row.test_accuracy is not None for row in group)
    ]


def _metrics(rows: list[ResultRow]) -> SpreadTable | None:
    """Metrics that are numbers, of rows that sweep nothing."""
    plain = [row for row in rows if row.x is None]
    elsewhere = {f"{INPUT}{name}" for row in plain for name in of_two_graphs(row)}
    metrics = [
        metric
        for metric in dict.fromkeys(name for row in plain for name in row.metrics)
        if metric not in elsewhere
        and any(isinstance(row.metrics.get(metric), float) for row in plain)
    ]
    column = target_column(plain)
    names = line_names(plain, column)
    grouped: dict[tuple[str, str], list[ResultRow]] = {}
    for row in plain:
        grouped.setdefault((column(row), names[row.cell]), []).append(row)
    lines = []
    for (target, name), group in grouped.items():
        values = [spread([row.metrics.get(metric) for row in group]) for metric in metrics]
        if any(value is not None for value in values):
            lines.append((target, name, values))
    return SpreadTable(metrics, lines) if lines else None


def _notes(rows: list[ResultRow]) -> list[str]:
    """What a reader must know before comparing: splits, machines, batches."""
    notes = []
    splits: dict[str, list[str]] = {}
    for row in rows:
        if row.split and row.target not in splits.setdefault(row.split, []):
            splits[row.split].append(row.target)
    if splits:
        told = "; ".join(f"{split} on {', '.join(targets)}" for split, targets in splits.items())
        notes.append(f"Split: {told}.")
    if _shared_learner(rows):
        notes.append(
            "One pre-trained learner serves all seeds of a cell: standard deviations are over "
            "seeds of the transfer only."
        )
    devices = Counter(row.device for row in rows if row.device)
    if len(devices) > 1:
        told = ", ".join(f"{number:,} on {device}" for device, number in devices.most_common())
        notes.append(f"Runs by device: {told}; the same seed draws other numbers on another.")
    timed = [row for row in rows if row.seconds is not None]
    machines = sorted({_machine(row) for row in timed} - {""})
    if len(machines) > 1:
        notes.append(
            f"Times were taken on different machines ({'; '.join(machines)}): compare them within "
            "one machine only."
        )
    if any(row.runs_at_once > 1 for row in timed):
        notes.append(
            "Some seeds were trained together as one batch; their time is that of the batch."
        )
    if any(row.processes > 1 for row in timed):
        notes.append("Some runs shared their machine with others, which makes them slower.")
    mixed = {row.cell: row for row in rows if row.left_out}
    if mixed:
        runs = counted(sum(row.left_out for row in mixed.values()), "run")
        of = shortened(dict.fromkeys(f"{row.label} on {row.target}" for row in mixed.values()))
        notes.append(
            f"Left out, since the newest run of the same cell had other settings: {runs} of {of}."
        )
    failures = dict.fromkeys(
        f"{row.label} on {row.target}: {row.error}"
        for row in rows
        if row.error and row.test_accuracy is None
    )
    return notes + [f"No result from {failure}." for failure in failures]


def _shared_learner(rows: Sequence[ResultRow]) -> bool:
    """Whether several seeds of a cell have the same pre-trained learner."""
    learners: dict[str, list[int]] = {}
    for row in rows:
        if row.learner_seed is not None:
            learners.setdefault(row.cell, []).append(row.learner_seed)
    return any(len(seeds) > len(set(seeds)) for seeds in learners.values())


def _machine(row: ResultRow) -> str:
    machine = row.provenance.get("machine")
    if not isinstance(machine, dict):
        return row.device
    if row.device == "cuda" and machine.get("gpu"):
        return str(machine["gpu"])
    return f"{machine.get('cpu')}, {machine.get('cores')} CPU cores"


def page_styles(sections: Sequence[ExperimentSection]) -> dict[str, SeriesStyle]:
    """One style per line for the whole page: that of its method.

    Where a table or chart has several lines of one method, each gets a style of its own, but for
    the one that goes by the method's name.
    """
    groups: list[dict[str, str]] = []  # line -> method, for all that is seen together
    for section in sections:
        tables = [section.table, *(table for _, table in section.swept_tables)]
        groups += [{line.name: line.method for line in t.lines} for t in tables if t]
        groups += [{c.name: c.method for c in sweep.curves} for sweep in section.sweeps]
    keys = {name: method for group in groups for name, method in group.items()}
    for group in groups:
        methods = list(group.values())
        for name, method in group.items():
            called = (method, NAMES.get(method, method).lower())
            if methods.count(method) > 1 and name.lower() not in called:
                keys[name] = f"line {name}"
    first = [method for method in OURS if method in keys.values()]
    styles = series_styles([*first, *keys.values()], OURS)
    return {name: styles[key] for name, key in keys.items()}


@dataclass
class TransferSection:
    """One saved transfer."""

    path: str
    title: str
    facts: dict[str, str]
    graphs: dict[str, Share]
    refined: bool
    """Whether the refined graph is among them; of a very large graph it is not."""
    new_edges: list[dict[str, Any]]
    strengthened: list[dict[str, Any]]
    class_names: list[str]
    confusion: list[list[int]] | None
    num_nodes: int
    charts: dict[str, Chart] = field(default_factory=dict)


def transfer_section(path: str, structure: LearnedStructure) -> TransferSection:
    """The words and tables of a transfer."""
    result = structure.result
    facts = result.summary()
    accuracy = facts["test_accuracy"]
    confusion = structure.confusion()
    refined = structure.refined_edges
    graphs = {"input graph": structure.share(structure.input_edges)}
    if refined is not None:
        graphs["refined graph"] = structure.share(refined)
    graphs["learned graph alone"] = structure.learned_share()
    sources = result.learner.provenance.get("sources")
    shown = {
        "test accuracy": "no test nodes" if accuracy is None else f"{100 * accuracy:.1f} %",
        "validation accuracy": f"{100 * facts['val_accuracy']:.1f} %",
        "method": f"{facts['method']} ({facts['backbone']})",
        "epochs": f"{facts['epochs']:,}",
        "training": f"{facts['train_seconds']:.1f} s",
        "seed": str(facts["seed"]),
        "nodes": f"{structure.num_nodes:,}",
        "classes": str(result.graph.num_classes),
        "pivots": f"{len(result.pivots):,}",
        "input weight": _input_weight(result.config),
    }
    if isinstance(sources, list):
        shown["pre-trained on"] = ", ".join(map(str, sources))
    return TransferSection(
        path=path,
        title=str(facts["target"]),
        facts=shown,
        graphs=graphs,
        refined=refined is not None,
        new_edges=[_edge(structure, edge) for edge in structure.strongest(new=True)],
        strengthened=[_edge(structure, edge) for edge in structure.strongest(new=False)],
        class_names=structure.class_names,
        confusion=None if confusion is None else confusion.tolist(),
        num_nodes=structure.num_nodes,
    )


def _input_weight(config: TransferConfig) -> str:
    """Lambda as a page says it."""
    if config.latent_degree is None:
        return f"{config.input_weight:g}"
    return by_degree(config.latent_degree)


def _edge(structure: LearnedStructure, edge: ListedEdge) -> dict[str, Any]:
    ends = structure.class_of(edge.source), structure.class_of(edge.target)
    labelled = int(structure.y[edge.source]) >= 0 and int(structure.y[edge.target]) >= 0
    return {
        "source": structure.node_names[edge.source],
        "target": structure.node_names[edge.target],
        "source_class": ends[0],
        "target_class": ends[1],
        "same": (ends[0] == ends[1]) if labelled else None,
        **{name: getattr(edge, name) for name in ("weight", "input_part", "learned_part")},
    }
