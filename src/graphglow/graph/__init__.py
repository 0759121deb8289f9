"""Graphs: load, check, normalise, split, write. Nothing above this folder reads graph files."""

from graphglow.graph.check import check_graph as check_graph
from graphglow.graph.datasets import DATASETS as DATASETS
from graphglow.graph.datasets import synthetic_graph as synthetic_graph
from graphglow.graph.graph import Graph as Graph
from graphglow.graph.graph import graph_of as graph_of
from graphglow.graph.graph import prepare as prepare
from graphglow.graph.graph import training_graph as training_graph
from graphglow.graph.load import as_graph as as_graph
from graphglow.graph.load import load_graph as load_graph
from graphglow.graph.write import write_graph as write_graph
from graphglow.graph.write import write_predictions as write_predictions
