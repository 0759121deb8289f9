"""What an epoch of a transfer across ranks costs a rank: bytes sent, memory, time.

A model of the gcn backbone with L layers of width d (the last one C wide) and T refinements, all
of them made, on R ranks with dropout and a cut at the threshold. An epoch is a training step and
a validation pass: three passes over the network, two forwards and one backwards. With n = N / R
nodes and e = E / R entries of the adjacency a rank,

======================  ===================================================================
a sum over ranks        of b bytes sends 2 (R - 1) / R * b (a ring)
latent pass             P (d + (L - 1)(d + 1) + (C + 1)) numbers are summed per refinement:
                        the pivots' embeddings, then for each layer its sums and their weights
input-graph pass        s rows are sent, h received, d + T ((L - 2) d + C) numbers each: the
                        first product is made once, those of later layers in each refinement
gradient                every weight once; the loss with it
pivots                  P keys and P numbers of nodes, of 8 bytes, go to each other rank
======================  ===================================================================

Bytes are exact (a test counts them). Memory is what the backward pass keeps; a backend that keeps
Gamma adds 5 n P bytes per refinement. Time is a sum of work over rates, without overlap: a guide.
"""

from dataclasses import dataclass
from typing import Literal

FLOAT = 4
"""Bytes of a number."""
PASSES = 3
"""Over the network in an epoch: training forwards and backwards, validation forwards."""
TOUCHES = 6
"""How often a kept number is read or written in an epoch, by elementwise work around it."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Sizes that the cost of an epoch depends on; of the whole graph, unless they say otherwise."""

    nodes: int
    """N."""
    entries: int
    """E: entries of the adjacency, both directions of an edge and self-loops."""
    features: int
    """D, dense."""
    classes: int
    """C."""
    weights: int
    """Of the GNN."""
    pivots: int
    """P."""
    hidden: int
    """d."""
    heads: int
    """H: the factors of the similarity are W = H d wide."""
    layers: int
    """L."""
    refinements: int
    """T."""
    ranks: int
    """R."""
    sent: int
    """s: rows that one rank sends in a product with the adjacency."""
    received: int
    """h: rows that one rank receives in it, its halo."""
    backend: Literal["chunked", "dense"] = "dense"

    @property
    def own_nodes(self) -> float:
        """N / R."""
        return self.nodes / self.ranks

    @property
    def own_entries(self) -> float:
        """E / R."""
        return self.entries / self.ranks

    @property
    def factor_width(self) -> int:
        """W."""
        return self.heads * self.hidden

    @property
    def halo_width(self) -> int:
        """Numbers per row that all products of one forward pass with the adjacency exchange."""
        later = (self.layers - 2) * self.hidden + self.classes
        return self.hidden + self.refinements * later

    @property
    def latent_width(self) -> int:
        """Numbers per pivot that one refinement sums over ranks."""
        first = (self.layers - 1) * (self.hidden + 1)
        return self.hidden + first + self.classes + 1


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Rates of one rank."""

    flops: float
    """Multiplications and additions per second, in products of matrices."""
    memory: float
    """Bytes per second, read or written."""
    network: float
    """Bytes per second, sent."""
    latency: float
    """Seconds that an exchange of nothing takes."""


def bytes_sent(job: Job) -> float:
    """Bytes that a rank sends in one epoch, with pivots that are drawn anew."""
    if job.ranks == 1:
        return 0.0
    rows = FLOAT * job.halo_width * (2 * job.sent + job.received)
    latent = PASSES * job.refinements * job.pivots * job.latent_width
    settled = 2 * 2 * (job.refinements - 1)  # how far embeddings moved, training and validation
    summed = FLOAT * (latent + settled + job.weights + 1) + 2 * 8  # the validation's scores
    pivots = 2 * 8 * job.pivots * (job.ranks - 1)
    return rows + 2 * (job.ranks - 1) / job.ranks * summed + pivots


def exchanges(job: Job) -> int:
    """How often ranks wait for each other in an epoch."""
    if job.ranks == 1:
        return 0
    per_pass = 1 + job.refinements * (1 + job.layers + job.layers - 1)
    return PASSES * per_pass + 2 * (job.refinements - 1) + 4


def graph_bytes(job: Job) -> float:
    """Features, and the adjacency's values and columns in both directions, on one rank."""
    return FLOAT * (job.own_nodes * job.features + 4 * job.own_entries)


def halo_bytes(job: Job) -> float:
    """The rows of others, of the widest product, while it is being made."""
    return FLOAT * job.received * max(job.hidden, job.classes)


def kept_bytes(job: Job) -> float:
    """What a training step keeps for its backward pass, on one rank.

    Per node: features after dropout, X W and A X W; and in each refinement the factors q and their
    lengths, four times the width of each hidden layer (embeddings, relu, mask, and their
    product) and twice that of the last; with Gamma, the messages of each layer too.
    """
    dense = job.backend == "dense"
    messages = (job.layers - 1) * job.hidden + job.classes if dense else 0
    hidden = 4 * (job.layers - 1) * job.hidden
    step = job.factor_width + job.heads + hidden + 2 * job.classes + messages
    per_node = job.features + 2 * job.hidden + job.refinements * step
    gamma = 5 * job.pivots * job.refinements if dense else 0  # and one byte for what was cut
    return job.own_nodes * (FLOAT * per_node + gamma)


def flops(job: Job) -> float:
    """Of the products of dense matrices in one epoch, on one rank."""
    n, p, w = job.own_nodes, job.pivots, job.factor_width
    widths = (job.layers - 1) * job.hidden + job.classes
    if job.backend == "dense":  # backwards twice the work of forwards
        latent = 4 * (2 * n * p * w + 4 * n * p * widths)
    else:  # Gamma anew for each layer and direction
        latent = 20 * n * p * w * job.layers + 16 * n * p * widths
    weights = 2 * n * job.hidden * (PASSES * job.features + 4 * job.refinements * widths)
    return job.refinements * latent + weights


def seconds(job: Job, machine: Machine) -> float:
    """A guess at the time of one epoch."""
    gathered = PASSES * job.own_entries * (FLOAT * job.halo_width + 8 * (1 + job.refinements))
    moved = gathered + TOUCHES * kept_bytes(job)
    network = bytes_sent(job) / machine.network + exchanges(job) * machine.latency
    return flops(job) / machine.flops + moved / machine.memory + network
