"""Graphs: load, check, normalise, split, write. Nothing above this folder reads graph files.

Names are imported on first use, so that :mod:`graphglow.graph.table_file` does not wait for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "DATASETS": "datasets",
    "Graph": "graph",
    "as_graph": "load",
    "check_graph": "check",
    "graph_of": "graph",
    "load_graph": "load",
    "prepare": "graph",
    "synthetic_graph": "synthetic",
    "training_graph": "graph",
    "write_graph": "write",
    "write_predictions": "write",
}

if TYPE_CHECKING:
    from graphglow.graph.check import check_graph as check_graph
    from graphglow.graph.datasets import DATASETS as DATASETS
    from graphglow.graph.graph import Graph as Graph
    from graphglow.graph.graph import graph_of as graph_of
    from graphglow.graph.graph import prepare as prepare
    from graphglow.graph.graph import training_graph as training_graph
    from graphglow.graph.load import as_graph as as_graph
    from graphglow.graph.load import load_graph as load_graph
    from graphglow.graph.synthetic import synthetic_graph as synthetic_graph
    from graphglow.graph.write import write_graph as write_graph
    from graphglow.graph.write import write_predictions as write_predictions


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
