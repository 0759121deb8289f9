"""Pictures of the rows that there are."""

from pathlib import Path

import pytest

from graphglow.lab.figures import write_figures
from graphglow.lab.rows import rows_in

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("name", ["edges", "sensitivity", "homophily", "open-world", "table1"])
def test_our_rows_make_pictures(name, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib (the figures extra)")
    out = RESULTS / ("open_world.jsonl" if name == "open-world" else "reproduce")
    paths = write_figures(name, rows_in(out, [name]), tmp_path)
    assert len(paths) == {"open-world": 2, "table1": 0}.get(name, 1)
    assert all(5_000 < path.stat().st_size < 500_000 for path in paths)
