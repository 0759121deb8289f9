"""The page of ``graphglow report``: result rows and saved transfers in one self-contained file."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from graphglow.lab.open_world.suite import EXPERIMENT
from graphglow.lab.paper import NAMES, OURS, cells
from graphglow.lab.runs.reproduce import with_outdated
from graphglow.lab.runs.rows import ResultRow, RowFile, by_date, origins, without_repeats
from graphglow.lab.settings import Settings
from graphglow.report import comparison, curves, open_world, structure
from graphglow.report.comparison import Comparison, compare, grouped, target_column
from graphglow.report.curves import histories
from graphglow.report.frame import SeriesStyle, series_styles
from graphglow.report.page import percent, write_page
from graphglow.report.row_charts import sweep_chart, time_charts
from graphglow.training.result import PaperResult, TransferResult


class ExperimentSection:
    """What a page shows of one experiment; ``found`` are its rows."""

    def __init__(self, name: str, found: list[ResultRow]) -> None:
        defined = cells.EXPERIMENTS[name]() if name in cells.EXPERIMENTS else ()
        places = {cell.key: place for place, cell in enumerate(defined)}
        rows = sorted(found, key=lambda row: places.get(row.cell, len(places)))
        plain = [row for row in rows if row.x is None]
        scored = any(row.test_accuracy is not None for row in plain)
        self.name = name
        self.table = compare(plain if scored else [], target_column(rows))
        self.judged = comparison.judged(self.table)
        self.graphs = curves.measured_graphs(rows)
        self.meaning = curves.meaning(self.graphs)
        self.sweeps = curves.sweeps(rows)
        self.metrics = _metrics(plain)
        self.notes = list(_notes(rows))


def write_results(
    files: Sequence[RowFile],
    transfers: Sequence[tuple[Path, TransferResult]],
    path: str | Path,
    *,
    title: str = "graphglow results",
    settings: Settings | None = None,
) -> list[str]:
    """Write the page, whole or not at all; an existing file is replaced.

    Saved transfers come with where they came from; rows of other ``settings`` than these, the tuned
    ones that are held today, are marked. Returns the names of the experiments shown.
    """
    every = by_date(files)
    suite = open_world.section(every)
    rows, repeats = without_repeats([row for row in every if row.experiment != EXPERIMENT])
    rows = with_outdated(rows, settings or Settings())
    sections = experiment_sections(rows)
    styles = page_styles(sections)
    timed = [section for section in sections if section.name == "time"] or sections
    write_page(
        path,
        "results.html.j2",
        title=title,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        experiments=sections,
        open_world=suite,
        curves={s.name: [sweep_chart(w, styles) for w in s.sweeps] for s in sections},
        times={section.name: time_charts(section.table, styles) for section in timed},
        transfers=[_transfer(path, result, len(transfers)) for path, result in transfers],
        styles=styles,
        files=files,
        num_rows=len(rows),
        repeats=repeats,
        origins=origins(rows),
        against=comparison.against,
        alone=comparison.ALONE,
        left_out=comparison.LEFT_OUT,
        outdated=comparison.OUTDATED,
        top_k=structure.TOP_K,
        largest_refined=structure.LARGEST_REFINED,
    )
    return [*([EXPERIMENT] if suite else []), *(section.name for section in sections)]


def experiment_sections(rows: Sequence[ResultRow]) -> list[ExperimentSection]:
    """A section for each experiment, known ones first; all in the paper's order."""
    known = list(cells.EXPERIMENTS)
    found = grouped(rows, lambda row: row.experiment)
    names = sorted(found, key=lambda name: known.index(name) if name in known else len(known))
    return [ExperimentSection(name, found[name]) for name in names]


def _metrics(rows: Sequence[ResultRow]) -> Comparison:
    """Metrics that are numbers, as columns, but for those that stand beside learned graphs."""
    column = target_column(rows)
    names = comparison.line_names(rows, column)
    values = [
        replace(row, series=metric, test_accuracy=value, label=f"{column(row)}, {names[row.cell]}")
        for row in rows
        for metric, value in row.metrics.items()
        if isinstance(value, float) and metric.removeprefix(curves.INPUT) not in histories(row)
    ]
    return compare(values, lambda row: row.series, lambda row: row.label)


def _notes(rows: Sequence[ResultRow]) -> Iterator[str]:
    """What a reader must know before comparing: splits, learners, machines, failures."""
    splits = grouped([row for row in rows if row.split], lambda row: row.split)
    if splits:
        targets = {split: dict.fromkeys(row.target for row in of) for split, of in splits.items()}
        told = "; ".join(f"{split} on {', '.join(of)}" for split, of in targets.items())
        yield f"Split: {told}."
    learners = grouped([row for row in rows if row.learner_seed is not None], lambda row: row.cell)
    if any(len(of) > len({row.learner_seed for row in of}) for of in learners.values()):
        yield (
            "One pre-trained learner serves all seeds of a cell: standard deviations are over "
            "seeds of the transfer only."
        )
    machines = {
        str(machine.get("gpu" if row.device == "cuda" else "cpu"))
        for row in rows
        if row.seconds is not None and isinstance(machine := row.provenance.get("machine"), dict)
    }
    if len(machines) > 1:
        yield (
            f"Times were taken on different machines ({'; '.join(sorted(machines))}): compare "
            "them within one machine only."
        )
    failed = [row for row in rows if row.error and row.test_accuracy is None]
    yield from dict.fromkeys(f"No result from {r.label} on {r.target}: {r.error}." for r in failed)


def page_styles(sections: Sequence[ExperimentSection]) -> dict[str, SeriesStyle]:
    """One style per line for the whole page: that of its method.

    Where a table or chart has several lines of one method, each gets a style of its own, but for
    the one that goes by the method's name.
    """
    seen_together = [section.table.lines for section in sections]
    seen_together += [sweep.curves.lines for section in sections for sweep in section.sweeps]
    keys = {line.name: line.method for lines in seen_together for line in lines}
    for lines in seen_together:
        count = Counter(line.method for line in lines)
        for line in lines:
            called = (line.method, NAMES.get(line.method, "").lower())
            if count[line.method] > 1 and line.name.lower() not in called:
                keys[line.name] = f"line {line.name}"
    first = [method for method in OURS if method in keys.values()]
    styles = series_styles([*first, *keys.values()], OURS)
    return {name: styles[key] for name, key in keys.items()}


def _transfer(path: Path, result: TransferResult, count: int) -> dict[str, Any]:
    """What the page shows of a saved transfer, one of ``count``."""
    learned, fewer = structure.LearnedStructure(result), min(count, 4)
    shares = {name: learned.share(edges) for name, edges in learned.edges.items()}
    drawing = learned.drawing(structure.NODES_DRAWN // fewer)
    more = {"input weight": f"{result.message_graph[1]:g}"}
    if isinstance(result, PaperResult):
        more = {"pivots": f"{len(result.pivots):,}"} | more
    beside = {n: v for n, v in (result.metrics() or {}).items() if n != "accuracy"}
    more |= {n.replace("_", " "): percent(v) for n, v in beside.items() if isinstance(v, float)}
    if sources := result.provenance.get("sources"):
        more["pre-trained on"] = ", ".join(sources)
    small = [structure.homophily_chart(learned)] if len(shares) > 1 else []
    small += [structure.training_chart(result.history)] if result.history else []
    return {
        "path": path,
        "structure": learned,
        "facts": result.summary(),
        "drawn": structure.graph_chart(learned, drawing),
        "more": more,
        "small": small,
        "graphs": {**shares, "learned graph alone": learned.learned_share()},
        "confusion": learned.confusion().tolist(),
    }
