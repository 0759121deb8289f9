"""What all tests share: the command line, real data, small graphs, and PyG without warnings."""

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # of processes that tests start; see one_thread

with warnings.catch_warnings():  # PyG scripts a class at import, which newer torch deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric.datasets  # noqa: F401

import torch
from hypothesis import settings
from torch_geometric.data import Data

import graphglow
from command_line import SPLIT_SAID, Outcome, ring_arrays
from graphglow.cli import main

# The suite is a gate: it draws the same examples each time. --hypothesis-profile=default hunts.
settings.register_profile("gate", derandomize=True)
settings.load_profile("gate")

REPO = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Files go to xdist's workers in the order below, not those with the most tests first.

    That a split was drawn is said in most tests, and looked at in those that ask for it.
    """
    config.addinivalue_line("filterwarnings", f"ignore:.*{SPLIT_SAID}")
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first, so that no worker ends with one alone.

    What is marked ``gpu`` is skipped, and says so, where there is none.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tensors here are tiny: threads only wait for each other, and sums depend on their number."""
    torch.set_num_threads(1)


@pytest.fixture
def plain_sigterm() -> Iterator[None]:
    """SIGTERM as a new process has it: Ray, where a test has started it here, takes it over."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run graphglow in this process with these words; that a split was drawn is left out."""

    def run(*words: object) -> Outcome:
        status, (out, err) = main([str(word) for word in words]), capsys.readouterr()
        lines = [line for line in err.splitlines(True) if SPLIT_SAID not in line]
        return Outcome(status, out, "".join(lines))

    return run


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small graph, g.npz, and a learner that was trained on it, learner.st."""
    folder = tmp_path_factory.mktemp("home")
    np.savez(folder / "g.npz", **ring_arrays())
    learner = graphglow.LearnerConfig(embedding_size=6)
    config = graphglow.PretrainConfig(
        learner=learner, episodes=1, epochs=2, num_pivots=8, refinements=2, device="cpu"
    )
    graphglow.pretrain([graphglow.load_graph(folder / "g.npz")], config).save(folder / "learner.st")
    return folder


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with the seven graphs of the paper; tests that need it are skipped without."""
    given = os.environ.get("GRAPHGLOW_DATA")
    for root in [Path(given)] if given else [REPO.parent / "shared" / "data", REPO / "data"]:
        if root.is_dir():
            return root
    pytest.skip("no data: set GRAPHGLOW_DATA to the folder with Cora, reed98, ...")


@pytest.fixture
def small_graph() -> Data:
    """Twelve nodes in two classes on a ring, with one unlabelled node and no masks."""
    ring = torch.arange(12)
    edge_index = torch.stack([ring, (ring + 1) % 12])
    y = torch.arange(12) % 2
    y[11] = -1
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    return Data(x=x, y=y, edge_index=torch.cat([edge_index, edge_index.flip(0)], dim=1))
