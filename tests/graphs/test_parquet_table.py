"""Parquet: batches, parts, types, and how much memory they take."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch

from graphglow.errors import InputError
from graphglow.graphs import load_graph

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def people(size: int, *, text: bool) -> pd.DataFrame:
    number = np.arange(size)
    ids = [f"n{i}" for i in number] if text else number * 10
    return pd.DataFrame({"id": ids, "label": number % 3, "f": np.sin(number)})


def relations(nodes: pd.DataFrame, count: int) -> tuple[pd.DataFrame, torch.Tensor]:
    ends = np.random.default_rng(0).integers(0, len(nodes), (2, count))
    ids = nodes["id"].to_numpy()
    weight = (np.arange(count) % 7 + 1.0).astype(np.float32)
    frame = pd.DataFrame({"source": ids[ends[0]], "target": ids[ends[1]], "weight": weight})
    return frame, torch.from_numpy(ends)


@pytest.mark.parametrize("text", [True, False])
def test_a_graph_comes_back(text, tmp_path):
    nodes = people(50, text=text)
    edges, expected = relations(nodes, 1000)
    nodes.to_parquet(tmp_path / "nodes.parquet")
    edges.to_parquet(tmp_path / "edges.parquet", row_group_size=150)
    data = load_graph(tmp_path)
    assert torch.equal(data.edge_index, expected)
    assert data.edge_weight.tolist() == edges["weight"].tolist()
    assert data.node_id == nodes["id"].tolist()


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_edges_between_numbers_are_never_python_objects(suffix, tmp_path):
    count = 300_000
    nodes = people(1000, text=False)
    edges, expected = relations(nodes, count)
    for name, frame in (("nodes", nodes), ("edges", edges)):
        write = frame.to_parquet if suffix == "parquet" else frame.to_csv
        write(tmp_path / f"{name}.{suffix}", index=False)
    del edges
    load_graph(tmp_path)  # imports are not counted
    tracemalloc.start()
    data = load_graph(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert torch.equal(data.edge_index, expected)
    assert peak < 100 * count  # three numbers of a row, and some copies


def test_parts(tmp_path):
    nodes = people(30, text=True)
    edges, expected = relations(nodes, 90)
    for name, frame, step in (("nodes", nodes, 12), ("edges", edges, 40)):
        (tmp_path / name).mkdir()
        for i, start in enumerate(range(0, len(frame), step)):
            part = frame[start : start + step]
            part.to_parquet(tmp_path / name / f"part-{i}.parquet")
    data = load_graph(tmp_path)
    assert torch.equal(data.edge_index, expected)
    assert data.node_id == nodes["id"].tolist()
    bad = edges[:3].assign(target=["n1", "zoe", "n2"])
    bad.to_parquet(tmp_path / "edges" / "part-1.parquet")
    with pytest.raises(
        InputError, match=r"target 'zoe' in row 2 of .*part-1.parquet \(counted from"
    ):
        load_graph(tmp_path)
    nodes.assign(id="new", f="text")[:1].to_parquet(tmp_path / "nodes" / "part-9.parquet")
    with pytest.raises(
        InputError, match="must be numbers in every filled cell, as most are; got 'text'"
    ):
        load_graph(tmp_path)


def test_types_of_columns(tmp_path):
    table = pa.table(
        {
            "id": pa.array([3, 1, 2], pa.uint16()),
            "label": pa.array(["u", None, "v"]).dictionary_encode(),
            "when": pa.array([0, 2, None], pa.date32()),
            "exact": pa.array(["1.00", "3.00", None], pa.string()).cast(pa.decimal128(5, 2)),
            "flag": pa.array([True, None, False]),
            "kind": pa.array(["b", "a", None]).dictionary_encode(),
            "count": pa.array([1, None, 3], pa.int64()),
        }
    )
    pq.write_table(table, tmp_path / "nodes.parquet")
    data = load_graph(tmp_path)
    assert data.y.tolist() == [0, -1, 1]
    made = {c["name"]: c.get("categories", "number") for c in data.feature_columns["columns"]}
    assert made == {
        "when": "number",
        "exact": "number",
        "count": "number",
        "flag": ["False", "True"],
        "kind": ["a", "b"],
    }
    assert data.x.tolist() == [
        [-1, -1, 0, 1, 0, 1, -1],
        [1, 1, 0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0, 0, 1],
    ]


def test_the_index_of_pandas(tmp_path):
    nodes = people(6, text=True)
    nodes.set_index("id").to_parquet(tmp_path / "nodes.parquet")
    assert load_graph(tmp_path).node_id == nodes["id"].tolist()
    nodes[::-1].to_parquet(tmp_path / "nodes.parquet")  # an index without a name is no feature
    assert load_graph(tmp_path).x.shape == (6, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ["a", None, "b"]}, r"got a blank in row 2 \(counted from 1\)"),
        ({"id": ["a", "b", "a"]}, r"got 'a' in row 1 and row 3 \(counted from 1\)"),
        (
            {"f": [1.0, np.inf, 2.0]},
            r"column 'f' of .* must be finite .*; got 'inf' in row 2 \(counted",
        ),
        ({"f": [[1.0], [2.0], [3.0]]}, "must hold numbers, dates, text or booleans; got list<"),
    ],
)
def test_bad_cells(change, message, tmp_path):
    pd.DataFrame({"id": ["a", "b", "c"], "label": [0, 1, 0], "f": [1.0, 2.0, 3.0]}).assign(
        **change
    ).to_parquet(tmp_path / "nodes.parquet")
    with pytest.raises(InputError, match=message):
        load_graph(tmp_path)


def test_a_file_cut_in_the_middle(tmp_path):
    nodes = people(5, text=True)
    nodes.to_parquet(tmp_path / "nodes.parquet")
    edges, _ = relations(nodes, 5000)
    edges.to_parquet(tmp_path / "edges.parquet", row_group_size=1000, compression=None)
    content = bytearray((tmp_path / "edges.parquet").read_bytes())
    content[4 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4)  # the footer is whole
    (tmp_path / "edges.parquet").write_bytes(content)
    with pytest.raises(InputError, match="must be a Parquet table; it is damaged or foreign"):
        load_graph(tmp_path)
