"""A demo's result, made up."""

from graphglow.compare import Comparison, Line
from graphglow.demo import DemoResult, Refined


def compared(*lines: tuple[str, float, float | None]) -> Comparison:
    """A comparison of methods by accuracy, the highest first, and p against that one."""
    return Comparison([Line(name, a, 0.01, 1.25, p, a) for name, a, p in lines], "a table", {})


REFINED = Refined(
    target="wine",
    before={"edges": 20, "homophily": 0.25},
    after={"edges": 30, "homophily": 0.75},
    dropped_injected=0.5,
    dropped_own=0.125,
    audit_auc=0.95,
)
WINE = compared(("gcn", 0.96, None), ("predict", 0.95, 0.01), ("untrained", 0.6, 1e-9))
RESULT = DemoResult({"wine": WINE}, {"torch": "2"}, REFINED, 1.0)
