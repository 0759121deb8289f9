"""Tiny cells on graphs that come with the package, and settings under which they take no time."""

from graphglow.lab.config import RunsConfig
from graphglow.lab.paper_tables import Cell
from graphglow.lab.row_files import rows_in
from graphglow.lab.runs import run_cells

TARGET = "synthetic-small"
GLOW = {
    "pretrain": {
        "epochs": 1, "num_pivots": 8, "episodes": 1, "refinements": 2,
        "learner": {"embedding_size": 4},
    },
    "transfer": {"num_pivots": 8, "refinements": 2},
}  # fmt: skip
TUNED = {
    "graphglow": {TARGET: GLOW},
    "gcn": {TARGET: {"hidden": 4}},
    "mlp": {TARGET: {"hidden": 4}},
    "random-theta": {TARGET: {"num_pivots": 8, "embedding_size": 4}},
}


def cell(method="gcn", *, experiment="tiny", line=None, target=TARGET, **changes):
    sources = ("wine",) if method == "graphglow" else ()
    return Cell(
        experiment=experiment,
        key=f"{line or method}/{target}",
        method=method,
        target=target,
        **({"label": method.upper(), "sources": sources} | changes),
    )


def config(**changes):
    given = {"seeds": 2, "epochs": 2, "device": "cpu", "workers": 1}
    return RunsConfig(**given | changes)


def run(cells, out, *, tuned=TUNED, **changes):
    return run_cells(cells, out, config(**changes), tuned)


def rows(out):
    return rows_in(out, ["tiny", "other"])
