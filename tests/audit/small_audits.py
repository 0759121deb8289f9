"""Small graphs to audit, and an auditor that was trained for a moment."""

import torch
from torch_geometric.data import Data

from graphglow.auditing import Auditor, damaged
from graphglow.auditing.pretraining import pretrain_auditor
from graphglow.settings import AuditPretrainConfig
from tiny_graphs import raw_data

IDS = [f"n{i}" for i in range(120)]


def homophilous(seed: int = 0) -> Data:
    """120 nodes in three classes, with ids."""
    data = raw_data(num_nodes=120, homophily=0.9, degree=6.0, seed=seed)
    data.node_id = IDS
    data.name = "small"
    return data


def with_false_edges(share: float = 0.3) -> tuple[Data, torch.Tensor]:
    """The same with false edges, each edge once, and which are real."""
    data = homophilous()
    generator = torch.Generator().manual_seed(0)
    made = damaged(data, generator, kinds=["random"], false_share=share)
    made.data.node_id = IDS
    return made.data, made.real


def quick_auditor() -> Auditor:
    config = AuditPretrainConfig(episodes=2, random_episodes=2, steps=20, max_nodes=300)
    return pretrain_auditor([homophilous(seed) for seed in (1, 2)], config)
