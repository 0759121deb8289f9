"""Pre-training of the auditor over episodes: damaged graphs, examined as users' graphs are."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.auditing.auditor import (
    AUDIT_VERSION,
    MOST_SLOPE,
    Auditor,
    PairScorer,
    ShareHead,
    missing_candidates,
    share_facts,
)
from graphglow.auditing.episodes import Damaged, draw_damaged, near_pairs, two_step_pairs
from graphglow.auditing.pair_features import PairInputs, build_pair_inputs
from graphglow.auditing.reference_tables import (
    build_reference_tables,
    evidence_of,
    pairs_without_edge,
)
from graphglow.errors import InputError
from graphglow.evidence.episodes import random_graph
from graphglow.evidence.pretraining import fit_one_cycle
from graphglow.graph.graph import known_graph
from graphglow.linalg.sparse import is_edge
from graphglow.settings import AuditPretrainConfig

EDGES, PAIRS, FREE = 3072, 768, 1024
"""Kept of each episode: edges; hidden ones, hard pairs and candidates; pairs to compare with."""
RANDOM = "random"  # the source of random graphs
FEWEST = 20  # edges of an episode


@dataclass(frozen=True, eq=False)
class EpisodeEvidence:
    """Evidence of one episode, in half precision, with the truth.

    Shapes:
        context [G]; false_share []; edges [P, F] with real [P]; pairs [Q, F], hidden edges and
        hard pairs that never were edges, with hidden [Q]; candidates [Q, F] with missing [Q];
        uniform, by_degree [R, F]
    """

    source: str
    context: Tensor
    false_share: Tensor
    edges: Tensor
    real: Tensor
    pairs: Tensor
    hidden: Tensor
    candidates: Tensor
    missing: Tensor
    uniform: Tensor
    by_degree: Tensor


def pretrain_auditor(
    sources: Sequence[Data],
    config: AuditPretrainConfig | None = None,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Auditor:
    """Train an auditor over episodes of the sources and of random graphs.

    Args:
        sources: Graphs with labels ``y`` (-1 where unknown), each with a ``name`` of its own.
        config: Settings.
        on_progress: Called with the number of episodes done, and with their total.
    """
    config = config or AuditPretrainConfig()
    for source in sources:
        if not isinstance(source, Data) or source.y is None or source.edge_index is None:
            raise InputError("a source graph must be a Data object with edge_index and labels y")
    wanted = [(source, i) for i in range(config.episodes) for source in sources]
    wanted += [(None, i) for i in range(config.random_episodes)]
    episodes = []
    for done, (source, number) in enumerate(wanted):
        episodes.append(episode_evidence(source, number, config))
        on_progress(done + 1, len(wanted))
    return fit_auditor([episode for episode in episodes if episode is not None], config)


@torch.no_grad()
def episode_evidence(
    source: Data | None, number: int, config: AuditPretrainConfig
) -> EpisodeEvidence | None:
    """Damage a source, or a random graph, as its name, the number and the seed say.

    None if few edges are left.
    """
    name = RANDOM if source is None else str(source.get("name", "graph"))
    seed = zlib.crc32(f"{name} {number} {config.seed}".encode())
    generator = torch.Generator().manual_seed(seed)
    if source is None:
        source = random_graph(generator, config.max_nodes)
    episode = draw_damaged(source, generator, config.max_nodes)
    count, nodes = episode.data.edge_index.shape[1], int(episode.data.num_nodes)
    if count < FEWEST:
        return None
    inputs = build_pair_inputs(known_graph(episode.data), generator)
    tables = build_reference_tables(inputs, generator)

    def some(pairs: Tensor, wanted: int) -> Tensor:
        if pairs.shape[1] == 0:
            return pairs
        return pairs[:, torch.randint(pairs.shape[1], (wanted,), generator=generator)]

    def evidence(pairs: Tensor) -> Tensor:
        return evidence_of(inputs, tables, pairs).half()

    chosen = torch.randint(count, (EDGES,), generator=generator)
    hidden = some(episode.hidden, PAIRS)
    pairs = torch.cat([hidden, some(hard_pairs(episode, inputs, PAIRS, generator), PAIRS)], 1)
    candidates = some(missing_candidates(inputs, generator), PAIRS)
    known = episode.hidden[0] * nodes + episode.hidden[1]
    free = pairs_without_edge(inputs, FREE, generator)
    if min(candidates.shape[1], pairs.shape[1], *(f.shape[1] for f in free)) == 0:
        return None
    return EpisodeEvidence(
        source=name,
        context=tables.context,
        false_share=1 - episode.real.float().mean(),
        edges=evidence(episode.data.edge_index[:, chosen]),
        real=episode.real[chosen].float(),
        pairs=evidence(pairs),
        hidden=(torch.arange(pairs.shape[1]) < hidden.shape[1]).float(),
        candidates=evidence(candidates),
        missing=torch.isin(candidates[0] * nodes + candidates[1], known).float(),
        uniform=evidence(some(free[0], FREE)),
        by_degree=evidence(some(free[1], FREE)),
    )


def hard_pairs(
    episode: Damaged, inputs: PairInputs, count: int, generator: torch.Generator
) -> Tensor:
    """Draw pairs that never were edges: two hops, near features and any, a third each: [2, K]."""
    nodes, third = inputs.graph.num_nodes, count // 3 + 1
    known = episode.hidden[0] * nodes + episode.hidden[1]
    kinds = []
    for drawn in (
        two_step_pairs(episode.data.edge_index, nodes, 8 * third, generator),
        near_pairs(episode.data, 4 * third, generator),
        torch.randint(nodes, (2, 4 * third), generator=generator),
    ):
        pairs = drawn.sort(0).values
        free = (pairs[0] != pairs[1]) & ~is_edge(inputs.graph.links, pairs)
        free &= ~torch.isin(pairs[0] * nodes + pairs[1], known)
        kinds.append(pairs[:, free][:, :third])
    return torch.cat(kinds, 1)[:, :count]


def fit_auditor(
    episodes: list[EpisodeEvidence],
    config: AuditPretrainConfig,
    *,
    weight: Callable[[str], float] = lambda source: 1.0,
) -> Auditor:
    """Train the networks.

    The share of false edges is learned from the scores of a scorer that was trained on other
    sources, since it will meet scores of graphs that the scorer has never seen.

    Args:
        episodes: From :func:`episode_evidence`.
        config: Settings.
        weight: How often an episode of a source is drawn, relative to others.
    """
    if not episodes:
        raise InputError(
            f"No episode was left to train the auditor on: each must have {FEWEST} edges. Use "
            "larger sources or more episodes."
        )
    auditor = Auditor(seed=config.seed)
    weights = torch.tensor([weight(one.source) for one in episodes], dtype=torch.float64)
    names = sorted({one.source for one in episodes} - {RANDOM})
    half = [(i if one.source == RANDOM else names.index(one.source)) % 2
            for i, one in enumerate(episodes)]  # fmt: skip
    edges = [(one.edges, one.real, one.context) for one in episodes]
    facts: dict[int, tuple[Tensor, Tensor]] = {}
    for side in sorted(set(half)):
        scorer = PairScorer()
        others = [i for i, own in enumerate(half) if own != side] or list(range(len(episodes)))
        _fit_scorer(scorer, [edges[i] for i in others], weights[others], config)
        facts |= {i: _share_facts(scorer, episodes[i]) for i, own in enumerate(half) if own == side}
    order = list(facts)
    truth = torch.stack([episodes[i].false_share for i in order])
    _fit_share(auditor.share, list(facts.values()), truth, weights[order], config)
    _fit_scorer(auditor.edges, edges, weights, config)
    _fit_missing(auditor, episodes, weights, config)
    auditor.provenance = {
        "trained": True,
        "audit_version": AUDIT_VERSION,
        "sources": names,
        "episodes": len(episodes),
        "config": asdict(config),
        "torch": str(torch.__version__),
    }
    return auditor.frozen()


def _fit_scorer(
    scorer: PairScorer,
    batches: list[tuple[Tensor, Tensor, Tensor]],
    weights: Tensor,
    config: AuditPretrainConfig,
) -> None:
    """Minimise cross-entropy over (evidence, truth, context) of episodes, 16 x 256 pairs a step."""
    evidence, truth, context = (torch.stack(part) for part in zip(*batches, strict=True))

    def loss(generator: torch.Generator) -> Tensor:
        e = torch.multinomial(weights, 16, replacement=True, generator=generator)[:, None]
        p = torch.randint(truth.shape[1], (16, 256), generator=generator)
        logits = scorer(evidence[e, p].float(), context[e])
        penalty = config.ridge * scorer.out.square().sum()
        return F.binary_cross_entropy_with_logits(logits, truth[e, p]) + penalty

    fit_one_cycle(scorer, loss, config)


@torch.no_grad()
def _share_facts(scorer: PairScorer, episode: EpisodeEvidence) -> tuple[Tensor, Tensor]:
    """The inputs of the share head, and the logarithm of the right slope, NaN if there is none."""
    parts = (episode.edges, episode.uniform, episode.by_degree)
    edges, uniform, by_degree = (scorer(part.float(), episode.context) for part in parts)
    facts = share_facts(edges, uniform, by_degree, episode.context)
    if not 0.01 < float(episode.real.mean()) < 0.99:
        return facts, torch.tensor(torch.nan)
    line = _logistic(edges.double(), episode.real.double(), torch.ones(len(edges)).double())
    return facts, line[0].clamp_min(1e-3).log().clamp(-MOST_SLOPE, MOST_SLOPE)


def _fit_share(
    share: ShareHead,
    facts: list[tuple[Tensor, Tensor]],
    truth: Tensor,
    weights: Tensor,
    config: AuditPretrainConfig,
) -> None:
    """Minimise the Laplace log-loss of share and slope, in few small steps: one row an episode."""
    rows, slopes = (torch.stack(part) for part in zip(*facts, strict=True))

    def loss(generator: torch.Generator) -> Tensor:
        e = torch.multinomial(weights, 64, replacement=True, generator=generator)
        noise = 0.05 * torch.randn(rows[e].shape, generator=generator)
        median, scale, slope = share(rows[e] + noise)
        cost: Tensor = ((median - truth[e]).abs() / scale + scale.log()).mean()
        of_slope = (slope.log() - slopes[e]).abs()
        return cost + of_slope.nanmean() if bool(of_slope.isfinite().any()) else cost

    steps, rate = max(2, config.steps * 2 // 5), config.learning_rate / 3
    fit_one_cycle(share, loss, replace(config, steps=steps, learning_rate=rate))


def _fit_missing(
    auditor: Auditor,
    episodes: list[EpisodeEvidence],
    weights: Tensor,
    config: AuditPretrainConfig,
) -> None:
    """Tell hidden edges from hard pairs; then scale the scores to candidates, few of them edges."""
    some = [i for i, one in enumerate(episodes) if bool(one.hidden.any())]
    if not some:
        return
    batches = [(episodes[i].pairs, episodes[i].hidden, episodes[i].context) for i in some]
    _fit_scorer(auditor.pairs, batches, weights[some], config)
    with torch.no_grad():
        scores = torch.cat([auditor.pairs(one.candidates.float(), one.context) for one in episodes])
    truth = torch.cat([one.missing for one in episodes])
    of_pair = weights.repeat_interleave(torch.tensor([len(one.missing) for one in episodes]))
    line = _logistic(scores.double(), truth.double(), of_pair / of_pair.mean())
    auditor.missing_scale.copy_(line)


def _logistic(scores: Tensor, truth: Tensor, weight: Tensor) -> Tensor:
    """Slope and intercept of a weighted logistic regression, by Newton's method: [2]."""
    rows = torch.stack([scores, torch.ones_like(scores)], 1)
    line = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(30):
        p = (rows @ line).sigmoid()
        slope = rows.T @ (weight * (p - truth)) + 1e-3 * line
        curve = (rows * (weight * p * (1 - p))[:, None]).T @ rows + 1e-3 * torch.eye(2).double()
        line = line - torch.linalg.solve(curve, slope).clamp(-1, 1)
    return line.float()
