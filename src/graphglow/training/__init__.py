"""Training: the inner loop, Algorithm 2 (pretrain) and Algorithm 3 (transfer)."""

from graphglow.training.evidence import EvidenceResult
from graphglow.training.loop import Epoch
from graphglow.training.pretrain import pretrain
from graphglow.training.result import PaperResult, TransferResult
from graphglow.training.transfer import transfer, transfer_many

__all__ = [
    "Epoch",
    "EvidenceResult",
    "PaperResult",
    "TransferResult",
    "pretrain",
    "transfer",
    "transfer_many",
]
