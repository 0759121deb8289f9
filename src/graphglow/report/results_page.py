"""The page of ``graphglow report``: result rows and saved transfers in one self-contained file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from markupsafe import Markup

from graphglow.report.comparison import ALONE, LEFT_OUT
from graphglow.report.figure import (
    Chart,
    embedded,
    embedded_figures,
    plotly_script,
    require_plotly,
    script_hash,
    template,
)
from graphglow.report.learned_structure import LARGEST_REFINED, TOP_K, LearnedStructure
from graphglow.report.result_rows import RowFile, origins, without_repeats
from graphglow.report.sections import (
    ExperimentSection,
    TransferSection,
    experiment_sections,
    page_styles,
    transfer_section,
)
from graphglow.report.template import FOLDER, render
from graphglow.report.theme import THEMES, SeriesStyle
from graphglow.storage import atomic_path
from graphglow.training import TransferResult

HEAT_ROWS, HEAT_COLUMNS = 240, 120
"""Most rows and columns of a heat map; of several transfers on a page each gets fewer."""
DAMAGED_SHOWN = 20


@dataclass
class PlacedCharts:
    """Charts of a page by the id of their element, in the order in which they were placed."""

    charts: dict[str, Chart] = field(default_factory=dict)

    def __call__(self, chart: Chart) -> str:
        """Place a chart and return its id."""
        name = f"chart-{len(self.charts) + 1}"
        self.charts[name] = chart
        return name


def write_results(
    files: Sequence[RowFile],
    transfers: Sequence[tuple[Path, TransferResult]],
    path: str | Path,
    *,
    title: str = "graphglow results",
) -> list[str]:
    """Write the page, whole or not at all; an existing file is replaced.

    Args:
        files: What :func:`~graphglow.report.result_rows.read_rows` gave.
        transfers: Saved transfers and where they came from.
        path: Where to write.
        title: Heading of the page.

    Returns:
        The names of the experiments shown.
    """
    require_plotly()
    rows, repeats = without_repeats([row for file in files for row in file.rows])
    experiments = experiment_sections(rows)
    styles = page_styles(experiments)
    _draw_rows(experiments, styles)
    shown = [_transfer(path, result, len(transfers)) for path, result in transfers]
    placed = PlacedCharts()
    script = Markup((FOLDER / "page.js").read_text(encoding="utf-8"))
    plotly = Markup(plotly_script().replace("</script", "<\\/script"))
    page = render(
        "results.html.j2",
        title=title,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        experiments=experiments,
        transfers=shown,
        styles=styles,
        files=files,
        num_rows=len(rows),
        repeats=repeats,
        damaged_shown=DAMAGED_SHOWN,
        origins=origins(rows),
        alone=ALONE,
        left_out=LEFT_OUT,
        top_k=TOP_K,
        largest_refined=LARGEST_REFINED,
        place=placed,
        figures=lambda: Markup(_page_data(placed)),
        plotly=plotly,
        script=script,
        hashes=Markup(" ".join(f"'{script_hash(text)}'" for text in (plotly, script))),
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return [section.name for section in experiments]


def _draw_rows(sections: list[ExperimentSection], styles: dict[str, SeriesStyle]) -> None:
    from graphglow.report.row_charts import sweep_chart, time_charts

    timed = [section for section in sections if section.name == "time"] or sections
    for section in sections:
        section.charts["curves"] = [sweep_chart(sweep, styles) for sweep in section.sweeps]
        has_times = section in timed and section.table is not None
        section.charts["time"] = (
            time_charts(section.table, styles) if has_times and section.table else []
        )


def _transfer(path: Path, result: TransferResult, count: int) -> TransferSection:
    from graphglow.report.drawing import NODES_DRAWN, drawing
    from graphglow.report.graph_chart import graph_chart
    from graphglow.report.structure_charts import (
        confusion_chart,
        homophily_chart,
        similarity_chart,
        training_chart,
    )

    structure = LearnedStructure(result)
    section = transfer_section(str(path), structure)
    fewer = min(count, 4)
    found = structure.similarities(HEAT_ROWS // fewer, HEAT_COLUMNS // fewer)
    section.charts["similarities"] = similarity_chart(structure, found)
    drawn = drawing(structure, NODES_DRAWN if count <= 4 else NODES_DRAWN // 4)
    section.charts["graph"] = graph_chart(structure, drawn)
    refined = structure.refined_edges
    if refined is not None:
        labels = range(len(structure.class_names))
        before = [structure.share(structure.input_edges, c).same_class for c in labels]
        after = [structure.share(refined, c).same_class for c in labels]
        section.charts["homophily"] = homophily_chart(structure.class_names, before, after)
    confusion = structure.confusion()
    if confusion is not None:
        section.charts["confusion"] = confusion_chart(structure.class_names, confusion)
    if result.history:
        section.charts["training"] = training_chart(result.history)
    return section


def _page_data(placed: PlacedCharts) -> str:
    templates = embedded({theme: template(theme) for theme in THEMES})
    return f'{{"templates": {templates}, "figures": {embedded_figures(placed.charts)}}}'
