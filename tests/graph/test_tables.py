"""Tables of nodes and edges; new nodes are in test_new_tables.py."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from graphglow.errors import InputError, InputWarning
from graphglow.graph import load_graph, write_graph
from graphglow.graph.graph import undirected_edges

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
    assert data.directed_edge_index.tolist() == [[0, 1, 2, 4], [1, 2, 3, 0]]
    assert data.directed_edge_weight.tolist() == [1.0, 0.5, 2.0, 1.0]
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
    assert data.directed_edge_index.tolist() == [[0, 1], [1, 2]]


def test_without_pyarrow(tmp_path, monkeypatch, small_graph):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "nodes.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"pip install .graphglow\[parquet\]"):
        load_graph(tmp_path)
    with pytest.raises(InputError, match=r"pip install .graphglow\[parquet\]"):
        write_graph(small_graph, tmp_path / "g.parquet")


@pytest.mark.parametrize("edges", [None, "source,target\n"])
def test_no_edges_give_a_knn_graph(edges, tmp_path):
    assert load_graph(folder(tmp_path, edges=edges)).knn_graph


def test_other_column_names_and_order(tmp_path):
    nodes = "Node,Y,f\n007,0,1\n07,1,2\n7,0,3\n"
    edges = "from,to,since\n007,7,1999\n7,07,2000\n"
    data = load_graph(folder(tmp_path, nodes, edges))
    assert data.node_id == ["007", "07", "7"]  # text as written
    assert data.directed_edge_index.tolist() == [[0, 2], [2, 1]]
    assert data.get("edge_weight") is None
    assert data.class_names == ["0", "1"]


def test_columns_that_are_left_out(tmp_path):
    home = folder(tmp_path, edges="a,b,since\nann,bob,1999\n")
    data = load_graph(home, columns={"leave_out": ["job", "since"]})
    assert data.x.shape == (5, 1)
    assert data.directed_edge_index.tolist() == [[0], [1]]
    assert load_graph(home, columns={"leave_out": "job", "source": "a", "target": "b"}).x.shape == (
        5,
        1,
    )
    said = "nodes.csv must have the column 'jop', which is to be left out; got .* (nearest: 'job')"
    with pytest.raises(InputError, match=said.replace("(", r"\(").replace(")", r"\)")):
        load_graph(home, columns={"leave_out": ["jop"]})
    with pytest.raises(InputError, match="must have the column 'job', chosen as label; got id,"):
        load_graph(home, columns={"leave_out": ["job"], "label": "job"})


def test_a_column_has_one_role(tmp_path):
    home = folder(tmp_path)
    with pytest.raises(InputError, match="one role only; got 'id' as id and label"):
        load_graph(home, columns={"id": "id", "label": "id"})
    with pytest.raises(InputError, match="one role only; got 'a' as source and target"):
        load_graph(home, columns={"source": "a", "target": "a"})
    data = load_graph(home, columns={"id": "id", "label": "job"})  # "label" is a feature then
    assert data.class_names == ["clerk", "cook"]
    assert data.x.shape == (5, 3)  # age, bad, good
    edges = pd.DataFrame({"source": [3.0], "from": ["ann"], "to": ["bob"]})
    data = load_graph((home / "nodes.csv", edges), columns={"weight": "source"})
    assert (data.directed_edge_index.tolist(), data.directed_edge_weight.tolist()) == (
        [[0], [1]],
        [3.0],
    )


def test_one_end_of_an_edge_may_be_chosen(tmp_path):
    home = folder(tmp_path, edges="payer,to,since\nann,bob,1999\n")
    assert load_graph(home, columns={"source": "payer"}).directed_edge_index.tolist() == [[0], [1]]
    with pytest.raises(InputError, match="must have a source column, called source, from, src"):
        load_graph(home, columns={"target": "to"})


def test_weights_with_thousands(tmp_path):
    home = folder(tmp_path, edges='source,target,weight\nann,bob,"1,500"\nbob,cyd,50%\n')
    assert load_graph(home).directed_edge_weight.tolist() == [1500.0, 0.5]


def test_the_id_column_need_not_be_the_first(tmp_path):
    data = load_graph(folder(tmp_path, "f,node_id,class\n1,NA,a\n2,20,b\n3,x,a\n", None))
    assert data.node_id == ["NA", "20", "x"]
    assert data.x.shape == (3, 1)


def test_no_column_is_taken_for_the_id_by_its_place(tmp_path):
    with pytest.raises(InputError, match="must have an id column, called id, node_id, node "):
        load_graph(folder(tmp_path, "age,income,label\n1,5,a\n2,6,b\n", None))


@pytest.mark.parametrize("header", ["src,dst", "From,To,since", "a,b", "u,v,weight"])
def test_ends_of_edges_by_other_names(tmp_path, header):
    nodes = "id,label,f\nann,a,1\nbob,b,2\n"
    rest = ",3" * (header.count(",") - 1)
    data = load_graph(folder(tmp_path, nodes, f"{header}\nbob,ann{rest}\n"))
    assert data.directed_edge_index.tolist() == [[1], [0]]


def test_no_columns_are_taken_for_the_ends_by_their_place(tmp_path):
    nodes = "id,label,f\n0,a,1\n5,b,2\n6,b,2\n"
    with pytest.raises(
        InputError, match=r"must have the columns source and target .*; got eid, x, z"
    ):
        load_graph(folder(tmp_path, nodes, "eid,x,z\n0,5,6\n"))


BAD_NODES = {
    "id twice": (
        "id,label,f\na,0,1\nb,1,2\na,0,3\n",
        "unique ids; got 'a'",
    ),
    "blank id": ("id,label,f\na,0,1\n,1,2\n", "an id in every row; got a blank"),
    "no label": (
        "id,f\na,1\n",
        "must have a label column, called label, y, class, what is to be predicted, blank where "
        'unknown (--columns label=NAME, in Python columns={"label": "NAME"}, says which); got id',
    ),
    "two labels": ("id,label,y,f\na,0,0,1\n", "got label and y"),
    "float label": ("id,label,f\na,0.5,1\nb,1,2\n", "got '0.5'"),
    "negative label": ("id,label,f\na,0,1\nb,-3,2\n", "got '-3'"),
    "no labels": ("id,label,f\na,,1\nb,,2\n", "got no label at all"),
    "one class": ("id,label,f\na,u,1\nb,u,2\n", "at least two classes; got only class u"),
    "split": ("id,label,f,split\na,0,1,train\nb,1,2,dev\n", "blank; got 'dev'"),
    "no train": (
        "id,label,f,split\na,0,1,val\nb,1,2,test\n",
        "at least one labelled node for training (train_mask); got none",
    ),
    "no features": ("id,label\na,0\nb,1\n", "must have features x or edges; got neither"),
    "constant": (
        "id,label,f\na,0,1\nb,1,1\n",
        "must have a feature column that differs between rows; got",
    ),
    "infinite": (
        "id,label,f\na,0,1\nb,1,inf\n",
        "must be finite and below 1e+38; got inf",
    ),
    "no rows": (
        "id,label,f\n",
        "must have a feature column that differs between rows; got",
    ),
    "one node": (
        "id,label,f\na,0,1\n",
        "must have a feature column that differs between rows; got",
    ),
    "empty": ("", "must be a CSV table with a header; it is empty"),
    "ragged": (
        "id,label,f\na,0,1\nb,1,2,3\n",
        "in UTF-8; it cannot be read (Error tokenizing data. C error: Expected 3 "
        "fields in line 3, saw 4",
    ),
    "misspelt id": ("ids,label,f\na,0,1\n", "got ids, label, f (nearest: 'ids')"),
    "misspelt label": ("id,lable,f\na,0,1\n", "id, lable, f (nearest: 'lable')"),
    "number": (
        "id,label,f\na,0,1\nb,1,two\nc,1,3\n",
        "must be numbers in every filled cell; got 'two'",
    ),
    "mixed labels": (
        "id,label,f\na,0,1\nb,1,2\nc,unknown,3\n",
        "must be text, or whole numbers from 0 (-1 or blank for unlabelled); got 'unknown'",
    ),
    "column twice": ("id,label,f,f\na,0,1,2\n", "columns of different names; got 'f' twice"),
    "all rows too long": ("id,label,f\na,0,1,9\nb,1,2,9\n", "must be a CSV table with a header"),
}


@pytest.mark.parametrize("case", BAD_NODES)
def test_bad_nodes_tables(case, tmp_path):
    nodes, message = BAD_NODES[case]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_graph(folder(tmp_path, nodes, None))
    assert "\n" not in str(caught.value)


BAD_EDGES = {
    "unknown target": (
        "source,target\nann,bob\nann,zoe\n",
        "edges.csv must name nodes of the nodes table; got 'zoe'",
    ),
    "unknown source": (
        "source,target\nzoe,bob\n",
        "edges.csv must name nodes of the nodes table; got 'zoe'",
    ),
    "blank": ("source,target\nann,\n", "got a blank"),
    "one column": (
        "source\nann\n",
        "must have the columns source and target (--columns source=NAME ",
    ),
    "no header": ("ann,bob\nbob,cyd\n", "must start with a header such as source,target; got the"),
    "text weight": (
        "source,target,weight\nann,bob,heavy\n",
        "must be numbers in every filled cell; got 'heavy'",
    ),
    "blank weight": (
        "source,target,weight\nann,bob,1\nann,eve,\n",
        "from 0 to 1e+30; got a blank",
    ),
    "negative weight": ("source,target,weight\nann,bob,-1\n", "from 0 to 1e+30; got -1"),
    "infinite weight": (
        "source,target,weight\nann,bob,1\nann,eve,inf\n",
        "must be finite and below 1e+38; got inf",
    ),
    "misspelt end": ("sorce,target,x\nann,bob,1\n", "target, x (nearest: 'sorce')"),
    "empty": ("", "must be a CSV table with a header; it is empty"),
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


def test_columns_by_other_names(tmp_path):
    nodes = "person,risk,when,f\na,u,train,1\nb,v,val,2\nc,u,,3\n"
    edges = "n,payer,payee,amount\n1,a,b,2\n2,c,a,3\n"
    columns = {
        "id": "person",
        "label": "risk",
        "split": "when",
        "source": "payer",
        "target": "payee",
        "weight": "amount",
    }
    data = load_graph(folder(tmp_path, nodes, edges), columns=columns)
    assert data.node_id == ["a", "b", "c"]
    assert data.x.shape == (3, 1)
    assert data.directed_edge_index.tolist() == [[0, 2], [1, 0]]
    assert data.directed_edge_weight.tolist() == [2.0, 3.0]
    assert nodes_of(data.train_mask) == [0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": "persn"}, "must have the column 'persn', chosen as id; got id, label, age, job"),
        ({"ident": "id"}, "columns must give names to some of id, label, split, source, target"),
        ({"label": "lable"}, "chosen as label; got id, label, age, job, split (nearest: 'label')"),
    ],
)
def test_columns_that_are_not_there(columns, message, tmp_path):
    with pytest.raises(InputError, match=re.escape(message)):
        load_graph(folder(tmp_path), columns=columns)


def test_two_files_a_table_alone_and_frames(tmp_path):
    (tmp_path / "people.csv").write_text(NODES)
    (tmp_path / "relations.csv").write_text(EDGES)
    files = [tmp_path / "people.csv", tmp_path / "relations.csv"]
    both = load_graph(f"{files[0]}+{files[1]}")
    assert both.name == "people"
    check(both)
    check(load_graph(tuple(files)))
    check(load_graph(tuple(pd.read_csv(file) for file in files)))
    assert load_graph(files[0]).knn_graph
    assert load_graph(pd.read_csv(files[0])).knn_graph


def test_the_nodes_file_stands_for_its_folder(tmp_path):
    check(load_graph(folder(tmp_path) / "nodes.csv"))


def test_no_labels_where_none_are_needed(tmp_path):
    home = folder(tmp_path, "id,f\na,1\nb,2\nc,4\n", "source,target\na,b\n")
    data = load_graph(home, need_labels=False)
    assert data.y.tolist() == [-1, -1, -1]
    assert not (data.train_mask | data.val_mask | data.test_mask).any()
    assert data.directed_edge_index.tolist() == [[0], [1]]


def test_duplicates_loops_and_directions_are_kept_and_merged_for_training(tmp_path):
    edges = "source,target,weight\nann,ann,9\nann,bob,1\nbob,ann,3\nann,bob,2\n"
    data = load_graph(folder(tmp_path, edges=edges))
    assert data.directed_edge_index.shape == (2, 4)
    low, high, weight = undirected_edges(data.edge_index, data.edge_weight, 5)
    assert (low.tolist(), high.tolist(), weight.tolist()) == ([0], [1], [3.0])


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (NODES.replace("split", "splits"), EDGES, "'splits' .* is not read as the split; call"),
        (NODES, EDGES.replace("weight", "weights"), "'weights' .* is not read as the weight; call"),
    ],
)
def test_nearly_the_name_of_a_column_is_noted(nodes, edges, message, tmp_path):
    with pytest.warns(InputWarning, match=message):
        load_graph(folder(tmp_path, nodes, edges))


def test_how_the_features_were_made(tmp_path):
    data = load_graph(folder(tmp_path))
    age, job = data.feature_columns["columns"]
    assert age == {"name": "age", "mean": 35.0, "scale": pytest.approx(125**0.5)}
    assert job == {"name": "job", "categories": ["clerk", "cook"]}
    torch.save(data, tmp_path / "g.pt")
    assert load_graph(tmp_path / "g.pt").feature_columns == data.feature_columns


PEOPLE = pd.DataFrame({"id": [f"p{i}" for i in range(8)], "label": [0, 1] * 4, "a": range(8)})
KNOWS = pd.DataFrame(
    {
        "source": ["p0", "zoe", "p2", None, "p4", "max"],
        "target": ["p1", "p2", "p3", "p5", "p5", "eva"],
        "weight": ["1", "no number", "2", "", "3", "-7"],
    }
)


def test_the_error_names_the_flag():
    said = (
        r"column 'source' of the DataFrame must name nodes of the nodes table; got 'zoe', and 2 "
        r"more such rows; --skip-unknown-edges \(in Python skip_unknown_edges=True\) leaves such "
        r"edges out$"
    )
    with pytest.raises(InputError, match=said):
        load_graph((PEOPLE, KNOWS))


@pytest.mark.parametrize("kind", ["frames", "csv", "parquet", "folder"])
def test_they_are_left_out_and_counted(kind, tmp_path):
    suffix = "parquet" if kind == "parquet" else "csv"
    paths = [tmp_path / f"{name}.{suffix}" for name in ("nodes", "edges")]
    for frame, path in zip((PEOPLE, KNOWS), paths, strict=True):
        (frame.to_parquet if kind == "parquet" else frame.to_csv)(path, index=False)
    source = {"frames": (PEOPLE, KNOWS), "folder": tmp_path}.get(kind, paths)
    with pytest.warns(InputWarning) as said:
        data = load_graph(source, skip_unknown_edges=True)
    (line,) = (str(one.message) for one in said)
    what = "the DataFrame" if kind == "frames" else paths[1]
    begin = f"3 of 6 edges of {what} are left out: they must name nodes of the nodes table; got "
    assert line == f"{begin}'zoe'"
    assert data.directed_edge_index.tolist() == [[0, 2, 4], [1, 3, 5]]
    assert data.directed_edge_weight.tolist() == [1.0, 2.0, 3.0]  # those of the others are not read
    clean = load_graph((PEOPLE, KNOWS.iloc[::2]))
    assert torch.equal(data.x, clean.x)
    assert torch.equal(data.edge_index, clean.edge_index)


def test_nothing_is_said_where_all_ids_are_known():
    data = load_graph((PEOPLE, KNOWS.iloc[::2]), skip_unknown_edges=True)
    assert data.directed_edge_index.shape == (2, 3)
    assert load_graph(PEOPLE, skip_unknown_edges=True).knn_graph
    assert load_graph("wine", skip_unknown_edges=True).num_nodes == 178


def test_numbers_are_looked_up_as_such():
    nodes = PEOPLE.assign(id=np.arange(8))
    edges = pd.DataFrame({"source": [0, 70, 2], "target": [1, 2, 80]})
    with pytest.warns(InputWarning, match=r"2 of 3 edges of .*; got '70'"):
        data = load_graph((nodes, edges), skip_unknown_edges=True)
    assert data.directed_edge_index.tolist() == [[0], [1]]


def test_a_table_of_edges_that_fits_not_at_all_is_refused():
    """Otherwise the nearest neighbours would be joined in its place, without a word."""
    edges = pd.DataFrame({"source": ["P0", "P1"], "target": ["P1", "P2"]})
    said = "must have an edge between nodes of the nodes table; got 'P0' and such"
    with pytest.raises(InputError, match=said):
        load_graph((PEOPLE, edges), skip_unknown_edges=True)
