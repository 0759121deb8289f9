"""Tables that are not called as they should be: what is there, and how it can be read."""

import pytest

from graphglow import load_graph
from graphglow.errors import InputError, InputWarning

PEOPLE = "person,risk,age\n1,a,3\n2,b,4\n3,a,5\n4,b,9\n"
PAYMENTS = "payer,payee,amount,day\n1,2,300,4\n2,3,400,5\n"


def folder_with(folder, **tables):
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def test_a_folder_of_other_names_says_how_to_read_it(tmp_path):
    folder = folder_with(tmp_path, people=PEOPLE, payments=PAYMENTS)
    with pytest.raises(InputError) as caught:
        load_graph(folder)
    said = f"--target {folder}/people.csv+{folder}/payments.csv --columns id=person label=NAME "
    assert f"got {folder} with payments.csv, people.csv; {said}" in str(caught.value)
    assert "source=payer target=payee reads them" in str(caught.value)
    columns = {"id": "person", "label": "risk", "source": "payer", "target": "payee"}
    data = load_graph(f"{folder}/people.csv+{folder}/payments.csv", columns=columns)
    assert data.edge_index.shape == (2, 4)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({}, "with nothing$"),
        ({"people": PEOPLE}, "with people.csv; --target .*/people.csv reads that one"),
        ({"a": PEOPLE, "b": PEOPLE, "c": PAYMENTS}, r"--target NODES\+EDGES reads two of them"),
        ({"a": "x\n1\n", "b": ""}, r"--target NODES\+EDGES reads two of them"),
        ({"edges": PAYMENTS, "people": PEOPLE}, r"people.csv\+.*edges.csv --columns id=person"),
        ({"edges": PAYMENTS}, "labels must be there to learn from; got .*edges.csv, edges alone"),
    ],
)
def test_a_folder_without_nodes_lists_what_is_there(tmp_path, tables, said):
    with pytest.raises(InputError, match=said):
        load_graph(folder_with(tmp_path, **tables))


@pytest.mark.parametrize("name", ["edges", "payments"])
def test_edges_alone_are_a_graph_without_labels(tmp_path, name):
    folder = folder_with(tmp_path, **{name: "source,target,weight\nann,bob,2\n,\ncyd,ann,1\n"})
    source = folder if name == "edges" else folder / "payments.csv"
    with pytest.warns(InputWarning, match="no features"):
        data = load_graph(source, need_labels=False)
    assert data.node_id == ["ann", "cyd", "bob"]
    assert data.directed_edge_index.tolist() == [[0, 1], [2, 0]]
    with pytest.raises(InputError, match=r"edges alone.*--target NODES.csv\+EDGES.csv"):
        load_graph(source)
    (folder / "paid.csv").write_text(PAYMENTS)
    columns = {"source": "payer", "target": "payee"}
    with pytest.warns(InputWarning, match="no features"):
        paid = load_graph(folder / "paid.csv", need_labels=False, columns=columns)
    assert paid.node_id == [1, 2, 3]


def test_all_columns_that_are_wrong_are_said_at_once(tmp_path):
    folder = folder_with(tmp_path, nodes=PEOPLE, edges=PAYMENTS)
    with pytest.raises(InputError) as caught:
        load_graph(folder)
    for part in ("nodes.csv must have an id column", "a label column", "columns source and target"):
        assert part in str(caught.value)
    columns = {"id": "persom", "label": "risk", "target": "payeee", "leave_out": "dya"}
    with pytest.raises(InputError) as caught:
        load_graph(folder, columns=columns)
    for near in ("'dya'", "(nearest: 'day')", "'persom'", "(nearest: 'person')"):
        assert near in str(caught.value)
