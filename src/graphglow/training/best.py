"""The best weights seen, kept where they are: no epoch waits for the host to compare scores."""

import torch
from torch import Tensor


class Best:
    """Per run, the weights of the epoch with the best validation score, and when to stop.

    A score is better if the validation accuracy is higher, or the same with a lower loss. After
    ``patience`` epochs without a better one a run counts as stopped, and keeps what it has.

    Args:
        weights: Flat weights that are trained in place, [S] or [B, S] each.
        patience: In epochs.

    Shapes:
        accuracy, loss, epoch, last, running: [] or [B]
    """

    def __init__(self, weights: list[Tensor], patience: int) -> None:
        self.weights, self.patience = weights, patience
        self.kept = [w.clone() for w in weights]
        batch, device = weights[0].shape[:-1], weights[0].device
        self.accuracy = torch.empty(batch, dtype=torch.float64, device=device)
        self.loss = torch.empty(batch, dtype=torch.float64, device=device)
        self.epoch = torch.empty(batch, dtype=torch.int64, device=device)
        self.last = torch.empty(batch, dtype=torch.int64, device=device)  # last epoch that ran
        self.running = torch.empty(batch, dtype=torch.bool, device=device)
        self.reset()

    def reset(self) -> None:
        """Forget all scores, in place."""
        for tensor, value in ((self.accuracy, -1), (self.loss, 0), (self.epoch, 0), (self.last, 0)):
            tensor.fill_(value)
        self.running.fill_(True)
        for kept, w in zip(self.kept, self.weights, strict=True):
            kept.copy_(w)

    def update(self, epoch: Tensor, accuracy: Tensor, loss: Tensor) -> None:
        """Compare the score of an epoch (counted from 1) with the best so far."""
        better = (accuracy > self.accuracy) | ((accuracy == self.accuracy) & (loss < self.loss))
        better &= self.running
        self.accuracy.copy_(torch.where(better, accuracy, self.accuracy))
        self.loss.copy_(torch.where(better, loss, self.loss))
        self.epoch.copy_(torch.where(better, epoch, self.epoch))
        self.last.copy_(torch.where(self.running, epoch, self.last))
        for kept, w in zip(self.kept, self.weights, strict=True):
            kept.copy_(torch.where(better[..., None], w, kept))
        self.running &= epoch - self.epoch < self.patience

    def state(self) -> dict[str, Tensor]:
        """Scores and best weights as they stand, by name; nothing is copied."""
        kept = {f"kept_{i}": kept for i, kept in enumerate(self.kept)}
        names = ("accuracy", "loss", "epoch", "last", "running")
        return kept | {name: getattr(self, name) for name in names}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state` gave, in place."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def restore(self) -> None:
        """Put the best weights back."""
        for kept, w in zip(self.kept, self.weights, strict=True):
            w.copy_(kept)
