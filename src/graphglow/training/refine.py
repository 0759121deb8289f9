"""The inner loop: structure and embeddings refine each other within one forward pass."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphglow.gnn import Backbone, Dropout, Encoded, MixedPropagation
from graphglow.graph import Graph
from graphglow.ops.embeddings import squared_change
from graphglow.paper import BlendedStructure, PivotStructure, Structure, StructureLearner
from graphglow.training.runs import Runs


@dataclass(frozen=True, eq=False)
class Refinement:
    """Step t of the loop. ``structure`` is None where there is no learner (a plain GNN).

    Shapes:
        z [.., N, D] the embeddings that the structure was inferred from; logits [.., N, C];
        active [..] whether this step counts, None if it does in every run
    """

    z: Tensor
    encoded: Encoded
    structure: PivotStructure | None
    latent: Structure | None
    logits: Tensor
    active: Tensor | None


def refine(
    gnn: Backbone,
    learner: StructureLearner | None,
    graph: Graph,
    pivots: Tensor,
    runs: Runs,
    dropout: Dropout | None,
    *,
    wait: bool,
    given: Structure | None = None,
) -> Iterator[Refinement]:
    """Yield the refinements t = 1, 2, .. of one forward pass (the while loop of Alg. 2 and 3).

    A run has settled when the squared relative change of its embeddings is at most the tolerance;
    its later steps are not active and count for nothing. With a structure momentum below 1,
    messages mix the current structure with the first. Without a learner there is one step, on the
    input graph and, if there is one, the given structure.

    Args:
        gnn: h_w, of one run or stacked for a batch of them.
        learner: g_theta.
        graph: The graph of all runs.
        pivots: [.., P].
        runs: Settings.
        dropout: None in evaluation.
        wait: End when all runs have settled. On a GPU that means waiting for the answer in every
            step; without it all steps are made, to the same result.
        given: A structure that no embedding changes, where nothing is inferred.
    """
    encoded = gnn.encode(graph, dropout)
    z = encoded.z0
    if learner is None:
        share = 1.0 if given is None else runs.input_weight
        _, logits = gnn(encoded, MixedPropagation(graph.adj, given, share), dropout)
        yield Refinement(z, encoded, None, given, logits, None)
        return
    config = runs.shared
    first: PivotStructure | None = None
    active: Tensor | None = None
    for step in range(config.refinements):
        structure = learner.structure(z, pivots, backend=config.backend, precision=config.precision)
        latent: Structure = structure
        if first is None:
            first = structure
        elif isinstance(runs.structure_momentum, Tensor) or runs.structure_momentum < 1:
            latent = BlendedStructure(structure, first, runs.structure_momentum)
        mix = MixedPropagation(graph.adj, latent, runs.input_weight)
        if wait and dropout is not None and active is not None:
            dropout = dropout.only(active)  # a run draws the same alone and in a batch
        z_next, logits = gnn(encoded, mix, dropout)
        yield Refinement(z, encoded, structure, latent, logits, active)
        if config.tolerance > 0 and step + 1 < config.refinements:
            moved, size = squared_change(z, z_next).unbind(-1)  # [..], [..]
            moving = moved > config.tolerance * size
            active = moving if active is None else active & moving
            if wait and not bool(active.any()):
                return
        z = z_next


@torch.no_grad()
def last_refinement(
    gnn: Backbone,
    learner: StructureLearner | None,
    graph: Graph,
    pivots: Tensor,
    runs: Runs,
    *,
    wait: bool,
    given: Structure | None = None,
) -> Refinement:
    """Run one evaluation pass and return its final step, with each run's last active logits."""
    final: Refinement | None = None
    for step in refine(gnn, learner, graph, pivots, runs, None, wait=wait, given=given):
        if final is None or step.active is None:
            final = step
        else:
            logits = torch.where(step.active[..., None, None], step.logits, final.logits)
            final = replace(step, logits=logits)
    assert final is not None
    return final
