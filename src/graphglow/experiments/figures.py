"""The figures of the paper, and our own, as data: generators of cells; nothing runs here."""

from collections.abc import Iterator
from typing import Any

from graphglow.experiments import paper
from graphglow.experiments.cell import Cell, Damage, by_degree, sources_for
from graphglow.experiments.lines import NAMES, ON
from graphglow.experiments.paper import GRAPHS

TIMED_GRAPHS = ("cora", "citeseer", "amherst41", "johnshopkins55", "reed98")
TIMED_METHODS = ("graphglow", "lds", "idgl", "vgcn", "idgl-anchor", "gcn")
DAMAGED_GRAPHS = ("johnshopkins55", "citeseer")
DAMAGES = {"delete": "edges deleted", "add": "edges added", "shuffle": "features shuffled"}
RATIOS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
OBSERVED_GRAPHS = ("amherst41", "johnshopkins55", "reed98")
OBSERVE_EVERY = 5
SWEPT_GRAPHS = ("cora", "citeseer")
LAMBDAS = tuple(tenths / 10 for tenths in range(1, 10))
DEGREES = (0.25, 0.5, 1.0, 2.0, 4.0)
PIVOTS = (50, 100, 200, 400, 800, 1000, 1200, 1400, 2000)


def time() -> Iterator[Cell]:
    """Accuracy and training time against other structure learning, in Table 2's setting."""
    for method in TIMED_METHODS:
        for target in TIMED_GRAPHS:
            yield Cell(
                experiment="time",
                key=f"{method}/{target}",
                label=NAMES[method],
                method=method,
                target=target,
                sources=sources_for(method, paper.of_the_other_kind(target)),
                tuned_as=ON.get(method),
                timed=True,
                paper=paper.accuracy(paper.TABLE_2, method, target),
            )


ABLATIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "full": ("GraphGLOW", {}, {}),
    "no-iteration": ("no iteration", {"refinements": 1}, {"refinements": 1}),
    "no-regularisation": (
        "no regularisation",
        {},
        {"objective": {"smoothness": 0.0, "sparsity": 0.0}},
    ),
    "no-entropy": ("no entropy", {}, {"objective": {"entropy": 0.0}}),
    "pivots-by-degree": (
        "pivots by degree",
        {"pivots_by_degree": True},
        {"pivots_by_degree": True},
    ),
}
"""Variant -> label, settings on the target, settings of pre-training. The first two that leave
something out are the paper's, the others ours. A frozen learner has no objective, so that
regularisation and entropy matter in pre-training only."""


def ablation() -> Iterator[Cell]:
    """GraphGLOW with a part left out, in Table 1's setting, and with a learner never trained."""
    for target in GRAPHS:
        for variant, (label, settings, pretraining) in ABLATIONS.items():
            yield Cell(
                experiment="ablation",
                key=f"{variant}/{target}",
                label=label,
                method="graphglow",
                target=target,
                sources=paper.others_of_its_kind(target),
                series=variant,
                tuned_as=ON["graphglow"],
                settings=settings,
                pretraining=pretraining,
                paper=paper.accuracy(paper.TABLE_1, "graphglow", target)
                if variant == "full"
                else None,
            )
        yield Cell(
            experiment="ablation",
            key=f"random-theta/{target}",
            label=NAMES["random-theta"],
            method="random-theta",
            target=target,
            series="random-theta",
            tuned_as=ON["random-theta"],
        )


def edges() -> Iterator[Cell]:
    """Edges deleted; ours: edges added, features shuffled. The paper names no sources: Table 2's.

    Each curve has its point at 0, the whole graph; they are the same run.
    """
    for target in DAMAGED_GRAPHS:
        for kind, what in DAMAGES.items():
            for method in ("graphglow", "gcn", "random-theta"):
                for ratio in RATIOS:
                    yield Cell(
                        experiment="edges",
                        key=f"{kind}/{ratio}/{method}/{target}",
                        label=f"{NAMES[method]}, {what}",
                        method=method,
                        target=target,
                        sources=sources_for(method, paper.of_the_other_kind(target)),
                        series=kind,
                        x=ratio,
                        tuned_as=ON.get(method),
                        damage=Damage(kind, ratio) if ratio else None,
                    )


def homophily() -> Iterator[Cell]:
    """The learned graph's homophily over training, and how alike neighbourhoods are in it.

    The paper names no sources: Table 2's.
    """
    for target in OBSERVED_GRAPHS:
        yield Cell(
            experiment="homophily",
            key=f"graphglow/{target}",
            label=NAMES["graphglow"],
            method="graphglow",
            target=target,
            sources=paper.of_the_other_kind(target),
            tuned_as=ON["graphglow"],
            observe_every=OBSERVE_EVERY,
        )


def sensitivity() -> Iterator[Cell]:
    """Lambda and P swept on the target; the learner is the same throughout. Table 2's sources."""
    sweeps: dict[str, tuple[str, tuple[float, ...]]] = {
        "lambda": ("input_weight", LAMBDAS),
        "pivots": ("num_pivots", PIVOTS),
    }
    for target in SWEPT_GRAPHS:
        for name, (setting, values) in sweeps.items():
            for value in values:
                yield Cell(
                    experiment="sensitivity",
                    key=f"{name}/{value}/{target}",
                    label=f"GraphGLOW, {name}",
                    method="graphglow",
                    target=target,
                    sources=paper.of_the_other_kind(target),
                    series=name,
                    x=value,
                    tuned_as=ON["graphglow"],
                    settings={setting: value},
                )


def degree() -> Iterator[Cell]:
    """Ours: lambda by degree, c swept on the target. Table 2's sources; GCN is the level."""
    for target in GRAPHS:
        for method in ON:
            for value in DEGREES:
                yield Cell(
                    experiment="degree",
                    key=f"{value:g}/{method}/{target}",
                    label=f"{NAMES[method]}, by degree",
                    method=method,
                    target=target,
                    sources=sources_for(method, paper.of_the_other_kind(target)),
                    series="latent_degree",
                    x=value,
                    tuned_as=ON[method],
                    settings=by_degree(value),
                )
        yield Cell(
            experiment="degree",
            key=f"gcn/{target}",
            label=NAMES["gcn"],
            method="gcn",
            target=target,
        )


def encoder() -> Iterator[Cell]:
    """How the first embeddings are made: GCN against MLP, on sources and target alike."""
    for kind in paper.ENCODERS:
        for target in GRAPHS:
            yield Cell(
                experiment="encoder",
                key=f"{kind}/{target}",
                label=f"GraphGLOW, {kind.upper()} encoder",
                method="graphglow",
                target=target,
                sources=paper.of_the_other_kind(target),
                series=kind,
                tuned_as=ON["graphglow"],
                settings={"encoder": kind},
                paper=paper.accuracy(paper.ENCODERS, kind, target),
            )
