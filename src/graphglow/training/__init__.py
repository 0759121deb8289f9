"""Training: the inner loop, Algorithm 2 (pretrain) and Algorithm 3 (transfer)."""

from graphglow.training.config import ModelConfig, PretrainConfig, TransferConfig
from graphglow.training.loop import Epoch
from graphglow.training.pretrain import pretrain
from graphglow.training.result import TransferResult
from graphglow.training.transfer import transfer, transfer_many

__all__ = [
    "Epoch",
    "ModelConfig",
    "PretrainConfig",
    "TransferConfig",
    "TransferResult",
    "pretrain",
    "transfer",
    "transfer_many",
]
