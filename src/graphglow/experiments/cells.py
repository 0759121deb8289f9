"""The tables of the paper as data, and by name all that can be reproduced.

Each table is a generator of cells, as each figure is (:mod:`graphglow.experiments.figures`);
nothing runs here. How often a cell is run, and with which tuned settings, is decided elsewhere
(:mod:`graphglow.experiments.reproduce`).
"""

from collections.abc import Callable, Iterator

from graphglow.experiments import figures, paper
from graphglow.experiments.cell import Cell, sources_for
from graphglow.experiments.lines import (
    BY_DEGREE,
    CONTROLS,
    LEARNED_ON,
    NAMES,
    ON,
    PRETRAINED,
    SHARP,
    TUNED_AS,
    WIDER,
)
from graphglow.experiments.paper import GRAPHS


def _table(
    name: str, table: paper.Table, sources_of: Callable[[str], tuple[str, ...]]
) -> Iterator[Cell]:
    methods = (*sorted(table, key=list(NAMES).index), *CONTROLS)
    lines = [(method, method, NAMES[method], TUNED_AS.get(method)) for method in methods]
    ours = {**LEARNED_ON, **BY_DEGREE, **WIDER}
    lines += [(own, method, label, own) for own, (method, label) in ours.items()]
    for key, method, label, tuned_as in lines:
        for target in GRAPHS:
            yield Cell(
                experiment=name,
                key=f"{key}/{target}",
                label=label,
                method=method,
                target=target,
                sources=sources_for(method, sources_of(target)),
                tuned_as=tuned_as,
                paper=paper.accuracy(table, key, target),
            )


def table1() -> Iterator[Cell]:
    """Table 1, in-domain: the sources are the other graphs of the target's kind."""
    return _table("table1", paper.TABLE_1, paper.others_of_its_kind)


def table2() -> Iterator[Cell]:
    """Table 2, cross-domain: sources are the graphs of the other kind. Ours: a sharp learner."""
    yield from _table("table2", paper.TABLE_2, paper.of_the_other_kind)
    sharp = {"delta": "exp"}
    for own, (method, label) in SHARP.items():
        pretrained = method in PRETRAINED
        for target in GRAPHS:
            yield Cell(
                experiment="table2",
                key=f"{own}/{target}",
                label=label,
                method=method,
                target=target,
                sources=sources_for(method, paper.of_the_other_kind(target)),
                tuned_as=ON[method],
                settings={} if pretrained else sharp,
                pretraining={"learner": sharp} if pretrained else {},
            )


EXPERIMENTS: dict[str, Callable[[], Iterator[Cell]]] = {
    "table1": table1,
    "table2": table2,
    "time": figures.time,
    "ablation": figures.ablation,
    "edges": figures.edges,
    "homophily": figures.homophily,
    "sensitivity": figures.sensitivity,
    "degree": figures.degree,
    "encoder": figures.encoder,
}
"""By name; the first line of each docstring says what it is."""
