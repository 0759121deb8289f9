"""Pre-training of the auditor over lessons: episodes of many graphs, looked at as users' graphs."""

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.auditing.auditor import (
    AUDIT_VERSION,
    MOST_SLOPE,
    Auditor,
    PairScorer,
    share_facts,
)
from graphglow.auditing.candidates import missing_candidates
from graphglow.auditing.episodes import Damaged, draw_episode, near_pairs, two_hops
from graphglow.auditing.pair_inputs import Ground, ground_of
from graphglow.auditing.reference_tables import evidence_of, pairs_without_edge, standing_of
from graphglow.errors import InputError
from graphglow.evidence.pretraining import fit_one_cycle
from graphglow.evidence.random_graphs import random_graph
from graphglow.graph.graph import known_graph
from graphglow.linalg.pairs import is_edge
from graphglow.settings import AuditPretrainConfig
from graphglow.storage import load_tensors, save_tensors

EDGES, PAIRS, FREE = 3072, 768, 1024
"""Kept of each lesson: edges; hidden ones, hard pairs and candidates; pairs to compare with."""
RANDOM = "random"
FEWEST = 20  # edges of an episode


@dataclass(frozen=True, eq=False)
class Lesson:
    """What is to be learned of one episode; evidence is kept in half precision.

    Shapes:
        context [G]; false_share []; edges [P, F] with real [P]; pairs [Q, F], hidden edges and
        hard ones that never were, with hidden [Q]; candidates [Q, F] as they are found, with
        missing [Q]; uniform, by_degree [R, F]
    """

    source: str
    kinds: str
    """Of its false edges."""
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

    def save(self, path: str | Path) -> None:
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.type is Tensor}
        save_tensors(path, "lesson", tensors, {"source": self.source, "kinds": self.kinds})

    @classmethod
    def load(cls, path: str | Path) -> "Lesson":
        tensors, meta = load_tensors(path, "lesson")
        return cls(source=meta["source"], kinds=meta["kinds"], **tensors)


def pretrain_auditor(
    sources: Sequence[Data],
    config: AuditPretrainConfig | None = None,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Auditor:
    """Train an auditor over lessons of the sources and of random graphs.

    Args:
        sources: Graphs with labels ``y`` (-1 where unknown), each with a ``name`` of its own.
        config: Settings.
        on_progress: Called with lessons done, and of how many.
    """
    config = config or AuditPretrainConfig()
    for source in sources:
        if not isinstance(source, Data) or source.y is None or source.edge_index is None:
            raise InputError("a source graph must be a Data object with edge_index and labels y")
    started = time.perf_counter()
    wanted = [(source, i) for i in range(config.lessons) for source in sources]
    wanted += [(None, i) for i in range(config.random_lessons)]
    lessons = []
    for done, (source, number) in enumerate(wanted):
        lesson = lesson_of(source, number, config)
        lessons += [] if lesson is None else [lesson]
        on_progress(done + 1, len(wanted))
    auditor = fit_auditor(lessons, config)
    auditor.provenance |= {"seconds": round(time.perf_counter() - started, 1)}
    return auditor


@torch.no_grad()
def lesson_of(source: Data | None, number: int, config: AuditPretrainConfig) -> Lesson | None:
    """Damage a source, or a random graph, and look at it as a user's graph.

    It follows from the source's name, its number and the seed; None where few edges are left.
    """
    name = RANDOM if source is None else str(source.name)
    seed = zlib.crc32(f"{name} {number} {config.seed}".encode())
    generator = torch.Generator().manual_seed(seed)
    if source is None:
        source = random_graph(generator, config.max_nodes)
    episode = draw_episode(source, generator, config.max_nodes)
    count, nodes = episode.data.edge_index.shape[1], int(episode.data.num_nodes)
    if count < FEWEST:
        return None
    ground = ground_of(known_graph(episode.data), generator)
    standing = standing_of(ground, generator)

    def some(pairs: Tensor, wanted: int) -> Tensor:
        if pairs.shape[1] == 0:
            return pairs
        return pairs[:, torch.randint(pairs.shape[1], (wanted,), generator=generator)]

    def seen(pairs: Tensor) -> Tensor:
        return evidence_of(ground, standing, pairs).half()

    chosen = torch.randint(count, (EDGES,), generator=generator)
    hidden = some(episode.hidden, PAIRS)
    pairs = torch.cat([hidden, some(hard_pairs(episode, ground, PAIRS, generator), PAIRS)], 1)
    candidates = some(missing_candidates(ground, generator), PAIRS)
    known = episode.hidden[0] * nodes + episode.hidden[1]
    free = pairs_without_edge(ground, FREE, generator)
    if min(candidates.shape[1], pairs.shape[1], *(f.shape[1] for f in free)) == 0:
        return None
    return Lesson(
        source=name,
        kinds=", ".join(episode.kinds),
        context=standing.context,
        false_share=1 - episode.real.float().mean(),
        edges=seen(episode.data.edge_index[:, chosen]),
        real=episode.real[chosen].float(),
        pairs=seen(pairs),
        hidden=(torch.arange(pairs.shape[1]) < hidden.shape[1]).float(),
        candidates=seen(candidates),
        missing=torch.isin(candidates[0] * nodes + candidates[1], known).float(),
        uniform=seen(some(free[0], FREE)),
        by_degree=seen(some(free[1], FREE)),
    )


def hard_pairs(episode: Damaged, ground: Ground, count: int, generator: torch.Generator) -> Tensor:
    """Pairs that never were edges: two hops, near features and random, a third each: [2, K]."""
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
        free = (low != high) & ~is_edge(ground.links, torch.stack([low, high]))
        free &= ~torch.isin(low * nodes + high, known)
        found.append(torch.stack([low, high])[:, free][:, :third])
    return torch.cat(found, 1)[:, :count]


def fit_auditor(
    lessons: list[Lesson],
    config: AuditPretrainConfig,
    *,
    weight: Callable[[str], float] = lambda source: 1.0,
) -> Auditor:
    """Train the networks; the share of false edges is learned from scores of edges that other
    sources taught, as users' graphs will have.

    Args:
        lessons: What :func:`lesson_of` made.
        config: Settings.
        weight: How often a lesson of a source is looked at, relative to others.
    """
    auditor = Auditor(seed=config.seed)
    shares = torch.tensor([weight(lesson.source) for lesson in lessons], dtype=torch.float64)
    names = sorted({lesson.source for lesson in lessons} - {RANDOM})
    half = [
        (i if one.source == RANDOM else names.index(one.source)) % 2
        for i, one in enumerate(lessons)
    ]
    edges = [(lesson.edges, lesson.real, lesson.context) for lesson in lessons]
    facts = []
    for side in (0, 1):
        scorer = PairScorer()
        others = [i for i in range(len(lessons)) if half[i] != side]
        _fit_scorer(scorer, [edges[i] for i in others], shares[others], config)
        facts += [(i, _facts(scorer, lessons[i])) for i in range(len(lessons)) if half[i] == side]
    _fit_share(auditor, lessons, facts, shares, config)
    _fit_scorer(auditor.edges, edges, shares, config)
    _fit_missing(auditor, lessons, shares, config)
    auditor.provenance = {
        "trained": True,
        "audit_version": AUDIT_VERSION,
        "sources": names,
        "lessons": len(lessons),
        "config": asdict(config),
        "torch": str(torch.__version__),
    }
    return auditor.frozen()


def _fit_scorer(
    scorer: PairScorer,
    taught: list[tuple[Tensor, Tensor, Tensor]],
    shares: Tensor,
    config: AuditPretrainConfig,
) -> None:
    """Binary cross-entropy over evidence, truth, context of lessons: 16 x 256 pairs a step."""
    evidence, truth, context = (torch.stack(part) for part in zip(*taught, strict=True))

    def loss(generator: torch.Generator) -> Tensor:
        e = torch.multinomial(shares, 16, replacement=True, generator=generator)[:, None]
        p = torch.randint(truth.shape[1], (16, 256), generator=generator)
        said = scorer(evidence[e, p].float(), context[e])
        penalty = config.ridge * scorer.out.square().sum()
        return F.binary_cross_entropy_with_logits(said, truth[e, p]) + penalty

    fit_one_cycle(scorer, loss, config)


@torch.no_grad()
def _facts(scorer: nn.Module, lesson: Lesson) -> tuple[Tensor, Tensor]:
    """What share and slope are learned from, and the slope that would be right; NaN if none."""
    parts = (lesson.edges, lesson.uniform, lesson.by_degree)
    edges, uniform, by_degree = (scorer(p.float(), lesson.context) for p in parts)
    facts = share_facts(edges, uniform, by_degree, lesson.context)
    if not 0.01 < float(lesson.real.mean()) < 0.99:
        return facts, torch.tensor(torch.nan)
    found = _logistic(edges.double(), lesson.real.double(), torch.ones(len(edges)).double())
    return facts, found[0].clamp_min(1e-3).log().clamp(-MOST_SLOPE, MOST_SLOPE)


def _fit_share(
    auditor: Auditor,
    lessons: list[Lesson],
    facts: list[tuple[int, tuple[Tensor, Tensor]]],
    shares: Tensor,
    config: AuditPretrainConfig,
) -> None:
    """Laplace log-loss of share and slope; there is one to a lesson: steps are few and small."""
    order = [i for i, _ in facts]
    rows, slopes = (torch.stack(part) for part in zip(*(row for _, row in facts), strict=True))
    truth = torch.stack([lessons[i].false_share for i in order])
    weight = shares[order]

    def loss(generator: torch.Generator) -> Tensor:
        e = torch.multinomial(weight, 64, replacement=True, generator=generator)
        noise = 0.05 * torch.randn(rows[e].shape, generator=generator)
        median, scale, slope = auditor.share(rows[e] + noise)
        cost: Tensor = ((median - truth[e]).abs() / scale + scale.log()).mean()
        cost = cost + (slope.log() - slopes[e]).abs().nanmean()
        return cost

    few = replace(
        config, steps=max(2, config.steps * 2 // 5), learning_rate=config.learning_rate / 3
    )
    fit_one_cycle(auditor.share, loss, few)


def _fit_missing(
    auditor: Auditor, lessons: list[Lesson], shares: Tensor, config: AuditPretrainConfig
) -> None:
    """Binary cross-entropy of hidden or never there, on hard pairs; then the scale of candidates,
    of which few are hidden edges.
    """
    some = [i for i, lesson in enumerate(lessons) if bool(lesson.hidden.any())]
    scorer = auditor.pairs
    taught = [(lessons[i].pairs, lessons[i].hidden, lessons[i].context) for i in some]
    _fit_scorer(scorer, taught, shares[some], config)
    with torch.no_grad():
        scores = torch.cat([scorer(one.candidates.float(), one.context) for one in lessons])
    truth = torch.cat([lesson.missing for lesson in lessons])
    each = torch.cat([s.expand(len(one.missing)) for s, one in zip(shares, lessons, strict=True)])
    auditor.missing_scale.copy_(_logistic(scores.double(), truth.double(), each / each.mean()))


def _logistic(scores: Tensor, truth: Tensor, weight: Tensor) -> Tensor:
    """Slope and intercept of a weighted logistic regression, by Newton's method: [2]."""
    rows = torch.stack([scores, torch.ones_like(scores)], 1)
    found = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(30):
        p = (rows @ found).sigmoid()
        slope = rows.T @ (weight * (p - truth)) + 1e-3 * found
        curve = (rows * (weight * p * (1 - p))[:, None]).T @ rows + 1e-3 * torch.eye(2).double()
        found = found - torch.linalg.solve(curve, slope).clamp(-1, 1)
    return found.float()
