"""The scorer: a small frozen network from pair features and context to log-odds."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HIDDEN = 64


class Scorer(nn.Module):
    """``o = w gelu(B gelu(A f' + C c))`` with ``f' = f * (1 + D c)``: log-odds over chance.

    The context c describes the graph, so that it can weigh the features f; D starts at 0.

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
    """Split the scores of pairs into the contributions of groups of features; the sum is exact.

    Starting from zeros, the groups are added one by one, in the given order and in reverse; the
    contribution of a group is the mean of its two changes. The last column is the score of zeros.

    Shapes:
        f [M, F], score [M, F] -> [M]; [M, len(groups) + 1]
    """
    parts = f.new_zeros(len(f), len(groups) + 1)
    parts[:, -1] = of_zeros = score(torch.zeros_like(f))
    for order in (range(len(groups)), reversed(range(len(groups)))):
        partial, before = torch.zeros_like(f), of_zeros
        for group in order:
            partial[:, groups[group]] = f[:, groups[group]]
            after = score(partial)
            parts[:, group] += (after - before) / 2
            before = after
    return parts


def _initial(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=generator) / math.sqrt(rows)
