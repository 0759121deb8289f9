"""The evidence learner: pre-trained once, and applied to every graph without training."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphglow.device import MapBlocks, map_blocks
from graphglow.errors import InputError, at_least
from graphglow.evidence.context import FIRST_CONTEXT, VOTED_CONTEXT
from graphglow.evidence.pair_features import FIRST_EVIDENCE, SECOND_EVIDENCE
from graphglow.evidence.predictor import CHANNELS
from graphglow.evidence.refined import RefinedGraph, refine_graph
from graphglow.evidence.scorer import Scorer
from graphglow.evidence.votes import Voter
from graphglow.graph.graph import known_graph
from graphglow.paper.learner import history_of
from graphglow.storage import fill, load_tensors, save_tensors

AT_ONCE = 2**13  # pairs in one block, whose hidden layers fit into a processor's cache
EVIDENCE_VERSION = 3
"""Version of the pair features, context and channels that a learner was trained on."""
KIND = "evidence learner"
LOGIT_SCALE = ((1.04, 1.20), (1.14, 1.32))
"""Mean and deviation of the shipped learner's log-odds of candidates, by round."""


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
        return cls(seed=seed).frozen()

    @property
    def trained(self) -> bool:
        return bool(self.provenance.get("trained"))

    def frozen(self) -> "EvidenceLearner":
        """Freeze the weights, and return the learner."""
        return self.requires_grad_(False).eval()

    def pair_scores(self, round_: int, evidence: Tensor, context: Tensor) -> Tensor:
        """Return raw scores of pairs in round 0 or 1: [M, F], [G] -> [M]."""
        scorer = self.second if round_ else self.first
        at_once = AT_ONCE if evidence.device.type == "cpu" else max(1, len(evidence))
        return torch.cat([scorer(part, context) for part in torch.split(evidence, at_once)])

    def scale(self, round_: int, scores: Tensor) -> Tensor:
        """Return slope and intercept from the scores of all candidates to log-odds: [M] -> [2].

        They are 1 and 0 except for the control, which gets the moments of ``logit_scale``.
        """
        if self.trained or len(scores) < 2:
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
        also: Tensor | None = None,
        map_blocks: MapBlocks = map_blocks,
    ) -> RefinedGraph:
        """Refine a graph and, if it has labels, predict the classes of its nodes.

        Args:
            data: The graph, with or without features, edges and labels. Only labels in its
                ``train_mask`` are read.
            seed: Seeds the randomised SVD.
            device: Where to compute; by default where the learner is.
            also: Further pairs of nodes [2, K] to score; they change nothing else.
            map_blocks: Computes the blocks of nodes and pairs; the result does not depend on it.
        """
        seed = at_least("seed", seed, 0)
        device = torch.device(device or self.logit_scale.device)
        graph = known_graph(data, device)
        generator = torch.Generator().manual_seed(seed % 2**63)
        moved = self if self.logit_scale.device == device else copy.deepcopy(self).to(device)
        return refine_graph(moved, graph, generator, also, map_blocks)

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
        return learner.frozen()

    def facts(self) -> dict[str, Any]:
        """Return what a file stores beside the weights."""
        return {"evidence_version": EVIDENCE_VERSION, "provenance": self.provenance}
