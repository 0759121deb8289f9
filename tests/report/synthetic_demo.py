"""A demo's result, made up."""

from graphglow.demo import DemoResult, Refined, Row


def row(target: str, method: str, accuracy: float, seed: int = 0) -> Row:
    return Row(target, method, seed, accuracy, 1.25)


REFINED = Refined(
    target="wine",
    before={"edges": 20, "homophily": 0.25},
    after={"edges": 30, "homophily": 0.75},
    dropped_injected=0.5,
    dropped_own=0.125,
    audit_auc=0.95,
)
ROWS = [
    row("wine", "predict", 0.9),
    row("wine", "predict", 1.0, seed=1),
    row("wine", "gcn", 0.96),
    row("wine", "gcn", 0.96, seed=1),
]
ABOUT = {"wine": "a table"}
RESULT = DemoResult(ABOUT, ROWS, {"--epochs": 2}, {"torch": "2"}, REFINED, 1.0)
