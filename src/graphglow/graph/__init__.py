"""Graphs: load, check, normalise, split, write. Nothing above this folder reads graph files."""

from graphglow.graph.check import check_graph
from graphglow.graph.datasets import DATASETS
from graphglow.graph.graph import Graph, graph_of, prepare, training_graph
from graphglow.graph.load import as_graph, load_graph
from graphglow.graph.synthetic import synthetic_graph
from graphglow.graph.write import write_graph, write_predictions

__all__ = [
    "DATASETS",
    "Graph",
    "as_graph",
    "check_graph",
    "graph_of",
    "load_graph",
    "prepare",
    "synthetic_graph",
    "training_graph",
    "write_graph",
    "write_predictions",
]
