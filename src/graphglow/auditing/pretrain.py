"""Pre-training of the auditor over episodes of many graphs."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.auditing.candidates import missing_candidates
from graphglow.auditing.episodes import Damaged, draw_episode, near_pairs, two_hops
from graphglow.auditing.ground import Ground, ground_of
from graphglow.auditing.pairs import is_edge
from graphglow.auditing.standing import evidence_of, pairs_without_edge, standing_of
from graphglow.evidence.problem import problem_of

EDGES, HIDDEN = 3072, 768


@dataclass(frozen=True, eq=False)
class Lesson:
    """What is to be learned of one episode.

    Shapes:
        context [G]; edges [P, F] with real [P]; pairs [Q, F] of none, with hidden [Q];
        candidates [Q, F] as they are found, with missing [Q]; uniform, by_degree [R, F]
    """

    context: Tensor
    false_share: float
    edges: Tensor
    real: Tensor
    pairs: Tensor
    hidden: Tensor
    candidates: Tensor
    missing: Tensor
    uniform: Tensor
    by_degree: Tensor


@torch.no_grad()
def lesson_of(source: Data, generator: torch.Generator, max_nodes: int) -> Lesson | None:
    episode = draw_episode(source, generator, max_nodes)
    count = episode.data.edge_index.shape[1]
    if count < 20:
        return None
    ground = ground_of(problem_of(episode.data), generator)
    standing = standing_of(ground, generator)
    some = torch.randint(count, (EDGES,), generator=generator)
    edges = evidence_of(ground, standing, episode.data.edge_index[:, some])
    hard = hard_pairs(episode, ground, HIDDEN, generator)
    hidden = episode.hidden
    if hidden.shape[1]:
        hidden = hidden[:, torch.randint(hidden.shape[1], (HIDDEN,), generator=generator)]
    pairs = evidence_of(ground, standing, torch.cat([hidden, hard], 1))
    truth = torch.arange(pairs.shape[0]) < hidden.shape[1]
    every = missing_candidates(ground, generator)
    every = every[:, torch.randint(every.shape[1], (HIDDEN,), generator=generator)]
    nodes = ground.num_nodes
    missing = torch.isin(every[0] * nodes + every[1], episode.hidden[0] * nodes + episode.hidden[1])
    free = [evidence_of(ground, standing, p) for p in pairs_without_edge(ground, 1024, generator)]
    return Lesson(standing.context, 1 - float(episode.real.float().mean()), edges,
                  episode.real[some].float(), pairs, truth.float(),
                  evidence_of(ground, standing, every), missing.float(), *free)  # fmt: skip


def hard_pairs(
    episode: Damaged, ground: Ground, count: int, generator: torch.Generator
) -> Tensor:
    """Pairs that never were edges: two hops, near features and random, a third each: [2, count]."""
    nodes, edges = ground.num_nodes, episode.data.edge_index
    third = count // 3 + 1
    known = episode.hidden[0] * nodes + episode.hidden[1]
    found = []
    for drawn in (
        two_hops(edges, nodes, 8 * third, generator),
        near_pairs(episode.data, 4 * third, generator),
        torch.randint(nodes, (2, 4 * third), generator=generator),
    ):
        low, high = drawn.amin(0), drawn.amax(0)
        free = (low != high) & ~is_edge(ground, low, high)
        free &= ~torch.isin(low * nodes + high, known)
        found.append(torch.stack([low, high])[:, free][:, :third])
    return torch.cat(found, 1)[:, :count]
