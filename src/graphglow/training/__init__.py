"""Training: the inner loop, Algorithm 2 (pretrain) and Algorithm 3 (transfer)."""

from graphglow.training.config import ModelConfig, PaperConfig, PretrainConfig, TransferConfig
from graphglow.training.evidence import EvidenceResult
from graphglow.training.loop import Epoch
from graphglow.training.pretrain import pretrain
from graphglow.training.result import PaperResult, TransferResult
from graphglow.training.transfer import transfer, transfer_many

__all__ = [
    "Epoch",
    "EvidenceResult",
    "ModelConfig",
    "PaperConfig",
    "PaperResult",
    "PretrainConfig",
    "TransferConfig",
    "TransferResult",
    "pretrain",
    "transfer",
    "transfer_many",
]
