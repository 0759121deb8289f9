"""A demo's result, made up."""

from graphglow.demo import DemoResult, Neighbourhood, Node, Refined, Row
from graphglow.lab.structure_metrics import GraphFacts


def row(target: str, method: str, accuracy: float, seed: int = 0) -> Row:
    return Row(target, method, seed, accuracy, 1.25)


def refined(name: str) -> Refined:
    nodes = [Node(4, 0), Node(5, 0), Node(6, 1), Node(7, 1)]
    return Refined(
        target="wine",
        class_names=[name, "other"],
        before=GraphFacts(20, 0.25),
        after=GraphFacts(30, 0.75),
        dropped_injected=0.5,
        dropped_own=0.125,
        around=Neighbourhood(nodes, kept=[(0, 1)], dropped=[(0, 2), (1, 2)], added=[(0, 3)]),
        audit_auc=0.95,
    )


ROWS = [
    row("wine", "predict", 0.9),
    row("wine", "predict", 1.0, seed=1),
    row("wine", "gcn", 0.96),
    row("wine", "gcn", 0.96, seed=1),
]
ABOUT = {"wine": "a table"}
RESULT = DemoResult(ABOUT, ROWS, {"--epochs": 2}, {"torch": "2"}, refined("Red"), 1.0)
