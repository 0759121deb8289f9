"""What a page says about an experiment or a transfer, before it becomes HTML."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from graphglow.report.comparison import (
    Comparison,
    Verdicts,
    compare,
    line_names,
    target_column,
    verdict_table,
    verdicts,
)
from graphglow.report.figure import Chart
from graphglow.report.learned_structure import LearnedStructure, ListedEdge, Share
from graphglow.report.measured_graphs import Measured, measured_graphs, of_two_graphs, spread
from graphglow.report.result_rows import OURS, ResultRow
from graphglow.report.sweeps import INPUT, Sweep, sweeps, swept
from graphglow.report.theme import SeriesStyle, series_styles

EXPERIMENTS: dict[str, tuple[str, ...]] = {
    "table1": (
        "Table 1: transfer within a domain",
        "The learner is pre-trained on the other graphs of the target's own domain.",
    ),
    "table2": (
        "Table 2: transfer across domains",
        "The learner is pre-trained on graphs of the other domain only.",
    ),
    "time": (
        "Accuracy and training time",
        "Structure learners that are trained on the target from scratch, beside a transferred one.",
    ),
    "ablation": ("Ablations", "The same model with one part taken away or replaced at a time."),
    "edges": (
        "Damaged graphs",
        "Edges are deleted or added at random, or features shuffled, before anything is trained.",
    ),
    "homophily": (
        "Homophily of the learned graph",
        "How much the learned graph joins nodes of one class while the GNN is trained, beside the "
        "input graph. Two learned graphs are measured, for the paper does not say which it means: "
        "the one from nodes to pivots, which the learner infers, and the one of two steps, node to "
        "pivots to node, which messages go over.",
        "Class-insensitive homophily (Lim et al., 2021) is the paper's measure: how much more a "
        "class hears of itself than its share of the nodes. The two-step graph joins nearly every "
        "pair of nodes, so that there it may stay near 0, and below that of the input graph, even "
        "where the learner tells classes apart. Edge homophily is the share of all weight that "
        "lies within classes; it depends on their sizes, and is 0.5 by chance where two are equal.",
    ),
    "sensitivity": (
        "Sensitivity",
        "One setting is varied at a time; all others stay.",
    ),
    "encoder": (
        "Encoder",
        "Embeddings for the structure learner from an MLP or from a GCN layer.",
    ),
    "competitors": (
        "Competitors",
        "Every method tuned on validation accuracy, with the same splits and early stopping.",
    ),
    "transfer_accuracy": (
        "Transfer and its controls",
        "Rows of benchmarks/transfer_accuracy.py; settings are part of each name.",
    ),
}
"""Title and paragraphs for experiments that are known; others go by their name."""


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
    judged: Verdicts | None
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
    return [_section(name, [row for row in rows if row.experiment == name]) for name in names]


def _section(name: str, rows: list[ResultRow]) -> ExperimentSection:
    plain = [row for row in rows if row.x is None]
    column = target_column(rows)
    table = compare(plain, column) if any(r.test_accuracy is not None for r in plain) else None
    title, *about = EXPERIMENTS.get(name, (name,))
    return ExperimentSection(
        name=name,
        title=title,
        about=tuple(about),
        verdicts=verdicts(table) if table else [],
        judged=verdict_table(table) if table else None,
        notes=_notes(rows),
        table=table,
        swept_tables=_swept_tables([row for row in rows if row.x is not None]),
        metrics=_metrics(rows),
        graphs=measured_graphs(rows),
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
    timed = [row for row in rows if row.train_seconds is not None]
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
    failures = dict.fromkeys(
        f"{row.label} on {row.target}: {row.error}"
        for row in rows
        if row.error and row.test_accuracy is None
    )
    return notes + [f"No result from {failure}." for failure in failures]


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
            if methods.count(method) > 1 and name.lower() != method:
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
        "input weight": f"{result.config.input_weight:g}",
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
