"""The auditor: pre-trained once, it says of any graph which edges look false or missing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor, nn
from torch.nn import functional as F

from graphglow.auditing.pair_features import (
    GROUPS,
    RAW,
    PairInputs,
    build_pair_inputs,
    pair_fold,
)
from graphglow.auditing.reference_tables import CONTEXT, EVIDENCE, ReferenceTables
from graphglow.device import MapBlocks, map_blocks
from graphglow.errors import InputError
from graphglow.evidence.pair_features import contributions
from graphglow.evidence.views import candidate_pairs, pair_blocks
from graphglow.graph.graph import Graph
from graphglow.linalg.rows import unit
from graphglow.linalg.sparse import is_edge
from graphglow.storage import fill, load_tensors, save_tensors

AUDIT_VERSION = 4
"""The version of the evidence: an auditor reads only the evidence that it was trained on."""
KIND = "auditor"
FITS = [EVIDENCE.index(f"fit_{kind}") for kind in ("uniform", "degree")]
FALSE_EDGE_MIX = CONTEXT.index("false_edge_mix")
LEVELS = (0.05, 0.2, 0.5, 0.8)
PLACES = 4 * (3 * len(LEVELS) + 5)  # facts of where scores put edges among pairs
FACTS = len(CONTEXT) + PLACES
MEMBERS, HIDDEN = 8, 32  # of the ensemble that estimates the share of false edges
WEAK = 0.003  # added to shares before their logarithm is taken
WIDEST = 0.2
"""Width of the interval of the share of false edges up to which the share is called known: the
error is 3.5 points there, and 5.3 over all (docs/audit.md)."""
WALKS = 16
"""Random walks of two steps from each node, to find candidates."""


class FalseShare(NamedTuple):
    """Estimated share of false edges, with a 90 % interval."""

    estimate: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """Whether the interval is narrow enough for the estimate to say something."""
        return self.high - self.low <= WIDEST

    def __str__(self) -> str:
        low, about, high = (f"{100 * p:.0f}" for p in (self.low, self.estimate, self.high))
        return f"{about} % ({low} to {high} %)" if self.is_known else f"unknown ({low} to {high} %)"


class AttackScorer(nn.Module):
    """Log-odds of edges on a graph under attack, linear in evidence: [.., F] -> [..].

    Edges that an attacker adds are alike in being unlike. Where there are many, the graph's own
    tables and regressions take what they share for a mark of real edges; this one comes from other
    graphs. The facts that a :class:`PairScorer` reads are taken, and not read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Parameter(torch.zeros(len(EVIDENCE)))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, f: Tensor, c: Tensor | None = None) -> Tensor:
        return f @ self.out + self.bias

    def penalty(self) -> Tensor:
        """A tenth of the squares: evidence counts itself here, and not a correction of it."""
        return self.out.square().sum() / 10


class PairScorer(nn.Module):
    """Log-odds from evidence f and the facts c of a graph.

    Let r_1, r_2 be the graph's own regressions of edges against uniform and against degree-drawn
    pairs. By Bayes' rule the odds that an edge is false, with shares pi_1 and pi_2 of both kinds,
    are about ``pi_1 exp(-r_1) + pi_2 exp(-r_2)``; l_k in the facts are estimated logarithms of the
    shares. The rest is learned from many graphs: with s_k = r_k + w f and an :class:`AttackScorer`,

        o = (1 - g(c)) * -log sum_k exp(l_k / 2 + p_k(c) - a_k(c) s_k) + g(c) * attack(f)

    p is linear in c, a the softplus and g the sigmoid of a linear function: how far the graph looks
    attacked.

    Shapes:
        f [.., F], c [FACTS] or [.., FACTS]  ->  [..]
    """

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Parameter(torch.zeros(len(EVIDENCE)))  # w
        self.trust = nn.Parameter(torch.zeros(FACTS, 2))  # a
        self.trust_bias = nn.Parameter(torch.full((2,), 1.85))  # 2: f has a fourth of each r
        self.prior = nn.Parameter(torch.zeros(FACTS, 2))  # p
        self.prior_bias = nn.Parameter(torch.full((2,), -1.0))
        self.gate = nn.Parameter(torch.zeros(FACTS))  # g
        self.gate_bias = nn.Parameter(torch.tensor(-1.0))
        self.attack = AttackScorer()

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        s = f[..., FITS] + (f @ self.out)[..., None]  # [.., 2]
        s = s * F.softplus(self.trust_bias + c @ self.trust)
        kinds = F.logsigmoid(torch.stack([-c[..., FALSE_EDGE_MIX], c[..., FALSE_EDGE_MIX]], -1)) / 2
        bayes = -torch.logsumexp(kinds + self.prior_bias + c @ self.prior - s, -1)
        answer: Tensor = bayes.lerp(self.attack(f), self.attacked(c).sigmoid())
        return answer

    def penalty(self) -> Tensor:
        return self.out.square().sum() + self.attack.penalty()

    def attacked(self, c: Tensor) -> Tensor:
        """Log-odds that a graph is under attack: [.., FACTS] -> [..]."""
        return self.gate_bias + c @ self.gate


class ShareHead(nn.Module):
    """The share of false edges, from where scores put them among pairs (:meth:`Auditor.facts`).

    Each member of an ensemble says median and scale of a Laplace distribution. The interval is
    ``reach`` times their scale to both sides: so far that 90 % of the truths of families that were
    left out of training lay within.

    Shapes:
        places [B, PLACES] or [M, B, PLACES] -> median [M, B], scale [M, B]
    """

    centre: Tensor
    scale: Tensor
    reach: Tensor

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.inside = nn.Parameter(
            torch.randn(MEMBERS, PLACES, HIDDEN, generator=draw) / PLACES**0.5
        )
        self.bias = nn.Parameter(torch.zeros(MEMBERS, 1, HIDDEN))
        self.out = nn.Parameter(torch.randn(MEMBERS, HIDDEN, 2, generator=draw) / HIDDEN**0.5)
        self.out_bias = nn.Parameter(torch.tensor([-1.0, -2.5]).repeat(MEMBERS, 1, 1))
        self.register_buffer("centre", torch.zeros(PLACES))
        self.register_buffer("scale", torch.ones(PLACES))
        self.register_buffer("reach", torch.tensor(10.0).log())  # of one Laplace distribution

    def forward(self, places: Tensor) -> tuple[Tensor, Tensor]:
        places = ((places - self.centre) / self.scale).clamp(-4, 4)
        out = F.gelu(places @ self.inside + self.bias) @ self.out + self.out_bias
        return out[..., 0].sigmoid(), F.softplus(out[..., 1]) + 0.005

    def estimate(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the members' median, and their mean scale, wider where they differ: [B], [B]."""
        median, scale = self(places)
        middle = median.median(0).values
        return middle, (scale + (median - middle).abs()).mean(0)


@dataclass(frozen=True, eq=False)
class Findings:
    """What the auditor finds in one graph.

    Shapes:
        facts [FACTS]; edges [2, M] once each, low < high, sorted; edge_log_odds [M] of being real;
        pairs [2, K] without an edge; pair_log_odds [K] of being a missing edge;
        order [N]: node i of the looks is ``order[i]`` in edges and pairs
    """

    looks: tuple[ReferenceTables, ReferenceTables]
    """With all edges, and without the most doubtful ones, as many as are false by estimate."""
    facts: Tensor
    """Of the first look; both are read by these."""
    edges: Tensor
    edge_log_odds: Tensor
    pairs: Tensor
    pair_log_odds: Tensor
    false_share: FalseShare
    shift: float
    """Log-odds of edges are ``slope`` times their scores plus ``shift``; their mean probability
    then agrees with ``false_share``."""
    order: Tensor


class Auditor(nn.Module):
    """Scorers of edges and of pairs without one, and the estimate of the share of false edges.

    Nothing is trained on the graph that is audited. It is looked at twice: false edges blur what
    surrounds the others, so the second look leaves the most doubtful edges out. The score of an
    edge is the mean of both.

    Args:
        seed: Seeds the weights before training.
    """

    slope: Tensor
    """Turns scores of edges into log-odds."""
    missing_scale: Tensor
    """Slope and intercept that turn scores of candidates into log-odds of a missing edge."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__()
        self.edges = PairScorer()
        self.pairs = PairScorer()
        self.attack = AttackScorer()
        self.share = ShareHead(seed=seed)
        self.register_buffer("slope", torch.tensor(1.0))
        self.register_buffer("missing_scale", torch.tensor([1.0, 0.0]))
        self.provenance: dict[str, Any] = {"trained": False, "seed": seed}

    def frozen(self) -> "Auditor":
        return self.requires_grad_(False).eval()

    @torch.no_grad()
    def examine(
        self,
        graph: Graph,
        order: Tensor | None = None,
        *,
        seed: int = 0,
        missing: bool = True,
        map_blocks: MapBlocks = map_blocks,
    ) -> Findings:
        """Judge every edge of a graph and, with ``missing``, candidates for missing edges.

        There must be edges, and pairs without one. Node i of the graph is ``order[i]`` in the
        findings, or i without an order.
        """
        generator = torch.Generator().manual_seed(seed)
        edges = torch.stack([graph.low.long(), graph.high.long()])
        inputs = build_pair_inputs(graph, generator)
        first = ReferenceTables(inputs, generator)
        facts = self.facts(first.context, first.samples)
        share = self.false_share(facts)
        scores = self.scores(first, facts, edges, map_blocks)
        kept = scores.argsort()[int(share.estimate * len(scores)) :].sort().values
        second = ReferenceTables(inputs.without_edges(kept, generator), generator)
        scores = (scores + self.scores(second, facts, edges, map_blocks)) / 2
        log_odds = self.slope * scores
        target = min(max(1 - share.estimate, 0.002), 0.998)
        shift = float(brentq(lambda s: float((log_odds + s).sigmoid().mean()) - target, -200, 200))
        pairs = missing_candidates(inputs, generator, map_blocks) if missing else edges[:, :0]
        pair_log_odds = self.scores(first, facts, pairs, map_blocks, missing=True)
        order = torch.arange(graph.num_nodes) if order is None else order
        edges, pairs = (order.to(p.device)[p].sort(0).values for p in (edges, pairs))
        place = (edges[0] * graph.num_nodes + edges[1]).argsort()
        return Findings(
            (first, second), facts, edges[:, place], (log_odds + shift)[place], pairs,
            pair_log_odds, share, shift, order,
        )  # fmt: skip

    def scores(
        self,
        look: ReferenceTables,
        facts: Tensor,
        pairs: Tensor,
        run: MapBlocks = map_blocks,
        missing: bool = False,
    ) -> Tensor:
        """Score edges, up to slope and shift; other pairs, by their log-odds: [2, M] -> [M]."""
        found = run(_score_block, (self, look, facts, missing), pair_blocks(pairs))
        return torch.cat([facts[:0], *found])

    def score(self, evidence: Tensor, facts: Tensor, missing: bool) -> Tensor:
        scores: Tensor = (self.pairs if missing else self.edges)(evidence, facts)
        return self.missing_scale[0] * scores + self.missing_scale[1] if missing else scores

    def facts(self, context: Tensor, samples: Sequence[Tensor]) -> Tensor:
        """Append where scores put edges among pairs: [G], [.., F] each -> [FACTS].

        The samples are of edges, of uniform and of degree-drawn pairs; the scores those of the
        graph's own regressions, their sum, and those of edges under attack. Facts are quantiles,
        how many edges are below quantiles of the others, and means.
        """
        edges, *others = (
            torch.stack([*rows[:, FITS].T, rows[:, FITS].sum(1), self.attack(rows) / 4], 1)
            for rows in samples
        )  # [.., 4]
        level = torch.tensor(LEVELS, device=edges.device)
        facts = [torch.quantile(edges, level, dim=0), (-4 * edges).sigmoid().mean(0)[None]]
        for pairs in others:
            below = (edges[:, None] <= torch.quantile(pairs, level, dim=0)).float().mean(0)
            facts.append(((below + WEAK) / (level[:, None] + WEAK)).log())
            facts.append((pairs.mean(0) - edges.mean(0))[None])
            facts.append((-4 * pairs).sigmoid().mean(0)[None])
        return torch.cat([context, torch.cat(facts).flatten().clamp(-4, 4) / 2])

    @torch.no_grad()
    def false_share(self, facts: Tensor) -> FalseShare:
        """Estimate the share of false edges: [FACTS]."""
        places = facts[None, len(CONTEXT) :]
        median, scale = (float(part[0]) for part in self.share.estimate(places))
        reach = float(self.share.reach) * scale
        return FalseShare(median, max(0.0, median - reach), min(1.0, median + reach))

    @torch.no_grad()
    def explain(self, findings: Findings, pairs: Tensor) -> Tensor:
        """Split the log-odds of edges and of other pairs into what each of GROUPS adds.

        The last column is the log-odds without any evidence; all of them add up exactly.

        Shapes:
            pairs [2, K], low < high -> [K, len(GROUPS) + 1]
        """
        pairs = findings.order.argsort().to(pairs.device)[pairs].sort(0).values
        width, fold = len(RAW), pair_fold(pairs[0], pairs[1])
        columns = [[k * width + RAW.index(n) for n in group for k in range(3)]
                   for group in GROUPS.values()]  # fmt: skip

        def parts(look: ReferenceTables, missing: bool) -> Tensor:
            def log_odds(known: Tensor) -> Tensor:
                evidence = look.with_fits(known, fold)
                scores = self.score(evidence, findings.facts, missing)
                return scores if missing else self.slope * scores + findings.shift

            return contributions(log_odds, look.evidence(pairs)[:, : 3 * width], columns)

        first, second = findings.looks
        real = (parts(first, False) + parts(second, False)) / 2
        edge = is_edge(first.inputs.graph.links, pairs)[:, None]
        return torch.where(edge, real, parts(first, True))

    def save(self, path: str | Path) -> None:
        """Write the weights and how they were made as safetensors, replacing an old file."""
        meta = {"audit_version": AUDIT_VERSION, "provenance": self.provenance}
        save_tensors(path, KIND, dict(self.state_dict()), meta)

    @classmethod
    def load(cls, path: str | Path) -> "Auditor":
        """Read what :meth:`save` wrote, frozen."""
        tensors, meta = load_tensors(path, KIND)
        if (version := meta.get("audit_version")) != AUDIT_VERSION:
            raise InputError(
                f"{path} has an auditor of version {version!r}, and this graphglow reads "
                f"{AUDIT_VERSION}. Pre-train it again."
            )
        auditor = cls()
        fill(auditor, tensors, str(path))
        auditor.provenance = dict(meta.get("provenance") or {})
        return auditor.frozen()


def _score_block(known: tuple[Auditor, ReferenceTables, Tensor, bool], pairs: Tensor) -> Tensor:
    auditor, look, facts, missing = known
    return auditor.score(look.evidence(pairs), facts, missing)


def missing_candidates(
    inputs: PairInputs, generator: torch.Generator, map_blocks: MapBlocks = map_blocks
) -> Tensor:
    """Find pairs ``u < v`` without an edge that may be missing ones, some dozens per node: [2, K].

    Neighbours of neighbours, and the nearest nodes by features, by their neighbourhoods' features
    and by spectral embedding.
    """
    graph = inputs.graph
    views = [unit(inputs.spectrum[0])]
    if inputs.x.shape[1]:
        views += [inputs.x, unit(inputs.mean)]
    start = torch.arange(graph.num_nodes, device=graph.device)[graph.degree > 0]
    start = end = start.repeat_interleave(WALKS)
    for _ in range(2):
        step = torch.rand(len(end), generator=generator).to(graph.device) * graph.degree[end]
        step = torch.minimum(step.long(), graph.degree[end].long() - 1)
        end = graph.links.col[graph.links.crow[end] + step].long()
    pairs, _ = candidate_pairs(views, torch.stack([start, end]).sort(0).values, map_blocks)
    free = [(p[0] != p[1]) & ~is_edge(graph.links, p) for p in pair_blocks(pairs)]
    return pairs[:, torch.cat(free)]
