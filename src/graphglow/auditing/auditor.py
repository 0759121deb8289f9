"""The auditor: what is pre-trained once and says of any graph which edges look false or missing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphglow.auditing.candidates import missing_candidates
from graphglow.auditing.pair_features import GROUPS, RAW
from graphglow.auditing.pair_inputs import PairInputs, build_pair_inputs, fold_of
from graphglow.auditing.reference_tables import (
    CONTEXT,
    EVIDENCE,
    ReferenceTables,
    build_reference_tables,
    completed,
    evidence_of,
    pairs_without_edge,
)
from graphglow.errors import InputError
from graphglow.evidence.candidates import pair_blocks
from graphglow.evidence.scorer import contributions
from graphglow.graph.graph import Graph
from graphglow.parallel import MapBlocks, map_blocks
from graphglow.storage import fill, load_tensors, save_tensors

AUDIT_VERSION = 2
"""Of what the evidence is: an auditor reads only the evidence that it was trained on."""
KIND = "auditor"
FITS = [EVIDENCE.index(f"fit_{kind}") for kind in ("uniform", "degree", "own")]
FALSE_EDGE_MIX = CONTEXT.index("false_edge_mix")
LEVELS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
MOST_SLOPE = 1.5  # its logarithm
COMPARED = 2048
"""Pairs without an edge, of each kind, that the share of false edges is estimated by."""


class FalseShare(NamedTuple):
    """Estimated share of false edges, and the interval that holds it nine times in ten."""

    estimate: float
    low: float
    high: float


class PairScorer(nn.Module):
    """Log-odds from evidence f and context c.

    With r_1, r_2 the graph's own regressions of edges against uniform and against degree-drawn
    pairs, Bayes' rule gives the odds of a false edge, of shares pi_1 and pi_2 of both kinds, as
    about ``pi_1 exp(-r_1) + pi_2 exp(-r_2)``; r_3 is the regression against what seems false here,
    and the context has l_k, the logarithms of what those shares seem to be. What they leave out,
    and how far all of it is to be believed, was learned on many graphs, with s_k = r_k + w f::

        o = a_3(c) s_3 - log sum_k exp(l_k / 2 + p_k(c) - a_k(c) s_k)

    p is linear in c, a the softplus of such; s counts half to begin with, as there are two answers.

    Shapes:
        f [.., F], c [G] or [.., G]  ->  [..]
    """

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Parameter(torch.zeros(len(EVIDENCE)))  # w
        self.trust = nn.Parameter(torch.zeros(len(CONTEXT), 3))  # a
        self.trust_bias = nn.Parameter(torch.full((3,), 1.85))  # 2: f has a fourth of each r
        self.prior = nn.Parameter(torch.zeros(len(CONTEXT), 2))  # p
        self.prior_bias = nn.Parameter(torch.full((2,), -1.0))

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        s = f[..., FITS] + (f @ self.out)[..., None]  # [.., 3]
        s = s * F.softplus(self.trust_bias + c @ self.trust)
        kinds = F.logsigmoid(torch.stack([-c[..., FALSE_EDGE_MIX], c[..., FALSE_EDGE_MIX]], -1)) / 2
        kinds = kinds + self.prior_bias + c @ self.prior
        return s[..., 2] - torch.logsumexp(kinds - s[..., :2], -1)


class ShareHead(nn.Module):
    """From how the scores of edges lie among those of pairs without an edge to the share of false
    edges, its median and the scale of its error (Laplace), and to the slope of scores: how sure
    they are to be taken depends on what the false edges are.

    Shapes:
        facts [.., S] -> median [..], scale [..], slope [..]
    """

    def __init__(self, facts: int, *, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.inside = nn.Parameter(torch.randn(facts, 32, generator=generator) / facts**0.5)
        self.bias = nn.Parameter(torch.zeros(32))
        self.out = nn.Parameter(torch.randn(32, 3, generator=generator) / 32**0.5)
        self.out_bias = nn.Parameter(torch.tensor([-1.0, -2.5, 0.0]))

    def forward(self, facts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = F.gelu(facts @ self.inside + self.bias) @ self.out + self.out_bias
        median, scale = out[..., 0].sigmoid(), F.softplus(out[..., 1]) + 0.005
        return median, scale, out[..., 2].clamp(-MOST_SLOPE, MOST_SLOPE).exp()


def share_facts(edges: Tensor, uniform: Tensor, by_degree: Tensor, context: Tensor) -> Tensor:
    """What the share of false edges is estimated from: log-odds [P], [R], [R], [G] -> [S]."""
    level = torch.tensor(LEVELS, device=edges.device)
    facts = [(1 - edges.sigmoid()).mean()[None].clamp(0.002, 0.998).logit()]
    for pairs in (uniform, by_degree):
        cut = torch.quantile(pairs, level)
        below = (edges[:, None] <= cut).float().mean(0)
        facts += [below / level, (1 - pairs.sigmoid()).mean()[None], below - level]
    facts += [torch.quantile(edges, level) / 4, context[:9]]
    return torch.cat(facts)


FACTS = 1 + 2 * (2 * len(LEVELS) + 1) + len(LEVELS) + 9


@dataclass(frozen=True, eq=False)
class Findings:
    """What the auditor says of one graph.

    Shapes:
        edges [2, M] once each, low < high, sorted; edge_log_odds [M] of being real;
        pairs [2, K] without an edge; pair_log_odds [K] of being a missing edge;
        order [N]: node i of inputs and tables is ``order[i]`` here
    """

    inputs: PairInputs
    tables: ReferenceTables
    edges: Tensor
    edge_log_odds: Tensor
    pairs: Tensor
    pair_log_odds: Tensor
    false_share: FalseShare
    slope: float
    shift: float
    """Scores of edges times ``slope`` plus ``shift`` are their log-odds, which then agree with
    ``false_share``."""
    order: Tensor


class Auditor(nn.Module):
    """Two scorers of pairs, for edges that are there and for those that are not, and the share of
    false edges. Nothing is trained on the graph that it is used on.

    Args:
        seed: Of the weights before training.
    """

    missing_scale: Tensor
    """Slope and intercept that turn the scores of pairs into log-odds among candidates."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__()
        self.edges = PairScorer()
        self.pairs = PairScorer()
        self.share = ShareHead(FACTS, seed=seed)
        self.register_buffer("missing_scale", torch.tensor([1.0, 0.0]))
        self.provenance: dict[str, Any] = {"trained": False, "seed": seed}

    def frozen(self) -> "Auditor":
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        return self.eval()

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
        """Judge every edge of a graph, and the pairs that may be missing ones.

        There must be edges, and pairs without one. ``map_blocks`` does the blocks of pairs; the
        result does not depend on it. Findings call node i of the graph ``order[i]``, or i
        without one.
        """
        generator = torch.Generator().manual_seed(seed)
        inputs = build_pair_inputs(graph, generator)
        tables = build_reference_tables(inputs, generator)
        edges = torch.stack([graph.low.long(), graph.high.long()])

        known = (self, inputs, tables)
        scores = torch.cat(list(map_blocks(score_edges, known, pair_blocks(edges))))
        free = pairs_without_edge(inputs, COMPARED, generator)
        compared = [score_edges(known, pairs) for pairs in free]
        share, slope = self.false_share(scores, compared[0], compared[1], tables.context)
        shift = shift_to(slope * scores, share.estimate)
        log_odds = slope * scores + shift
        pairs = missing_candidates(inputs, generator, map_blocks) if missing else edges[:, :0]
        found = map_blocks(score_missing, known, pair_blocks(pairs))
        odds = torch.cat([scores[:0], *found])
        order = torch.arange(graph.num_nodes) if order is None else order
        edges, pairs = (order.to(p.device)[p].sort(0).values for p in (edges, pairs))
        place = (edges[0] * graph.num_nodes + edges[1]).argsort()
        edges, log_odds = edges[:, place], log_odds[place]
        return Findings(inputs, tables, edges, log_odds, pairs, odds, share, slope, shift, order)

    def edge_scores(self, evidence: Tensor, context: Tensor) -> Tensor:
        """Log-odds that edges are real, but for slope and shift: [M, F], [G] -> [M]."""
        scores: Tensor = self.edges(evidence, context)
        return scores

    def pair_scores(self, evidence: Tensor, context: Tensor) -> Tensor:
        """Log-odds that candidates are missing edges: [M, F], [G] -> [M]."""
        scores: Tensor = self.pairs(evidence, context)
        return self.missing_scale[0] * scores + self.missing_scale[1]

    def false_share(
        self, edges: Tensor, uniform: Tensor, by_degree: Tensor, context: Tensor
    ) -> tuple[FalseShare, float]:
        """With the slope, from the scores of edges and of two kinds of pairs without one."""
        facts = share_facts(_some(edges), uniform, by_degree, context)
        median, scale, slope = (float(v) for v in self.share(facts))
        reach = 2.303 * scale  # a Laplace variable is beyond it once in ten times
        return FalseShare(median, max(0.0, median - reach), min(1.0, median + reach)), slope

    @torch.no_grad()
    def explain(self, findings: Findings, pairs: Tensor, *, missing: bool) -> dict[str, Tensor]:
        """What each kind of evidence adds to the log-odds of pairs; all of it adds up to them.

        ``this graph`` is what is said without any.

        Shapes:
            pairs [2, K], low < high -> by name [K]
        """
        inputs, tables = findings.inputs, findings.tables
        pairs = findings.order.argsort().to(pairs.device)[pairs].sort(0).values
        fold = fold_of(pairs[0], pairs[1])
        known = evidence_of(inputs, tables, pairs)[:, : 3 * len(RAW)]

        def scored(part: Tensor) -> Tensor:
            evidence = completed(tables, part, fold)
            if missing:
                return self.pair_scores(evidence, tables.context)
            scores = self.edge_scores(evidence, tables.context)
            return findings.slope * scores + findings.shift

        shares = contributions(scored, known, [_places(name) for name in GROUPS])
        return dict(zip((*GROUPS, "this graph"), shares.T, strict=True))

    def save(self, path: str | Path) -> None:
        """Write the weights as safetensors, with how they were made; an old file is replaced.

        The file is whole at all times: of two processes that write it, the last one wins.
        """
        meta = {"audit_version": AUDIT_VERSION, "provenance": self.provenance}
        save_tensors(path, KIND, dict(self.state_dict()), meta)

    @classmethod
    def load(cls, path: str | Path) -> "Auditor":
        """Read what :meth:`save` wrote, frozen; anything else is refused in one sentence."""
        tensors, meta = load_tensors(path, KIND)
        if meta.get("audit_version") != AUDIT_VERSION:
            raise InputError(
                f"{path} must be an auditor of version {AUDIT_VERSION}; got version "
                f"{meta.get('audit_version')!r} (pre-train it again with this graphglow)"
            )
        auditor = cls()
        fill(auditor, tensors, str(path))
        auditor.provenance = dict(meta.get("provenance") or {})
        return auditor.frozen()


def score_edges(known: tuple[Auditor, PairInputs, ReferenceTables], pairs: Tensor) -> Tensor:
    """Log-odds that pairs are real edges, up to the shift of the graph: [2, M] -> [M]."""
    auditor, inputs, tables = known
    evidence = evidence_of(inputs, tables, pairs)
    return auditor.edge_scores(evidence, tables.context)


def score_missing(known: tuple[Auditor, PairInputs, ReferenceTables], pairs: Tensor) -> Tensor:
    """Log-odds that pairs without an edge are missing ones: [2, M] -> [M]."""
    auditor, inputs, tables = known
    evidence = evidence_of(inputs, tables, pairs)
    return auditor.pair_scores(evidence, tables.context)


def _places(group: str) -> list[int]:
    """Of one of :data:`GROUPS` among deviations and log-ratios."""
    width = len(RAW)
    return [k * width + RAW.index(name) for name in GROUPS[group] for k in range(3)]


def shift_to(log_odds: Tensor, false_share: float) -> float:
    """What to add to log-odds so that the mean of their probabilities is 1 - false_share."""
    target = min(max(1 - false_share, 0.002), 0.998)
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        if float((log_odds + middle).sigmoid().mean()) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _some(log_odds: Tensor, most: int = 100_000) -> Tensor:
    """At most so many of them, evenly taken (``quantile`` takes no more than 16 million)."""
    step = -(-len(log_odds) // most)
    return log_odds[::step]
