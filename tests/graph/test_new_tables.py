"""New nodes from tables: the ids and the encoding are those of training."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError, InputWarning
from graphglow.graph.tables import read_new_nodes

COLUMNS = [
    {"name": "age", "mean": 40.0, "scale": 10.0},
    {"name": "joined", "mean": 0.0, "scale": 2.0, "date": True},
    {"name": "same", "mean": 3.0, "scale": 0.0},
    {"name": "town", "categories": ["0x7", "Ulm", "York"]},
    {"name": "member", "categories": ["False", "True"]},
]
HEADER = "id,town,age,joined,same,member,label\n"


def graph(**changes) -> Data:
    fields = {"y": torch.tensor([0, 1, -1]), "node_id": ["a", "b", "c"]}
    fields["feature_columns"] = {"columns": COLUMNS}
    return Data(**{k: v for k, v in (fields | changes).items() if v is not None})


def read(folder, nodes: str, edges: str | None = None, data: Data | None = None, features=2):
    (folder / "new.csv").write_text(nodes)
    if edges is not None:
        (folder / "edges.csv").write_text(edges)
    joined = None if edges is None else folder / "edges.csv"
    return read_new_nodes(folder / "new.csv", joined, data or graph(), features)


def test_columns_are_encoded_as_in_training(tmp_path):
    rows = "n1,Ulm,50,1970-01-03,3,true,x\nn2,Rome,,,9,,\n"
    with pytest.warns(InputWarning, match="training has not seen"):
        found = read(tmp_path, HEADER + rows)
    expected = [[1, 1, 0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0]]
    torch.testing.assert_close(found.x, torch.tensor(expected, dtype=torch.float32))
    assert found.node_id == ["n1", "n2"]
    assert found.edge_index is None


def test_columns_that_were_chosen_in_training_need_not_be_said_again(tmp_path):
    columns = [{"name": "age", "mean": 40.0, "scale": 10.0}]
    chosen = {"id": "person", "source": "payer", "target": "payee"}
    data = graph(feature_columns={"columns": columns, "chosen": chosen})
    found = read(tmp_path, "person,age\nn1,50\n", "when,payer,payee\n1,n1,a\n", data)
    assert found.node_id == ["n1"]
    assert found.edge_index.tolist() == [[3], [0]]
    assert read(tmp_path, "id,age\nn1,50\n", "source,target\nn1,a\n", data).node_id == ["n1"]


def test_edges_name_old_and_new_nodes(tmp_path):
    rows = "7,Ulm,1,,1,,\n8,Ulm,1,,1,,\n"
    found = read(tmp_path, HEADER + rows, "from,to\n7,a\n8,7\n")
    assert found.edge_index.tolist() == [[3, 4], [0, 3]]
    assert found.edge_weight is None


@pytest.mark.parametrize("weights", [None, [0.5, 2.0]])
def test_weights_are_read_where_they_are(weights):
    nodes = pd.DataFrame({"id": ["p", "q"], "u": [1.0, 2.0], "v": [3, 4]})
    edges = pd.DataFrame({"source": ["p", "b"], "target": ["a", "q"]})
    if weights is not None:
        edges["weight"] = weights
    found = read_new_nodes(nodes, edges, graph(feature_columns=None), 2)
    assert found.x.tolist() == [[1, 3], [2, 4]]
    assert found.edge_index.tolist() == [[3, 1], [0, 4]]
    assert (None if found.edge_weight is None else found.edge_weight.tolist()) == weights


ROW = "n1,Ulm,1,,1,,\n"


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        ("town,age\nUlm,1\n", None, "has no id column"),
        ("id,age\nn1,1\n", None, "has no column 'joined', as training had"),
        (HEADER + "a,Ulm,1,,1,,\n", None, r"has the id of an old node \('a'\)"),
        (HEADER + ROW + ROW, None, r"has an id twice \('n1'\)"),
        (HEADER + ",Ulm,1,,1,,\n", None, "has a blank for an id"),
        (HEADER + "n1,Ulm,old,,1,,\n", None, "'age' of .*new.csv has text among numbers in row 1"),
        (
            HEADER + ROW,
            "source,target\nn1,z\n",
            "1 of 1 edges of .* such as 'z' in column 'target'",
        ),
        (
            HEADER + "n1,Ulm,50,1970-01-03,3,true,x\n",
            "source,target\nn1,a\nc,b\n",
            "joins 'c' and 'b', which are both old nodes",
        ),
    ],
)
def test_errors_name_the_file_and_the_column(tmp_path, nodes, edges, said):
    with pytest.raises(InputError, match=said):
        read(tmp_path, nodes, edges)


def test_arrays_need_every_feature(tmp_path):
    plain = graph(feature_columns=None)
    with pytest.raises(InputError, match=r"has 1 columns beside the id. Give the 2 features"):
        read(tmp_path, "id,u,label\nn,1,x\n", data=plain)
    assert read(tmp_path, "id,u,v\nn,1,\n", data=plain).x.tolist() == [[1, 0]]
    with pytest.raises(InputError, match=r"Column 'v' .* a number that is too large"):
        read(tmp_path, "id,u,v\nn,1,1e99\n", data=plain)


def test_a_column_of_whole_numbers_is_read_as_text_where_it_was_a_category(tmp_path):
    columns = {"columns": [{"name": "code", "categories": ["007", "7"]}]}
    data = graph(feature_columns=columns)
    assert read(tmp_path, "id,code\nn,007\n", data=data).x.tolist() == [[1, 0]]
    assert read(tmp_path, "id,code\nn,7\n", data=data).x.tolist() == [[0, 1]]
    frame = pd.DataFrame({"id": ["n"], "code": np.array([7])})
    assert read_new_nodes(frame, None, data, 2).x.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("edges", "left", "said"),
    [
        ("n1,b\nz,n1\nn1,\n", [[3], [1]], "2 of 3 edges of .* such as 'z'"),
        ("n1,\n", [[], []], "1 of 1 edges of .* such as ''"),
    ],
)
def test_edges_with_unknown_ids_are_left_out_where_asked(tmp_path, edges, left, said):
    (tmp_path / "new.csv").write_text(HEADER + ROW)
    (tmp_path / "edges.csv").write_text("source,target\n" + edges)
    tables = tmp_path / "new.csv", tmp_path / "edges.csv"
    with pytest.warns(InputWarning, match=said):
        found = read_new_nodes(*tables, graph(), 8, skip_unknown_edges=True)
    assert found.edge_index.tolist() == left
    with pytest.raises(InputError, match="leave such edges out: --skip-unknown-edges"):
        read_new_nodes(*tables, graph(), 8)
