"""Training: the inner loop, Algorithm 2 (pretrain) and Algorithm 3 (transfer)."""

from graphglow.training.evidence import EvidenceResult
from graphglow.gnn.train import Epoch
from graphglow.pretrain import pretrain
from graphglow.training.result import PaperResult, TransferResult
from graphglow.transfer import transfer

__all__ = [
    "Epoch",
    "EvidenceResult",
    "PaperResult",
    "TransferResult",
    "pretrain",
    "transfer",
    "transfer_many",
]
