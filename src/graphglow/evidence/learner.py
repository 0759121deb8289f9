"""The evidence learner: pre-trained once, and applied to every graph without training."""

import copy
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.device import MapBlocks, map_blocks
from graphglow.errors import InputError, at_least
from graphglow.evidence.pair_features import (
    FIRST_CONTEXT,
    FIRST_EVIDENCE,
    GROUPS,
    SECOND_EVIDENCE,
    VOTED_CONTEXT,
    contributions,
    logit,
)
from graphglow.evidence.predictor import CHANNELS, Voter, predict_classes, vote_inputs
from graphglow.evidence.refined import (
    CARRIED,
    RefinedGraph,
    above_chance,
    final_round,
    first_round,
    second_round,
    with_vote,
)
from graphglow.graph.graph import known_graph
from graphglow.paper.learner import history_of
from graphglow.storage import fill, load_tensors, save_tensors

HIDDEN = 64
AT_ONCE = 2**13  # pairs in one block, whose hidden layers fit into a processor's cache
EVIDENCE_VERSION = 3
"""Version of the pair features, context and channels that a learner was trained on."""
KIND = "evidence learner"
LOGIT_SCALE = ((1.04, 1.20), (1.14, 1.32))
"""Mean and deviation of the shipped learner's log-odds of candidates, by round."""


class Scorer(nn.Module):
    """``o = w gelu(B gelu(A f' + C c))`` with ``f' = f * (1 + D c)``: log-odds over chance.

    The context c describes the graph, so that it can weigh the features f; D starts at 0.

    Shapes:
        f [.., F], c [G] or [.., G]  ->  [..]
    """

    def __init__(self, evidence: int, context: int, *, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.gate = nn.Parameter(torch.zeros(context, evidence))  # D
        drawn = [
            torch.randn(shape, generator=generator) / math.sqrt(shape[0])
            for shape in ((evidence, HIDDEN), (context, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1))
        ]
        self.evidence = nn.Parameter(drawn[0])  # A
        self.context = nn.Parameter(drawn[1])  # C
        self.first_bias = nn.Parameter(torch.zeros(HIDDEN))
        self.hidden = nn.Parameter(drawn[2])  # B
        self.second_bias = nn.Parameter(torch.zeros(HIDDEN))
        self.out = nn.Parameter(drawn[3][:, 0])  # w
        self.out_bias = nn.Parameter(torch.zeros(()))

    def forward(self, f: Tensor, c: Tensor) -> Tensor:
        gated = f * (1 + c @ self.gate)
        h = F.gelu(gated @ self.evidence + c @ self.context + self.first_bias)
        h = F.gelu(h @ self.hidden + self.second_bias)
        return h @ self.out + self.out_bias


class EvidenceLearner(nn.Module):
    """Predicts from evidence whether two nodes belong to one class, and the class of a node.

    It has two small scorers of pairs, one for each round, a voter between them that mixes the
    channels' predictions, and the predictor, a voter over the channels of all rounds. Nothing is
    trained on the user's graph.

    Args:
        seed: Seeds the initial weights.
        trained: False for the control, whose log-odds are rescaled to ``logit_scale`` per graph.
    """

    logit_scale: Tensor

    def __init__(self, *, seed: int = 0, trained: bool = False) -> None:
        super().__init__()
        self.first = Scorer(len(FIRST_EVIDENCE), len(FIRST_CONTEXT), seed=3 * seed)
        self.vote = Voter(seed=3 * seed + 1)
        self.second = Scorer(len(SECOND_EVIDENCE), len(VOTED_CONTEXT), seed=3 * seed + 2)
        self.predictor = Voter(len(CHANNELS), seed=3 * seed + 3)
        self.register_buffer("logit_scale", torch.tensor(LOGIT_SCALE))
        self.provenance: dict[str, Any] = {"trained": trained, "seed": seed}

    @classmethod
    def untrained(cls, seed: int = 0) -> "EvidenceLearner":
        """Create the control: the same evidence and candidates, random weights."""
        return cls(seed=seed).requires_grad_(False).eval()

    def pair_scores(self, round_: int, evidence: Tensor, context: Tensor) -> Tensor:
        """Return raw scores of pairs in round 0 or 1: [M, F], [G] -> [M]."""
        scorer = self.second if round_ else self.first
        at_once = AT_ONCE if evidence.device.type == "cpu" else max(1, len(evidence))
        return torch.cat([scorer(part, context) for part in torch.split(evidence, at_once)])

    def scale(self, round_: int, scores: Tensor) -> Tensor:
        """Return slope and intercept from the scores of all candidates to log-odds: [M] -> [2].

        They are 1 and 0 except for the control, which gets the moments of ``logit_scale``.
        """
        if self.provenance.get("trained") or len(scores) < 2:
            return torch.tensor([1.0, 0.0], device=scores.device)
        mean, deviation = self.logit_scale[round_]
        slope = deviation / scores.std().clamp_min(1e-6)
        return torch.stack([slope, mean - slope * scores.mean()])

    @torch.no_grad()
    def refine(
        self,
        data: Data,
        *,
        seed: int = 0,
        device: torch.device | str | None = None,
        map_blocks: MapBlocks = map_blocks,
    ) -> RefinedGraph:
        """Score a graph's pairs in two rounds and, given labels, predict the classes of its nodes.

        Args:
            data: The graph, with or without features, edges and labels. Only labels in its
                ``train_mask`` are read.
            seed: Seeds the randomised SVD.
            device: Where to compute; by default where the learner is.
            map_blocks: Computes the blocks of nodes and pairs; the result does not depend on it.
        """
        seed = at_least("seed", seed, 0)
        device = torch.device(device or self.logit_scale.device)
        moved = self if self.logit_scale.device == device else copy.deepcopy(self).to(device)
        graph = known_graph(data, device)
        known = first_round(graph, torch.Generator().manual_seed(seed % 2**63), map_blocks)
        known = with_vote(second_round(moved, known, map_blocks), map_blocks)
        refined = above_chance(known, map_blocks)
        if len(graph.seen) == 0:
            return refined
        known = refined.known  # without views that nothing more is asked of
        if len(graph.seen) > 1:
            known = final_round(refined)
        answer = predict_classes(graph, moved.predictor, partial(vote_inputs, known, "predictor"))
        probabilities = torch.zeros(graph.num_nodes, graph.num_classes, device=device)
        probabilities[:, graph.seen] = answer.probabilities
        update, shares = answer.chosen.get("update"), answer.chosen.get("shares")
        return replace(
            refined, known=known, probabilities=probabilities, update=update, shares=shares
        )

    @torch.no_grad()
    def explain(self, refined: RefinedGraph, which: Tensor) -> dict[str, Tensor]:
        """Split the log-odds of some of ``refined.pairs`` into what each kind of evidence adds.

        The second round reads what the first makes of the evidence, so the two are taken as one
        score. ``chance`` is the log-odds of two random nodes, ``this graph`` what the context alone
        adds, and ``labelled pairs`` the calibration by them.

        Shapes:
            which [K] -> by name [K]; their sum is ``logit(pair_probability[which])``
        """
        names = [name for name, kinds in GROUPS.items() if kinds != ("first_round",)]
        groups = [[SECOND_EVIDENCE.index(kind) for kind in GROUPS[name]] for name in names]
        known, first = refined.known.whole, len(FIRST_EVIDENCE)

        def score(f: Tensor) -> Tensor:
            whole = f.clone()
            before = self.pair_scores(0, f[:, :first], known.context[: len(FIRST_CONTEXT)])
            before = known.first_scale[0] * before + known.first_scale[1]
            whole[:, SECOND_EVIDENCE.index("first_round")] = before / CARRIED
            return refined.scale[0] * self.pair_scores(1, whole, known.context) + refined.scale[1]

        shares = contributions(score, known.evidence(known.pairs[:, which]), groups)
        named = dict(zip([*names, "this graph"], shares.unbind(1), strict=True))
        everywhere = {"labelled pairs": refined.calibration, "chance": logit(known.graph.chance)}
        return named | {k: torch.full_like(shares[:, 0], v) for k, v in everywhere.items()}

    def __repr__(self) -> str:
        return f"EvidenceLearner(version {EVIDENCE_VERSION}; {history_of(self.provenance)})"

    def save(self, path: str | Path) -> None:
        """Save weights and provenance as safetensors; an existing file is replaced."""
        save_tensors(path, KIND, dict(self.state_dict()), self.facts())

    @classmethod
    def load(cls, path: str | Path) -> "EvidenceLearner":
        """Load a learner that :meth:`save` wrote, frozen."""
        tensors, meta = load_tensors(path, KIND)
        return cls.from_tensors(tensors, meta, str(path))

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, Tensor], meta: dict[str, Any], origin: str
    ) -> "EvidenceLearner":
        """Rebuild a frozen learner from the contents of a file; ``origin`` names it in errors."""
        version = meta.get("evidence_version")
        if version != EVIDENCE_VERSION:
            raise InputError(
                f"{origin} must be a learner of evidence version {EVIDENCE_VERSION}; got version "
                f"{version!r} (pre-train it again with this graphglow)"
            )
        learner = cls()
        fill(learner, tensors, origin)
        provenance = meta.get("provenance")
        learner.provenance = provenance if isinstance(provenance, dict) else {}
        return learner.requires_grad_(False).eval()

    def facts(self) -> dict[str, Any]:
        """Return what a file stores beside the weights."""
        return {"evidence_version": EVIDENCE_VERSION, "provenance": self.provenance}
