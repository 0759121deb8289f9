"""The figures of docs/reproduction.md as tables."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from graphglow.experiments import paper
from graphglow.experiments.figures import DAMAGED_GRAPHS, DAMAGES
from graphglow.experiments.lines import NAMES
from graphglow.experiments.plan import where_of
from graphglow.report.curves import meaning, measured_graphs
from graphglow.report.result_rows import row_of
from marked_page import NO_ROWS
from reproduction_cells import (
    NOTHING,
    TITLES,
    Grid,
    Notes,
    Place,
    Row,
    by_target,
    grid_of,
    in_order,
    machine,
    markdown,
    of,
    points,
    score,
    scores,
    spread,
)

SWEPT = {"lambda": "lambda, the weight of the input graph", "pivots": "P, the number of pivots"}
MEASURES = {
    "homophily": "homophily (Lim et al.)",
    "edge_homophily": "share of weight within classes",
    "neighbourhood_variance": "variance of neighbourhoods",
}


def time_table(rows: Sequence[Row]) -> str:
    """Seconds and memory on each graph, GraphGLOW's first."""
    if not of(rows, "time"):
        return NO_ROWS
    grid, notes, lines = grid_of("time", rows), Notes(), []
    for graph in in_order(grid.columns):
        for line, label in grid.labels.items():
            runs = grid.rows.get((line, graph), [])
            taken = [row["train_seconds"] for row in runs if timed(row)]
            peaks = [row["peak_memory_bytes"] for row in runs if row.get("peak_memory_bytes")]
            figures = [
                spread(taken, "{:.2f}".format) if taken else NOTHING,
                slower(grid, (line, graph)),
                f"{max(peaks) / 1e6:,.0f}" if peaks else NOTHING,
                "; ".join(dict.fromkeys(machine(row) for row in runs)) or NOTHING,
            ]
            lines.append([TITLES[graph], label, score(grid, (line, graph), notes), *figures])
    titles = ["target", "method", "test %", "seconds", "times GraphGLOW's", "peak MB", "on"]
    before = [row["pretrain_seconds"] for row in of(rows, "time") if row.get("pretrain_seconds")]
    told = f"\nPre-training took {spread(before, '{:.0f}'.format)} s.\n" if before else ""
    return markdown(titles, lines) + notes.markdown() + told


def timed(row: Row) -> bool:
    return bool(row.get("timed")) and row.get("train_seconds") is not None


def slower(grid: Grid, place: Place) -> str:
    """Seconds over those of GraphGLOW on the same machine, and what the paper says of that."""
    both = [grid.rows.get(at, []) for at in (place, ("graphglow", place[1]))]
    machines = [[where_of(row) for row in rows if timed(row)] for rows in both]
    theirs, ours = (
        [row for row in rows if timed(row) and all(where_of(row) in found for found in machines)]
        for rows in both
    )
    figure = paper.TIMES_FASTER.get(place[1], {}).get(place[0])
    told = f" (paper {figure:g})" if figure is not None else ""
    if not ours:
        return NOTHING + told
    seconds = [statistics.mean(row["train_seconds"] for row in group) for group in (theirs, ours)]
    return f"{seconds[0] / seconds[1]:.2g}{told}"


def ablation(rows: Sequence[Row]) -> str:
    """Each variant, and how far it is from the whole method."""
    if not of(rows, "ablation"):
        return NO_ROWS
    grid, notes = grid_of("ablation", rows), Notes()

    def beside(line: str, graph: str) -> str:
        whole, part = grid.cells.get(("full", graph)), grid.cells.get((line, graph))
        if line == "full" or not whole or not part or whole.mean is None or part.mean is None:
            return ""
        lost = paper.LOST_WITHOUT_ITERATION.get(graph) if line == "no-iteration" else None
        told = f"; paper {-100 * lost:+.1f}" if lost is not None else ""
        return f"{points(part.mean - whole.mean):+.1f}{told}"

    lines = [
        [label, *(score(grid, (line, g), notes, beside(line, g)) for g in grid.columns)]
        for line, label in grid.labels.items()
    ]
    return markdown(["variant", *(TITLES[g] for g in grid.columns)], lines) + notes.markdown()


def edges(rows: Sequence[Row]) -> str:
    """Methods by the share that is damaged; one block of lines for each graph and damage."""
    if not of(rows, "edges"):
        return NO_ROWS
    notes, ratios = Notes(), tuple[str, ...]()
    lines: list[list[str]] = []
    for graph in DAMAGED_GRAPHS:
        for kind in DAMAGES:

            def where(key: str, kind: str = kind, graph: str = graph) -> Place | None:
                damage, ratio, method, target = key.split("/")
                return (method, ratio) if (damage, target) == (kind, graph) else None

            grid = grid_of("edges", rows, where)
            ratios = grid.columns
            lines += [
                [TITLES[graph], label, *(score(grid, (line, r), notes) for r in ratios)]
                for line, label in grid.labels.items()
            ]
    titles = [f"{float(ratio):.0%}" for ratio in ratios]
    return markdown(["target", "method", *titles], lines) + notes.markdown()


def sensitivity(rows: Sequence[Row]) -> str:
    """A table for each of the two settings: its values by graphs."""
    if not of(rows, "sensitivity"):
        return NO_ROWS
    tables = []
    for name, title in SWEPT.items():

        def where(key: str, name: str = name) -> Place | None:
            setting, _, rest = key.partition("/")
            return by_target(rest) if setting == name else None

        grid = grid_of("sensitivity", rows, where)
        values = {value: value for value in sorted(grid.labels, key=float)}
        tables.append(scores(replace(grid, labels=values), first=title))
    return "\n".join(tables)


def degree(rows: Sequence[Row]) -> str:
    """Methods and c by graphs; GCN has no c."""
    if not of(rows, "degree"):
        return NO_ROWS

    def where(key: str) -> Place | None:
        value, _, rest = key.partition("/")
        if value == "gcn":
            return NAMES["gcn"], rest
        method, target = rest.split("/")
        return f"{NAMES[method]}, c = {value}", target

    grid = grid_of("degree", rows, where)
    return scores(replace(grid, labels={line: line for line in grid.labels}))


def homophily(rows: Sequence[Row]) -> str:
    """Measures of the input graph, and of the learned one before training and at the last look."""
    mine = [row for row in of(rows, "homophily") if row["metrics"]]
    if not mine:
        return NO_ROWS
    lines = []
    for graph in in_order(row["target"] for row in mine):
        found = [row["metrics"] for row in mine if row["target"] == graph]
        for name, measure in MEASURES.items():
            given = [m[f"input_{name}"] for m in found if m.get(f"input_{name}") is not None]
            figures = [spread(given[:1], "{:.3f}".format) if given else NOTHING]
            if name == "homophily":
                figures[0] += f" (paper {paper.HOMOPHILY[graph]:g})"
            for learned in (name, f"pivot_{name}"):
                for look in (0, -1):
                    values = [m[learned][look] for m in found if m.get(learned)]
                    known = [value for value in values if value is not None]
                    figures.append(spread(known, "{:.3f}".format) if known else NOTHING)
            lines.append([TITLES[graph], measure, *figures])
    titles = ["target", "measure", "input graph", "learned, before training", "after"]
    table = markdown([*titles, "to pivots, before training", "after"], lines)
    runs = [run for run in map(row_of, mine) if run is not None]
    said = "".join(f"- {sentence}\n" for sentence in meaning(measured_graphs(runs)))
    return f"{said}\n{table}" if said else table
