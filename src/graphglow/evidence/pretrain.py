"""Pre-training: three scorers, one after the other, over episodes of many graphs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from itertools import accumulate
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.checks import at_least, in_unit_interval, one_of, plain_numbers, step_size
from graphglow.errors import InputError
from graphglow.evidence.candidates import Each, in_turn
from graphglow.evidence.episodes import Episode, draw_episode
from graphglow.evidence.learner import EVIDENCE_VERSION, EvidenceLearner
from graphglow.evidence.pairs import logit
from graphglow.evidence.problem import Problem, problem_of
from graphglow.evidence.random_graphs import random_graph
from graphglow.evidence.rounds import (
    FirstRound,
    SecondRound,
    Voted,
    first_round,
    second_round,
    vote_inputs,
    voted,
)
from graphglow.evidence.stages import made_smaller, stage
from graphglow.workers.blocks import mapped


@dataclass(frozen=True, kw_only=True)
class EvidencePretrainConfig:
    """Pre-training of an evidence learner."""

    first_episodes: int = 300
    """Episodes that the first round's scorer learns from."""
    vote_episodes: int = 200
    """Further episodes, for the scorer that mixes the channels' answers."""
    second_episodes: int = 300
    """Further episodes, for the second round's scorer."""
    random_share: float = 0.4
    """Share of episodes on random graphs."""
    max_nodes: int = 3000
    """Of larger sources, each episode takes a part."""
    pairs: int = 8192
    """Pairs kept of each episode."""
    nodes: int = 512
    """Nodes kept of each episode, for the mixing scorer."""
    steps: int = 2500
    """Of the optimizer, for each scorer."""
    learning_rate: float = 3e-3
    """The highest of one cycle."""
    weight_decay: float = 1e-3
    """L2 penalty on the weights."""
    seed: int = 0
    """Seeds episodes and weights."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute: auto takes the GPU if there is one."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        for name in ("first_episodes", "vote_episodes", "second_episodes", "pairs", "nodes"):
            at_least(name, getattr(self, name), 1)
        at_least("max_nodes", self.max_nodes, 300)
        at_least("steps", self.steps, 2)
        in_unit_interval("random_share", self.random_share)
        step_size("learning_rate", self.learning_rate)
        one_of("device", self.device, ("auto", "cpu", "cuda"))


Progress = Callable[[str, int, int], None]
"""What is under way, steps done, steps in all."""


def pretrain_evidence(
    sources: Sequence[Data],
    config: EvidencePretrainConfig | None = None,
    *,
    weights: Sequence[float] | None = None,
    device: torch.device | str = "cpu",
    draw_on: torch.device | str | None = None,
    on_progress: Progress = lambda stage, done, total: None,
    each: Each = in_turn,
) -> EvidenceLearner:
    """Train an evidence learner over episodes of the sources and of random graphs.

    Each scorer has episodes of its own, so that those after it see its answers on graphs that it
    was not trained on, as users will. An episode depends on its number and the seed alone and is
    drawn on one thread, so that the learner is the same whoever draws them.

    Args:
        sources: Graphs with labels ``y`` (-1 where unknown); all labels may be used. None at all
            is legal: random graphs only.
        config: Settings.
        weights: How often each source is drawn, relative to the others; equal if None.
        device: Where to compute.
        draw_on: Where to draw the episodes, if elsewhere.
        on_progress: Called with the stage and how far it is.
        each: Who draws the episodes.
    """
    config = config or EvidencePretrainConfig()
    _check_sources(sources, weights)
    draw_on = draw_on or device
    school = _School(list(sources), list(weights or [1.0] * len(sources)), config, draw_on)
    started = time.perf_counter()
    learner = EvidenceLearner(seed=config.seed, trained=True).to(device)
    counts = (config.first_episodes, config.vote_episodes, config.second_episodes)
    ends = tuple(accumulate(counts))
    waited = 0.0

    def drawn(part: str, step: Callable[[Known, int], list[L]], number: int) -> list[L]:
        nonlocal waited
        lessons, began = [], time.perf_counter()
        episodes = range(ends[number] - counts[number], ends[number])
        known = school, deepcopy(learner).to(draw_on)
        for i, more in zip(episodes, each(part, step, known, episodes), strict=True):
            lessons += mapped(more, Tensor, lambda tensor: tensor.to(device))
            on_progress(part, i + 1, ends[-1])
        waited += time.perf_counter() - began
        return lessons

    lessons = drawn("first round", first_lesson, 0)
    _fit_pairs(learner.first, lessons, config)
    learner.logit_scale[0] = _logit_scale(learner.first, lessons)
    _fit_votes(learner.vote, drawn("votes", vote_lesson, 1), config)
    lessons = drawn("second round", second_lesson, 2)
    _fit_pairs(learner.second, lessons, config)
    learner.logit_scale[1] = _logit_scale(learner.second, lessons)
    learner.provenance = {
        "trained": True,
        "evidence_version": EVIDENCE_VERSION,
        "sources": [str(source.get("name", "graph")) for source in sources],
        "config": asdict(config),
        "seconds": round(time.perf_counter() - started, 1),
        "seconds_for_episodes": round(waited, 1),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "device": str(torch.device(device)),
        "torch": str(torch.__version__),
    }
    return learner.frozen()


@dataclass(frozen=True, eq=False)
class PairLesson:
    """Shapes: evidence [P, F], context [G], same [P], logit of chance."""

    evidence: Tensor
    context: Tensor
    same: Tensor
    chance: float


@dataclass(frozen=True, eq=False)
class VoteLesson:
    """Shapes: odds [K, C, V], trust [K, V, T], log_prior [C], truth [K]."""

    odds: Tensor
    trust: Tensor
    log_prior: Tensor
    truth: Tensor


class _School:
    """Makes episodes, each by its number and the seed alone, and what is to be learned of them."""

    def __init__(
        self,
        sources: list[Data],
        weights: list[float],
        config: EvidencePretrainConfig,
        device: torch.device | str,
    ) -> None:
        self.sources, self.config, self.device = sources, config, device
        self.weights = torch.tensor(weights, dtype=torch.float64)

    def first(self, index: int) -> tuple[Episode, FirstRound]:
        generator = torch.Generator().manual_seed(1_000_003 * self.config.seed + index)
        if not self.sources or float(torch.rand((), generator=generator)) < (
            self.config.random_share
        ):
            source = random_graph(generator, self.config.max_nodes)
        else:
            source = self.sources[int(torch.multinomial(self.weights, 1, generator=generator))]
        episode = draw_episode(source, generator, self.config.max_nodes)
        with torch.no_grad():
            return episode, first_round(problem_of(episode.data, self.device), generator)

    @torch.no_grad()
    def second(self, learner: EvidenceLearner, first: FirstRound) -> SecondRound:
        generator = torch.Generator().manual_seed(self.config.seed)
        return second_round(learner, first, generator)

    @torch.no_grad()
    def pair_lesson(
        self, episode: Episode, problem: Problem, known: FirstRound | Voted
    ) -> list[PairLesson]:
        """Pairs with at most one labelled end, both classes known; no lesson if there are none."""
        truth, pairs = episode.truth.to(self.device), known.pairs
        labelled = torch.zeros(len(truth), dtype=torch.bool, device=truth.device)
        labelled[problem.labelled] = True
        fair = (truth[pairs] >= 0).all(0) & ~labelled[pairs].all(0)
        fair_pairs = fair.nonzero()[:, 0]
        if len(fair_pairs) == 0:
            return []
        some = fair_pairs[self._some(len(fair_pairs), self.config.pairs)]
        same = (truth[pairs[0, some]] == truth[pairs[1, some]]).float()
        evidence = known.evidence(pairs[:, some])
        return [PairLesson(evidence, known.context, same, logit(problem.chance))]

    def vote_lesson(self, episode: Episode, second: SecondRound) -> list[VoteLesson]:
        """Unlabelled nodes of classes that have a label; none, or one such class: no lesson."""
        problem = second.first.problem
        if len(problem.seen) < 2:
            return []
        number = torch.full((int(episode.truth.max()) + 2,), -1, device=self.device)
        number[problem.seen] = torch.arange(len(problem.seen), device=self.device)
        truth = number[episode.truth.to(self.device)]
        truth[problem.labelled] = -1
        nodes = (truth >= 0).nonzero()[:, 0]
        if len(nodes) == 0:
            return []
        some = nodes[self._some(len(nodes), self.config.nodes)]
        return [VoteLesson(*vote_inputs(second, some), problem.prior.log(), truth[some])]

    def _some(self, count: int, wanted: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.config.seed + count)
        return torch.randint(count, (wanted,), generator=generator).to(self.device)


Known = tuple[_School, EvidenceLearner]
L = TypeVar("L", PairLesson, VoteLesson)


def first_lesson(known: Known, index: int) -> list[PairLesson]:
    """What an episode teaches the first scorer."""
    school, _ = known
    with _in_an_episode():
        episode, first = school.first(index)
        return school.pair_lesson(episode, first.problem, first)


def vote_lesson(known: Known, index: int) -> list[VoteLesson]:
    """What an episode teaches the voter."""
    school, learner = known
    with _in_an_episode():
        episode, first = school.first(index)
        return school.vote_lesson(episode, school.second(learner, first))


@torch.no_grad()
def second_lesson(known: Known, index: int) -> list[PairLesson]:
    """What an episode teaches the second scorer."""
    school, learner = known
    with _in_an_episode():
        episode, first = school.first(index)
        both = voted(learner, school.second(learner, first))
        return school.pair_lesson(episode, first.problem, both)


@contextmanager
def _in_an_episode() -> Iterator[None]:
    """On one thread, since sums over several round by their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with made_smaller("an episode", "a smaller --max-nodes"):
            yield
    finally:
        torch.set_num_threads(threads)


@made_smaller("a scorer", "smaller --pairs, fewer episodes")
@stage("fitting")
def _fit_pairs(
    scorer: nn.Module, lessons: list[PairLesson], config: EvidencePretrainConfig
) -> None:
    """Binary cross-entropy of one class or not, on 12 lessons x 2,048 pairs a step."""
    evidence = torch.stack([lesson.evidence for lesson in lessons])  # [E, P, F]
    context = torch.stack([lesson.context for lesson in lessons])[:, None]  # [E, 1, G]
    same = torch.stack([lesson.same for lesson in lessons])
    chance = torch.tensor([lesson.chance for lesson in lessons], device=same.device)[:, None]

    def loss(generator: torch.Generator) -> Tensor:
        e = torch.randint(len(lessons), (12, 1), generator=generator).to(same.device)
        p = torch.randint(same.shape[1], (12, min(2048, same.shape[1])), generator=generator)
        p = p.to(same.device)
        out = scorer(evidence[e, p], context[e[:, 0]]) + chance[e[:, 0]]
        return F.binary_cross_entropy_with_logits(out, same[e, p])

    fit_one_cycle(scorer, loss, config)


@made_smaller("a scorer", "smaller --nodes, fewer episodes")
@stage("fitting")
def _fit_votes(voter: nn.Module, lessons: list[VoteLesson], config: EvidencePretrainConfig) -> None:
    """Cross-entropy of the class, on 12 lessons x 256 nodes a step."""
    if not lessons:
        return
    widest = max(len(lesson.log_prior) for lesson in lessons)
    padded = [(lesson, widest - len(lesson.log_prior)) for lesson in lessons]
    odds = torch.stack([F.pad(lesson.odds, (0, 0, 0, n)) for lesson, n in padded])
    prior = torch.stack([F.pad(lesson.log_prior, (0, n), value=-1e4) for lesson, n in padded])
    trust = torch.stack([lesson.trust for lesson in lessons])
    truth = torch.stack([lesson.truth for lesson in lessons])

    def loss(generator: torch.Generator) -> Tensor:
        e = torch.randint(len(lessons), (12, 1), generator=generator).to(truth.device)
        k = torch.randint(truth.shape[1], (12, min(256, truth.shape[1])), generator=generator)
        k = k.to(truth.device)
        out = voter(odds[e, k], trust[e, k]) + prior[e[:, 0], None]
        return F.cross_entropy(out.flatten(0, 1), truth[e, k].flatten())

    fit_one_cycle(voter, loss, config)


class OneCycle(Protocol):
    """The settings of :func:`fit_one_cycle`."""

    @property
    def steps(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def seed(self) -> int: ...


def fit_one_cycle(
    network: nn.Module, loss: Callable[[torch.Generator], Tensor], config: OneCycle
) -> None:
    """AdamW with one cycle of the learning rate; the loss draws its batches from a generator."""
    generator = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config.learning_rate, total_steps=config.steps
    )
    for _ in range(config.steps):
        optimizer.zero_grad()
        loss(generator).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        cycle.step()


@torch.no_grad()
def _logit_scale(scorer: nn.Module, lessons: list[PairLesson]) -> Tensor:
    """Mean and deviation of the log-odds over chance within a graph, over all lessons: [2]."""
    scores = [scorer(lesson.evidence, lesson.context) for lesson in lessons]
    return torch.stack([torch.stack([s.mean(), s.std()]) for s in scores]).mean(0)


def _check_sources(sources: Sequence[Data], weights: Sequence[float] | None) -> None:
    if weights is not None and len(weights) != len(sources):
        raise InputError(
            f"weights must have one value per source ({len(sources)}); got {len(weights)}"
        )
    for source in sources:
        if not isinstance(source, Data) or source.y is None or source.edge_index is None:
            raise InputError("a source graph must be a Data object with edge_index and labels y")
        if len(torch.unique(source.y[source.y >= 0])) < 2:
            raise InputError("a source graph must have labels of at least two classes")
