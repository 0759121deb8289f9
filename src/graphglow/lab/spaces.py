"""What was searched for each method of METHODS, by field of its config: Appendix C where it says.

For a search of one's own: ``trial.suggest_categorical(name, values)`` for each of
``SPACES["gat"].items()``, then ``graphglow.fit("gat", data, **settings).val_accuracy``.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

from graphglow.settings import ObjectiveConfig

Space = Mapping[str, tuple[Any, ...]]

ALL: Space = {
    "learning_rate": (0.001, 0.005, 0.01, 0.05),
    "dropout": (0.0, 0.2, 0.3, 0.5, 0.6),
}
WEIGHT_DECAY: Space = {"weight_decay": (0.0, 5e-5, 5e-4, 5e-3, 2e-2)}
"""Appendix C does not say; here it is the same for every method that has a hidden layer."""
GNN: Space = {**ALL, **WEIGHT_DECAY, "hidden": (16, 32, 64, 96)}
ALPHA: Space = {"teleport": (0.1, 0.2, 0.5)}
LINK: Space = {**ALL, "weight_decay": (0.0, 1e-4, 1e-3, 1e-2)}
IDGL: Space = {
    **ALL,
    **WEIGHT_DECAY,
    "hidden": (16, 64, 96, 128),
    "threshold": (0.01,),
    "input_weight": (0.5, 0.6, 0.7, 0.8),
    "structure_momentum": (0.0, 0.1, 0.2),
    "smoothness": (0.0, 0.1, 0.2),
    "connectivity": (0.0, 0.1),
    "sparsity": (0.1, 0.2),
    "num_heads": (6, 9, 12),
}
VARIANT: Space = {
    **ALL,
    **WEIGHT_DECAY,
    "embedding_size": (64,),
    "input_weight": (0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    "refinements": (4,),
    "encoder": ("gcn", "mlp"),
    "num_pivots": (400,),
}
"""Of Appendix C's space, d, T, H and P were fixed; lambda had fewer values, and 1 besides, so that
a learned graph that does not help is left out; the encoder was chosen along."""
REGULARISERS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3)
TRAINED: Space = {
    **VARIANT,
    "objective": tuple(
        ObjectiveConfig(smoothness=alpha, sparsity=rho)
        for alpha, rho in product(REGULARISERS, repeat=2)
    ),
}

SPACES: dict[str, Space] = {
    "gcn": GNN,
    "sage": GNN,
    "gat": {**GNN, "attention_heads": (2, 4)},
    "appnp": {**GNN, **ALPHA},
    "gpr": {**GNN, **ALPHA},
    "h2gcn": GNN,
    "gcnii": {**GNN, "num_layers": (4, 8, 16, 32)},
    "cpgnn": {
        **GNN,
        "estimator": ("mlp", "cheb"),
        "propagations": (1, 2),
        "adjacency": ("raw", "symmetric"),
        "co_training": (0.0, 1.0),
    },
    "mlp": GNN,
    "link": LINK,
    "link-features": LINK,
    "linkx": GNN,
    "lds": {
        "learning_rate": (1e-4, 1e-3, 1e-2, 1e-1),
        "dropout": ALL["dropout"],
        "hidden": (8, 16, 32, 64),
        "inner_patience": (10, 20),
        "window": (5, 10, 15),
    },
    "idgl": IDGL,
    "idgl-anchor": {**IDGL, "num_anchors": (700, 1000, 1400)},
    "vgcn": {
        **GNN,
        "edge_probability": (0.25, 0.5, 0.75, 0.99),
        "temperature": (0.1, 0.5),
        "prior_temperature": (0.1, 0.5),
        "kl_weight": (1e-4, 1e-3, 1e-2, 1.0),
    },
    "graphglow-dot": VARIANT,
    "graphglow-knn": {**VARIANT, "neighbours": (5, 10, 20, 50)},
    "graphglow-cosine": VARIANT,
    "graphglow-attention": TRAINED,
    "graphglow-star": TRAINED,
    "random-theta": VARIANT,
}
