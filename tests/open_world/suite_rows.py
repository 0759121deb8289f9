"""Rows of a suite that nobody ran."""

import random

from graphglow.lab.open_world.methods import NAMES, POOL
from graphglow.lab.open_world.standings import lacks_features
from graphglow.lab.open_world.suite import EXPERIMENT
from graphglow.lab.open_world.targets import CONDITIONS
from graphglow.lab.runs.rows import ResultRow

TARGETS = ("dblp", "wine", "reed98", "airports-brazil")
AHEAD = {"predict": 0.08, "untrained": 0.05, "transfer": 0.06, "mlp": -0.05}
SIZE = {"test_nodes": 100.0, "classes": 5.0, "majority": 0.4}


def made_rows(targets: tuple[str, ...] = TARGETS, seeds: int = 2) -> list[ResultRow]:
    draw = random.Random(0)
    rows = []
    for target in targets:
        for condition in CONDITIONS.values():
            hard = 0.7 - 0.1 * condition.x / 20 - 0.05 * len(target) / 10
            for method in NAMES:
                if lacks_features(method, condition.name):
                    continue
                for seed in range(seeds):
                    accuracy = hard + AHEAD.get(method, 0.0) + draw.gauss(0, 0.01)
                    rows.append(
                        ResultRow(
                            experiment=EXPERIMENT,
                            cell=f"{method}/{target}/{condition.name}",
                            label=NAMES[method],
                            method=method,
                            target=target,
                            seed=seed,
                            series=condition.name,
                            test_accuracy=accuracy,
                            val_accuracy=accuracy,
                            metrics=SIZE if method == "predict" else {},
                            config={"labels": "pool"} if method in POOL else {},
                        )
                    )
    return rows
