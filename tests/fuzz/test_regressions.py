"""What the fuzzers have found, each once: a file, and that it is refused in one sentence."""

import gzip
from random import Random

import pytest
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError, InputWarning
from graphglow.graph import load_graph, write_graph
from graphglow.graph.tables import read_new_nodes

X, Y = torch.arange(16.0).reshape(8, 2), torch.arange(8) % 2
DIGITS = "9" * 400
GRAPHML = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{}<graph>{}</graph></graphml>'
KEY = '<key id="{0}" for="{1}" attr.name="{0}" attr.type="{2}"/>'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": torch.ones(8).bfloat16()}, "node indices or booleans; got torch.bfloat16"),
        ({"y": Y[:, None].to_sparse()}, "y of .* must be a dense tensor of plain numbers"),
        ({"edge_weight": torch.ones(1, device="meta")}, "must be a dense tensor"),
        ({"class_names": [[], []]}, "class_names must be a list of text or numbers"),
    ],
)
def test_tensors(change, message, tmp_path):
    torch.save({"x": X, "y": Y, **change}, tmp_path / "g.pt")
    with pytest.raises(InputError, match=message):
        load_graph(tmp_path / "g.pt")


def test_packed_tables_that_end_or_break_in_the_middle(tmp_path):
    path = tmp_path / "people.csv.gz"
    rows = "".join(f"{i},{'ab'[i % 2]},{Random(i).random()}\n" for i in range(3000))
    whole = gzip.compress(f"id,label,a\n{rows}".encode())
    wrong = gzip.compress(f"id,label,a\n{rows}\xe4\n".encode("latin-1"))
    middle = len(whole) // 2
    for data in (
        whole[:middle],
        whole[:middle] + b"\xff" * 100 + whole[middle + 100 :],
        wrong + b"\xff\x9f",
        whole[:12] + b"\xff" * 40,
    ):
        path.write_bytes(data)
        with pytest.raises(InputError):
            load_graph(path)


def test_parquet_with_bytes_and_with_dates_of_any_year(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "people.parquet"
    columns = {"id": list(range(8)), "label": list("ab" * 4), "a": [float(i) for i in range(8)]}
    late = pa.array([253402300799, 0] * 4, pa.int64()).cast(pa.timestamp("s"))
    pq.write_table(pa.table({**columns, "late": late}), path)
    assert load_graph(path).x.isfinite().all()
    pq.write_table(pa.table({**columns, "note": [b"\xff", b"a"] * 4}), path)
    with pytest.warns(InputWarning, match="'note' of .* is left out: features are .*, not bytes"):
        load_graph(path)
    called_text = pa.array([b"x\xff" + b"x" * 5000] * 8, pa.binary()).view(pa.string())
    pq.write_table(pa.table({**columns, "note": called_text}), path)
    with pytest.raises(InputError, match="cannot be read as a Parquet table; it is damaged"):
        load_graph(path)


@pytest.mark.parametrize(
    ("kinds", "values"),
    [
        ({"a": "int"}, {"a": DIGITS}),
        ({"x": "string"}, {"x": f"[{DIGITS}]"}),
        ({"x": "string"}, {"x": "[" * 100_000}),
        ({"x": "string"}, {"x": "[1e300]"}),
    ],
)
def test_numbers_in_graphml(kinds, values, tmp_path):
    keys = KEY.format("label", "node", "int")
    keys += "".join(KEY.format(name, "node", kind) for name, kind in kinds.items())
    data = "".join(f'<data key="{name}">{value}</data>' for name, value in values.items())
    nodes = "".join(
        f'<node id="{i}"><data key="label">{i % 2}</data>{data}</node>' for i in range(8)
    )
    path = tmp_path / "g.graphml"
    path.write_text(GRAPHML.format(keys, nodes))
    with pytest.raises(InputError):
        load_graph(path)


@pytest.mark.parametrize(
    "name", ["x" * 5000, "a.csv+" + "x" * 5000, "~nobody-has-this/x.csv", "\0"]
)
def test_names_that_no_file_can_have(name):
    for source in (name, (name, None)):
        with pytest.raises(InputError):
            load_graph(source)


def test_nothing_is_written_to_a_home_of_nobody():
    with pytest.raises(InputError):
        write_graph(Data(edge_index=torch.zeros(2, 1).long()), "~nobody-has-this/x.npz")


@pytest.mark.parametrize(
    "told",
    [
        3.5,
        {"columns": "ab"},
        {"columns": ["a"]},
        {"columns": [{"mean": 0.0, "scale": 1.0}]},
        {"columns": [{"name": "a", "mean": None, "scale": 1.0}]},
        {"columns": [{"name": "a", "categories": ["u", "u"]}]},
        {"columns": [{"name": "a", "categories": 3}]},
    ],
)
def test_a_saved_graph_that_says_nonsense_of_its_columns(told, tmp_path):
    (tmp_path / "new.csv").write_text("id,a\nnew,1\n")
    with pytest.raises(InputError, match="do not say how its table became features"):
        read_new_nodes(tmp_path / "new.csv", None, Data(y=Y, feature_columns=told), 1)
