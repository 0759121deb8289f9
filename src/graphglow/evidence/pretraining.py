"""Pre-training: two scorers of pairs, the voter and the predictor, over episodes of many graphs.

An *episode* is a source graph or a random one, damaged as users' graphs are, with a few labels.
Each network is trained on episodes of its own, so that it reads the outputs of the networks before
it on graphs that these were not trained on, as it will for users. With ``folds`` the same episodes
train several learners: one for each fold, which never sees the sources of that fold
(leave-one-family-out), and one that sees all. An episode of a source is then prepared by the
learner that has not seen its fold.
"""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.device import MapBlocks, map_blocks
from graphglow.errors import InputError
from graphglow.evidence.episodes import draw_episode, random_graph
from graphglow.evidence.learner import EVIDENCE_VERSION, EvidenceLearner
from graphglow.evidence.pair_features import logit
from graphglow.evidence.predictor import vote_inputs
from graphglow.evidence.refined import (
    GraphEvidence,
    above_chance,
    final_round,
    first_round,
    second_round,
    with_vote,
)
from graphglow.graph.graph import known_graph
from graphglow.settings import AuditPretrainConfig, EvidencePretrainConfig

ALL_SOURCES = -1
"""The fold of random graphs, and of the learner that sees every source."""
EPISODES_A_STEP = 12
Progress = Callable[[str, int, int], None]
"""Called with the network being trained, episodes done, and their total."""


STAGES: dict[str, Callable[[EvidenceLearner, GraphEvidence], GraphEvidence]] = {
    "first": lambda _, known: known,
    "vote": second_round,
    "second": lambda learner, known: with_vote(second_round(learner, known)),
    "predictor": lambda learner, known: final_round(
        above_chance(with_vote(second_round(learner, known)))
    ),
}
"""The networks in the order of training, and the rounds that come before each of them."""
SCORERS = {"first": 0, "second": 1}
"""The networks that score pairs, and their rounds; the others answer nodes."""


def pretrain_evidence(
    sources: Sequence[Data],
    config: EvidencePretrainConfig | None = None,
    **options: Any,
) -> EvidenceLearner:
    """Train an evidence learner on all sources; options as in :func:`pretrain_folds`."""
    return pretrain_folds(sources, [ALL_SOURCES] * len(sources), config, **options)[ALL_SOURCES]


def pretrain_folds(
    sources: Sequence[Data],
    folds: Sequence[int],
    config: EvidencePretrainConfig | None = None,
    *,
    weights: Sequence[float] | None = None,
    device: torch.device | str = "cpu",
    draw_on: torch.device | str | None = None,
    on_progress: Progress = lambda stage, done, total: None,
    map_blocks: MapBlocks = map_blocks,
) -> dict[int, EvidenceLearner]:
    """Train one learner without the sources of each fold, and one on all sources.

    An episode depends only on its number and the seed, and is drawn by one thread, so the learners
    do not depend on who draws it.

    Args:
        sources: Graphs with labels ``y`` (-1 where unknown); all labels may be used. Without
            sources, every episode is a random graph.
        folds: The fold of each source, from 0; :data:`ALL_SOURCES` if every learner may see it.
        config: Settings.
        weights: How often each source is drawn, relative to the others; equally often if None.
        device: Where to train.
        draw_on: Where to draw the episodes; None is ``device``.
        on_progress: Called after each episode.
        map_blocks: Draws the episodes.

    Returns:
        The learners by fold, and the one of all sources as :data:`ALL_SOURCES`.
    """
    config = config or EvidencePretrainConfig()
    if weights is not None and len(weights) != len(sources):
        raise InputError(
            f"weights must have one value per source ({len(sources)}); got {len(weights)}"
        )
    for source in sources:
        if not isinstance(source, Data) or source.y is None or source.edge_index is None:
            raise InputError("a source graph must be a Data object with edge_index and labels y")
        if len(torch.unique(source.y[source.y >= 0])) < 2:
            raise InputError("a source graph must have labels of at least two classes")
    started, done = time.perf_counter(), 0
    place = torch.device(device if draw_on is None else draw_on)
    learners = {
        fold: EvidenceLearner(seed=config.seed, trained=True).to(device)
        for fold in sorted({ALL_SOURCES, *folds})
    }
    counts = config.episode_counts(len(sources))
    for stage, count in zip(STAGES, counts, strict=True):
        copies = {fold: deepcopy(learner).to(place) for fold, learner in learners.items()}
        sampler = EpisodeSampler(sources, weights, folds, config, place, stage, copies)
        batches = []
        for batch in map_blocks(draw_batch, sampler, range(done, done + count)):
            done += 1
            on_progress(stage, done, sum(counts))
            if batch is not None:
                moved = (v.to(device) for v in vars(batch).values() if torch.is_tensor(v))
                batches.append(Batch(batch.fold, *moved))
        for fold, learner in learners.items():
            allowed = [batch for batch in batches if fold == ALL_SOURCES or batch.fold != fold]
            if allowed:
                train_network(learner, stage, allowed, config)
        del batches
    for fold, learner in learners.items():
        learner.provenance = {
            "trained": True,
            "evidence_version": EVIDENCE_VERSION,
            "sources": [
                str(source.get("name", "graph"))
                for source, excluded in zip(sources, folds, strict=True)
                if fold == ALL_SOURCES or excluded != fold
            ],
            "config": asdict(config),
            "seconds": round(time.perf_counter() - started, 1),
            "date": datetime.now(timezone.utc).date().isoformat(),
            "device": str(torch.device(device)),
            "torch": str(torch.__version__),
        }
        learner.requires_grad_(False).eval()
    return learners


@dataclass(frozen=True, eq=False)
class Batch:
    """Pairs or nodes of one episode, what a network reads of them, and the truth.

    Shapes:
        of pairs: inputs [P, F], context [G], base [], truth [P], 1 where both are of one class;
        of nodes: inputs [K, C, V], context [K, V, T], base [C], truth [K] of classes
    """

    fold: int
    inputs: Tensor
    context: Tensor
    base: Tensor
    """Added to outputs: the log-odds of two random nodes, or the logarithms of the class shares,
    which prediction estimates."""
    truth: Tensor

    def loss(self, network: nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy of 2,048 random pairs, or of 128 random nodes."""
        pairs = self.base.ndim == 0
        rows = torch.randint(len(self.truth), (2048 if pairs else 128,), generator=generator)
        rows = rows.to(self.truth.device)
        context = self.context if pairs else self.context[rows]
        logits = network(self.inputs[rows], context) + self.base
        loss = F.binary_cross_entropy_with_logits if pairs else F.cross_entropy
        return loss(logits, self.truth[rows])


@dataclass(frozen=True, eq=False)
class EpisodeSampler:
    """Draws episodes, and what the network of one stage learns from each."""

    sources: Sequence[Data]
    weights: Sequence[float] | None
    folds: Sequence[int]
    config: EvidencePretrainConfig
    device: torch.device | str
    stage: str
    learners: dict[int, EvidenceLearner]

    @torch.no_grad()
    def draw(self, index: int) -> Batch | None:
        """Draw an episode by its number; None if nothing can be learnt from it."""
        generator = torch.Generator().manual_seed(1_000_003 * self.config.seed + index)
        share = float(torch.rand((), generator=generator)) if self.sources else 0.0
        if share < self.config.random_share or not self.sources:
            source, fold = random_graph(generator, self.config.max_nodes), ALL_SOURCES
        else:
            weights = torch.tensor(self.weights or [1.0] * len(self.sources), dtype=torch.float64)
            which = int(torch.multinomial(weights, 1, generator=generator))
            source, fold = self.sources[which], self.folds[which]
        episode = draw_episode(source, generator, self.config.max_nodes)
        known = first_round(known_graph(episode, self.device), generator)
        graph, truth = known.graph, episode.truth.to(self.device)
        if self.stage not in SCORERS and len(graph.seen) < 2:
            return None
        known = STAGES[self.stage](self.learners.get(fold, self.learners[ALL_SOURCES]), known)
        labelled = torch.zeros(len(truth), dtype=torch.bool, device=truth.device)
        labelled[graph.labelled] = True
        if self.stage in SCORERS:  # pairs of known classes with at most one labelled end
            pairs = known.pairs
            fair = ((truth[pairs] >= 0).all(0) & ~labelled[pairs].all(0)).nonzero()[:, 0]
            if len(fair) == 0:
                return None
            drawn = pairs[:, fair[self._sample(len(fair), self.config.pairs)]]
            same = (truth[drawn[0]] == truth[drawn[1]]).float()
            chance = same.new_tensor(logit(graph.chance))
            return Batch(fold, known.evidence(drawn), known.context, chance, same)
        number = torch.full((int(truth.max()) + 2,), -1, device=truth.device)
        number[graph.seen] = torch.arange(len(graph.seen), device=truth.device)
        classes = number[truth]  # -1 of those without a label
        nodes = ((classes >= 0) & ~labelled).nonzero()[:, 0]
        if len(nodes) == 0:
            return None
        shares = classes[nodes].bincount(minlength=len(graph.seen)).clamp_min(1) / len(nodes)
        drawn = nodes[self._sample(len(nodes), self.config.nodes)]
        return Batch(fold, *vote_inputs(known, self.stage, drawn), shares.log(), classes[drawn])

    def _sample(self, count: int, wanted: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.config.seed + count)
        return torch.randint(count, (wanted,), generator=generator).to(self.device)


def draw_batch(sampler: EpisodeSampler, index: int) -> Batch | None:
    """Draw by one thread, since rounding of parallel sums depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return sampler.draw(index)
    finally:
        torch.set_num_threads(threads)


def train_network(
    learner: EvidenceLearner, stage: str, batches: Sequence[Batch], config: EvidencePretrainConfig
) -> None:
    """Train one network of a learner; scale the control's log-odds as a scorer's are scaled."""
    network = getattr(learner, stage)

    def loss(generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(batches), (EPISODES_A_STEP,), generator=generator).tolist()
        return torch.stack([batches[i].loss(network, generator) for i in chosen]).mean()

    fit_one_cycle(network, loss, config)
    if stage in SCORERS:
        with torch.no_grad():
            scores = [network(batch.inputs, batch.context) for batch in batches]
        moments = torch.stack([torch.stack([one.mean(), one.std()]) for one in scores])
        learner.logit_scale[SCORERS[stage]] = moments.mean(0)


def fit_one_cycle(
    network: nn.Module,
    loss: Callable[[torch.Generator], Tensor],
    config: EvidencePretrainConfig | AuditPretrainConfig,
) -> None:
    """Train by AdamW with one cycle of the learning rate; ``loss`` draws its own batches."""
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
