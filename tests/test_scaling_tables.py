"""docs/scaling.md: its tables follow the rows, and predictions follow the model."""

import math
from pathlib import Path

import pytest

import scaling_tables
from distributed_cost import bytes_sent, graph_bytes, kept_bytes


def test_the_page_is_not_stale(run_script):
    script = Path(scaling_tables.__file__)
    assert run_script(script, "--check") == 0, "run python benchmarks/scaling_tables.py"


def test_twice_the_graph_on_twice_the_ranks_is_the_same_rank():
    one, two = (scaling_tables.job_of(n, 21 * n, ranks=n // 1000, halo=0.1) for n in (4000, 8000))
    assert graph_bytes(two) == graph_bytes(one)
    assert kept_bytes(two) == kept_bytes(one)
    assert two.received == one.received
    ring = (7 / 8) / (3 / 4)  # of a sum over ranks
    assert bytes_sent(one) < bytes_sent(two) < 2 * ring * bytes_sent(one)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_the_halo_of_a_random_graph_is_at_most_all_others(ranks):
    share = scaling_tables.random_halo(ranks)
    assert 0 < share < ranks - 1
    assert scaling_tables.random_halo(ranks, degree=1e9) == pytest.approx(ranks - 1)
    few = scaling_tables.random_halo(ranks, degree=1e-6)  # every edge leads to another node
    assert few == pytest.approx(1e-6 * (ranks - 1) / ranks, rel=1e-3)
    assert math.isfinite(share)
