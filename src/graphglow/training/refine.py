"""The inner loop: structure and embeddings refine each other within one forward pass."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graphglow.gnn import Backbone, Encoded, MixedPropagation
from graphglow.graphs import Graph
from graphglow.structure import BlendedStructure, PivotStructure, Structure, StructureLearner
from graphglow.training.config import ModelConfig


class Refinement(NamedTuple):
    """Step t of the loop. ``structure`` is None where there is no learner (a plain GNN).

    Shapes:
        z [N, D] the embeddings that the structure was inferred from; logits [N, C]
    """

    z: Tensor
    encoded: Encoded
    structure: PivotStructure | None
    latent: Structure | None
    logits: Tensor


def refine(
    gnn: Backbone,
    learner: StructureLearner | None,
    graph: Graph,
    pivots: Tensor,
    config: ModelConfig,
    generator: torch.Generator | None,
) -> Iterator[Refinement]:
    """Yield the refinements t = 1, 2, .. of one forward pass (the while loop of Alg. 2 and 3).

    Ends after ``config.refinements`` steps, or when the squared relative change of the embeddings
    is below ``config.tolerance``. With a structure momentum below 1, messages mix the current
    structure with the first. Without a learner there is one step, on the input graph only.

    Shapes:
        pivots [P]
    """
    encoded = gnn.encode(graph, generator)
    z = encoded.z0
    if learner is None:
        _, logits = gnn(encoded, MixedPropagation(graph.adj, None, 1.0), generator)
        yield Refinement(z, encoded, None, None, logits)
        return
    first: PivotStructure | None = None
    for step in range(config.refinements):
        structure = learner.structure(z, pivots, backend=config.backend)
        latent: Structure = structure
        if first is None:
            first = structure
        elif config.structure_momentum < 1:
            latent = BlendedStructure(structure, first, config.structure_momentum)
        mix = MixedPropagation(graph.adj, latent, config.input_weight)
        z_next, logits = gnn(encoded, mix, generator)
        yield Refinement(z, encoded, structure, latent, logits)
        if step + 1 < config.refinements and _settled(z, z_next, config.tolerance):
            return
        z = z_next


def last_refinement(
    gnn: Backbone,
    learner: StructureLearner | None,
    graph: Graph,
    pivots: Tensor,
    config: ModelConfig,
) -> Refinement:
    """Run one evaluation pass and return its final step."""
    with torch.no_grad():
        for step in refine(gnn, learner, graph, pivots, config, None):
            final = step
    return final


@torch.no_grad()
def _settled(z: Tensor, z_next: Tensor, tolerance: float) -> bool:
    if tolerance == 0:
        return False
    change = (z_next - z).square().sum()
    return bool(change <= tolerance * z.square().sum())
