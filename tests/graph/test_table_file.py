"""CSV as spreadsheets and people write it, and Parquet."""

import gzip
import re
import tempfile
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphglow.errors import InputError
from graphglow.graph import load_graph

NODES = "id,label,f\nann,u,1\nbob,v,2.5\ncyd,,4\n"
EDGES = "source,target,weight\nann,bob,0.5\nbob,cyd,2\n"


def load(folder, nodes, edges=EDGES, suffix="csv", **options):
    for name, content in (("nodes", nodes), ("edges", edges)):
        raw = content if isinstance(content, bytes) else content.encode()
        (folder / f"{name}.{suffix}").write_bytes(
            gzip.compress(raw) if suffix.endswith("gz") else raw
        )
    return load_graph(folder, **options)


def check(data) -> None:
    assert data.node_id == ["ann", "bob", "cyd"]
    assert data.y.tolist() == [0, 1, -1]
    assert data.directed_edge_index.tolist() == [[0, 1], [1, 2]]
    assert data.directed_edge_weight.tolist() == [0.5, 2.0]
    assert data.x[0, 0] < data.x[1, 0] < data.x[2, 0]


FORMS = {
    "plain": lambda text: text.encode(),
    "byte order mark": lambda text: text.encode("utf-8-sig"),
    "crlf": lambda text: text.replace("\n", "\r\n").encode(),
    "cr": lambda text: text.replace("\n", "\r").encode(),
    "no last newline": lambda text: text.rstrip("\n").encode(),
    "blank lines": lambda text: ("\n\n" + text.replace("\n", "\n\n") + "\n\n").encode(),
    "lines of separators": lambda text: (text + ",,\n,,\n").encode(),
    "tabs": lambda text: text.replace(",", "\t").encode(),
    "bars": lambda text: text.replace(",", "|").encode(),
    "semicolons": lambda text: text.replace(",", ";").encode(),
    "decimal commas": lambda text: text.replace(",", ";").replace(".", ",").encode(),
    "quotes": lambda text: re.sub(r"[^,\n]+", r'"\g<0>"', text).encode(),
    "spaces": lambda text: text.replace(",", ", ").encode(),
    "index of pandas": lambda text: "".join(f"{i or ''},{r}\n" for i, r in _rows(text)).encode(),
}


def _rows(text):
    return enumerate(text.splitlines())


@pytest.mark.parametrize(
    ("form", "suffix"),
    [
        *((form, "csv") for form in FORMS),
        ("plain", "csv.gz"),
        ("tabs", "tsv"),
    ],
)
def test_every_form_is_the_same_graph(form, suffix, tmp_path):
    check(load(tmp_path, FORMS[form](NODES), FORMS[form](EDGES), suffix))


def test_separators_and_newlines_in_quotes(tmp_path):
    nodes = 'id,label,"f, of x"\n"ann, b.",u,1\n"two\nlines",v,2\n'
    data = load(tmp_path, nodes, 'source,target\n"ann, b.","two\nlines"\n')
    assert data.node_id == ["ann, b.", "two\nlines"]
    assert data.feature_columns["columns"][0]["name"] == "f, of x"
    assert data.directed_edge_index.tolist() == [[0], [1]]


WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(ids=st.lists(WORDS, min_size=4, max_size=9, unique=True), sep=st.sampled_from(",;\t|"))
def test_any_text_is_an_id(ids, sep):
    nodes = pd.DataFrame(
        {"id": ids, "label": [i % 2 for i in range(len(ids))], "f": range(len(ids))}
    )
    edges = pd.DataFrame({"source": ids, "target": ids[::-1]})
    with tempfile.TemporaryDirectory() as folder:
        nodes.to_csv(f"{folder}/nodes.csv", index=False, sep=sep)
        edges.to_csv(f"{folder}/edges.csv", index=False, sep=sep)
        data = load_graph(folder)
    assert [str(i) for i in data.node_id] == ids
    assert data.edge_index.tolist() == [list(range(len(ids))), list(range(len(ids)))[::-1]]


def test_ids_are_text_as_written(tmp_path):
    nodes = "id,label,f\n007,u,1\nNA,v,2\n123456789012345678901234567890,u,3\n1e3,v,4\n"
    edges = "source,target\nNA,123456789012345678901234567890\n1e3,007\n"
    data = load(tmp_path, nodes, edges)
    assert data.node_id == ["007", "NA", "123456789012345678901234567890", "1e3"]
    assert data.directed_edge_index.tolist() == [[1, 3], [2, 0]]


def test_huge_integers_are_numbers(tmp_path):
    data = load(tmp_path, NODES.replace("4\n", "99999999999999999999999\n"))
    assert data.x[2, 0] == pytest.approx(2**0.5)


def test_short_rows_end_in_blanks(tmp_path):
    assert load(tmp_path, NODES.replace("cyd,,4", "cyd")).x[2, 0] == 0.0


BAD = {
    "latin-1": (
        "id,label,f\nann,u,1\nbob,\xe4,2\n".encode("latin-1"),
        "it cannot be read ('utf-8' codec can't decode byte",
    ),
    "spreadsheet": (
        b"PK\x03\x04" + bytes(range(256)),
        "must be a CSV table with a header, in UTF-8; it cannot be read",
    ),
    "half a quote": (
        b'id,label,f\nann,u,1\nbob,"v,2\n',
        "it cannot be read (Error tokenizing data. C error: EOF inside string starting at row 2",
    ),
    "blank": (b"\n\n \n", "must be a CSV table with a header; it is empty"),
    "foreign": (b"<html></html>", "must have an id column, called id, node_id, node "),
    "zeros": (b"\x00" * 50, "nodes.csv must "),
    "spaces": (b"id label f\nann u 1\n", "got id label f"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(case, tmp_path):
    content, message = BAD[case]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        load(tmp_path, content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [1, 15, 40])
def test_damaged_gz(keep, tmp_path):
    (tmp_path / "nodes.csv.gz").write_bytes(gzip.compress(NODES.encode())[:keep])
    with pytest.raises(InputError, match=r"nodes\.csv\.gz must be a CSV table with a header"):
        load_graph(tmp_path)


def test_parts(tmp_path):
    for name, parts in {
        "nodes": ["id,label,f\nann,u,1\n", "id,f,label\nbob,2.5,v\ncyd,4,\n"],
        "edges": ["source,target,weight\nann,bob,0.5\n", "source,target,weight\nbob,cyd,2\n"],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "_SUCCESS").write_text("")
        for i, part in enumerate(parts):
            (tmp_path / name / f"part-{i}.csv").write_text(part)
    check(load_graph(tmp_path))
    (tmp_path / "edges" / "part-2.csv").write_text(EDGES + "ann,bob,1\nann,cyd,1\nann,zoe,1\n")
    with pytest.raises(InputError, match=r"'target' of .*edges must name .*; got 'zoe'"):
        load_graph(tmp_path)
    (tmp_path / "nodes" / "part-2.csv").write_text("id,label\n")
    with pytest.raises(InputError, match="must have the same columns; got 'f' in only one of"):
        load_graph(tmp_path)


def test_a_column_is_of_one_kind_in_all_parts(tmp_path):
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "a.csv").write_text("id,label,code\n1,u,007\n2,v,08\n")
    (tmp_path / "nodes" / "b.csv").write_text("id,label,code\n3,u,x1\n4,v,x2\n5,v,x1\n")
    data = load_graph(tmp_path)
    assert data.feature_columns["columns"] == [
        {"name": "code", "categories": ["007", "08", "x1", "x2"]}
    ]


@pytest.mark.parametrize("names", [[], ["a.txt"], ["a.csv", "b.parquet"]])
def test_folders_that_are_no_tables(names, tmp_path):
    (tmp_path / "nodes").mkdir()
    for name in names:
        (tmp_path / "nodes" / name).write_text(NODES)
    with pytest.raises(InputError, match=r"a table must be one of \.csv, .* all of one kind; got"):
        load_graph(tmp_path)


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
    assert torch.equal(data.directed_edge_index, expected)
    assert data.directed_edge_weight.tolist() == edges["weight"].tolist()
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
    assert torch.equal(data.directed_edge_index, expected)
    assert peak < 100 * count  # three numbers of a row, and some copies


def test_parts_of_parquet(tmp_path):
    nodes = people(30, text=True)
    edges, expected = relations(nodes, 90)
    for name, frame, step in (("nodes", nodes, 12), ("edges", edges, 40)):
        (tmp_path / name).mkdir()
        for i, start in enumerate(range(0, len(frame), step)):
            part = frame[start : start + step]
            part.to_parquet(tmp_path / name / f"part-{i}.parquet")
    data = load_graph(tmp_path)
    assert torch.equal(data.directed_edge_index, expected)
    assert data.node_id == nodes["id"].tolist()
    bad = edges[:3].assign(target=["n1", "zoe", "n2"])
    bad.to_parquet(tmp_path / "edges" / "part-1.parquet")
    with pytest.raises(InputError, match=r"'target' of .*edges must name .*; got 'zoe'"):
        load_graph(tmp_path)
    nodes.assign(id="new", f="text")[:1].to_parquet(tmp_path / "nodes" / "part-9.parquet")
    with pytest.raises(InputError, match="must be numbers in every filled cell; got 'text'"):
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
        ({"id": ["a", None, "b"]}, "an id in every row; got a blank"),
        ({"id": ["a", "b", "a"]}, "unique ids; got 'a'"),
        (
            {"f": [1.0, np.inf, 2.0]},
            r"column 'f' of .* must be finite .*; got inf",
        ),
        ({"f": [[1.0], [2.0], [3.0]]}, "must be numbers, dates, text or booleans; got ndarray"),
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
