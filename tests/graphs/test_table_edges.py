"""Edges that name ids which no node has: refused, or left out and counted."""

import numpy as np
import pandas as pd
import pytest
import torch

from graphglow.errors import InputError, InputWarning
from graphglow.graphs import load_graph

NODES = pd.DataFrame({"id": [f"p{i}" for i in range(8)], "label": [0, 1] * 4, "a": range(8)})
EDGES = pd.DataFrame(
    {
        "source": ["p0", "zoe", "p2", None, "p4", "max"],
        "target": ["p1", "p2", "p3", "p5", "p5", "eva"],
        "weight": ["1", "no number", "2", "", "3", "-7"],
    }
)


def test_the_error_names_the_flag():
    said = (
        r"column 'source' of the DataFrame must name nodes of the nodes table; got source 'zoe' in "
        r"row 1 \(counted from 0\), and 2 more such rows; --skip-unknown-edges \(in Python "
        r"skip_unknown_edges=True\) leaves such edges out$"
    )
    with pytest.raises(InputError, match=said):
        load_graph((NODES, EDGES))


@pytest.mark.parametrize("kind", ["frames", "csv", "parquet", "folder"])
def test_they_are_left_out_and_counted(kind, tmp_path):
    suffix = "parquet" if kind == "parquet" else "csv"
    paths = [tmp_path / f"{name}.{suffix}" for name in ("nodes", "edges")]
    for frame, path in zip((NODES, EDGES), paths, strict=True):
        (frame.to_parquet if kind == "parquet" else frame.to_csv)(path, index=False)
    source = {"frames": (NODES, EDGES), "folder": tmp_path}.get(kind, paths)
    with pytest.warns(InputWarning) as said:
        data = load_graph(source, skip_unknown_edges=True)
    (line,) = (str(one.message) for one in said)
    what = "the DataFrame" if kind == "frames" else paths[1]
    begin = f"3 of 6 edges of {what} are left out: they must name nodes of the nodes table; got "
    assert line.startswith(f"{begin}'zoe' in row ")
    assert data.edge_index.tolist() == [[0, 2, 4], [1, 3, 5]]
    assert data.edge_weight.tolist() == [1.0, 2.0, 3.0]  # those of the others are not read
    clean = load_graph((NODES, EDGES.iloc[::2]))
    assert torch.equal(data.x, clean.x)
    assert torch.equal(data.edge_index, clean.edge_index)


def test_nothing_is_said_where_all_ids_are_known():
    data = load_graph((NODES, EDGES.iloc[::2]), skip_unknown_edges=True)
    assert data.edge_index.shape == (2, 3)
    assert load_graph(NODES, skip_unknown_edges=True).knn_graph
    assert load_graph("wine", skip_unknown_edges=True).num_nodes == 178


def test_numbers_are_looked_up_as_such():
    nodes = NODES.assign(id=np.arange(8))
    edges = pd.DataFrame({"source": [0, 70, 2], "target": [1, 2, 80]})
    with pytest.warns(InputWarning, match=r"2 of 3 edges of .*; got '70' in row 1"):
        data = load_graph((nodes, edges), skip_unknown_edges=True)
    assert data.edge_index.tolist() == [[0], [1]]


def test_a_table_of_edges_that_fits_not_at_all_is_refused():
    """Otherwise the nearest neighbours would be joined in its place, without a word."""
    edges = pd.DataFrame({"source": ["P0", "P1"], "target": ["P1", "P2"]})
    said = "must have an edge between nodes of the nodes table; got none in 2, but 'P0' in row 0"
    with pytest.raises(InputError, match=said):
        load_graph((NODES, edges), skip_unknown_edges=True)
