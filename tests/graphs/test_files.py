import os
import re

import pytest

from graphglow.errors import InputError
from graphglow.graphs import load_graph
from graphglow.graphs.load import READERS


@pytest.mark.parametrize("suffix", sorted(READERS))
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a graph file must not be empty; got"),
        (b"hello\nworld", "foreign"),
        (b"\x00" * 100, "foreign"),
        (b"\x80\x04\x95", "foreign"),
        (b"<graphml><node", "foreign"),
    ],
)
def test_empty_and_foreign_files(suffix, content, message, tmp_path):
    file = tmp_path / f"g{suffix}"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_graph(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["g.txt", "g", "g.xlsx"])
def test_unknown_suffix(name, tmp_path):
    (tmp_path / name).write_text("id,label\n")
    with pytest.raises(InputError, match=re.escape("a graph file must be .pt, .npz, .graphml, a")):
        load_graph(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(tmp_path):
    (tmp_path / "g.pt").write_text("x")
    (tmp_path / "g.pt").chmod(0)
    with pytest.raises(InputError, match="must be readable; got"):
        load_graph(tmp_path / "g.pt")


def test_a_folder_without_tables(tmp_path):
    with pytest.raises(InputError, match=r"must hold nodes\.csv or nodes\.parquet; got"):
        load_graph(tmp_path)
