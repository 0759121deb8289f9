"""The scorer: the small frozen network that turns evidence and context into log-odds."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HIDDEN = 64


class Scorer(nn.Module):
    """``o = w gelu(B gelu(A f' + C c))`` with ``f' = f * (1 + D c)``: log-odds over chance.

    The context c says on which evidence f to rely on this graph; D starts at 0.

    Shapes:
        f [.., F], c [G] or [.., G]  ->  [..]
    """

    def __init__(self, evidence: int, context: int, *, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.gate = nn.Parameter(torch.zeros(context, evidence))  # D
        self.evidence = nn.Parameter(_initial(evidence, HIDDEN, generator))  # A
        self.context = nn.Parameter(_initial(context, HIDDEN, generator))  # C
        self.first_bias = nn.Parameter(torch.zeros(HIDDEN))
        self.hidden = nn.Parameter(_initial(HIDDEN, HIDDEN, generator))  # B
        self.second_bias = nn.Parameter(torch.zeros(HIDDEN))
        self.out = nn.Parameter(_initial(HIDDEN, 1, generator)[:, 0])  # w
        self.out_bias = nn.Parameter(torch.zeros(()))

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        gated = f * (1 + c @ self.gate)
        h = F.gelu(gated @ self.evidence + c @ self.context + self.first_bias)
        h = F.gelu(h @ self.hidden + self.second_bias)
        return h @ self.out + self.out_bias


def contributions(score: Callable[[Tensor], Tensor], f: Tensor, groups: list[list[int]]) -> Tensor:
    """What each group of evidence adds to a score of pairs; they add up to it exactly.

    From no evidence at all (zeros) the groups are brought in one by one, in the given order and in
    the reverse one; a group's share is the mean of the two changes that it made. The last number
    is the score of no evidence.

    Shapes:
        f [M, F], score [M, F] -> [M]; [M, len(groups) + 1]
    """
    shares = f.new_zeros(len(f), len(groups) + 1)
    nothing = score(torch.zeros_like(f))
    shares[:, -1] = nothing
    for order in (range(len(groups)), reversed(range(len(groups)))):
        brought, before = torch.zeros_like(f), nothing
        for group in order:
            brought[:, groups[group]] = f[:, groups[group]]
            now = score(brought)
            shares[:, group] += (now - before) / 2
            before = now
    return shares


def _initial(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=generator) / math.sqrt(rows)
