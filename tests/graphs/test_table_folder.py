import re
import sys
from pathlib import Path

import pandas as pd
import pytest

from graphglow.errors import InputError
from graphglow.graphs import load_graph, write_graph

NODES = """id,label,age,job,split
ann,good,30,cook,train
bob,bad,40,clerk,train
cyd,,50,cook,
dan,bad,,clerk,val
eve,good,20,,test
"""
EDGES = """source,target,weight
ann,bob,1
bob,cyd,0.5
cyd,dan,2
eve,ann,1
"""


def folder(path: Path, nodes: str = NODES, edges: str | None = EDGES) -> Path:
    (path / "nodes.csv").write_text(nodes)
    if edges is not None:
        (path / "edges.csv").write_text(edges)
    return path


def nodes_of(mask) -> list[int]:
    return mask.nonzero().flatten().tolist()


def check(data) -> None:
    assert data.node_id == ["ann", "bob", "cyd", "dan", "eve"]
    assert data.class_names == ["bad", "good"]
    assert data.y.tolist() == [1, 0, -1, 0, 1]
    assert data.x.shape == (5, 3)  # age, clerk, cook
    assert data.x[:, 1:].tolist() == [[0, 1], [1, 0], [0, 1], [1, 0], [0, 0]]
    assert data.x[3, 0] == 0.0  # the mean
    assert data.x[:, 0].mean().abs() < 1e-6
    assert data.edge_index.tolist() == [[0, 1, 2, 4], [1, 2, 3, 0]]
    assert data.edge_weight.tolist() == [1.0, 0.5, 2.0, 1.0]
    assert [nodes_of(data[f"{s}_mask"]) for s in ("train", "val", "test")] == [[0, 1], [3], [4]]


def test_csv(tmp_path):
    home = tmp_path / "people"
    home.mkdir()
    data = load_graph(folder(home))
    assert data.name == "people"
    check(data)


def test_parquet(tmp_path):
    folder(tmp_path)
    for name in ("nodes", "edges"):
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        frame.to_parquet(tmp_path / f"{name}.parquet")
        (tmp_path / f"{name}.csv").unlink()
    check(load_graph(tmp_path))


def test_parquet_with_integer_ids_that_pandas_made_floats(tmp_path):
    frame = pd.DataFrame({"id": [1, 2, 3], "label": ["a", "b", "a"], "f": [True, False, True]})
    frame.to_parquet(tmp_path / "nodes.parquet")
    edges = pd.DataFrame({"source": [1.0, 2.0], "target": [2.0, 3.0]})
    edges.to_parquet(tmp_path / "edges.parquet")
    data = load_graph(tmp_path)
    assert data.node_id == [1, 2, 3]
    assert data.edge_index.tolist() == [[0, 1], [1, 2]]


def test_without_pyarrow(tmp_path, monkeypatch, small_graph):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "nodes.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"pip install graphglow\[parquet\]"):
        load_graph(tmp_path)
    with pytest.raises(InputError, match=r"pip install graphglow\[parquet\]"):
        write_graph(small_graph, tmp_path / "g.parquet")


def test_no_edges_table_gives_a_knn_graph(tmp_path):
    assert load_graph(folder(tmp_path, edges=None)).knn_graph


def test_an_edges_table_without_rows_gives_a_knn_graph(tmp_path):
    assert load_graph(folder(tmp_path, edges="source,target\n")).knn_graph


def test_other_column_names_and_order(tmp_path):
    nodes = "Node,Y,f\n007,0,1\n07,1,2\n7,0,3\n"
    edges = "from,to,since\n007,7,1999\n7,07,2000\n"
    data = load_graph(folder(tmp_path, nodes, edges))
    assert data.node_id == ["007", "07", "7"]  # text as written
    assert data.edge_index.tolist() == [[0, 2], [2, 1]]
    assert data.get("edge_weight") is None
    assert data.get("class_names") is None


def test_the_id_column_need_not_be_the_first(tmp_path):
    data = load_graph(folder(tmp_path, "f,node_id,class\n1,NA,a\n2,20,b\n3,x,a\n", None))
    assert data.node_id == ["NA", "20", "x"]
    assert data.x.shape == (3, 1)


def test_no_column_is_taken_for_the_id_by_its_place(tmp_path):
    with pytest.raises(InputError, match="must have an id column, called id, node_id, node; got"):
        load_graph(folder(tmp_path, "age,income,label\n1,5,a\n2,6,b\n", None))


@pytest.mark.parametrize("header", ["src,dst", "From,To,since", "a,b", "u,v,weight"])
def test_ends_of_edges_by_other_names(tmp_path, header):
    nodes = "id,label,f\nann,a,1\nbob,b,2\n"
    rest = ",3" * (header.count(",") - 1)
    data = load_graph(folder(tmp_path, nodes, f"{header}\nbob,ann{rest}\n"))
    assert data.edge_index.tolist() == [[1], [0]]


def test_no_columns_are_taken_for_the_ends_by_their_place(tmp_path):
    nodes = "id,label,f\n0,a,1\n5,b,2\n6,b,2\n"
    with pytest.raises(InputError, match="must have the columns source and target; got eid, x, z"):
        load_graph(folder(tmp_path, nodes, "eid,x,z\n0,5,6\n"))


def test_byte_order_mark_and_spaces(tmp_path):
    data = load_graph(folder(tmp_path, "\ufeffid, label, f\n a, u, 1\nb, v, 2\nc, u, 3\n", None))
    assert data.node_id == ["a", "b", "c"]
    assert data.class_names == ["u", "v"]


BAD_NODES = {
    "id twice": ("id,label,f\na,0,1\nb,1,2\na,0,3\n", "unique ids; got 'a' in rows 1 and 3"),
    "blank id": ("id,label,f\na,0,1\n,1,2\n", "an id in every row; got a blank in row 2"),
    "no label": (
        "id,f\na,1\n",
        "must have one label column, called label, y, class; got the columns",
    ),
    "two labels": ("id,label,y,f\na,0,0,1\n", "got label and y"),
    "float label": ("id,label,f\na,0.5,1\nb,1,2\n", "got 0.5 in row 1"),
    "negative label": ("id,label,f\na,0,1\nb,-3,2\n", "got -3 in row 2"),
    "no labels": ("id,label,f\na,,1\nb,,2\n", "got no label at all"),
    "one class": ("id,label,f\na,u,1\nb,u,2\n", "at least two classes; got only class 0"),
    "split": ("id,label,f,split\na,0,1,train\nb,1,2,dev\n", "blank; got 'dev' in row 2"),
    "no train": ("id,label,f,split\na,0,1,val\nb,1,2,test\n", "train_mask must hold at least one"),
    "no features": ("id,label\na,0\nb,1\n", "must have at least one feature column; got none"),
    "constant": ("id,label,f\na,0,1\nb,1,1\n", "non-zero entry; got all zeros"),
    "infinite": ("id,label,f\na,0,1\nb,1,inf\n", "must be finite; got inf in row 2"),
    "no rows": ("id,label,f\n", "must have at least one row; got the header only"),
    "empty": ("", "must be a CSV table with a header; it cannot be read"),
    "ragged": ("id,label,f\na,0,1\nb,1,2,3\n", "must be a CSV table with a header; it cannot"),
    "all rows too long": ("id,label,f\na,0,1,9\nb,1,2,9\n", "must be a CSV table with a header"),
}


@pytest.mark.parametrize("case", BAD_NODES)
def test_bad_nodes_tables(case, tmp_path):
    nodes, message = BAD_NODES[case]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_graph(folder(tmp_path, nodes, None))
    assert "\n" not in str(caught.value)


BAD_EDGES = {
    "unknown target": ("source,target\nann,bob\nann,zoe\n", "got target 'zoe' in row 2"),
    "unknown source": ("source,target\nzoe,bob\n", "got source 'zoe' in row 1"),
    "blank": ("source,target\nann,\n", "got target '' in row 1"),
    "one column": ("source\nann\n", "must have the columns source and target; got source"),
    "no header": ("ann,bob\nbob,cyd\n", "must start with a header such as source,target; got the"),
    "text weight": ("source,target,weight\nann,bob,heavy\n", "from 0; got 'heavy' in row 1"),
    "blank weight": ("source,target,weight\nann,bob,1\nann,eve,\n", "must be numbers from 0; got"),
    "negative weight": ("source,target,weight\nann,bob,-1\n", "must be numbers from 0; got"),
    "empty": ("", "must be a CSV table with a header; it cannot be read"),
}


@pytest.mark.parametrize("case", BAD_EDGES)
def test_bad_edges_tables(case, tmp_path):
    edges, message = BAD_EDGES[case]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_graph(folder(tmp_path, edges=edges))
    assert str(tmp_path / "edges.csv") in str(caught.value)


def test_two_nodes_tables(tmp_path):
    folder(tmp_path)
    (tmp_path / "nodes.parquet").write_bytes(b"")
    with pytest.raises(InputError, match="must hold one nodes table; got two in"):
        load_graph(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\x00" * 50 + b"PAR1", b"a,b\n"])
def test_damaged_parquet(content, tmp_path):
    (tmp_path / "nodes.parquet").write_bytes(content)
    with pytest.raises(InputError, match="must be a Parquet table; it is damaged or foreign"):
        load_graph(tmp_path)


def test_a_foreign_encoding(tmp_path):
    (tmp_path / "nodes.csv").write_bytes("id,label,f\nä,0,1\n".encode("latin-1"))
    with pytest.raises(InputError, match="must be a CSV table with a header; it cannot be read"):
        load_graph(tmp_path)
