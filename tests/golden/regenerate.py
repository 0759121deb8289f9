"""Write the golden losses anew, after a change of the numbers that is meant:

python tests/golden/regenerate.py
"""

import json
import warnings
from pathlib import Path

import torch

with warnings.catch_warnings():  # PyG scripts a class at import, which newer torch deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from graphglow.graph import synthetic_graph
    from graphglow.graph.check import with_random_split
    from graphglow.paper.learner import StructureLearner
    from graphglow.pretrain import pretrain
    from graphglow.settings import LearnerConfig, ObjectiveConfig, PaperConfig, PretrainConfig
    from graphglow.transfer import transfer

HERE = Path(__file__).parent

LEARNER = {
    "weighted": True, "neighbours": None, "embedding_size": 16, "num_heads": 4,
    "similarity": "cosine", "tied": False, "delta": "truncate", "threshold": 0.0,
}  # fmt: skip
OBJECTIVE = {
    "smoothness": 0.1, "sparsity": 0.1, "entropy": 0.5, "samples": 5, "probes": 4, "sketch": 8,
}  # fmt: skip
MODEL = {
    "attention_heads": 8, "teleport": 0.1, "steps": 10, "backbone": "gcn", "num_layers": 2,
    "dropout": 0.5, "encoder": "gcn", "input_weight": 0.6, "structure_momentum": 0.7,
    "num_pivots": 30, "redraw_pivots": True, "pivots_by_degree": False, "refinements": 3,
    "tolerance": 0.0, "learning_rate": 0.02, "weight_decay": 5e-4, "capture": False, "seed": 11,
    "device": "cpu",
}  # fmt: skip
PRETRAIN = MODEL | {"epochs": 10, "patience": 10, "episodes": 1, "learner_learning_rate": 0.02}
TRANSFER = MODEL | {"epochs": 20, "patience": None}


def graph(seed):
    made = synthetic_graph(
        num_nodes=80, num_classes=3, num_features=16, homophily=0.6, average_degree=4.0,
        feature_noise=1.0, seed=seed,
    )  # fmt: skip
    return with_random_split(made, 0)


def rows(history):
    return [[epoch.loss, epoch.val_loss] for epoch in history]


def pretrain_losses():
    """[training loss, validation loss] of each of 20 steps on two sources."""
    history = []
    config = PretrainConfig(
        **PRETRAIN, learner=LearnerConfig(**LEARNER), objective=ObjectiveConfig(**OBJECTIVE)
    )
    pretrain([graph(1), graph(2)], config, on_epoch=history.append)
    return rows(history)


def transfer_losses():
    """The same of 20 steps under a frozen, random learner."""
    learner = StructureLearner(LearnerConfig(**LEARNER), seed=5)
    config = PaperConfig(**TRANSFER)
    return rows(transfer(graph(3), learner, config).history)


GOLDEN = {"pretrain": pretrain_losses, "transfer": transfer_losses}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, losses in GOLDEN.items():
        (HERE / f"{name}.json").write_text(json.dumps(losses(), indent=1) + "\n")
