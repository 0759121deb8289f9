"""What a command line gave, and a graph to give it; the fixture ``run`` is in conftest.py."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest

SPLIT_SAID = " has no split of its own: "


class Outcome(NamedTuple):
    """What a command line gave."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of standard output, as strict JSON."""
        assert self.status == 0, self
        facts: dict[str, Any] = json.loads(self.out.splitlines()[-1], parse_constant=pytest.fail)
        return facts

    def refuses(self, status: int = 2) -> str:
        """Check for the exit status and exactly one line on standard error; return the line."""
        assert (self.status, self.out, len(self.err.splitlines())) == (status, "", 1), self
        assert self.err.startswith("graphglow: ")
        assert "Traceback" not in self.err
        return self.err


def ring_arrays(num_nodes: int = 40) -> dict[str, np.ndarray]:
    """A graph of two classes, as a .npz file holds it."""
    ring = np.arange(num_nodes)
    x = np.random.default_rng(0).normal(size=(num_nodes, 4)).astype(np.float32)
    return {"x": x, "y": ring % 2, "edge_index": np.stack([ring, (ring + 2) % num_nodes])}
