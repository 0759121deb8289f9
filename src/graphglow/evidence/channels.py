"""Channels: closed-form predictors, with leave-one-out predictions and scores from these.

For a view Phi with labelled rows Phi_L, one-hot labels Y, class shares pi and Yc = Y - pi::

    K = Phi_L Phi_L^T + 1      G = (K + l I)^-1      alpha = G Yc
    out   = Phi Phi_L^T alpha + 1^T alpha + pi       of all nodes
    loo_i = Yc_i - alpha_i / G_ii + pi               of labelled nodes

and, where labels outnumber columns, the same by ``(Phi_L^T Phi_L + l I)^-1``. Ridge l and
temperature t of ``P = softmax(t out)`` minimise the leave-one-out log-loss. For sparse rows with
more than :data:`MOST_LABELS` labels, conjugate gradients solve all ridges without computing K, and
an eighth of the labels is left out at a time.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

from graphglow.graph.graph import Graph
from graphglow.linalg.rows import HiddenLayer, Rows, as_dense, take, times, transposed
from graphglow.linalg.sparse import SparseMatrix

RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # times the mean eigenvalue of K
TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MANY_LABELS = 1024
"""With more, arithmetic is float32, and the smallest ridge is not tried."""
MOST_LABELS = {"cpu": 4096, "cuda": 10_000}
"""With more, sparse rows are solved by conjugate gradients; by device."""
NARROW = 2048
"""Up to this width, sparse rows are solved as dense ones are."""
FOLDS, ITERATIONS, TOLERANCE = 8, 100, 1e-3  # of conjugate gradients
BLOCK = {"cpu": 2**26, "cuda": 2**29}  # numbers of the rows in one block, by device
NUMBERS = 2**22  # in one block where several ridges or other choices are tried
TRIANGLE = 128  # triangular matrices of up to twice this size are not split
INVERSES = 2**20  # numbers of the matrices that are inverted in one batch
FLOOR = 1e-3  # share of pi in each prediction, so that no class is impossible
SPREAD_STEPS, SPREAD_DAMPING = (2, 5, 12), 0.9
SPREAD_FLOORS, SPREAD_POWERS = (1e-3, 1e-2, 1e-1, 1.0, 10.0), (0.5, 1.0, 2.0)
EXACT_SPREAD, SPREAD_GROUPS = 512, 16
COMMUNITY_PSEUDO = (0.1, 0.3, 1.0, 3.0, 10.0)
SPREAD_COLUMNS = 64  # in one block, or as many as NUMBERS allows

Solution: TypeAlias = tuple[Tensor, Callable[[Tensor], Tensor]]
"""Leave-one-out outputs [R, L, C], and the weights by ridge, intercept first: [1] -> [1 + D, C].

The chosen ridge is a tensor, since reading its value would wait for the GPU.
"""


@dataclass(frozen=True, eq=False)
class Channel:
    """Class probabilities of all nodes; those of labelled nodes are leave-one-out predictions.

    Shapes:
        probabilities [N, C]; scores [2]: leave-one-out accuracy relative to the majority class,
        ``(a - m) / (1 - m)``, and log-loss gain, ``(H - nll) / H``, both shrunk for few labels
    """

    probabilities: Tensor
    scores: Tensor
    weight: Tensor | None = None
    """Weights of a ridge channel, ``P = softmax([1, row] weight)``: [1 + D, C]."""
    chosen: dict[str, Tensor] = field(default_factory=dict)
    """Fitted parameters that predictions for new nodes need."""

    def at(self, rows: Rows, prior: Tensor) -> Tensor:
        """Predict other rows of the same view: [K, D] -> [K, C]."""
        if self.weight is None:
            return prior.expand(rows.shape[0], -1)
        return (times(rows, self.weight[1:]) + self.weight[0]).softmax(1).lerp(prior, FLOOR)


def absent(graph: Graph) -> Channel:
    """Return the channel of a missing view: every node has the class shares."""
    shares = graph.prior.expand(graph.num_nodes, -1)
    return Channel(shares, torch.zeros(2, device=graph.device))


def ridge_channel(graph: Graph, rows: Rows | None) -> Channel:
    """Fit a ridge regression to a view [N, D]; None or no columns gives an absent channel."""
    if len(graph.seen) < 2 or rows is None or rows.shape[1] == 0:
        return absent(graph)
    labels, width = len(graph.labelled), rows.shape[1]
    one_hot = torch.eye(len(graph.seen), device=graph.device)
    target = one_hot[graph.classes] - graph.prior  # [L, C] Yc
    solve = _primal if width < labels else _dual
    many = labels > MOST_LABELS[target.device.type] and width > NARROW
    if many and isinstance(rows, SparseMatrix):
        solve = _iterative
    ridges = RIDGES if labels <= MANY_LABELS else RIDGES[1:]
    loo, weights = solve(rows, graph.labelled, target, ridges)
    loo += graph.prior
    ridge, temperature = _best(graph, loo)
    chosen = weights(ridge)
    chosen[0] += graph.prior
    out = times(rows, chosen[1:]) + chosen[0]
    out[graph.labelled] = loo[ridge][0]
    hidden = {"mean": rows.mean} if isinstance(rows, HiddenLayer) else {}
    return _channel(graph, (temperature * out).softmax(1), temperature * chosen, hidden)


def best_channel(channels: list[Channel]) -> Channel:
    """Return the channel with the least leave-one-out log-loss, the first if several are equal."""
    return channels[int(torch.stack([channel.scores[1] for channel in channels]).argmax())]


def community_channel(graph: Graph, members: list[Tensor]) -> Channel:
    """Predict the class shares among the labels of a node's community, except for its own.

    ``P_c = (n_c + s pi_c) / (n + s)``; partition and s minimise the leave-one-out log-loss.

    Args:
        graph: The graph.
        members: For each partition, the community of each node: [N].
    """
    if len(graph.seen) < 2 or len(graph.low) == 0 or not members:
        return absent(graph)
    one_hot = torch.eye(len(graph.seen), device=graph.device)[graph.classes]
    pseudo = constant(COMMUNITY_PSEUDO, graph.device)[:, None, None]
    channels = []
    for member in members:
        counts = graph.prior.new_zeros(int(member.max()) + 1, len(graph.seen))
        counts.index_add_(0, member[graph.labelled], one_hot)
        near = counts[member]
        near[graph.labelled] -= one_hot

        def shares(nodes: Tensor, s: Tensor, near: Tensor = near) -> Tensor:  # [S, K, C]
            count = near[nodes]
            return (count + s * graph.prior) / (count.sum(1, keepdim=True) + s)

        def logits_of(block: slice, shares: Callable[..., Tensor] = shares) -> Tensor:
            return shares(graph.labelled[block], pseudo).log()

        best = pseudo[int(log_loss(graph, logits_of, len(pseudo)).argmin())]
        every = torch.arange(graph.num_nodes, device=graph.device)
        channels.append(_channel(graph, shares(every, best)))
    return best_channel(channels)


def _dual(rows: Rows, labelled: Tensor, target: Tensor, ridges: tuple[float, ...]) -> Solution:
    """Solve by the kernel K of labelled rows."""
    labelled_rows = take(rows, labelled)
    step = max(1, BLOCK[target.device.type] // rows.shape[1])
    parts = [labelled_rows]
    if step < len(labelled):
        numbers = torch.arange(len(labelled), device=target.device)
        parts = [take(labelled_rows, block) for block in torch.split(numbers, step)]
    kernel = torch.cat([times(labelled_rows, as_dense(part).T.contiguous()) for part in parts], 1)
    kernel = (kernel + 1).to(_precision(len(target)))
    target = target.to(kernel)
    loo, alphas = [], []
    for factor in _inverse_factors(kernel, ridges, kernel.diagonal().mean()):
        alpha = factor.mT @ (factor @ target)  # [r, L, C]
        diagonal = torch.linalg.vector_norm(factor, dim=1).square()  # [r, L] G_ii
        loo.append((target - alpha / diagonal[..., None]).float())
        alphas.append(alpha.float())
    return torch.cat(loo), partial(_by_columns, labelled_rows, torch.cat(alphas))


def _by_columns(labelled_rows: Rows, alphas: Tensor, ridge: Tensor) -> Tensor:
    alpha = alphas[ridge][0]
    return torch.cat([alpha.sum(0, keepdim=True), times(transposed(labelled_rows), alpha)])


def _primal(rows: Rows, labelled: Tensor, target: Tensor, ridges: tuple[float, ...]) -> Solution:
    """Solve by the Gram matrix of the columns."""
    width = 1 + rows.shape[1]
    step = max(1, NUMBERS // (width * len(ridges)))
    parts = list(zip(torch.split(labelled, step), torch.split(target, step), strict=True))
    precision = _precision(width)

    def with_constant(nodes: Tensor) -> Tensor:
        phi = as_dense(take(rows, nodes))
        return torch.cat([phi.new_ones(len(phi), 1), phi], 1).to(precision)

    gram = moment = torch.zeros((), dtype=precision, device=target.device)
    for nodes, truth in parts:
        phi = with_constant(nodes)
        gram, moment = gram + phi.T @ phi, moment + phi.T @ truth.to(phi)
    scale = gram.diagonal().sum() / len(labelled)
    if target.is_cuda or precision == torch.float32:
        factors = torch.cat(list(_inverse_factors(gram, ridges, scale)))  # [R, 1 + D, 1 + D]
        weights = factors.mT @ (factors @ moment)

        def leverages(phi: Tensor) -> Tensor:  # [K, 1 + D] -> [R, K]
            return (phi @ factors.mT).square_().sum(-1)

    else:  # one product for all ridges; on a GPU the decomposition takes longer than it saves
        values, vectors = torch.linalg.eigh(gram)
        shifts = constant(ridges, gram.device) * scale
        shares: Tensor = 1 / (values + shifts[:, None])  # [R, 1 + D]
        weights = vectors @ (shares[..., None] * (vectors.T @ moment))

        def leverages(phi: Tensor) -> Tensor:
            squares: Tensor = (phi @ vectors).square_()
            return shares @ squares.T

    loo = []
    for nodes, truth in parts:
        phi = with_constant(nodes)
        leverage = leverages(phi)[..., None].clamp_max_(1 - 1e-6)
        loo.append(((phi @ weights - leverage * truth) / (1 - leverage)).float())
    return torch.cat(loo, 1), lambda ridge: weights[ridge][0].float()


def _iterative(rows: Rows, labelled: Tensor, target: Tensor, ridges: tuple[float, ...]) -> Solution:
    """Solve by conjugate gradients, and leave out a fold of the labels at a time."""
    labelled_rows = take(rows, labelled)
    assert isinstance(labelled_rows, SparseMatrix)
    transpose = transposed(labelled_rows)
    shifts = torch.tensor(ridges, device=target.device)
    shifts = shifts * (labelled_rows.values.square().sum() / len(labelled) + 1)

    def kernel(v: Tensor, kept: Tensor | float = 1.0) -> Tensor:
        return kept * (times(labelled_rows, times(transpose, v)) + v.sum(0))

    alphas = _conjugate_gradients(kernel, target, shifts)
    loo = torch.zeros_like(alphas)
    fold = torch.arange(len(labelled), device=target.device) % FOLDS
    for k in range(FOLDS):
        kept = (fold != k).float()[:, None]
        held = _conjugate_gradients(partial(kernel, kept=kept), kept * target, shifts)
        for i, alpha in enumerate(held):
            loo[i] += (1 - kept) * kernel(alpha)
    return loo, partial(_by_columns, labelled_rows, alphas)


def _conjugate_gradients(
    product: Callable[[Tensor], Tensor], target: Tensor, shifts: Tensor
) -> Tensor:
    """Solve ``(K + s I) x = target`` for every shift s by one sequence of products with K.

    The residuals of all shifts are multiples (zeta) of each other (B. Jegerlehner, 1996). The
    shifts ascend; the first converges last.

    Shapes:
        target [L, C], shifts [R] -> [R, L, C]
    """
    offsets = (shifts - shifts[0])[:, None]  # [R, 1]
    residual = direction = target
    directions = target.expand(len(shifts), -1, -1).clone()
    solutions = torch.zeros_like(directions)
    zeta = fall = torch.ones(len(shifts), target.shape[1], device=target.device)
    step, ratio = torch.ones_like(zeta[0]), torch.zeros_like(zeta[0])
    size = start = residual.square().sum(0).clamp_min(1e-30)  # [C]
    for _ in range(ITERATIONS):
        if bool((size <= TOLERANCE**2 * start).all()):
            break
        moved = product(direction) + shifts[0] * direction
        before, step = step, size / (direction * moved).sum(0).clamp_min(1e-30)
        fall = before / (step * ratio * (1 - fall) + before * (1 + offsets * step))  # of zeta
        zeta = zeta * fall
        solutions += (step * fall)[:, None] * directions
        residual = residual - step * moved
        new_size = residual.square().sum(0).clamp_min(1e-30)
        ratio, size = new_size / size, new_size
        direction = residual + ratio * direction
        directions = zeta[:, None] * residual + (ratio * fall.square())[:, None] * directions
    return solutions


def _precision(size: int) -> torch.dtype:
    return torch.float64 if size <= MANY_LABELS else torch.float32


def _inverse_factors(matrix: Tensor, ridges: tuple[float, ...], scale: Tensor) -> Iterator[Tensor]:
    """Yield F with ``F^T F = (matrix + ridge scale I)^-1``, for several ridges at once.

    In single precision, a ridge is raised until the Cholesky decomposition succeeds; in double
    precision it always does, as no eigenvalue exceeds L scale.

    Shapes:
        matrix [D, D], R ridges -> [r, D, D], R in all
    """
    shifts = constant(ridges, matrix.device) * scale
    for shift in torch.split(shifts, max(1, INVERSES // matrix.numel())):
        shifted = matrix.repeat(len(shift), 1, 1)
        shifted.diagonal(dim1=1, dim2=2).add_(shift[:, None])
        factor, failed = torch.linalg.cholesky_ex(shifted)
        for _ in range(0 if matrix.dtype == torch.float64 else 8):
            if not bool(failed.any()):
                break
            more = shift * (failed > 0)
            shifted.diagonal(dim1=1, dim2=2).add_(more[:, None])
            shift = shift + more
            factor, failed = torch.linalg.cholesky_ex(shifted)
        del shifted
        yield _inverted(factor)


def _inverted(lower: Tensor) -> Tensor:
    """Invert lower triangular matrices in place, by halves: [.., D, D].

    On a CPU this is faster than ``torch.cholesky_inverse``, and on a GPU it does not wait.
    """
    half = lower.shape[-1] // 2
    if half < TRIANGLE:
        eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
        return lower.copy_(torch.linalg.solve_triangular(lower, eye, upper=False))
    first, second = (_inverted(lower[..., h, h]) for h in (slice(half), slice(half, None)))
    corner = lower[..., half:, :half]
    corner.copy_(second @ (corner @ first)).neg_()
    return lower


@cache
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Copy numbers to a device once, since each copy waits for it."""
    return torch.tensor(values, device=device)


def leave_one_out_mask(graph: Graph) -> Tensor:
    """Mark the labelled nodes whose class has another label, for leave-one-out tests: [L]."""
    return graph.counts[graph.classes] >= 2


def log_loss(graph: Graph, logits_of: Callable[[slice], Tensor], choices: int) -> Tensor:
    """Sum the leave-one-out log-loss of several choices over the leave_one_out_mask labels.

    Args:
        graph: The graph.
        logits_of: Returns leave-one-out logits of K labels by every choice: [.., K, C].
        choices: The number of choices.

    Shapes:
        [..]
    """
    weight, total = leave_one_out_mask(graph).float(), torch.zeros((), device=graph.device)
    step = max(1, NUMBERS // (choices * len(graph.seen)))
    for start in range(0, len(weight), step):
        block = slice(start, start + step)
        logits = logits_of(block)
        truth = graph.classes[block].expand(logits.shape[:-1])[..., None]
        loss = -logits.log_softmax(-1).gather(-1, truth)[..., 0]
        total = total + loss @ weight[block]
    return total


def _best(graph: Graph, loo: Tensor) -> tuple[Tensor, Tensor]:
    """Choose the ridge and temperature of least leave-one-out log-loss, the middle ones by default.

    A penalty of a few nats keeps the choice near the middle where labels are few.

    Shapes:
        [R, L, C] -> [1], [1]
    """
    ridges = len(loo)
    t = constant(TEMPERATURES, loo.device)
    penalty = tuple(0.15 * ((r - ridges + 3) ** 2 + (math.log2(t) - 2) ** 2)
                    for r, t in product(range(ridges), TEMPERATURES))  # fmt: skip
    cost = log_loss(graph, lambda block: loo[:, None, block] * t[:, None, None], len(penalty))
    best = (cost.flatten() + constant(penalty, loo.device)).argmin()[None]
    return best // len(TEMPERATURES), t[best % len(TEMPERATURES)]


def _channel(
    graph: Graph,
    probabilities: Tensor,
    weight: Tensor | None = None,
    chosen: dict[str, Tensor] | None = None,
) -> Channel:
    """Add the floor, and predict pi for the only labelled node of a class."""
    probabilities = probabilities.lerp(graph.prior.expand_as(probabilities), FLOOR)
    loo = probabilities[graph.labelled]
    probabilities[graph.labelled] = torch.where(
        leave_one_out_mask(graph)[:, None], loo, graph.prior
    )
    scores = leave_one_out_scores(graph, probabilities)
    return Channel(probabilities, scores, weight, chosen or {})


def leave_one_out_scores(graph: Graph, probabilities: Tensor) -> Tensor:
    """Return the :attr:`Channel.scores`, shrunk by two labels: [N, C] -> [2]."""
    weight, truth = leave_one_out_mask(graph).float(), graph.classes
    n, majority = weight.sum(), graph.prior.max()
    loo = probabilities[graph.labelled]
    right = (loo.argmax(1) == truth).float()
    log_p = loo.gather(1, truth[:, None])[:, 0].clamp_min(1e-6).log()
    accuracy, likelihood = torch.stack([right, log_p]) @ weight / n.clamp_min(1)
    entropy = -(graph.prior * graph.prior.clamp_min(1e-9).log()).sum()
    gains = [(accuracy - majority) / (1 - majority), (entropy + likelihood) / entropy]
    scores = torch.stack(gains).clamp(-1, 1) * n / (n + 2)
    return torch.where(majority > 0.999, 0.0, scores)


def spread_channel(graph: Graph, adjacency: SparseMatrix) -> Channel:
    """Spread labels over a graph, ``T = sum_k a^k S^k Y``, without a node's own label.

    With r_k = T_k / n_k relative to its mean, ``P_k ~ pi_k (s + r_k)^t``. The number of steps (2, 5
    or 12), s and t minimise the leave-one-out log-loss. Leaving out is exact for up to 512 labels;
    of more, a sixteenth is left out at a time.
    """
    if len(graph.seen) < 2 or adjacency.col.numel() <= graph.num_nodes:
        return absent(graph)
    rates, means = _spread_rates(graph, adjacency)
    choices = list(product(range(len(rates)), SPREAD_FLOORS, SPREAD_POWERS))
    places = product(range(len(rates)), range(-2, 3), range(-1, 2))
    penalty = tuple(0.3 * (i + abs(j) + abs(k)) for i, j, k in places)  # middle ones are likely
    floors, powers = (
        constant(c, graph.device)[:, None, None] for c in (SPREAD_FLOORS, SPREAD_POWERS)
    )

    def logits_of(block: slice) -> Tensor:
        near = (floors + rates[:, None, graph.labelled[block]]).log()  # [I, S, K, C]
        return graph.prior.log() + powers * near[:, :, None]

    cost = log_loss(graph, logits_of, len(choices)).flatten() + constant(penalty, graph.device)
    i, s, t = choices[int(cost.argmin())]
    chosen = {"steps": torch.tensor(SPREAD_STEPS[i]), "floor": torch.tensor(s),
              "power": torch.tensor(t), "mean": means[i]}  # fmt: skip
    return _channel(graph, spread_shares(graph, rates[i], s, t), chosen=chosen)


def spread_shares(graph: Graph, rates: Tensor, floor: float, power: float) -> Tensor:
    """``P_k ~ pi_k (s + r_k)^t``: [K, C] -> [K, C]."""
    return (graph.prior.log() + power * (floor + rates).log()).softmax(1)


def _spread_rates(graph: Graph, adjacency: SparseMatrix) -> tuple[Tensor, Tensor]:
    """Return ``T_k / n_k`` relative to its mean, for each of the :data:`SPREAD_STEPS`; the means.

    A column starts at the labels of one group and class; a label is not reached by its own group.

    Shapes:
        [I, N, C], [I]
    """
    labels, num_classes = len(graph.labelled), len(graph.seen)
    group = column = torch.arange(labels, device=graph.device)
    groups, classes = column, graph.classes  # of columns
    if labels > EXACT_SPREAD:
        group = group % SPREAD_GROUPS
        column = group * num_classes + graph.classes
        every = torch.arange(SPREAD_GROUPS * num_classes, device=graph.device)
        groups, classes = every // num_classes, every % num_classes
    one_hot = torch.eye(num_classes, device=graph.device)[classes]
    reached = torch.zeros(len(SPREAD_STEPS), graph.num_nodes, num_classes, device=graph.device)
    width = max(SPREAD_COLUMNS, NUMBERS // graph.num_nodes)
    for block in torch.split(torch.arange(len(groups), device=graph.device), width):
        inside = ((column >= block[0]) & (column <= block[-1])).nonzero()[:, 0]
        power = torch.zeros(graph.num_nodes, len(block), device=graph.device)
        power[graph.labelled[inside], column[inside] - block[0]] = 1
        total = torch.zeros_like(power)
        same_group = group[:, None] == groups[block]  # [L, width]
        for step in range(1, max(SPREAD_STEPS) + 1):
            power = times(adjacency, power).mul_(SPREAD_DAMPING)
            total += power
            if step in SPREAD_STEPS:
                rate = reached[SPREAD_STEPS.index(step)]
                rate += total @ one_hot[block]
                rate[graph.labelled] -= (total[graph.labelled] * same_group) @ one_hot[block]
    rates = reached.clamp_min_(0).div_(graph.counts)
    mean = (rates @ graph.prior).mean(1).clamp_min(1e-12)
    return rates.div_(mean[:, None, None]), mean
