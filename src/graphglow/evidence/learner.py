"""The evidence learner: what is pre-trained once and carried to every graph, frozen."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphglow.checks import at_least
from graphglow.errors import InputError
from graphglow.evidence.context import FIRST_CONTEXT, VOTED_CONTEXT
from graphglow.evidence.pair_features import FIRST_EVIDENCE, SECOND_EVIDENCE
from graphglow.evidence.predictor import CHANNELS
from graphglow.evidence.refined import RefinedGraph, refine_graph
from graphglow.evidence.scorer import Scorer
from graphglow.evidence.votes import Voter
from graphglow.graph.graph import known_graph
from graphglow.paper.learner import history_of
from graphglow.parallel import MapBlocks, map_blocks
from graphglow.storage import fill, load_tensors, save_tensors

AT_ONCE = 2**13  # pairs whose hidden numbers lie in a processor's cache
EVIDENCE_VERSION = 3
"""Of what the evidence is: a learner reads only the evidence that it was trained on."""
KIND = "evidence learner"
LOGIT_SCALE = ((1.04, 1.20), (1.14, 1.32))
"""Mean and deviation of the shipped learner's log-odds over chance among candidates, by round."""


class EvidenceLearner(nn.Module):
    """Turns evidence about pairs of nodes into the probability that they belong together.

    Two small scorers of pairs, one for each round, a voter between them that mixes the channels'
    answers, and the predictor, a voter over the channels of all rounds. Nothing is trained on the
    graph that it is used on.

    Args:
        seed: Of the weights before training.
        trained: False for the control: per graph, its log-odds are brought to ``logit_scale``.
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
        """The control: same evidence, same candidates, weights that were never trained."""
        return cls(seed=seed).frozen()

    @property
    def trained(self) -> bool:
        return bool(self.provenance.get("trained"))

    def frozen(self) -> "EvidenceLearner":
        """The same, its weights never to change."""
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        return self.eval()

    def pair_scores(self, round_: int, evidence: Tensor, context: Tensor) -> Tensor:
        """Raw scores of any pairs: round 0 or 1, [M, F], [G] -> [M]."""
        scorer = self.second if round_ else self.first
        at_once = AT_ONCE if evidence.device.type == "cpu" else max(1, len(evidence))
        return torch.cat([scorer(part, context) for part in torch.split(evidence, at_once)])

    def scale(self, round_: int, scores: Tensor) -> Tensor:
        """Slope and intercept that make log-odds over chance of a graph's scores.

        They are 1 and 0, but for the control: the scores of its candidates, those of the first
        round or of both, are brought to ``logit_scale``.

        Shapes:
            scores of all candidates [M] -> [2]
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
        """Refine a graph, and predict its nodes' classes if it has labels; no training at all.

        Args:
            data: The graph; features, edges and labels may each be absent. Only labels in its
                ``train_mask`` are read.
            seed: Of the randomised SVD and the random pairs that cosines are compared with.
            device: Where to compute; that of the learner if None.
            also: Pairs of nodes [2, K] to look at besides; nothing else changes by them.
            map_blocks: Computes the blocks of nodes and pairs; the result does not depend on it.
        """
        seed = at_least("seed", seed, 0)
        device = torch.device(device or self.logit_scale.device)
        graph = known_graph(data, device)
        generator = torch.Generator().manual_seed(seed % 2**63)
        here = self if self.logit_scale.device == device else copy.deepcopy(self).to(device)
        return refine_graph(here, graph, generator, also, map_blocks)

    def __repr__(self) -> str:
        return f"EvidenceLearner(version {EVIDENCE_VERSION}; {history_of(self.provenance)})"

    def save(self, path: str | Path) -> None:
        """Write the weights as safetensors, with how they were made; an old file is replaced.

        The file is whole at all times: of two processes that write it, the last one wins.
        """
        save_tensors(path, KIND, dict(self.state_dict()), self.facts())

    @classmethod
    def load(cls, path: str | Path) -> "EvidenceLearner":
        """Read what :meth:`save` wrote, frozen; anything else is refused in one sentence."""
        tensors, meta = load_tensors(path, KIND)
        return cls.from_tensors(tensors, meta, str(path))

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, Tensor], meta: dict[str, Any], origin: str
    ) -> "EvidenceLearner":
        """Rebuild a learner from saved parts, frozen; ``origin`` names them in errors."""
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
        """What a file says of it beside its weights."""
        return {"evidence_version": EVIDENCE_VERSION, "provenance": self.provenance}
