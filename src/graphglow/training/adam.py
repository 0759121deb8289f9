"""Adam over one flat vector per run."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Adam (Kingma & Ba, 2015) with an L2 penalty, for one run or a batch of runs.

    The parameters become views of one flat tensor, so that an update is a handful of kernels
    whatever their number, and the best weights are one copy. In a batch each run may have a step
    size and a penalty of its own, which :class:`torch.optim.Adam` cannot; alone it does the same.
    Nothing here waits for a GPU or reads from it, so an update can be part of a CUDA graph.

    Args:
        parameters: Of shape [..], or [B, ..] in a batch.
        learning_rate: One number, or [B, 1].
        weight_decay: One number, or [B, 1].
        runs: B.

    Shapes:
        flat [S], or [B, S]: S numbers per run
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float | Tensor,
        weight_decay: float | Tensor = 0.0,
        *,
        runs: int = 1,
    ) -> None:
        self.parameters = list(parameters)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self._start = 0 if runs == 1 else 1  # the first dimension that belongs to a run
        self.flat = self._flatten([p.detach() for p in self.parameters])
        sizes = [p[0].numel() if self._start else p.numel() for p in self.parameters]
        parts = torch.split(self.flat, sizes, dim=-1)
        for parameter, part in zip(self.parameters, parts, strict=True):
            parameter.data = part.view(parameter.shape)
        self.mean = torch.zeros_like(self.flat)
        self.square = torch.zeros_like(self.flat)
        self.count = torch.zeros((), dtype=torch.float64, device=self.flat.device)

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One update; a parameter without a gradient counts as one whose gradient is zero."""
        grad = self._flatten(
            [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        )
        if isinstance(self.weight_decay, Tensor) or self.weight_decay > 0:
            grad = grad + self.flat * self.weight_decay
        self.count += 1
        self.mean.lerp_(grad, 1 - BETA_1)
        self.square.mul_(BETA_2).addcmul_(grad, grad, value=1 - BETA_2)
        mean = self.mean / (1 - BETA_1**self.count).to(grad.dtype)
        square = self.square / (1 - BETA_2**self.count).to(grad.dtype)
        self.flat.sub_(mean / square.sqrt_().add_(EPSILON) * self.learning_rate)

    def state(self) -> dict[str, Tensor]:
        """Weights and moments as they stand, by name; nothing is copied."""
        return {"flat": self.flat, "mean": self.mean, "square": self.square, "count": self.count}

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from what :meth:`state` gave, in place."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def _flatten(self, tensors: list[Tensor]) -> Tensor:
        return torch.cat([t.reshape(*t.shape[: self._start], -1) for t in tensors], dim=-1)
