"""Votes: what the channels say of a node and a class, for the scorer that mixes their answers."""

import torch
from torch import Tensor

from graphglow.evidence.channels import Channel
from graphglow.evidence.pairs import FIRST_CHANNELS, SECOND_CHANNELS
from graphglow.evidence.problem import Problem
from graphglow.evidence.rows import times
from graphglow.ops.sparse import SparseMatrix

VOTERS = (*FIRST_CHANNELS, *SECOND_CHANNELS)
VOTE_EVIDENCE = (
    *(f"odds_{c}" for c in VOTERS),
    *(f"margin_{c}" for c in VOTERS),
    "around_all",
    "around_again",
    "degree",
)


def vote_evidence(problem: Problem, channels: dict[str, Channel], graph: SparseMatrix) -> Tensor:
    """:data:`VOTE_EVIDENCE` of each node and class: [N, C, F].

    Of each channel the log-probability over the class's share and the lead over the best other
    class (within -8 .. 8, over 4); of two channels the first of these in the mean around the node,
    over the input graph and over the refined one.
    """
    prior = problem.prior.log()
    logs = torch.stack([channels[c].probabilities.clamp_min(1e-6).log() for c in VOTERS], 2)
    odds = logs - prior[:, None]  # [N, C, V]
    best, place = logs.max(1, keepdim=True)
    second = logs.scatter(1, place, -torch.inf).max(1, keepdim=True).values
    margin = torch.where(logs == best, logs - second, logs - best)
    odds, margin = odds.clamp(-8, 8) / 4, margin.clamp(-8, 8) / 4
    around = times(problem.adj, odds[..., VOTERS.index("all")].contiguous())
    again = times(graph, odds[..., VOTERS.index("again")].contiguous())
    degree = (problem.degree.log1p() / 4)[:, None].expand(-1, len(prior))
    return torch.cat([odds, margin, torch.stack([around, again, degree], 2)], 2)
