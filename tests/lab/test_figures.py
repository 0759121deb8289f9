"""Pictures of the rows that there are."""

from pathlib import Path

import pytest

from graphglow.lab.figures import write_figure
from graphglow.lab.row_files import rows_in

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("name", ["edges", "sensitivity", "homophily", "open-world", "table1"])
def test_our_rows_make_pictures(name, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib (the figures extra)")
    out = RESULTS / ("open_world.jsonl" if name == "open-world" else "reproduce")
    path = write_figure(name, rows_in(out, [name]), tmp_path)
    assert (path is None) == (name == "table1")
    assert path is None or 5_000 < path.stat().st_size < 500_000
