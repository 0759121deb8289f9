"""Pre-training of the auditor over episodes of many graphs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.auditing.auditor import AUDIT_VERSION, Auditor, PairScorer, believed, share_facts
from graphglow.auditing.candidates import missing_candidates
from graphglow.auditing.episodes import Damaged, draw_episode, near_pairs, two_hops
from graphglow.auditing.ground import Ground, ground_of
from graphglow.auditing.pairs import is_edge
from graphglow.auditing.standing import evidence_of, pairs_without_edge, standing_of
from graphglow.checks import at_least, in_unit_interval, plain_numbers, step_size
from graphglow.errors import InputError
from graphglow.evidence.pretrain import fit_one_cycle
from graphglow.evidence.problem import problem_of
from graphglow.evidence.random_graphs import random_graph

EDGES, PAIRS, FREE = 3072, 768, 1024
"""Kept of each episode: edges; hidden ones, hard pairs and candidates; pairs to compare with."""
RANDOM = "random"
FEWEST = 20  # edges of an episode


@dataclass(frozen=True, kw_only=True)
class AuditPretrainConfig:
    """Pre-training of an auditor."""

    episodes: int = 400
    random_share: float = 0.45
    """Share of episodes on random graphs."""
    max_nodes: int = 3000
    """Of larger sources, each episode takes a part."""
    steps: int = 600
    """Of the optimizer, for each network."""
    learning_rate: float = 3e-3
    """The highest of one cycle."""
    weight_decay: float = 1e-2
    seed: int = 0

    def __post_init__(self) -> None:
        plain_numbers(self)
        at_least("episodes", self.episodes, 2)
        at_least("max_nodes", self.max_nodes, 300)
        at_least("steps", self.steps, 2)
        in_unit_interval("random_share", self.random_share)
        step_size("learning_rate", self.learning_rate)


@dataclass(frozen=True, eq=False)
class Lesson:
    """What is to be learned of one episode.

    Shapes:
        context [G]; edges [P, F] with real [P]; pairs [Q, F], hidden edges and hard ones that
        never were, with hidden [Q]; candidates [Q, F] as they are found, with missing [Q];
        uniform, by_degree [R, F]
    """

    source: str
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


def pretrain_auditor(
    sources: Sequence[Data],
    config: AuditPretrainConfig | None = None,
    *,
    weights: Sequence[float] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Auditor:
    """Train an auditor over episodes of the sources and of random graphs.

    Args:
        sources: Graphs with labels ``y`` (-1 where unknown); each with a ``name``.
        config: Settings.
        weights: How often each source is drawn, relative to the others; equal if None.
        on_progress: Called with episodes done, and of how many.
    """
    config = config or AuditPretrainConfig()
    started = time.perf_counter()
    lessons = draw_lessons(sources, config, weights=weights, on_progress=on_progress)
    auditor = fit_auditor(lessons, config)
    auditor.provenance |= {"seconds": round(time.perf_counter() - started, 1)}
    return auditor


def draw_lessons(
    sources: Sequence[Data],
    config: AuditPretrainConfig,
    *,
    weights: Sequence[float] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Lesson]:
    """Episodes, each by its number and the seed alone; evidence is kept in half precision."""
    for source in sources:
        if not isinstance(source, Data) or source.y is None or source.edge_index is None:
            raise InputError("a source graph must be a Data object with edge_index and labels y")
    shares = torch.tensor(list(weights or [1.0] * len(sources)), dtype=torch.float64)
    lessons = []
    for i in range(config.episodes):
        generator = torch.Generator().manual_seed(1_000_003 * config.seed + i)
        if not sources or float(torch.rand((), generator=generator)) < config.random_share:
            source = random_graph(generator, config.max_nodes)
        else:
            source = sources[int(torch.multinomial(shares, 1, generator=generator))]
        lesson = lesson_of(source, generator, config.max_nodes)
        lessons += [] if lesson is None else [lesson]
        on_progress(i + 1, config.episodes)
    return lessons


@torch.no_grad()
def lesson_of(source: Data, generator: torch.Generator, max_nodes: int) -> Lesson | None:
    """Damage a source and look at it as a user's graph; None where hardly any edges are left."""
    episode = draw_episode(source, generator, max_nodes)
    count, nodes = episode.data.edge_index.shape[1], int(episode.data.num_nodes)
    if count < FEWEST:
        return None
    ground = ground_of(problem_of(episode.data), generator)
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
        source=str(source.get("name", RANDOM)),
        context=standing.context,
        false_share=1 - float(episode.real.float().mean()),
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
        free = (low != high) & ~is_edge(ground, low, high)
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
        lessons: What :func:`draw_lessons` made.
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
    facts = []
    for side in (0, 1):
        scorer = PairScorer(seed=config.seed)
        taught = [i for i in range(len(lessons)) if half[i] != side]
        _fit_edges(scorer, [lessons[i] for i in taught], shares[taught], config)
        facts += [(i, _facts(scorer, lessons[i])) for i in range(len(lessons)) if half[i] == side]
    _fit_share(auditor, lessons, facts, shares, config)
    _fit_edges(auditor.edges, lessons, shares, config)
    _fit_missing(auditor, lessons, shares, config)
    auditor.provenance = {
        "trained": True,
        "audit_version": AUDIT_VERSION,
        "sources": names,
        "episodes": len(lessons),
        "config": asdict(config),
        "torch": str(torch.__version__),
    }
    return auditor.frozen()


def _fit_edges(
    scorer: nn.Module, lessons: list[Lesson], shares: Tensor, config: AuditPretrainConfig
) -> None:
    """Binary cross-entropy of real or false, on 16 lessons x 256 edges a step."""
    evidence = torch.stack([lesson.edges for lesson in lessons])  # [E, P, F]
    real = torch.stack([lesson.real for lesson in lessons])
    context = torch.stack([lesson.context for lesson in lessons])[:, None]  # [E, 1, G]

    def loss(generator: torch.Generator) -> Tensor:
        e = torch.multinomial(shares, 16, replacement=True, generator=generator)[:, None]
        p = torch.randint(real.shape[1], (16, 256), generator=generator)
        out = scorer(evidence[e, p].float(), context[e[:, 0]])
        return F.binary_cross_entropy_with_logits(out, real[e, p])

    fit_one_cycle(scorer, loss, config)


@torch.no_grad()
def _facts(scorer: nn.Module, lesson: Lesson) -> Tensor:
    """What the share of false edges is learned from."""
    parts = (lesson.edges, lesson.uniform, lesson.by_degree)
    edges, uniform, by_degree = (believed(scorer, p.float(), lesson.context) for p in parts)
    return share_facts(edges, uniform, by_degree, lesson.context)


def _fit_share(
    auditor: Auditor,
    lessons: list[Lesson],
    facts: list[tuple[int, Tensor]],
    shares: Tensor,
    config: AuditPretrainConfig,
) -> None:
    """Laplace log-loss of the share."""
    order = [i for i, _ in facts]
    rows = torch.stack([row for _, row in facts])
    truth = torch.tensor([lessons[i].false_share for i in order])
    weight = shares[order]

    def loss(generator: torch.Generator) -> Tensor:
        e = torch.multinomial(weight, 64, replacement=True, generator=generator)
        noise = 0.05 * torch.randn(rows[e].shape, generator=generator)
        median, scale = auditor.share(rows[e] + noise)
        cost: Tensor = ((median - truth[e]).abs() / scale + scale.log()).mean()
        return cost

    fit_one_cycle(auditor.share, loss, config)


def _fit_missing(
    auditor: Auditor, lessons: list[Lesson], shares: Tensor, config: AuditPretrainConfig
) -> None:
    """Binary cross-entropy of hidden or never there, on hard pairs; then the scale of candidates,
    of which few are hidden edges.
    """
    some = [i for i, lesson in enumerate(lessons) if bool(lesson.hidden.any())]
    weight, scorer = shares[some], auditor.pairs

    def loss(generator: torch.Generator) -> Tensor:
        total = torch.zeros(())
        for i in torch.multinomial(weight, 16, replacement=True, generator=generator).tolist():
            lesson = lessons[some[i]]
            p = torch.randint(len(lesson.hidden), (256,), generator=generator)
            out = scorer(lesson.pairs[p].float(), lesson.context)
            total = total + F.binary_cross_entropy_with_logits(out, lesson.hidden[p])
        return total / 16

    fit_one_cycle(scorer, loss, config)
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
