"""Tiny cells on graphs that come with the package, and settings under which they take no time."""

from graphglow.lab import unheard
from graphglow.lab.paper.cells import Cell
from graphglow.lab.runs.config import ReproduceConfig
from graphglow.lab.runs.reproduce import found_rows, reproduce
from graphglow.lab.settings import Settings

TARGET = "synthetic-small"
GLOW = {
    "pretrain": {
        "num_pivots": 8,
        "episodes": 1,
        "refinements": 2,
        "learner": {"embedding_size": 4},
    },
    "transfer": {"num_pivots": 8, "refinements": 2},
}
SETTINGS = Settings(
    {
        "graphglow": {TARGET: GLOW, "wine": GLOW},
        "graphglow-attention": {TARGET: GLOW},
        "gcn": {TARGET: {"hidden": 4}},
        "mlp": {TARGET: {"hidden": 4}},
        "random-theta": {TARGET: {"num_pivots": 8, "embedding_size": 4}},
    }
)


def cell(method="gcn", *, experiment="tiny", key=None, target=TARGET, **changes):
    sources = ("wine",) if method.startswith("graphglow") else ()
    return Cell(
        experiment=experiment,
        key=key or f"{method}/{target}",
        method=method,
        target=target,
        **({"label": method.upper(), "sources": sources} | changes),
    )


def config(**changes):
    settings = {"seeds": 2, "epochs": 2, "pretrain_epochs": 1, "device": "cpu", "processes": 1}
    return ReproduceConfig(**(settings | changes))


def run(cells, out, *, settings=SETTINGS, told=unheard, **changes):
    return reproduce(cells, out, config(**changes), settings, told=told)


def rows(out):
    return [row for file in found_rows(out) for row in file.rows]


def slots(out):
    return [row.slot for row in rows(out)]
