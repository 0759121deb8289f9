"""Tables of nodes and edges: files, columns and their roles."""

import re
import sys
from pathlib import Path

import pandas as pd
import pytest

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
    path.mkdir(exist_ok=True)
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


def test_a_folder_a_file_in_it_and_a_pair(tmp_path):
    home = folder(tmp_path / "people")
    data = load_graph(home)
    assert data.name == "people"
    check(data)
    check(load_graph(home / "nodes.csv"))  # stands for its folder
    pair = [home / "nodes.csv", home / "edges.csv"]
    check(load_graph(f"{pair[0]}+{pair[1]}"))
    check(load_graph(tuple(pair)))
    check(load_graph(tuple(pd.read_csv(file) for file in pair)))
    assert load_graph(pd.read_csv(pair[0])).knn_graph


FORMATS = {
    "semicolons and decimal commas": lambda t: t.replace("0.5", "0,5").replace(",", ";", 99),
    "tabs": lambda text: text.replace(",", "\t"),
    "bars": lambda text: text.replace(",", "|"),
    "spaces": lambda text: text.replace(",", ", "),
    "a byte order mark": lambda text: "\ufeff" + text,
    "windows": lambda text: text.replace("\n", "\r\n"),
    "blank lines": lambda text: "\n" + text.replace("\n", "\n\n"),
    "quotes": lambda text: "\n".join(
        ",".join(f'"{cell}"' for cell in line.split(",")) for line in text.splitlines()
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_csv_as_programs_write_it(name, tmp_path):
    if name.startswith("semicolons"):
        edges = EDGES.replace(",", ";").replace("0.5", "0,5")
        check(load_graph(folder(tmp_path, NODES.replace(",", ";"), edges)))
        return
    home = folder(tmp_path)
    for file in ("nodes.csv", "edges.csv"):
        (home / file).write_bytes(FORMATS[name]((home / file).read_text()).encode())
    check(load_graph(home))


def test_a_separator_inside_quotes_is_text(tmp_path):
    nodes = 'id,label,"a; b; c; d; e; f",x\nann,good,1,2\nbob,bad,2,3\n'
    data = load_graph(folder(tmp_path, nodes, None))
    assert [facts["name"] for facts in data.feature_columns["columns"]] == ["a; b; c; d; e; f", "x"]


@pytest.mark.parametrize("suffix", [".csv.gz", ".tsv", ".parquet"])
def test_other_files(suffix, tmp_path):
    home = folder(tmp_path)
    for name in ("nodes", "edges"):
        frame = pd.read_csv(home / f"{name}.csv")
        (home / f"{name}.csv").unlink()
        path = home / f"{name}{suffix}"
        if suffix == ".parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, sep="\t" if suffix == ".tsv" else ",", index=False)
    check(load_graph(home))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_folders_of_parts(suffix, tmp_path):
    folder(tmp_path)
    for name in ("nodes", "edges"):
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        (tmp_path / f"{name}.csv").unlink()
        (tmp_path / name).mkdir()
        for part, rows in enumerate((frame[:2], frame[2:])):
            path = tmp_path / name / f"part-{part}{suffix}"
            rows.to_csv(path, index=False) if suffix == ".csv" else rows.to_parquet(path)
    check(load_graph(tmp_path))
    (tmp_path / "edges" / "part-2.csv").write_text("source,end,weight\nann,bob,1\n")
    with pytest.raises(InputError, match="need the same columns, but 'end' is in only one of"):
        load_graph(tmp_path)


def test_a_column_is_of_one_kind_in_all_parts(tmp_path):
    folder(tmp_path, edges=None)
    (tmp_path / "nodes.csv").unlink()
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "a.csv").write_text("id,label,code\n01,u,007\n02,v,08\n")
    (tmp_path / "nodes" / "b.csv").write_text("id,label,code\n03,u,x1\n04,v,x2\n05,v,x2\n")
    data = load_graph(tmp_path)
    assert data.node_id == ["01", "02", "03", "04", "05"]
    assert data.feature_columns["columns"][0]["categories"] == ["007", "08", "x1", "x2"]


def test_without_pyarrow(tmp_path, monkeypatch, small_graph):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "nodes.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"pip install .graphglow\[parquet\]"):
        load_graph(tmp_path)
    with pytest.raises(InputError, match=r"pip install .graphglow\[parquet\]"):
        write_graph(small_graph, tmp_path / "g.parquet")


def test_ids_are_text_as_written(tmp_path):
    nodes = "Node,Y,f\n007,0,1\n07,1,2\n7,0,3\nNA,1,3\n"
    edges = "from,to,since\n007,7,1999\n7,07,2000\nNA,7,2001\n"
    data = load_graph(folder(tmp_path, nodes, edges))
    assert data.node_id == ["007", "07", "7", "NA"]
    assert data.directed_edge_index.tolist() == [[0, 2, 3], [2, 1, 2]]
    assert data.get("edge_weight") is None
    assert data.class_names == ["0", "1"]


def test_whole_numbers_are_whole_whatever_pandas_made_of_them(tmp_path):
    frame = pd.DataFrame({"id": [1, 2, 3], "label": ["a", "b", "a"], "f": [True, False, True]})
    frame.to_parquet(tmp_path / "nodes.parquet")
    edges = pd.DataFrame({"source": [1.0, 2.0], "target": ["2", "3"]})
    data = load_graph((tmp_path / "nodes.parquet", edges))
    assert data.node_id == [1, 2, 3]
    assert data.directed_edge_index.tolist() == [[0, 1], [1, 2]]


def test_a_number_can_be_declared_a_category(tmp_path):
    nodes = "id,label,zip,f\na,u,01234,1\nb,v,1234,2\nc,u,01234,3\n"
    data = load_graph(folder(tmp_path, nodes, None), columns={"category": ["zip"]})
    assert data.feature_columns["columns"][0] == {"name": "zip", "categories": ["01234", "1234"]}
    assert data.x[:, :2].tolist() == [[1, 0], [0, 1], [1, 0]]
    with pytest.raises(InputError, match="no column 'zap', which columns names"):
        load_graph(tmp_path, columns={"category": "zap"})


def test_columns_that_are_left_out(tmp_path):
    home = folder(tmp_path, edges="from,to,since\nann,bob,1999\n")
    data = load_graph(home, columns={"leave_out": ["job", "since"]})
    assert data.x.shape == (5, 1)
    assert data.directed_edge_index.tolist() == [[0], [1]]
    named = {"leave_out": "job", "source": "from", "target": "to"}
    assert load_graph(home, columns=named).x.shape == (5, 1)


def test_columns_by_other_names(tmp_path):
    nodes = "person,risk,when,f\na,u,train,1\nb,v,val,2\nc,u,,3\n"
    edges = "n,payer,payee,amount\n1,a,b,2\n2,c,a,3\n"
    columns = {"id": "person", "label": "risk", "split": "when"}
    columns |= {"source": "payer", "target": "payee", "weight": "amount"}
    data = load_graph(folder(tmp_path, nodes, edges), columns=columns)
    assert data.node_id == ["a", "b", "c"]
    assert data.x.shape == (3, 1)
    assert data.directed_edge_index.tolist() == [[0, 2], [1, 0]]
    assert data.directed_edge_weight.tolist() == [2.0, 3.0]
    assert nodes_of(data.train_mask) == [0]
    assert data.feature_columns["chosen"] == columns


def test_a_column_that_could_have_another_role_is_a_feature(tmp_path):
    data = load_graph(folder(tmp_path), columns={"id": "id", "label": "job"})
    assert data.class_names == ["clerk", "cook"]
    assert data.x.shape == (5, 3)  # age, bad, good
    edges = pd.DataFrame({"source": [3.0], "from": ["ann"], "to": ["bob"]})
    data = load_graph((tmp_path / "nodes.csv", edges), columns={"weight": "source"})
    assert data.directed_edge_index.tolist() == [[0], [1]]
    assert data.directed_edge_weight.tolist() == [3.0]


@pytest.mark.parametrize("header", ["src,dst", "From,To,since"])
def test_ends_of_edges_by_other_names(tmp_path, header):
    nodes = "id,label,f\nann,a,1\nbob,b,2\n"
    rest = ",3" * (header.count(",") - 1)
    data = load_graph(folder(tmp_path, nodes, f"{header}\nbob,ann{rest}\n"))
    assert data.directed_edge_index.tolist() == [[1], [0]]


BAD_COLUMNS = [
    ({"id": "persn"}, "has no column 'persn', chosen as id; it has id, label, age, job, split"),
    ({"label": "lable"}, "chosen as label; it has id, label, age, job, split (nearest: label)"),
    ({"ident": "id"}, "Name one column for some of id, label, split, source, target"),
    ({"leave_out": ["jop"]}, "has no column 'jop', which columns names"),
    ({"leave_out": ["job"], "label": "job"}, "no column 'job', chosen as label; it has id, label"),
    ({"target": "target", "source": "to"}, "no column 'to', chosen as source"),
    ("id", "columns is 'id'. Map roles to names"),
]


@pytest.mark.parametrize(("columns", "message"), BAD_COLUMNS)
def test_bad_columns(columns, message, tmp_path):
    with pytest.raises(InputError, match=re.escape(message)):
        load_graph(folder(tmp_path), columns=columns)


BAD_NODES = {
    "id twice": ("id,label,f\na,0,1\nb,1,2\na,0,3\n", "has an id twice ('a')"),
    "blank id": ("id,label,f\na,0,1\n,1,2\n", "has a blank for an id"),
    "no id": (
        "age,income,label\n1,5,a\n",
        "has no id column, called id, node_id, node; it has age",
    ),
    "no label": ("id,f\na,1\n", "has no label column, called label, y, class; it has id, f. Say"),
    "two labels": ("id,label,y,f\na,0,0,1\n", "has label and y, which may both be the label"),
    "float label": ("id,label,f\na,0.5,1\nb,1,2\n", "not '0.5' in row 1"),
    "no labels": ("id,label,f\na,,1\nb,,2\n", "got no label at all"),
    "one class": ("id,label,f\na,u,1\nb,u,2\n", "at least two classes; got only class u"),
    "split": ("id,label,f,split\na,0,1,train\nb,1,2,dev\n", "has 'dev'. Write train, val, test"),
    "no train": (
        "id,label,f,split\na,0,1,val\nb,1,2,test\n",
        "for training (train_mask); got none",
    ),
    "no features": ("id,label\na,0\nb,1\n", "must have features x or edges; got neither"),
    "no rows": ("id,label,f\n", "differs between its 0 rows"),
    "empty": ("", "with a header, in UTF-8: it is empty"),
    "a long row": ("id,label,f\na,0,1\nb,1,2,3\n", "has 4 fields in line 3, but 3 in its header"),
    "a short row": ("id,label,f\na,0,1\n\nb,1\n", "has 2 fields in line 4, but 3 in its header"),
    "all rows too long": ("id,label,f\na,0,1,9\nb,1,2,9\n", "has 4 fields in line 2, but 3"),
    "half a quote": ('id,label,f\na,0,"1\n', "EOF inside string"),
    "number": ("id,label,f\na,0,1\nb,1,two\nc,1,3\n", "has text among numbers in row 2 ('two')"),
    "column twice": ("id,label,f,f\na,0,1,2\n", "has two columns 'f'"),
    "misspelt label": ("id,lable,f\na,0,1\n", "it has id, lable, f (nearest: lable)"),
}


@pytest.mark.parametrize("case", BAD_NODES)
def test_bad_nodes_tables(case, tmp_path):
    nodes, message = BAD_NODES[case]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load_graph(folder(tmp_path, nodes, None))
    assert "\n" not in str(caught.value)


def test_the_remedy_is_in_the_error(tmp_path):
    with pytest.raises(InputError) as caught:
        load_graph(folder(tmp_path, NODES.replace("50", "n/k"), None))
    assert str(caught.value) == (
        f"Column 'age' of {tmp_path / 'nodes.csv'} has text among numbers in row 3 ('n/k'). Clean "
        "it, or leave the column out: --columns leave_out=age (in Python "
        "load_graph(.., columns={\"leave_out\": ['age']}))."
    )


BAD_EDGES = {
    "unknown": ("source,target\nann,bob\nann,zoe\n", "1 of 2 edges of", "such as 'zoe' in column"),
    "blank": ("source,target\nann,\n", "1 of 1 edges of", "such as '' in column 'target'"),
    "one column": ("source\nann\n", "has no target column, called target, to, dst; it has", ""),
    "no names": ("eid,x,z\n0,5,6\n", "no source column, called source, from, src; it has eid", ""),
    "no header": (
        "ann,bob\nbob,cyd\n",
        "no source column, called source, from, src; it has ann",
        "",
    ),
    "text": ("source,target,weight\nann,bob,heavy\n", "text among numbers in row 1 ('heavy')", ""),
    "infinite": ("source,target,weight\nann,eve,inf\n", "a number that is too large in row 1", ""),
    "misspelt": ("sorce,target,x\nann,bob,1\n", "it has sorce, target, x (nearest: sorce)", ""),
    "empty": ("", "it is empty", ""),
}


@pytest.mark.parametrize("case", BAD_EDGES)
def test_bad_edges_tables(case, tmp_path):
    edges, *parts = BAD_EDGES[case]
    with pytest.raises(InputError) as caught:
        load_graph(folder(tmp_path, edges=edges))
    assert all(part in str(caught.value) for part in (*parts, str(tmp_path / "edges.csv")))


@pytest.mark.parametrize("weight", ["", "-1"])
def test_weights_that_are_none(weight, tmp_path):
    edges = f"source,target,weight\nann,bob,1\nann,eve,{weight}\n"
    with pytest.raises(InputError, match="edge_weight must be finite and non-negative"):
        load_graph(folder(tmp_path, edges=edges))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\x00" * 50 + b"PAR1", b"a,b\n"])
def test_damaged_parquet(content, tmp_path):
    (tmp_path / "nodes.parquet").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as a Parquet table; it is damaged"):
        load_graph(tmp_path)


@pytest.mark.parametrize("content", [b"id,label\n\xe4,b\n", b"PK\x03\x04\x80\x00"])
def test_csv_that_is_no_utf_8(content, tmp_path):
    (tmp_path / "nodes.csv").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as a CSV table with a header, in UTF-8"):
        load_graph(tmp_path)


def test_folders_without_a_nodes_table(tmp_path):
    with pytest.raises(InputError, match=r"has no nodes.csv or nodes.parquet, but nothing"):
        load_graph(tmp_path)
    (tmp_path / "people.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    with pytest.raises(InputError, match=r"but edges.csv, people.csv. Name the tables: --target"):
        load_graph(tmp_path)
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "nodes.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"has two nodes tables, nodes.csv and nodes.parquet"):
        load_graph(tmp_path)


def test_edges_alone_need_no_labels_and_cannot_be_learned_from(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target\n01,b\nb,c\nc,01\n")
    for source in (path, tmp_path):
        with pytest.warns(InputWarning, match="no features"):
            data = load_graph(source, need_labels=False)
        assert data.node_id == ["01", "b", "c"]
        assert data.edge_index.shape == (2, 6)
        with pytest.raises(InputError, match="has edges alone, and no labels to learn from"):
            load_graph(source)


@pytest.mark.parametrize("edges", [None, "source,target\n"])
def test_no_edges_give_a_knn_graph(edges, tmp_path):
    assert load_graph(folder(tmp_path, edges=edges)).knn_graph


def test_rows_of_a_frame_are_known_by_their_number():
    frame = pd.DataFrame({"label": ["a", "b", "a"], "f": [1, 2, 4]})
    with pytest.warns(InputWarning, match="has no id column: a node's id is the number of its row"):
        assert load_graph(frame).node_id == [0, 1, 2]


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


@pytest.mark.parametrize(("name", "other"), [("split", "splits"), ("weight", "weights")])
def test_nearly_the_name_of_a_column_is_noted(name, other, tmp_path):
    home = folder(tmp_path, NODES.replace("split", other), EDGES.replace("weight", other))
    with pytest.warns(InputWarning, match=rf"has no {name} column \(nearest: {other}\); call it"):
        load_graph(home)


@pytest.mark.parametrize("ids", ["text", "numbers"])
def test_edges_with_unknown_ids_are_left_out_where_asked(ids, tmp_path):
    names = ["ann", "bob", "cyd", "dan", "eve", "zoe"] if ids == "text" else range(10, 16)
    given = dict(zip(["ann", "bob", "cyd", "dan", "eve", "zoe"], map(str, names), strict=True))
    edges = EDGES + "zoe,ann,1\nbob,,1\n"
    texts = [NODES, edges]
    for name, other in given.items():
        texts = [text.replace(name, other) for text in texts]
    home = folder(tmp_path, *texts)
    with pytest.raises(InputError, match="leave such edges out: --skip-unknown-edges"):
        load_graph(home)
    said = f"2 of 6 edges of .*edges.csv name an id that no node has, such as '{given['zoe']}'"
    with pytest.warns(InputWarning, match=said):
        data = load_graph(home, skip_unknown_edges=True)
    assert data.directed_edge_index.tolist() == [[0, 1, 2, 4], [1, 2, 3, 0]]
    (home / "edges.csv").write_text("source,target\nx,y\n")
    with pytest.raises(InputError, match="1 of 1 edges"):
        load_graph(home, skip_unknown_edges=True)
