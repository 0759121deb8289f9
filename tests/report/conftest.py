"""A browser, and a transfer whose node ids and class names are hostile, as users save one."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from synthetic_rows import CLASSES, NODE

import graphglow
from graphglow.paper import StructureLearner
from graphglow.settings import LearnerConfig


@pytest.fixture(scope="session")
def saved_transfer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 nodes in three classes, one of them unlabelled; two epochs."""
    data = graphglow.synthetic_graph(
        num_nodes=60,
        num_classes=3,
        num_features=8,
        homophily=0.7,
        average_degree=4.0,
        feature_noise=0.5,
        seed=0,
    )
    for mask in ("train_mask", "val_mask", "test_mask"):
        if mask in data:
            data[mask][0] = False
    data.y[0] = -1
    data.node_id = [NODE.format(i) for i in range(60)]
    data.class_names = CLASSES
    data.name = "hostile </title>"
    learner = StructureLearner(LearnerConfig(embedding_size=6), seed=0)
    config = graphglow.PaperConfig(epochs=2, num_pivots=12, refinements=2, device="cpu")
    path = tmp_path_factory.mktemp("transfer") / "hostile.safetensors"
    graphglow.transfer(data, learner, config).save(path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright (the dev extra)")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs chromium (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def transfer(saved_transfer: Path) -> graphglow.TransferResult:
    torch.set_num_threads(1)
    return graphglow.TransferResult.load(saved_transfer)
