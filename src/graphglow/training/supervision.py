"""The losses of one refinement: L_s for the GNN, L_s + L_r + L_e for the structure learner."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphglow.gnn import Backbone, Dropout, MixedPropagation
from graphglow.graphs import Graph
from graphglow.structure import (
    BlendedStructure,
    ObjectiveConfig,
    PivotStructure,
    SampledStructure,
    Structure,
    StructureLearner,
)
from graphglow.structure.objective import (
    edge_probabilities,
    entropy_loss,
    log_probability,
    prior_loss,
    relaxed_bernoulli,
    supervised_loss,
)
from graphglow.training.config import Runs
from graphglow.training.refine import Refinement


@dataclass(frozen=True)
class LearnerLoss:
    """What a trainable structure learner adds to the loss of one refinement (Eq. 13-18).

    Gradients of L_r and L_e reach theta only, as in Alg. 2: the embeddings that the structure is
    inferred from count as given, like the state of a policy. One run at a time, not a batch.

    Args:
        learner: g_theta.
        objective: Weights and estimators.
        pivots: [P].
        features: [P, D'] features of the pivots, sketched; None where the prior has no weight.
        generator: Draws the samples.
    """

    learner: StructureLearner
    objective: ObjectiveConfig
    pivots: Tensor
    features: Tensor | None
    generator: torch.Generator

    def regularisers(self, step: Refinement[PivotStructure]) -> Tensor:
        """L_r + L_e."""
        o = self.objective
        total = step.logits.new_zeros(())
        if o.smoothness == o.sparsity == o.entropy == 0:
            return total
        alpha = edge_probabilities(self.learner.structure(step.z.detach(), self.pivots).gamma())
        if self.features is not None:
            total = total + prior_loss(alpha, self.features, o, self.generator)
        if o.entropy > 0:
            total = total + o.entropy * entropy_loss(alpha)
        return total

    def supervised(
        self,
        step: Refinement[PivotStructure],
        gnn: Backbone,
        graph: Graph,
        runs: Runs,
        dropout: Dropout,
    ) -> Tensor:
        """L_s by the estimator asked for; the loop itself moves on the expected structure."""
        labels = graph.y[graph.train]
        if self.objective.supervision == "nwgm":
            return supervised_loss(step.logits, graph.train, labels)
        assert step.structure is not None
        alpha = edge_probabilities(step.structure.gamma())

        def loss_on(b: Tensor) -> Tensor:
            latent: Structure = SampledStructure(b)
            if isinstance(step.latent, BlendedStructure):
                latent = BlendedStructure(latent, step.latent.first, step.latent.eta)
            mix = MixedPropagation(graph.adj, latent, runs.input_weight)
            _, logits = gnn(step.encoded, mix, dropout)
            return supervised_loss(logits, graph.train, labels)

        if self.objective.supervision == "gumbel":
            return loss_on(relaxed_bernoulli(alpha, self.objective.temperature, self.generator))
        return self._reinforced(alpha, loss_on)

    def _reinforced(self, alpha: Tensor, loss_on: Callable[[Tensor], Tensor]) -> Tensor:
        """Mean loss over K drawn structures for w; score-function gradient for theta."""
        draws = [
            torch.bernoulli(alpha.detach(), generator=self.generator)
            for _ in range(self.objective.samples)
        ]
        losses = torch.stack([loss_on(b) for b in draws])
        log_pi = torch.stack([log_probability(b, alpha) for b in draws])
        advantage = (losses - losses.mean()).detach()
        score = (advantage * log_pi).sum() / (self.objective.samples - 1)
        return losses.mean() + score - score.detach()
