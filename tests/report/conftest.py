"""A small transfer whose node ids and class names are hostile, saved as users save one."""

from pathlib import Path

import pytest
import torch
from synthetic_rows import CLASSES, NODE

import graphglow
from graphglow.structure import LearnerConfig, StructureLearner


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


@pytest.fixture(scope="session")
def transfer(saved_transfer: Path) -> graphglow.TransferResult:
    torch.set_num_threads(1)
    return graphglow.TransferResult.load(saved_transfer)
