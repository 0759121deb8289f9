"""Pre-training of the auditor over episodes: damaged graphs, examined as users' graphs are."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.auditing.auditor import (
    AUDIT_VERSION,
    AttackScorer,
    Auditor,
    PairScorer,
    ShareHead,
    missing_candidates,
)
from graphglow.auditing.episodes import (
    COUNTED,
    Damaged,
    draw_damaged,
    near_pairs,
    two_step_pairs,
)
from graphglow.auditing.pair_features import build_pair_inputs
from graphglow.auditing.reference_tables import CONTEXT, ReferenceTables
from graphglow.errors import InputError
from graphglow.evidence.episodes import random_graph
from graphglow.evidence.pretraining import fit_one_cycle
from graphglow.graph.graph import Graph, known_graph
from graphglow.linalg.sparse import is_edge
from graphglow.settings import AuditPretrainConfig

EDGES, PAIRS, FREE = 3072, 768, 1024
"""Kept of each episode: edges; hidden ones, hard pairs and candidates; pairs to compare with."""
RANDOM = "random"  # the source of random graphs
FEWEST = 20  # edges of an episode
NOISE = 0.3  # added to facts in training, in standard deviations
FOLDS = 6  # of families, each left out once
GATE, FEW_FALSE = 0.3, 0.05
"""Weight of the loss of the gate, and share of false edges below which it learns nothing."""


@dataclass(frozen=True, eq=False)
class EpisodeEvidence:
    """Evidence of one episode, in half precision, with the truth.

    Shapes:
        context [G]; false_share []; edges [P, F] with real [P]; uniform and by_degree [FREE, F];
        pairs [Q, F], hidden edges and hard pairs that never were edges, with hidden [Q];
        candidates [PAIRS, F] with missing [PAIRS]
    """

    source: str
    kinds: tuple[str, ...]
    """Of its false edges."""
    context: Tensor
    false_share: Tensor
    edges: Tensor
    real: Tensor
    uniform: Tensor
    by_degree: Tensor
    pairs: Tensor
    hidden: Tensor
    candidates: Tensor
    missing: Tensor


def pretrain_auditor(
    sources: Sequence[Data],
    config: AuditPretrainConfig | None = None,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Auditor:
    """Train an auditor over episodes of the sources, each a family, and of random graphs.

    Sources have labels ``y`` (-1 where unknown) and a ``name`` each; ``on_progress`` is called with
    the number of episodes done, and with their total.
    """
    config = config or AuditPretrainConfig()
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
    tables = ReferenceTables(inputs, generator)

    def some(pairs: Tensor, wanted: int) -> Tensor:
        if pairs.shape[1] == 0:
            return pairs
        return pairs[:, torch.randint(pairs.shape[1], (wanted,), generator=generator)]

    def evidence(pairs: Tensor) -> Tensor:
        return tables.evidence(pairs).half()

    chosen = torch.randint(count, (EDGES,), generator=generator)
    hidden = some(episode.hidden, PAIRS)
    pairs = torch.cat([hidden, some(hard_pairs(episode, inputs.graph, PAIRS, generator), PAIRS)], 1)
    candidates = some(missing_candidates(inputs, generator), PAIRS)
    known = episode.hidden[0] * nodes + episode.hidden[1]
    if min(candidates.shape[1], pairs.shape[1], *map(len, tables.samples)) == 0:
        return None
    return EpisodeEvidence(
        source=name,
        kinds=episode.kinds,
        context=tables.context,
        false_share=1 - episode.real.float().mean(),
        edges=evidence(episode.data.edge_index[:, chosen]),
        real=episode.real[chosen].float(),
        uniform=tables.samples[1][:FREE].half(),
        by_degree=tables.samples[2][:FREE].half(),
        pairs=evidence(pairs),
        hidden=(torch.arange(pairs.shape[1]) < hidden.shape[1]).float(),
        candidates=evidence(candidates),
        missing=torch.isin(candidates[0] * nodes + candidates[1], known).float(),
    )


def hard_pairs(episode: Damaged, graph: Graph, count: int, generator: torch.Generator) -> Tensor:
    """Draw pairs that never were edges: two hops, near features and any, a third each: [2, K]."""
    nodes, third = graph.num_nodes, count // 3 + 1
    known = episode.hidden[0] * nodes + episode.hidden[1]
    kinds = []
    for drawn in (
        two_step_pairs(episode.data.edge_index, nodes, 8 * third, generator),
        near_pairs(episode.data, 4 * third, generator),
        torch.randint(nodes, (2, 4 * third), generator=generator),
    ):
        pairs = drawn.sort(0).values
        free = (pairs[0] != pairs[1]) & ~is_edge(graph.links, pairs)
        free &= ~torch.isin(pairs[0] * nodes + pairs[1], known)
        kinds.append(pairs[:, free][:, :third])
    return torch.cat(kinds, 1)[:, :count]


def fit_auditor(
    episodes: list[EpisodeEvidence],
    config: AuditPretrainConfig,
    *,
    family: Callable[[str], str] = lambda source: source,
) -> Auditor:
    """Train the networks; families of sources weigh as the root of their episodes.

    ``family`` gives the family of a source; families are left out together.
    """
    if not episodes:
        raise InputError(
            f"No episode was left to train the auditor on: each must have {FEWEST} edges. Use "
            "larger sources or more episodes."
        )
    families = [RANDOM if one.source == RANDOM else family(one.source) for one in episodes]
    count = Counter(families)
    weights = torch.tensor([(2 if f == RANDOM else 1) * count[f] ** -0.5 for f in families])
    auditor = Auditor(seed=config.seed)
    attacked = [i for i, one in enumerate(episodes) if one.kinds == ("attack",)]
    if attacked:
        edges = [(episodes[i].edges, episodes[i].real, episodes[i].context) for i in attacked]
        _fit_scorer(auditor.attack, edges, weights[attacked], config)
        auditor.edges.attack.load_state_dict(auditor.attack.state_dict())
    with torch.no_grad():
        facts = [
            auditor.facts(one.context, [p.float() for p in (one.edges, one.uniform, one.by_degree)])
            for one in episodes
        ]
    edges = [(one.edges, one.real, c) for one, c in zip(episodes, facts, strict=True)]
    kinds = [float("attack" in e.kinds) if e.false_share > FEW_FALSE else -1.0 for e in episodes]
    _fit_scorer(auditor.edges, edges, weights, config, torch.tensor(kinds))
    counted = [i for i, one in enumerate(episodes) if set(one.kinds) <= COUNTED]
    with torch.no_grad():
        slopes = [
            _logistic(auditor.edges(episodes[i].edges.float(), facts[i]), episodes[i].real)[0]
            for i in counted
            if 0.03 < float(episodes[i].real.mean()) < 0.97
        ]
    if slopes:
        auditor.slope.copy_(torch.stack(slopes).clamp(0.25, 4).mean())
    _fit_missing(auditor, episodes, facts, weights, config)
    truth = torch.stack([episodes[i].false_share for i in counted])
    known = [families[i] for i in counted]
    places = torch.stack([facts[i][len(CONTEXT) :] for i in counted])
    check = fit_share(auditor.share, places, truth, weights[counted], known, config)
    auditor.provenance = {
        "trained": True,
        "audit_version": AUDIT_VERSION,
        "sources": sorted({one.source for one in episodes} - {RANDOM}),
        "episodes": len(episodes),
        "false_share": check,
        "config": asdict(config),
        "torch": str(torch.__version__),
    }
    return auditor.frozen()


def _fit_scorer(
    scorer: PairScorer | AttackScorer,
    batches: list[tuple[Tensor, Tensor, Tensor]],
    weights: Tensor,
    config: AuditPretrainConfig,
    attacked: Tensor | None = None,
) -> None:
    """Minimise cross-entropy over (evidence, truth, facts) of episodes, 16 x 256 pairs a step.

    The gate learns which episodes are ``attacked``, too; -1 where that cannot be told.
    """
    evidence, truth, facts = (torch.stack(part) for part in zip(*batches, strict=True))

    def loss(generator: torch.Generator) -> Tensor:
        e = torch.multinomial(weights, 16, replacement=True, generator=generator)[:, None]
        p = torch.randint(truth.shape[1], (16, 256), generator=generator)
        logits = scorer(evidence[e, p].float(), facts[e])
        cost = F.binary_cross_entropy_with_logits(logits, truth[e, p])
        if attacked is not None and isinstance(scorer, PairScorer):
            known, gate = attacked[e], scorer.attacked(facts[e])
            cost = cost + GATE * F.binary_cross_entropy_with_logits(
                gate, known.clamp_min(0), (known >= 0).float()
            )
        return cost + config.ridge * scorer.penalty()

    fit_one_cycle(scorer, loss, config)


def fit_share(
    share: ShareHead,
    facts: Tensor,
    truth: Tensor,
    weights: Tensor,
    families: list[str],
    config: AuditPretrainConfig,
) -> dict[str, float]:
    """Fit the estimate of the share of false edges, and how far its interval must reach.

    For each fold of families one more ensemble is trained without it. The interval reaches so far
    that it holds 90 % of their truths; the random graphs are always trained on (conformal
    prediction, Vovk et al., 2005, over families). Returns the mean error and width of these, and
    what was covered when the left-out fold set no reach either.
    """
    _fit_ensemble(share, facts, truth, weights, config)
    names = sorted(set(families) - {RANDOM})
    if len(names) < 2:
        return {}
    fold = torch.tensor([-1 if f == RANDOM else names.index(f) % FOLDS for f in families])
    error, ratio, folds = torch.zeros_like(truth), torch.zeros_like(truth), min(FOLDS, len(names))
    for k in range(folds):
        out, other = fold == k, ShareHead(seed=config.seed)
        _fit_ensemble(other, facts[~out], truth[~out], weights[~out], config)
        with torch.no_grad():
            middle, scale = other.estimate(facts[out])
        error[out] = (middle - truth[out]).abs()
        ratio[out] = error[out] / scale
    left_out = fold >= 0
    share.reach.fill_(ratio[left_out].quantile(0.9))
    inside = [
        (ratio[fold == k] <= ratio[left_out & (fold != k)].quantile(0.9)).float().mean()
        for k in range(folds)
    ]
    return {"error": float(error[left_out].mean()), "covered": float(torch.stack(inside).mean())}


def _fit_ensemble(
    share: ShareHead, facts: Tensor, truth: Tensor, weights: Tensor, config: AuditPretrainConfig
) -> None:
    """Minimise the Laplace log-loss of shares; noise on the facts keeps it smooth."""
    share.centre.copy_(facts.mean(0))
    share.scale.copy_(facts.std(0, correction=0).clamp_min(1e-3))

    def loss(generator: torch.Generator) -> Tensor:
        members = len(share.inside)
        e = torch.multinomial(weights, members * 64, replacement=True, generator=generator)
        rows = facts[e.view(members, 64)]
        rows = rows + NOISE * share.scale * torch.randn(rows.shape, generator=generator)
        median, scale = share(rows)
        cost: Tensor = ((median - truth[e.view(members, 64)]).abs() / scale + scale.log()).mean()
        return cost

    fit_one_cycle(share, loss, replace(config, learning_rate=config.learning_rate / 3))


def _fit_missing(
    auditor: Auditor,
    episodes: list[EpisodeEvidence],
    facts: list[Tensor],
    weights: Tensor,
    config: AuditPretrainConfig,
) -> None:
    """Tell hidden edges from hard pairs; then scale the scores to candidates, few of them edges."""
    some = [i for i, one in enumerate(episodes) if bool(one.hidden.any())]
    if not some:
        return
    batches = [(episodes[i].pairs, episodes[i].hidden, facts[i]) for i in some]
    _fit_scorer(auditor.pairs, batches, weights[some], config)
    with torch.no_grad():
        scores = [auditor.pairs(one.candidates.float(), c)
                  for one, c in zip(episodes, facts, strict=True)]  # fmt: skip
    truth = torch.cat([one.missing for one in episodes])
    of_pair = weights.repeat_interleave(PAIRS)
    line = _logistic(torch.cat(scores), truth, of_pair / of_pair.mean())
    auditor.missing_scale.copy_(line)


def _logistic(scores: Tensor, truth: Tensor, weight: Tensor | None = None) -> Tensor:
    """Slope and intercept of a logistic regression: [2]."""
    if truth.min() == truth.max():
        return torch.tensor([1.0, 0.0])
    line = LogisticRegression(C=1e3).fit(scores[:, None].double(), truth, weight)
    return torch.tensor([line.coef_[0, 0], line.intercept_[0]], dtype=torch.float32)
