"""Training: the inner loop, Algorithm 2 (pretrain) and Algorithm 3 (transfer)."""

from graphglow.training.config import ModelConfig, PretrainConfig, TransferConfig
from graphglow.training.pretrain import pretrain
from graphglow.training.result import TransferResult
from graphglow.training.task import Epoch
from graphglow.training.transfer import fit_backbone, transfer

__all__ = [
    "Epoch",
    "ModelConfig",
    "PretrainConfig",
    "TransferConfig",
    "TransferResult",
    "fit_backbone",
    "pretrain",
    "transfer",
]
