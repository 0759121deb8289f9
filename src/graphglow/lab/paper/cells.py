"""The experiments of the paper, and our own, as data: each is a generator of cells.

Nothing runs here. How often a cell is run, and with which tuned settings, is decided elsewhere
(:mod:`graphglow.lab.runs`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

from graphglow.errors import InputError, nearest
from graphglow.lab.paper import (
    CITATION,
    CONTROLS,
    ENCODERS,
    EVIDENCE,
    GRAPHS,
    NAMES,
    ON,
    OWN_LINES,
    SOCIAL,
    TABLE_1,
    TABLE_2,
    TUNED_AS,
    WITH_SOURCES,
    Accuracy,
    Table,
    accuracy,
    of_the_other_kind,
    others_of_its_kind,
)  # fmt: skip

TIMED_GRAPHS = ("cora", "citeseer", "amherst41", "johnshopkins55", "reed98")
TIMED_METHODS = ("graphglow", "lds", "idgl", "vgcn", "idgl-anchor", "gcn")
DAMAGED_GRAPHS = ("johnshopkins55", "citeseer")
DAMAGES = {"delete": "edges deleted", "add": "edges added", "shuffle": "features shuffled"}
RATIOS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
OBSERVED_GRAPHS = ("amherst41", "johnshopkins55", "reed98")
OBSERVE_EVERY = 5
SWEPT_GRAPHS = ("cora", "citeseer")
SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "lambda": ("input_weight", tuple(tenths / 10 for tenths in range(1, 10))),
    "pivots": ("num_pivots", (50, 100, 200, 400, 800, 1000, 1200, 1400, 2000)),
}
EVIDENCE_PRETRAINING = {"first_episodes": 100, "vote_episodes": 70, "second_episodes": 100}
"""Of the evidence learners of Tables 1 and 2, one per set of sources: a third of the default."""


class Damage(NamedTuple):
    """What is done to the target before training: see :mod:`graphglow.graph.perturb`."""

    kind: str
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One entry of a table or one point of a figure; with a seed, one run.

    ``settings`` and ``pretraining`` are what the cell itself asks for; they go before tuned ones.
    """

    experiment: str
    key: str
    """Unique within the experiment."""
    label: str
    """How the row or curve is called for people."""
    method: str
    target: str
    sources: tuple[str, ...] = ()
    """Of methods in ``WITH_SOURCES``, the graphs that their learner is trained on."""
    series: str = ""
    """Which of several curves or variants of the experiment it belongs to."""
    x: float | None = None
    """The swept value."""
    tuned_as: str | None = None
    """Whose tuned settings it takes, if not its method's: see ``OWN_LINES`` and ``TUNED_AS``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the run on the target."""
    pretraining: Mapping[str, Any] = field(default_factory=dict)
    damage: Damage | None = None
    observe_every: int | None = None
    """Epochs between two looks at the learned graph."""
    timed: bool = False
    """Whether its seconds are the point: then it runs alone, and warm."""
    paper: Accuracy | None = None

    @property
    def names(self) -> tuple[str, str, str]:
        """What it goes by in rows: its method, its line, its label."""
        return self.method, self.key.removesuffix(f"/{self.target}"), self.label

    @property
    def split(self) -> str:
        """Whose split of the target's labels is used."""
        return split_of(self.target)


def split_of(graph: str) -> str:
    """The authors' split for the Facebook graphs, the public one for the citation graphs."""
    if graph in SOCIAL:
        return "authors"
    return "public" if graph in CITATION else "random seed 0"


def _cell(
    experiment: str,
    line: str,
    method: str,
    target: str,
    sources_of: Callable[[str], tuple[str, ...]] = of_the_other_kind,
    **facts: Any,
) -> Cell:
    """A cell; where nothing else is said, as figures have it: the learned graph is at work."""
    return Cell(
        experiment=experiment,
        key=f"{line}/{target}",
        method=method,
        target=target,
        sources=sources_of(target) if method in WITH_SOURCES else (),
        **{"label": NAMES[method], "tuned_as": ON.get(method)} | facts,
    )


def _table(name: str, table: Table, sources_of: Callable[[str], tuple[str, ...]]) -> Iterator[Cell]:
    methods = (*sorted(table, key=list(NAMES).index), *CONTROLS)
    lines = [(method, method, NAMES[method], TUNED_AS.get(method)) for method in methods]
    lines += [(own, method, label, own) for own, (method, label) in OWN_LINES.items()]
    for line, method, label, tuned_as in lines:
        for target in GRAPHS:
            own = {"label": label, "tuned_as": tuned_as}
            paper = accuracy(table, line, target)
            yield _cell(name, line, method, target, sources_of, paper=paper, **own)
    for method, target in product(EVIDENCE, GRAPHS):
        cell = _cell(name, method, method, target, sources_of)
        yield replace(cell, pretraining=EVIDENCE_PRETRAINING if cell.sources else {})


def table1() -> Iterator[Cell]:
    """Table 1, in-domain: the sources are the other graphs of the target's kind."""
    return _table("table1", TABLE_1, others_of_its_kind)


def table2() -> Iterator[Cell]:
    """Table 2, cross-domain: the sources are the graphs of the other kind."""
    return _table("table2", TABLE_2, of_the_other_kind)


def time() -> Iterator[Cell]:
    """Accuracy and training time against other structure learning, in Table 2's setting."""
    for method in TIMED_METHODS:
        for target in TIMED_GRAPHS:
            paper = accuracy(TABLE_2, method, target)
            yield _cell("time", method, method, target, timed=True, paper=paper)


ABLATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": ({}, {}),
    "no-iteration": ({"refinements": 1}, {"refinements": 1}),
    "no-regularisation": ({}, {"objective": {"smoothness": 0.0, "sparsity": 0.0}}),
    "no-entropy": ({}, {"objective": {"entropy": 0.0}}),
    "pivots-by-degree": ({"pivots_by_degree": True}, {"pivots_by_degree": True}),
}
"""Settings on the target, and of pre-training. The first two that leave something out are the
paper's, the others ours. A frozen learner has no objective, so that regularisation and entropy
matter in pre-training only."""


def ablation() -> Iterator[Cell]:
    """GraphGLOW with a part left out, in Table 1's setting, and with a learner never trained."""
    for target in GRAPHS:
        for variant, (settings, pretraining) in ABLATIONS.items():
            full = variant == "full"
            facts: dict[str, Any] = {
                "label": NAMES["graphglow"] if full else variant.replace("-", " "),
                "paper": accuracy(TABLE_1, "graphglow", target) if full else None,
                "series": variant,
                "settings": settings,
                "pretraining": pretraining,
            }
            yield _cell("ablation", variant, "graphglow", target, others_of_its_kind, **facts)
        yield _cell("ablation", "random-theta", "random-theta", target, series="random-theta")


def edges() -> Iterator[Cell]:
    """Edges deleted; ours: edges added, features shuffled. The paper names no sources: Table 2's.

    Each curve has its point at 0, the whole graph; they are the same run.
    """
    every = product(DAMAGED_GRAPHS, DAMAGES, ("graphglow", "gcn", "random-theta"), RATIOS)
    for target, kind, method, ratio in every:
        facts: dict[str, Any] = {"label": f"{NAMES[method]}, {DAMAGES[kind]}", "series": kind}
        facts |= {"x": ratio, "damage": Damage(kind, ratio) if ratio else None}
        yield _cell("edges", f"{kind}/{ratio}/{method}", method, target, **facts)


def homophily() -> Iterator[Cell]:
    """The learned graph's homophily over training, and how alike neighbourhoods are in it.

    The paper names no sources: Table 2's.
    """
    for target in OBSERVED_GRAPHS:
        yield _cell("homophily", "graphglow", "graphglow", target, observe_every=OBSERVE_EVERY)


def sensitivity() -> Iterator[Cell]:
    """Lambda and P swept on the target; the learner is the same throughout. Table 2's sources."""
    for target, (name, (setting, values)) in product(SWEPT_GRAPHS, SWEEPS.items()):
        for x in values:
            own = {setting: x}
            label = f"GraphGLOW, {name}"
            facts: dict[str, Any] = {"label": label, "series": name, "x": x, "settings": own}
            yield _cell("sensitivity", f"{name}/{x}", "graphglow", target, **facts)


def encoder() -> Iterator[Cell]:
    """How the first embeddings are made: GCN against MLP, on sources and target alike."""
    for kind, target in product(ENCODERS, GRAPHS):
        facts: dict[str, Any] = {"series": kind, "settings": {"encoder": kind}}
        label = f"GraphGLOW, {kind.upper()} encoder"
        figure = accuracy(ENCODERS, kind, target)
        yield _cell("encoder", kind, "graphglow", target, label=label, paper=figure, **facts)


EXPERIMENTS: dict[str, Callable[[], Iterator[Cell]]] = {
    make.__name__: make
    for make in (table1, table2, time, ablation, edges, homophily, sensitivity, encoder)
}
"""By name; the first line of each docstring says what it is."""


class Selection(NamedTuple):
    """The cells that are meant, and those that the choice of sources leaves without any."""

    cells: list[Cell]
    left_out: list[Cell]


def select_cells(
    experiments: Sequence[str],
    methods: Sequence[str] = (),
    targets: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> Selection:
    """The cells of some experiments (or ``all``), or those of them with these methods and targets.

    A method goes by any of its :attr:`Cell.names`; that of ``METHODS`` takes all of its lines.
    With ``sources``, learners are pre-trained on these only, of the graphs that a cell names; cells
    that name none of them are left out. That is not the paper's setting, and their keys say so.
    """
    names = EXPERIMENTS if "all" in experiments else experiments
    cells = [cell for name in names for cell in EXPERIMENTS[name]()]
    _check_known("methods", methods, [name for cell in cells for name in cell.names])
    _check_known("targets", targets, [cell.target for cell in cells])
    _check_known("sources", sources, [name for cell in cells for name in cell.sources])
    found = Selection([], [])
    for cell in cells:
        named = not methods or not set(methods).isdisjoint(cell.names)
        if not named or (targets and cell.target not in targets):
            continue
        kept = tuple(name for name in cell.sources if name in (sources or cell.sources))
        if kept != cell.sources:
            cell = replace(cell, sources=kept, key=f"{cell.key} < {'+'.join(kept)}")
        lacks = cell.method in WITH_SOURCES and not kept
        (found.left_out if lacks else found.cells).append(cell)
    if not found.cells:
        raise InputError(
            f"{', '.join(experiments)} must have cells of the methods, targets and sources named; "
            "got none together"
        )
    return found


def _check_known(what: str, given: Sequence[str], known: Iterable[str]) -> None:
    names = dict.fromkeys(known)
    for name in given:
        if name not in names:
            said = ", ".join(name for name in names if "/" not in name and " " not in name)
            raise InputError(f"{what} must be among {said}; got {name!r}{nearest(name, names)}")
