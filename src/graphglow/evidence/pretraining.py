"""Pre-training: two scorers of pairs, the voter and the predictor, over episodes of many graphs.

An *episode* is a source graph or a random one, damaged as users' graphs are, with a few labels.
Each network has episodes of its own, so that those after it see its answers on graphs that it was
not trained on, as users will. With ``folds`` one set of episodes makes several learners, one for
each fold of sources that it must not see (leave-one-family-out), besides the one that sees all;
an episode of a source is then looked at by the learner that has not seen its fold.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence.episodes import Episode, draw_episode
from graphglow.evidence.learner import EVIDENCE_VERSION, EvidenceLearner
from graphglow.evidence.pair_features import logit
from graphglow.evidence.predictor import FinalRound, final_round
from graphglow.evidence.random_graphs import random_graph
from graphglow.evidence.refined import above_chance
from graphglow.evidence.rounds import (
    GraphEvidence,
    first_round,
    second_round,
    vote_inputs,
    with_vote,
)
from graphglow.graph.graph import Graph, known_graph
from graphglow.parallel import MapBlocks, map_blocks
from graphglow.settings import EvidencePretrainConfig

ABSENT = -1e4  # the log share of a class that an episode does not have


ALL_SOURCES = -1
"""The fold of a learner that has seen every source, and of random graphs."""
STAGES = ("first", "vote", "second", "predictor")
"""The networks, in the order in which they are trained; each reads those before it."""
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
    map_blocks: MapBlocks = map_blocks,
) -> EvidenceLearner:
    """Train an evidence learner over episodes of the sources and of random graphs.

    An episode depends on its number and the seed alone and is drawn on one thread, so that the
    learner is the same whoever draws them.

    Args:
        sources: Graphs with labels ``y`` (-1 where unknown); all labels may be used. None at all
            is legal: random graphs only.
        config: Settings.
        weights: How often each source is drawn, relative to the others; equal if None.
        device: Where to compute.
        draw_on: Where to draw the episodes, if elsewhere.
        on_progress: Called with the stage and how far it is.
        map_blocks: Draws the episodes.
    """
    config = config or EvidencePretrainConfig()
    return pretrain_folds(
        sources, [0] * len(sources), config, weights=weights, device=device, draw_on=draw_on,
        on_progress=on_progress, map_blocks=map_blocks,
        learners={ALL_SOURCES: _new_learner(config)},
    )[ALL_SOURCES]  # fmt: skip


def _new_learner(config: EvidencePretrainConfig) -> EvidenceLearner:
    return EvidenceLearner(seed=config.seed, trained=True)


def pretrain_folds(  # noqa: D417 (the others are as of pretrain_evidence)
    sources: Sequence[Data],
    folds: Sequence[int],
    config: EvidencePretrainConfig | None = None,
    *,
    weights: Sequence[float] | None = None,
    device: torch.device | str = "cpu",
    draw_on: torch.device | str | None = None,
    on_progress: Progress = lambda stage, done, total: None,
    map_blocks: MapBlocks = map_blocks,
    learners: dict[int, EvidenceLearner] | None = None,
    stages: Sequence[str] = STAGES,
) -> dict[int, EvidenceLearner]:
    """Train learners by the fold of sources that each has not seen, and one that has seen all.

    Args:
        sources: As of :func:`pretrain_evidence`, and so are those not named here.
        folds: The number of the fold that each source belongs to, from 0.
        learners: By fold, those to go on with; new ones if None, one for each fold and one of all.
        stages: Which networks to train, in this order.
    """
    config = config or EvidencePretrainConfig()
    _check_sources(sources, weights)
    draw_on = draw_on or device
    sampler = EpisodeSampler(
        list(sources), list(weights or [1.0] * len(sources)), list(folds), config, draw_on
    )
    started = time.perf_counter()
    if learners is None:
        learners = {fold: _new_learner(config) for fold in (ALL_SOURCES, *sorted(set(folds)))}
    made = {fold: learner.to(device) for fold, learner in learners.items()}
    counts = config.episode_counts(len(sources))
    ends = list(accumulate(counts))
    waited = 0.0

    def drawn(part: str, step: Callable[[Known, int], list[B]]) -> list[B]:
        nonlocal waited
        batches, began, number = [], time.perf_counter(), STAGES.index(part)
        episodes = range(ends[number] - counts[number], ends[number])
        known = sampler, {fold: deepcopy(one).to(draw_on) for fold, one in made.items()}
        for i, more in zip(episodes, map_blocks(step, known, episodes), strict=True):
            batches += [_moved(batch, device) for batch in more]
            on_progress(part, i + 1, ends[-1])
        waited += time.perf_counter() - began
        return batches

    def networks(name: str) -> dict[int, nn.Module]:
        return {fold: getattr(learner, name) for fold, learner in made.items()}

    for part in stages:
        if part in ("first", "second"):
            pairs = drawn(part, first_batch if part == "first" else second_batch)
            _fit_pairs(networks(part), pairs, config)
            _set_logit_scale(made, part, pairs)
            del pairs
        else:
            nodes = drawn(part, vote_batch if part == "vote" else predict_batch)
            _fit_classes(networks(part), nodes, config)
    for fold, learner in made.items():
        learner.provenance = {
            "trained": True,
            "evidence_version": EVIDENCE_VERSION,
            "sources": [
                str(source.get("name", "graph"))
                for source, own in zip(sources, folds, strict=True)
                if own != fold
            ],
            "config": asdict(config),
            "seconds": round(time.perf_counter() - started, 1),
            "seconds_for_episodes": round(waited, 1),
            "date": datetime.now(timezone.utc).date().isoformat(),
            "device": str(torch.device(device)),
            "torch": str(torch.__version__),
        }
        learner.frozen()
    return made


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Pairs of an episode. Shapes: evidence [P, F], context [G], same [P], logit of chance."""

    fold: int
    evidence: Tensor
    context: Tensor
    same: Tensor
    chance: float


@dataclass(frozen=True, eq=False)
class ClassBatch:
    """Nodes of an episode, and the true class shares, which a prediction has to estimate.

    Shapes:
        odds [K, C, V], trust [K, V, T], log_prior [C], truth [K]
    """

    fold: int
    odds: Tensor
    trust: Tensor
    log_prior: Tensor
    truth: Tensor


class EpisodeSampler:
    """Draws episodes, each by its number and the seed alone, and what is to be learned of them."""

    def __init__(
        self,
        sources: list[Data],
        weights: list[float],
        folds: list[int],
        config: EvidencePretrainConfig,
        device: torch.device | str,
    ) -> None:
        self.sources, self.folds, self.config, self.device = sources, folds, config, device
        self.weights = torch.tensor(weights, dtype=torch.float64)

    @torch.no_grad()
    def first(self, index: int) -> tuple[Episode, GraphEvidence, int]:
        """The episode, what its first round knows, and its fold."""
        generator = torch.Generator().manual_seed(1_000_003 * self.config.seed + index)
        fold = ALL_SOURCES
        if not self.sources or float(torch.rand((), generator=generator)) < (
            self.config.random_share
        ):
            source = random_graph(generator, self.config.max_nodes)
        else:
            number = int(torch.multinomial(self.weights, 1, generator=generator))
            source, fold = self.sources[number], self.folds[number]
        episode = draw_episode(source, generator, self.config.max_nodes)
        return episode, first_round(known_graph(episode.data, self.device), generator), fold

    @torch.no_grad()
    def pair_batch(
        self, episode: Episode, graph: Graph, known: GraphEvidence, fold: int
    ) -> list[PairBatch]:
        """Pairs with at most one labelled end, both classes known; nothing if there are none."""
        truth, pairs = episode.truth.to(self.device), known.pairs
        labelled = torch.zeros(len(truth), dtype=torch.bool, device=truth.device)
        labelled[graph.labelled] = True
        fair = (truth[pairs] >= 0).all(0) & ~labelled[pairs].all(0)
        fair_pairs = fair.nonzero()[:, 0]
        if len(fair_pairs) == 0:
            return []
        some = fair_pairs[self._some(len(fair_pairs), self.config.pairs)]
        same = (truth[pairs[0, some]] == truth[pairs[1, some]]).float()
        evidence = known.evidence(pairs[:, some])
        return [PairBatch(fold, evidence, known.context, same, logit(graph.chance))]

    def class_batch(
        self, episode: Episode, known: GraphEvidence | FinalRound, fold: int
    ) -> list[ClassBatch]:
        """Unlabelled nodes of classes that have a label; none, or one such class: nothing."""
        graph = known.graph
        number = torch.full((int(episode.truth.max()) + 2,), -1, device=self.device)
        number[graph.seen] = torch.arange(len(graph.seen), device=self.device)
        truth = number[episode.truth.to(self.device)]
        truth[graph.labelled] = -1
        nodes = (truth >= 0).nonzero()[:, 0]
        if len(nodes) == 0:
            return []
        shares = truth[nodes].bincount(minlength=len(graph.seen)).clamp_min(1) / len(nodes)
        some = nodes[self._some(len(nodes), self.config.nodes)]
        if isinstance(known, GraphEvidence):
            odds, trust = vote_inputs(known, some)
        else:
            odds, trust = known.inputs(some)
        return [ClassBatch(fold, odds, trust, shares.log(), truth[some])]

    def _some(self, count: int, wanted: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.config.seed + count)
        return torch.randint(count, (wanted,), generator=generator).to(self.device)


Known = tuple[EpisodeSampler, dict[int, EvidenceLearner]]
B = TypeVar("B", PairBatch, ClassBatch)


def _moved(batch: B, device: torch.device | str) -> B:
    tensors: Any = {k: v.to(device) for k, v in vars(batch).items() if isinstance(v, Tensor)}
    return replace(batch, **tensors)


def _unseeing(learners: dict[int, EvidenceLearner], fold: int) -> EvidenceLearner:
    """The learner that has not seen a fold."""
    return learners.get(fold, learners[ALL_SOURCES])


def first_batch(known: Known, index: int) -> list[PairBatch]:
    """What an episode teaches the first scorer."""
    sampler, _ = known
    with _in_an_episode():
        episode, first, fold = sampler.first(index)
        return sampler.pair_batch(episode, first.graph, first, fold)


@torch.no_grad()
def vote_batch(known: Known, index: int) -> list[ClassBatch]:
    """What an episode teaches the voter."""
    sampler, learners = known
    with _in_an_episode():
        episode, first, fold = sampler.first(index)
        if len(first.graph.seen) < 2:
            return []
        second = second_round(_unseeing(learners, fold), first)
        return sampler.class_batch(episode, second, fold)


@torch.no_grad()
def second_batch(known: Known, index: int) -> list[PairBatch]:
    """What an episode teaches the second scorer."""
    sampler, learners = known
    with _in_an_episode():
        episode, first, fold = sampler.first(index)
        learner = _unseeing(learners, fold)
        both = with_vote(second_round(learner, first))
        return sampler.pair_batch(episode, first.graph, both, fold)


@torch.no_grad()
def predict_batch(known: Known, index: int) -> list[ClassBatch]:
    """What an episode teaches the predictor."""
    sampler, learners = known
    with _in_an_episode():
        episode, first, fold = sampler.first(index)
        if len(first.graph.seen) < 2:
            return []
        learner = _unseeing(learners, fold)
        both = with_vote(second_round(learner, first))
        final = final_round(both, above_chance(both).adjacency())
        return sampler.class_batch(episode, final, fold)


@contextmanager
def _in_an_episode() -> Iterator[None]:
    """On one thread, since sums over several round by their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Together(nn.Module):
    """Networks of one shape whose weights are stacked, so that they are trained in one go.

    Shapes:
        inputs [B, ..] of B networks -> [B, ..]
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = list(networks)  # kept out of the parameters
        stacked, _ = stack_module_state(self.networks)
        self.names = list(stacked)
        self.weights = nn.ParameterList(stacked[name].detach() for name in self.names)

    def forward(self, *inputs: Tensor) -> Tensor:
        def one(weights: dict[str, Tensor], *given: Tensor) -> Any:
            return functional_call(self.networks[0], weights, given)

        out: Tensor = vmap(one)(dict(zip(self.names, self.weights, strict=True)), *inputs)
        return out

    @torch.no_grad()
    def write_back(self) -> None:
        """Give each network its weights."""
        for name, stacked in zip(self.names, self.weights, strict=True):
            for network, weight in zip(self.networks, stacked, strict=True):
                network.get_parameter(name).copy_(weight)


def _allowed(folds: Sequence[int], batches: Sequence[B], generator: torch.Generator) -> Tensor:
    """Draw 12 batches for each fold's network, none of them of that fold: [B, 12]."""
    own = torch.tensor([batch.fold for batch in batches])
    drawn = []
    for fold in folds:
        places = ((own != fold) | (own == ALL_SOURCES)).nonzero()[:, 0]
        drawn.append(places[torch.randint(len(places), (12,), generator=generator)])
    return torch.stack(drawn)


def _fit_pairs(
    scorers: dict[int, nn.Module], batches: list[PairBatch], config: EvidencePretrainConfig
) -> None:
    """Binary cross-entropy of one class or not, on 12 episodes x 2,048 pairs a step."""
    if not batches:
        return
    evidence = torch.stack([batch.evidence for batch in batches])  # [E, P, F]
    context = torch.stack([batch.context for batch in batches])  # [E, G]
    same = torch.stack([batch.same for batch in batches])
    chance = torch.tensor([batch.chance for batch in batches], device=same.device)
    together = Together(list(scorers.values()))

    def loss(generator: torch.Generator) -> Tensor:
        e = _allowed(list(scorers), batches, generator).to(same.device)[..., None]  # [B, 12, 1]
        p = torch.randint(same.shape[1], (12, min(2048, same.shape[1])), generator=generator)
        p = p.to(same.device)
        out = together(evidence[e, p], context[e]) + chance[e]
        # the mean over pairs of each network, and their sum: each is as if trained alone
        return len(scorers) * F.binary_cross_entropy_with_logits(out, same[e, p])

    fit_one_cycle(together, loss, config)
    together.write_back()


def _fit_classes(
    networks: dict[int, nn.Module], batches: list[ClassBatch], config: EvidencePretrainConfig
) -> None:
    """Cross-entropy of the class, on 12 episodes x 128 nodes a step."""
    if not batches:
        return
    widest = max(len(batch.log_prior) for batch in batches)
    padded = [(batch, widest - len(batch.log_prior)) for batch in batches]
    odds = torch.stack([F.pad(batch.odds, (0, 0, 0, n)) for batch, n in padded])
    prior = torch.stack([F.pad(batch.log_prior, (0, n), value=ABSENT) for batch, n in padded])
    trust = torch.stack([batch.trust for batch in batches])
    truth = torch.stack([batch.truth for batch in batches])
    together = Together(list(networks.values()))

    def total_loss(generator: torch.Generator) -> Tensor:
        e = _allowed(list(networks), batches, generator).to(truth.device)[..., None]  # [B, 12, 1]
        k = torch.randint(truth.shape[1], (12, min(128, truth.shape[1])), generator=generator)
        k = k.to(truth.device)
        out = together(odds[e, k], trust[e, k])  # [B, 12, 128, C]
        logits, wanted = (out + prior[e]).flatten(0, 2), truth[e, k].flatten()
        return len(networks) * F.cross_entropy(logits, wanted)  # each learns as if alone

    fit_one_cycle(together, total_loss, config)
    together.write_back()


@torch.no_grad()
def _set_logit_scale(
    learners: dict[int, EvidenceLearner], part: str, batches: list[PairBatch]
) -> None:
    """Mean and deviation of the log-odds over chance within a graph, over all episodes."""
    for learner in learners.values():
        scorer = getattr(learner, part)
        scores = [scorer(batch.evidence, batch.context) for batch in batches]
        moments = [torch.stack([s.mean(), s.std()]) for s in scores]
        if moments:
            learner.logit_scale[int(part == "second")] = torch.stack(moments).mean(0)


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
