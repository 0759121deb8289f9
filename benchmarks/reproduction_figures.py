"""The figures of docs/reproduction.md as tables, and the searches behind its settings."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphglow.lab import paper as numbers
from graphglow.lab.paper import GRAPHS, LEARNED_ON, NAMES, OWN_LINES
from graphglow.lab.paper.cells import DAMAGED_GRAPHS, DAMAGES
from graphglow.lab.runs.rows import ResultRow
from graphglow.report.curves import meaning, measured_graphs
from marked_page import NO_ROWS, markdown
from reproduction_cells import (
    NOTHING,
    TITLES,
    Grid,
    Notes,
    Place,
    Shown,
    by_target,
    grid_of,
    machine,
    percent,
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
LABELS = {**NAMES, **{key: label for key, (_, label) in OWN_LINES.items()}}

Study = dict[str, Any]
"""The row of a search."""


def time_table(shown: Shown) -> str:
    """Seconds and memory on each graph, GraphGLOW's first."""
    grid, notes, lines = grid_of("time", shown), Notes(), []
    for graph in (graph for graph in GRAPHS if graph in grid.columns):
        for line, label in grid.labels.items():
            runs = grid.rows.get((line, graph), [])
            taken = [row.train_seconds for row in runs if timed(row)]
            peaks = [row.peak_memory_bytes for row in runs if row.peak_memory_bytes]
            figures = [
                spread(taken, "{:.2f}".format) if taken else NOTHING,
                slower(grid, (line, graph)),
                f"{max(peaks) / 1e6:,.0f}" if peaks else NOTHING,
                "; ".join(dict.fromkeys(machine(row) for row in runs)) or NOTHING,
            ]
            lines.append([TITLES[graph], label, score(grid, (line, graph), notes), *figures])
    titles = ["target", "method", "test %", "seconds", "times GraphGLOW's", "peak MB", "on"]
    before = [row.pretrain_seconds for row in shown.of("time") if row.pretrain_seconds]
    told = f"\nPre-training took {spread(before, '{:.0f}'.format)} s.\n" if before else ""
    return markdown(titles, lines) + notes.markdown() + told


def timed(row: ResultRow) -> bool:
    return bool(row.timed) and row.train_seconds is not None


def slower(grid: Grid, place: Place) -> str:
    """Seconds over those of GraphGLOW on the same machine, and what the paper says of that."""
    both = [
        [row for row in grid.rows.get(at, []) if timed(row)]
        for at in (place, ("graphglow", place[1]))
    ]
    machines = [[(row.device, row.threads, machine(row)) for row in rows] for rows in both]
    theirs, ours = (
        [
            row
            for row, made in zip(rows, where, strict=True)
            if made in machines[0] and made in machines[1]
        ]
        for rows, where in zip(both, machines, strict=True)
    )
    figure = numbers.TIMES_FASTER.get(place[1], {}).get(place[0])
    told = f" (paper {figure:g})" if figure is not None else ""
    if not ours:
        return NOTHING + told
    seconds = [statistics.mean(row.train_seconds or 0 for row in rows) for rows in (theirs, ours)]
    return f"{seconds[0] / seconds[1]:.2g}{told}"


def ablation(shown: Shown) -> str:
    """Each variant, and how far it is from the whole method."""
    grid, notes = grid_of("ablation", shown), Notes()

    def beside(line: str, graph: str) -> str:
        whole, part = grid.cells.get(("full", graph)), grid.cells.get((line, graph))
        if line == "full" or not whole or not part or whole.mean is None or part.mean is None:
            return ""
        lost = numbers.LOST_WITHOUT_ITERATION.get(graph) if line == "no-iteration" else None
        told = f"; paper {-100 * lost:+.1f}" if lost is not None else ""
        return f"{points(part.mean - whole.mean):+.1f}{told}"

    lines = [
        [label, *(score(grid, (line, g), notes, beside(line, g)) for g in grid.columns)]
        for line, label in grid.labels.items()
    ]
    return markdown(["variant", *(TITLES[g] for g in grid.columns)], lines) + notes.markdown()


def edges(shown: Shown) -> str:
    """Methods by the share that is damaged; one block of lines for each graph and damage."""
    notes, ratios = Notes(), tuple[str, ...]()
    lines: list[list[str]] = []
    for graph in DAMAGED_GRAPHS:
        for kind in DAMAGES:

            def where(key: str, kind: str = kind, graph: str = graph) -> Place | None:
                damage, ratio, method, target = key.split("/")
                return (method, ratio) if (damage, target) == (kind, graph) else None

            grid = grid_of("edges", shown, where)
            ratios = grid.columns
            lines += [
                [TITLES[graph], label, *(score(grid, (line, r), notes) for r in ratios)]
                for line, label in grid.labels.items()
            ]
    titles = [f"{float(ratio):.0%}" for ratio in ratios]
    return markdown(["target", "method", *titles], lines) + notes.markdown()


def sensitivity(shown: Shown) -> str:
    """A table for each of the two settings: its values by graphs."""
    tables = []
    for name, title in SWEPT.items():

        def where(key: str, name: str = name) -> Place | None:
            setting, _, rest = key.partition("/")
            return by_target(rest) if setting == name else None

        grid = grid_of("sensitivity", shown, where)
        values = {value: value for value in sorted(grid.labels, key=float)}
        tables.append(scores(replace(grid, labels=values), first=title))
    return "\n".join(tables)


def homophily(shown: Shown) -> str:
    """Measures of the input graph, and of the learned one before training and at the last look."""
    mine = [row for row in shown.of("homophily") if row.metrics]
    if not mine:
        return NO_ROWS
    lines = []
    for graph in (graph for graph in GRAPHS if graph in {row.target for row in mine}):
        found: list[dict[str, Any]] = [dict(r.metrics) for r in mine if r.target == graph]
        for name, measure in MEASURES.items():
            given = [m[f"input_{name}"] for m in found if f"input_{name}" in m]
            figures = [spread(given[:1], "{:.3f}".format) if given else NOTHING]
            if name == "homophily":
                figures[0] += f" (paper {numbers.HOMOPHILY[graph]:g})"
            for learned in (name, f"pivot_{name}"):
                for look in (0, -1):
                    values = [m[learned][look] for m in found if m.get(learned)]
                    known = [value for value in values if value is not None]
                    figures.append(spread(known, "{:.3f}".format) if known else NOTHING)
            lines.append([TITLES[graph], measure, *figures])
    titles = ["target", "measure", "input graph", "learned, before training", "after"]
    table = markdown([*titles, "to pivots, before training", "after"], lines)
    said = "".join(f"- {sentence}\n" for sentence in meaning(measured_graphs(mine)))
    return f"{said}\n{table}" if said else table


# Searches


def searches(path: Path) -> list[Study]:
    """The rows of searches, and of what stands in for one; a line that was cut short is none."""
    rows: list[Study] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and row.get("experiment") == "search" and "settings" in row:
            rows.append(row)
    return rows


def search(found: Sequence[Study]) -> str:
    """Validation accuracy of the settings taken, and how each came about."""
    studies = {(row["method"], row["target"], sought(row)): row for row in found}  # the last
    if not studies:
        return NO_ROWS
    known = list(LABELS)
    names = sorted(
        {(method, kind) for method, _, kind in studies},
        key=lambda name: (known.index(name[0]) if name[0] in known else len(known), name),
    )
    lines = []
    for method, kind in names:
        label = LABELS.get(method, method) + (f", {kind}" if kind else "")
        mine = [studies.get((method, graph, kind)) for graph in GRAPHS]
        lines.append([label, *(came_about(row) if row else NOTHING for row in mine)])
    titles = ["method", *(TITLES[graph] for graph in GRAPHS)]
    return f"{summary(list(studies.values()))}\n\n{markdown(titles, lines)}"


def summary(rows: Sequence[Study]) -> str:
    """How many entries came about in which way, and what the trials took."""
    made = [row for row in rows if "budget" in row]
    hours = sum(row["trial_seconds"] for row in made) / 3600
    failed = sum(row["failed"] for row in made)
    borrowed = sum("borrowed_from" in row for row in rows)
    taken = sum("taken_from" in row for row in rows)
    where = ", ".join(dict.fromkeys(machine(row) for row in made))
    return (
        f"{len(made):,} searches: {sum(row['trials'] for row in made):,} trials, {failed:,} of "
        f"them failed, {hours:.1f} hours{f' on {where}' if where else ''}. "
        f"Entries borrowed: {borrowed:,}; taken: {taken:,}."
    )


def came_about(row: Study) -> str:
    """``82.4 (30 x 2)``: validation accuracy, trials and runs of each; or where it comes from."""
    if "found_by" in row:
        return settled(row)
    if "borrowed_from" in row:
        return f"of {TITLES.get(row['borrowed_from'], row['borrowed_from'])}"
    if "taken_from" in row:
        return f"taken ({row['drawn']})" if row.get("drawn") else "taken (not searched)"
    short = row["trials"] < row["budget"]
    trials = f"{row['trials']} of {row['budget']}" if short else f"{row['trials']}"
    told = f"({trials} x {row['seeds_per_trial']})"
    if row["val_accuracy"] is None:
        return f"all failed {told}" if row["trials"] else f"none {told}"
    return f"{percent(row['val_accuracy'])} {told}"


def settled(row: Study) -> str:
    """``82.4 (70; 9 x 3)``: of 70 trials 9 ran again, 3 times each; then, whose it was."""
    method, finalists = row["method"], row["finalists"] or []
    runs = max((len(one["val_accuracies"] or ()) for one in finalists), default=0)
    again = f"; {len(finalists)} x {runs}" if finalists else ""
    own = LEARNED_ON[method][0] if method in LEARNED_ON else method
    whose = "" if row["found_by"] == own else f"; {row['found_by']}"
    return f"{percent(row['val_accuracy'])} ({row['trials']}{again}{whose})"


def sought(row: Study) -> str:
    """What tells a search from others of its method on its target: the sources."""
    sources, target = set(row["sources"] or ()), row["target"]
    if not sources:
        return ""
    if target in GRAPHS and sources == set(numbers.others_of_its_kind(target)):
        return "in-domain"
    if target in GRAPHS and sources == set(numbers.of_the_other_kind(target)):
        return "cross-domain"
    return f"from {'+'.join(sorted(sources))}"
