"""The paper's figures (Zhao et al., KDD 2023), and all cells of its tables and figures, as data.

Nothing runs here: :mod:`graphglow.lab.runs` turns a cell and a seed into a run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from graphglow.errors import InputError, one_of

SOCIAL = ("cornell5", "johnshopkins55", "amherst41", "reed98")
CITATION = ("cora", "citeseer", "pubmed")
GRAPHS = SOCIAL + CITATION
"""In the order of the tables' columns."""
PROPER_NAMES = ("Cornell5", "JohnsHopkins55", "Amherst41", "Reed98", "Cora", "CiteSeer", "PubMed")
GRAPH_NAMES = dict(zip(GRAPHS, PROPER_NAMES, strict=True))
Printed = dict[str, dict[str, tuple[float, float]]]
"""By method and graph: mean and standard deviation, fractions in [0, 1]."""


def _printed(text: str) -> Printed:
    """Read a line per method: its name, then mean and deviation in per cent for each graph."""
    table: Printed = {}
    for name, *figures in map(str.split, text.strip().splitlines()):
        shares = [round(float(figure) / 100, 6) for figure in figures]
        table[name] = dict(zip(GRAPHS, zip(shares[::2], shares[1::2], strict=True), strict=True))
    return table


BOTH_TABLES = _printed("""
    gcn                 68.6 0.5  70.8 1.0  65.8 1.6  60.8 1.6  81.6 0.4  71.6 0.3  78.8 0.6
    sage                68.7 0.8  67.5 0.9  66.3 1.8  63.9 1.9  81.4 0.6  71.6 0.5  78.6 0.7
    gat                 69.6 1.2  69.4 0.7  68.7 2.1  64.5 2.5  83.0 0.7  72.1 1.1  79.0 0.4
    gpr                 68.8 0.7  69.6 1.3  66.2 1.5  62.7 2.0  83.1 0.7  72.4 0.8  79.6 0.5
    appnp               68.5 0.8  69.1 1.4  65.9 1.3  62.3 1.5  82.7 0.5  71.9 0.5  79.2 0.3
    h2gcn               71.4 0.5  68.3 1.0  66.5 2.2  65.4 1.3  82.5 0.8  71.4 0.7  79.4 0.4
    cpgnn               71.1 0.5  68.7 1.3  66.7 0.8  63.6 1.8  80.8 0.4  71.6 0.4  78.5 0.7
    graphglow-dot       71.5 0.7  71.3 1.2  68.5 1.6  63.2 1.2  83.1 0.8  71.7 1.0  77.3 0.8
    graphglow-knn       69.4 0.8  71.0 1.3  64.8 1.2  63.6 1.6  81.7 0.8  71.5 0.8  79.4 0.6
    graphglow-cosine    69.9 0.7  70.8 1.4  65.2 1.8  62.7 1.3  82.0 0.7  71.9 0.9  78.7 0.8
    graphglow-star      71.1 0.3  72.2 0.5  70.3 0.9  66.8 1.4  83.5 0.6  73.9 0.7  79.9 0.5
""")
"""Rows that Tables 1 and 2 share: methods that see no source graph."""
TABLE_1 = BOTH_TABLES | _printed("""
    graphglow-attention 69.3 0.8  70.9 1.3  65.0 1.3  65.0 1.7  81.9 0.9  71.3 0.7  78.8 0.6
    graphglow           71.8 0.9  71.5 0.8  70.6 1.4  66.8 1.1  83.5 0.6  73.6 0.6  79.8 0.8
""")
"""Within a domain: the sources are the other graphs of the target's kind."""
TABLE_2 = BOTH_TABLES | _printed("""
    graphglow-attention 69.9 1.0  70.4 1.5  64.4 1.2  65.0 1.7  82.5 0.9  71.8 0.8  78.5 0.7
    graphglow           72.0 1.0  71.8 0.7  69.8 1.3  67.3 1.2  83.2 0.4  73.8 0.9  79.6 0.7
""")
"""Across domains: the sources are the graphs of the other kind."""
ENCODERS = _printed("""
    gcn                 70.5 1.0  71.8 0.7  68.1 1.3  67.3 1.2  83.2 0.4  73.8 0.9  79.6 0.7
    mlp                 69.5 1.0  72.1 0.9  68.3 1.5  65.9 1.4  82.5 0.5  73.3 0.7  79.6 0.7
""")
"""The last table of the appendix, by encoder, in Table 2's setting."""
PRINTED_HOMOPHILY = dict(zip(GRAPHS, (0.09, 0.10, 0.06, 0.04, 0.77, 0.63, 0.66), strict=True))
"""Of the input graphs (Appendix B), by the metric of Lim et al. (2021). Ours gives the same up to
rounding, but 0.11 on JohnsHopkins55 and 0.02 on Reed98."""
TIMES_FASTER = {"johnshopkins55": {"idgl": 6.0, "lds": 9.0, "vgcn": 40.0}}
"""How many times faster GraphGLOW trains (the text about the time figure)."""
LOST_WITHOUT_ITERATION = {"cornell5": 0.054, "amherst41": 0.088}
"""Accuracy that a single refinement loses (the text about the ablation)."""

METHOD_NAMES = {
    "gcn": "GCN",
    "sage": "SAGE",
    "gat": "GAT",
    "gpr": "GPR",
    "appnp": "APPNP",
    "h2gcn": "H2GCN",
    "cpgnn": "CPGNN",
    "graphglow-dot": "GraphGLOW, dot products",
    "graphglow-knn": "GraphGLOW, kNN",
    "graphglow-cosine": "GraphGLOW, plain cosine",
    "graphglow-attention": "GraphGLOW, attention",
    "graphglow": "GraphGLOW",
    "graphglow-star": "GraphGLOW*",
    "random-theta": "random theta",
    "equal-theta": "k equal dimensions",
    "mlp": "MLP",
    "link": "LINK",
    "link-features": "LINK + features",
    "linkx": "LINKX",
    "lds": "LDS",
    "idgl": "IDGL",
    "idgl-anchor": "IDGL, anchors",
    "vgcn": "VGCN",
}
"""Methods in the paper's order, then controls."""
OWN_LINES = {
    "graphglow-on": ("graphglow", "GraphGLOW, lambda < 1"),
    "random-on": ("random-theta", "random theta, lambda < 1"),
    "equal-on": ("equal-theta", "k equal dimensions, lambda < 1"),
    "graphglow-backbone": ("graphglow", "GraphGLOW, best backbone"),
    "random-backbone": ("random-theta", "random theta, best backbone"),
}
"""Lines of ours that share a method with another line but have tuned settings of their own: those
in which the learned graph takes part, and those whose GNN was tuned too."""
ON = {"graphglow": "graphglow-on", "random-theta": "random-on", "equal-theta": "equal-on"}
"""Whose settings figures take: what they show is the learned graph at work."""
TUNED_AS = {
    **{f"graphglow-{name}": "random-on" for name in ("dot", "knn", "cosine", "star")},
    "graphglow-attention": "graphglow-on",
}
"""Whose settings a variant takes: it is the same model, and only compares nodes differently."""
TRANSFERRED = ("graphglow", "graphglow-attention")
"""Methods whose structure learner is trained on source graphs."""
CONTROL_LINES = ("random-theta", "equal-theta", "mlp", "link", "link-features", "linkx")

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
ABLATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": ({}, {}),
    "no-iteration": ({"refinements": 1}, {"refinements": 1}),
    "no-regularisation": ({}, {"objective": {"smoothness": 0.0, "sparsity": 0.0}}),
    "no-entropy": ({}, {"objective": {"entropy": 0.0}}),
    "pivots-by-degree": ({"pivots_by_degree": True}, {"pivots_by_degree": True}),
}
"""Settings on the target, and of pre-training. The first two that leave something out are the
paper's, the others ours. A frozen learner has no objective, so regularisation and entropy matter
in pre-training only."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One entry of a table or one point of a figure; with a seed, one run.

    ``settings`` and ``pretraining`` are what the cell itself asks for; they go before tuned ones.
    """

    experiment: str
    key: str
    """``line/target``, unique within the experiment."""
    label: str
    """The name of its line, for people."""
    method: str
    target: str
    sources: tuple[str, ...] = ()
    series: str = ""
    """Which of several curves or variants of the experiment it belongs to."""
    x: float | None = None
    """The swept value."""
    tuned_as: str = ""
    """Whose tuned settings it takes, if not its method's: see ``OWN_LINES`` and ``TUNED_AS``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    pretraining: Mapping[str, Any] = field(default_factory=dict)
    damage: tuple[str, float] | None = None
    """What is done to the target before training (:mod:`graphglow.graph.datasets`), how much."""
    observe_every: int = 0
    """Epochs between two looks at the learned graph; 0 for none."""
    timed: bool = False
    """Whether its seconds are the point: then it runs alone, and warm."""
    paper: tuple[float, float] | None = None

    @property
    def line(self) -> str:
        """The key without the target."""
        return self.key.removesuffix(f"/{self.target}")

    @property
    def split(self) -> str:
        return split_of(self.target)


def split_of(graph: str) -> str:
    """Return whose split is used: the authors' for Facebook graphs, else the public one."""
    if graph in SOCIAL:
        return "authors"
    return "public" if graph in CITATION else "random seed 0"


def others_of_its_kind(graph: str) -> tuple[str, ...]:
    """Return the sources of Table 1."""
    return tuple(g for g in (SOCIAL if graph in SOCIAL else CITATION) if g != graph)


def of_the_other_kind(graph: str) -> tuple[str, ...]:
    """Return the sources of Table 2."""
    return CITATION if graph in SOCIAL else SOCIAL


Sources = Callable[[str], tuple[str, ...]]


def _cell(
    experiment: str, line: str, method: str, target: str, sources: Sources = of_the_other_kind,
    **facts: Any,
) -> Cell:  # fmt: skip
    return Cell(
        experiment=experiment,
        key=f"{line}/{target}",
        method=method,
        target=target,
        sources=sources(target) if method in TRANSFERRED else (),
        **{"label": METHOD_NAMES[method], "tuned_as": ON.get(method, "")} | facts,
    )


def _table(name: str, table: Printed, sources: Sources) -> Iterator[Cell]:
    methods = (*sorted(table, key=list(METHOD_NAMES).index), *CONTROL_LINES)
    lines = [(method, method, METHOD_NAMES[method], TUNED_AS.get(method, "")) for method in methods]
    lines += [(line, method, label, line) for line, (method, label) in OWN_LINES.items()]
    for (line, method, label, tuned), target in product(lines, GRAPHS):
        paper = table.get(line, {}).get(target)
        yield _cell(name, line, method, target, sources, label=label, tuned_as=tuned, paper=paper)


def table1() -> Iterator[Cell]:
    """Table 1, within a domain: the sources are the other graphs of the target's kind."""
    return _table("table1", TABLE_1, others_of_its_kind)


def table2() -> Iterator[Cell]:
    """Table 2, across domains: the sources are the graphs of the other kind."""
    return _table("table2", TABLE_2, of_the_other_kind)


def time() -> Iterator[Cell]:
    """Accuracy and training time against other structure learning, in Table 2's setting."""
    for method, target in product(TIMED_METHODS, TIMED_GRAPHS):
        paper = TABLE_2.get(method, {}).get(target)
        yield _cell("time", method, method, target, timed=True, paper=paper)


def ablation() -> Iterator[Cell]:
    """GraphGLOW with a part left out, in Table 1's setting, and with a learner never trained."""
    for target in GRAPHS:
        for variant, (settings, pretraining) in ABLATIONS.items():
            facts: dict[str, Any] = {"label": variant.replace("-", " ")}
            if variant == "full":
                facts = {"label": METHOD_NAMES["graphglow"], "paper": TABLE_1["graphglow"][target]}
            facts |= {"series": variant, "settings": settings, "pretraining": pretraining}
            yield _cell("ablation", variant, "graphglow", target, others_of_its_kind, **facts)
        yield _cell("ablation", "random-theta", "random-theta", target, series="random-theta")


def edges() -> Iterator[Cell]:
    """Edges deleted; ours: edges added, features shuffled. The paper names no sources: Table 2's.

    Each curve has its point at 0, the whole graph; they are the same run.
    """
    every = product(DAMAGED_GRAPHS, DAMAGES, ("graphglow", "gcn", "random-theta"), RATIOS)
    for target, kind, method, ratio in every:
        facts: dict[str, Any] = {"x": ratio, "damage": (kind, ratio) if ratio else None}
        facts |= {"label": f"{METHOD_NAMES[method]}, {DAMAGES[kind]}", "series": kind}
        yield _cell("edges", f"{kind}/{ratio}/{method}", method, target, **facts)


def homophily_curves() -> Iterator[Cell]:
    """Homophily and neighbourhood variance of the learned graph in training. Table 2's sources."""
    for target in OBSERVED_GRAPHS:
        yield _cell("homophily", "graphglow", "graphglow", target, observe_every=OBSERVE_EVERY)


def sensitivity() -> Iterator[Cell]:
    """Lambda and P swept on the target; the learner is the same throughout. Table 2's sources."""
    for target, (name, (setting, values)) in product(SWEPT_GRAPHS, SWEEPS.items()):
        for x in values:
            facts: dict[str, Any] = {"series": name, "x": x, "settings": {setting: x}}
            label = f"GraphGLOW, {name}"
            yield _cell("sensitivity", f"{name}/{x}", "graphglow", target, label=label, **facts)


def encoder() -> Iterator[Cell]:
    """How the first embeddings are made: GCN against MLP, on sources and target alike."""
    for kind, target in product(ENCODERS, GRAPHS):
        facts: dict[str, Any] = {"series": kind, "settings": {"encoder": kind}}
        facts |= {"label": f"GraphGLOW, {kind.upper()} encoder", "paper": ENCODERS[kind][target]}
        yield _cell("encoder", kind, "graphglow", target, **facts)


EXPERIMENTS: dict[str, Callable[[], Iterator[Cell]]] = {
    "table1": table1, "table2": table2, "time": time, "ablation": ablation, "edges": edges,
    "homophily": homophily_curves, "sensitivity": sensitivity, "encoder": encoder,
}  # fmt: skip


def select_cells(
    experiment: str, methods: Sequence[str] = (), targets: Sequence[str] = ()
) -> list[Cell]:
    """Return the cells of an experiment (or ``all``) with these methods or lines, and targets."""
    names = EXPERIMENTS if experiment == "all" else (experiment,)
    cells = [cell for name in names for cell in EXPERIMENTS[name]()]
    for name in methods:
        one_of("methods", name, {word for c in cells for word in (c.method, c.line)})
    for name in targets:
        one_of("targets", name, {cell.target for cell in cells})
    found = [
        cell
        for cell in cells
        if (not methods or not {cell.method, cell.line}.isdisjoint(methods))
        and (not targets or cell.target in targets)
    ]
    if not found:
        raise InputError(f"{experiment} has no cell of these methods on these targets")
    return found
