"""Pair evidence f(u, v): numbers that mean the same for two nodes of any graph."""

import math

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphglow.evidence.channels import Channel
from graphglow.evidence.problem import Problem
from graphglow.evidence.rows import dots
from graphglow.evidence.views import FIRST, SECOND

FIRST_CHANNELS = ("x", "ax", "aax", "diff", "link", "all", "spread")
SECOND_CHANNELS = ("sx", "ssx", "again", "spread_s")

FIRST_EVIDENCE = (
    *(f"cosine_{v}" for v in FIRST),
    *(f"standing_{v}" for v in FIRST),
    *(f"agree_{c}" for c in FIRST_CHANNELS),
    "common", "overlap", "rare_common", "edge", "degree_low", "degree_high",
)  # fmt: skip
SECOND_EVIDENCE = (
    *FIRST_EVIDENCE,
    *(f"cosine_{v}" for v in SECOND),
    *(f"standing_{v}" for v in SECOND),
    *(f"agree_{c}" for c in (*SECOND_CHANNELS, "vote")),
    "first_round",
)

GROUPS: dict[str, tuple[str, ...]] = {
    "own features": ("cosine_x", "standing_x", "cosine_diff", "standing_diff"),
    "features around": ("cosine_ax", "standing_ax", "cosine_aax", "standing_aax",
                        "cosine_sx", "standing_sx", "cosine_ssx", "standing_ssx"),
    "neighbours in common": ("cosine_link", "standing_link", "common", "overlap", "rare_common"),
    "classes by features": ("agree_x", "agree_diff"),
    "classes by surroundings": ("agree_ax", "agree_aax", "agree_spread", "agree_sx", "agree_ssx",
                                "agree_spread_s"),
    "classes by neighbours": ("agree_link",),
    "classes by all": ("agree_all", "agree_again", "agree_vote"),
    "edge in the input": ("edge",),
    "degrees": ("degree_low", "degree_high"),
    "first round": ("first_round",),
}  # fmt: skip
"""Named kinds of evidence, for explanations; every number is in one of them."""

RANDOM_PAIRS = 4096
LOOKUPS = {"cpu": 2**21, "cuda": 2**23}  # neighbours looked up at once, by device
LIGHT = 128  # degrees up to which two rows of neighbours are merged


def moments(view: Tensor, generator: torch.Generator) -> tuple[float, float]:
    """Mean and standard deviation of the cosine of random pairs of a graph."""
    nodes = len(view)
    if nodes < 2 or view.shape[1] == 0:
        return 0.0, 1.0
    u = torch.randint(nodes, (RANDOM_PAIRS,), generator=generator)
    v = (u + torch.randint(1, nodes, (RANDOM_PAIRS,), generator=generator)) % nodes
    cosine = (view[u.to(view.device)] * view[v.to(view.device)]).sum(1)
    return float(cosine.mean()), max(float(cosine.std()), 1e-3)


def cosines(view: Tensor, pairs: Tensor, scale: tuple[float, float]) -> Tensor:
    """Cosine, and where it stands among random pairs (-4 .. 12 deviations, over 4): [M, 2]."""
    if view.shape[1] == 0:
        return torch.zeros(pairs.shape[1], 2, device=pairs.device)
    cosine = dots(view, pairs)
    standing = ((cosine - scale[0]) / scale[1]).clamp(-4, 12) / 4
    return torch.stack([cosine, standing], 1)


def agreement(problem: Problem, channel: Channel, pairs: Tensor) -> Tensor:
    """``logit(sum_k P(u, k) P(v, k)) - logit(sum_k pi_k^2)``, within -8 .. 8, over 4: [M, 1]."""
    if len(problem.seen) < 2:
        return torch.zeros(pairs.shape[1], 1, device=pairs.device)
    same = dots(channel.probabilities, pairs)
    over = same.clamp(1e-6, 1 - 1e-6).logit() - logit(problem.chance)
    return over.clamp(-8, 8)[:, None] / 4


def is_edge(problem: Problem, pairs: Tensor) -> Tensor:
    """Whether pairs ``u < v`` are edges of the input: [2, M] -> [M] of bool."""
    wanted, key = pairs[0] * problem.num_nodes + pairs[1], problem.edge_key
    if len(key) == 0:
        return torch.zeros_like(wanted, dtype=torch.bool)
    return key[torch.searchsorted(key, wanted).clamp_max(len(key) - 1)] == wanted


def common_neighbours(problem: Problem, pairs: Tensor) -> Tensor:
    """log(1 + common), their share of the two degrees, and Adamic-Adar: [M, 3]."""
    degree = problem.degree[pairs]  # [2, M]
    if pairs.is_cuda:
        found = _looked_up(problem, pairs)
    else:
        light = degree.amax(0) <= LIGHT
        found = torch.zeros(pairs.shape[1], 2)
        found[light] = _merged(problem, pairs[:, light])
        found[~light] = _looked_up(problem, pairs[:, ~light])
    share = found[:, 0] / degree.prod(0).sqrt().clamp_min(1)
    return torch.stack([found[:, 0].log1p() / 2, share, found[:, 1].log1p()], 1)


def _merged(problem: Problem, pairs: Tensor) -> Tensor:
    """How many are in common, and their rarity, by SciPy in a fifth of the time: [M, 2]."""
    a = problem.links
    parts = (a.values.numpy(), a.col.numpy(), a.crow.numpy())
    links = sp.csr_array(parts, shape=a.shape)
    both = links[pairs[0].numpy()].multiply(links[pairs[1].numpy()]).tocsr()
    both.data[:] = 1
    count, rarity = np.diff(both.indptr), both @ problem.rarity.numpy()
    return torch.from_numpy(np.stack([count, rarity], 1)).float()


def _looked_up(problem: Problem, pairs: Tensor) -> Tensor:
    """The same, from the neighbours of the end that has fewer, looked up among the other's."""
    pattern, key = problem.links, problem.edge_key
    fewer = problem.degree[pairs[0]] <= problem.degree[pairs[1]]
    here = torch.where(fewer, pairs[0], pairs[1])
    there = torch.where(fewer, pairs[1], pairs[0]) * problem.num_nodes
    begin = pattern.crow[here].long()
    counts = pattern.crow[here + 1] - begin
    ends = counts.cumsum(0)
    first = begin - (ends - counts)
    found = torch.zeros(pairs.shape[1], 2, device=pairs.device)
    start = 0
    before, most = 0, LOOKUPS[pairs.device.type]
    while start < len(counts) and len(key):
        stop = max(start + 1, int(torch.searchsorted(ends, before + most, right=True)))
        some = torch.arange(start, stop, device=pairs.device)
        pair = some.repeat_interleave(counts[some])
        offset = torch.arange(before, before + len(pair), device=pairs.device)
        neighbour = pattern.col[first[pair] + offset]
        wanted = there[pair] + neighbour
        place = torch.searchsorted(key, wanted).clamp_max_(len(key) - 1)
        hit = (key[place] == wanted).nonzero()[:, 0]
        worth = problem.rarity[neighbour[hit]]
        found.index_add_(0, pair[hit], torch.stack([torch.ones_like(worth), worth], 1))
        start, before = stop, before + len(pair)
    return found


def first_evidence(
    problem: Problem,
    views: dict[str, Tensor],
    scales: dict[str, tuple[float, float]],
    channels: dict[str, Channel],
    pairs: Tensor,
) -> Tensor:
    """:data:`FIRST_EVIDENCE` of each pair: [2, M] -> [M, F]."""
    compared = torch.stack([cosines(views[v], pairs, scales[v]) for v in FIRST], 2)  # [M, 2, V]
    agreed = [agreement(problem, channels[c], pairs) for c in FIRST_CHANNELS]
    edge = is_edge(problem, pairs).float()
    degrees = problem.degree[pairs].sort(0).values.log1p() / 4  # [2, M]
    structure = common_neighbours(problem, pairs)
    return torch.cat(
        [compared.flatten(1), *agreed, structure, edge[:, None], degrees.T.contiguous()], 1
    )


def logit(p: float) -> float:
    return math.log(p) - math.log1p(-p)
