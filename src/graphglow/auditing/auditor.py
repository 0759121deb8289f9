"""The auditor: pre-trained once, it says of any graph which edges look false or missing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphglow.auditing.pair_features import GROUPS, RAW, PairInputs, build_pair_inputs, pair_fold
from graphglow.auditing.reference_tables import (
    CONTEXT,
    EVIDENCE,
    ReferenceTables,
    build_reference_tables,
    evidence_of,
    pairs_without_edge,
    with_fits,
)
from graphglow.device import MapBlocks, map_blocks
from graphglow.errors import InputError
from graphglow.evidence.pair_features import contributions
from graphglow.evidence.views import candidate_pairs, pair_blocks
from graphglow.graph.graph import Graph
from graphglow.linalg.rows import unit
from graphglow.linalg.sparse import is_edge
from graphglow.storage import fill, load_tensors, save_tensors

AUDIT_VERSION = 2
"""The version of the evidence: an auditor reads only the evidence that it was trained on."""
KIND = "auditor"
FITS = [EVIDENCE.index(f"fit_{kind}") for kind in ("uniform", "degree", "own")]
FALSE_EDGE_MIX = CONTEXT.index("false_edge_mix")
LEVELS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
FACTS = 1 + 2 * (2 * len(LEVELS) + 1) + len(LEVELS) + 9
MOST_SLOPE = 1.5  # its logarithm
COMPARED = 2048
"""Pairs without an edge, of each kind, by which the share of false edges is estimated."""
WIDEST = 0.4  # interval of the share of false edges; a wider one says nothing
MOST_QUANTILES = 100_000  # values that quantiles are taken of
LOOKED_UP = 2**20  # pairs at once
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

    @property
    def sentence(self) -> str:
        if self.is_known:
            return f"About {self} of all edges look false."
        return f"What share of all edges is false cannot be told here: {self}."


class PairScorer(nn.Module):
    """Log-odds from evidence f and context c.

    Let r_1, r_2 be the graph's own regressions of edges against uniform and against degree-drawn
    pairs. By Bayes' rule the odds that an edge is false, with shares pi_1 and pi_2 of both kinds,
    are about ``pi_1 exp(-r_1) + pi_2 exp(-r_2)``; r_3 is the regression against what seems false on
    this graph, and l_k in the context are estimated logarithms of the shares. The rest is learned
    from many graphs, with s_k = r_k + w f::

        o = a_3(c) s_3 - log sum_k exp(l_k / 2 + p_k(c) - a_k(c) s_k)

    p is linear in c, a the softplus of a linear function. The two answers count half each at first.

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
    """The share of false edges, as median and scale of a Laplace distribution, and the slope that
    turns scores into log-odds, from how the scores of edges lie among those of other pairs.

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
    """Inputs of :class:`ShareHead` from scores of edges [P] and pairs [R], [R]: -> [S]."""
    edges = edges[:: -(-len(edges) // MOST_QUANTILES)]
    level = torch.tensor(LEVELS, device=edges.device)
    facts = [(1 - edges.sigmoid()).mean()[None].clamp(0.002, 0.998).logit()]
    for pairs in (uniform, by_degree):
        cut = torch.quantile(pairs, level)
        below = (edges[:, None] <= cut).float().mean(0)
        facts += [below / level, (1 - pairs.sigmoid()).mean()[None], below - level]
    facts += [torch.quantile(edges, level) / 4, context[:9]]
    return torch.cat(facts)


@dataclass(frozen=True, eq=False)
class Findings:
    """What the auditor finds in one graph.

    Shapes:
        edges [2, M] once each, low < high, sorted; edge_log_odds [M] of being real;
        pairs [2, K] without an edge; pair_log_odds [K] of being a missing edge;
        order [N]: node i of inputs and tables is ``order[i]`` in edges and pairs
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
    """Log-odds of edges are ``slope`` times their scores plus ``shift``; their mean probability
    then agrees with ``false_share``."""
    order: Tensor


class Auditor(nn.Module):
    """Scorers of edges and of pairs without one, and the estimate of the share of false edges.

    Nothing is trained on the graph that is audited.

    Args:
        seed: Seeds the weights before training.
    """

    missing_scale: Tensor
    """Slope and intercept that turn scores of candidates into log-odds of a missing edge."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__()
        self.edges = PairScorer()
        self.pairs = PairScorer()
        self.share = ShareHead(FACTS, seed=seed)
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
        inputs = build_pair_inputs(graph, generator)
        tables = build_reference_tables(inputs, generator)
        edges = torch.stack([graph.low.long(), graph.high.long()])
        known = (self, inputs, tables, False)
        scores = torch.cat(list(map_blocks(_score_block, known, pair_blocks(edges))))
        free = pairs_without_edge(inputs, COMPARED, generator)
        compared = [_score_block(known, pairs) for pairs in free]
        share, slope = self.false_share(scores, compared[0], compared[1], tables.context)
        shift = shift_to(slope * scores, share.estimate)
        log_odds = slope * scores + shift
        pairs = missing_candidates(inputs, generator, map_blocks) if missing else edges[:, :0]
        blocks = map_blocks(_score_block, (*known[:3], True), pair_blocks(pairs))
        pair_log_odds = torch.cat([scores[:0], *blocks])
        order = torch.arange(graph.num_nodes) if order is None else order
        edges, pairs = (order.to(p.device)[p].sort(0).values for p in (edges, pairs))
        place = (edges[0] * graph.num_nodes + edges[1]).argsort()
        return Findings(
            inputs, tables, edges[:, place], log_odds[place], pairs, pair_log_odds, share, slope,
            shift, order,
        )  # fmt: skip

    def scores(self, evidence: Tensor, context: Tensor, *, missing: bool = False) -> Tensor:
        """Score edges, up to slope and shift; candidates, by their log-odds: [M, F], [G] -> [M]."""
        scores: Tensor = (self.pairs if missing else self.edges)(evidence, context)
        return self.missing_scale[0] * scores + self.missing_scale[1] if missing else scores

    def false_share(
        self, edges: Tensor, uniform: Tensor, by_degree: Tensor, context: Tensor
    ) -> tuple[FalseShare, float]:
        """Estimate the share of false edges and the slope, from scores of edges and of pairs."""
        facts = share_facts(edges, uniform, by_degree, context)
        median, scale, slope = (float(v) for v in self.share(facts))
        reach = 2.303 * scale  # a Laplace variable is further away once in ten times
        return FalseShare(median, max(0.0, median - reach), min(1.0, median + reach)), slope

    @torch.no_grad()
    def explain(self, findings: Findings, pairs: Tensor) -> dict[str, Tensor]:
        """Split the log-odds of edges and of other pairs into what each kind of evidence adds.

        ``this graph`` is the log-odds without any evidence; all of them add up exactly.

        Shapes:
            pairs [2, K], low < high -> by name [K]
        """
        inputs, tables = findings.inputs, findings.tables
        pairs = findings.order.argsort().to(pairs.device)[pairs].sort(0).values
        edge, fold = is_edge(inputs.graph.links, pairs), pair_fold(pairs[0], pairs[1])
        width = len(RAW)
        known = evidence_of(inputs, tables, pairs)[:, : 3 * width]

        def log_odds(part: Tensor) -> Tensor:
            known = with_fits(tables, part, fold), tables.context
            real = findings.slope * self.scores(*known) + findings.shift
            return torch.where(edge, real, self.scores(*known, missing=True))

        columns = [[k * width + RAW.index(n) for n in group for k in range(3)]
                   for group in GROUPS.values()]  # fmt: skip
        shares = contributions(log_odds, known, columns)
        return dict(zip((*GROUPS, "this graph"), shares.T, strict=True))

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


def _score_block(known: tuple[Auditor, PairInputs, ReferenceTables, bool], pairs: Tensor) -> Tensor:
    """Compute :meth:`Auditor.scores` of pairs: [2, M] -> [M]."""
    auditor, inputs, tables, missing = known
    return auditor.scores(evidence_of(inputs, tables, pairs), tables.context, missing=missing)


def shift_to(log_odds: Tensor, false_share: float) -> float:
    """Find what to add to log-odds so that their mean probability is 1 - false_share."""
    target = min(max(1 - false_share, 0.002), 0.998)
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        if float((log_odds + middle).sigmoid().mean()) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


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
    free = [(some[0] != some[1]) & ~is_edge(graph.links, some)
            for some in torch.split(pairs, LOOKED_UP, 1)]  # fmt: skip
    return pairs[:, torch.cat(free)]
