"""Channels: closed-form predictors, each with its leave-one-out predictions and their worth.

For a view Phi with labelled rows Phi_L, one-hot labels Y, class shares pi and Yc = Y - pi::

    K = Phi_L Phi_L^T + 1      G = (K + l I)^-1      alpha = G Yc
    out   = Phi Phi_L^T alpha + 1^T alpha + pi       of all nodes
    loo_i = Yc_i - alpha_i / G_ii + pi               of labelled nodes

and, where labels outnumber columns, the same through ``(Phi_L^T Phi_L + l I)^-1``. Ridge l and
temperature t of ``P = softmax(t out)`` are those of the least leave-one-out log-loss. For sparse
rows of more than :data:`MOST_LABELS` labels K is never made: conjugate gradients of all ridges at
once, and an eighth of the labels left out at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.evidence.problem import Problem
from graphglow.evidence.rows import Rows, as_dense, take, times, transposed
from graphglow.evidence.stages import stage
from graphglow.ops.sparse import SparseMatrix

RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # times the mean eigenvalue of K
TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MANY_LABELS = 1024
"""Above, arithmetic is float32, and the smallest ridge is left out."""
MOST_LABELS = {"cpu": 4096, "cuda": 10_000}
"""Above, sparse rows have no K, of up to 10^8 entries, but conjugate gradients; by device."""
NARROW = 2048
"""Up to so many columns, many labels are solved by columns even if rows are sparse."""
FOLDS, ITERATIONS, TOLERANCE = 8, 100, 1e-3  # of conjugate gradients
BLOCK = {"cpu": 2**26, "cuda": 2**29}  # numbers in memory at once, by device
ROWS = 2**13  # labelled rows at once
FLOOR = 1e-3  # share of pi in each prediction: no class is ever impossible
SPREAD_STEPS, SPREAD_DAMPING = (2, 5, 12), 0.9
EXACT_SPREAD, SPREAD_GROUPS = 512, 16
SPREAD_COLUMNS, SPREAD_NUMBERS = 64, 2**22  # at once: columns at least, numbers if more fit


@dataclass(frozen=True, eq=False)
class Channel:
    """Class probabilities of every node; of labelled nodes those that their own label is not in.

    Shapes:
        probabilities [N, C]; scores [2]: leave-one-out accuracy over the majority class
        ``(a - m) / (1 - m)`` and log-loss gain ``(H - nll) / H``, both shrunk for few labels
    """

    probabilities: Tensor
    scores: Tensor


def absent(problem: Problem) -> Channel:
    """The channel of a view that is not there: everybody has the class shares."""
    shares = problem.prior.expand(problem.num_nodes, -1)
    return Channel(shares, torch.zeros(2, device=problem.device))


@stage("channels")
def ridge_channel(problem: Problem, rows: Rows | None) -> Channel:
    """Ridge regression from a view [N, D], by leave-one-out; None or no columns: absent."""
    if len(problem.seen) < 2 or rows is None or rows.shape[1] == 0:
        return absent(problem)
    labels, width = len(problem.labelled), rows.shape[1]
    target = F.one_hot(problem.classes, len(problem.seen)).float() - problem.prior  # [L, C] Yc
    solve = _primal if width < labels else _dual
    many = labels > MOST_LABELS[target.device.type] and width > NARROW
    if many and isinstance(rows, SparseMatrix):
        solve = _iterative
    ridges = RIDGES if labels <= MANY_LABELS else RIDGES[1:]
    loo, weights = solve(rows, problem.labelled, target, ridges)
    ridge, temperature = _best(problem, loo + problem.prior)
    out = times(rows, weights[ridge, 1:]) + weights[ridge, 0] + problem.prior
    out[problem.labelled] = loo[ridge] + problem.prior
    return _channel(problem, (temperature * out).softmax(1))


def _dual(
    rows: Rows, labelled: Tensor, target: Tensor, ridges: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    """Leave-one-out outputs [R, L, C] and weights, the constant first [R, 1 + D, C]."""
    here = take(rows, labelled)
    back = transposed(here)
    step = max(1, BLOCK[target.device.type] // rows.shape[1])
    parts = torch.split(torch.arange(len(labelled), device=target.device), step)
    kernel = torch.cat(
        [times(here, as_dense(transposed(take(here, p))).contiguous()) for p in parts], 1
    )
    kernel = (kernel + 1).to(_precision(len(target)))
    scale = kernel.diagonal().mean()
    target = target.to(kernel)
    loo, weights = [], []
    for ridge in ridges:
        inverse = _inverse(kernel, ridge * scale)
        alpha = inverse @ target
        loo.append((target - alpha / inverse.diagonal()[:, None]).float())
        alpha = alpha.float()
        weights.append(torch.cat([alpha.sum(0, keepdim=True), times(back, alpha)]))
    return torch.stack(loo), torch.stack(weights)


def _primal(
    rows: Rows, labelled: Tensor, target: Tensor, ridges: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    parts = list(zip(torch.split(labelled, ROWS), torch.split(target, ROWS), strict=True))
    precision = _precision(1 + rows.shape[1])

    def with_constant(nodes: Tensor) -> Tensor:
        phi = as_dense(take(rows, nodes))
        return torch.cat([phi.new_ones(len(phi), 1), phi], 1).to(precision)

    gram = moment = torch.zeros((), dtype=precision, device=target.device)
    for nodes, wanted in parts:
        phi = with_constant(nodes)
        gram, moment = gram + phi.T @ phi, moment + phi.T @ wanted.to(phi)
    scale = gram.diagonal().sum() / len(labelled)
    inverses = [_inverse(gram, ridge * scale) for ridge in ridges]
    weights = [inverse @ moment for inverse in inverses]
    found = []
    for nodes, wanted in parts:
        phi, loo = with_constant(nodes), []
        for inverse, weight in zip(inverses, weights, strict=True):
            leverage = ((phi @ inverse) * phi).sum(1, keepdim=True).clamp(0, 1 - 1e-6)
            loo.append(((phi @ weight - leverage * wanted) / (1 - leverage)).float())
        found.append(torch.stack(loo))
    return torch.cat(found, 1), torch.stack(weights).float()


def _iterative(
    rows: Rows, labelled: Tensor, target: Tensor, ridges: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    here = take(rows, labelled)
    assert isinstance(here, SparseMatrix)
    back = transposed(here)
    shifts = torch.tensor(ridges, device=target.device)
    shifts = shifts * (here.values.square().sum() / len(labelled) + 1)

    def kernel(v: Tensor, kept: Tensor | float = 1.0) -> Tensor:
        return kept * (times(here, times(back, v)) + v.sum(0))

    alphas = _conjugate_gradients(kernel, target, shifts)
    weights = [torch.cat([a.sum(0, keepdim=True), times(back, a)]) for a in alphas]
    loo = torch.zeros_like(alphas)
    fold = torch.arange(len(labelled), device=target.device) % FOLDS
    for k in range(FOLDS):
        kept = (fold != k).float()[:, None]
        held = _conjugate_gradients(partial(kernel, kept=kept), kept * target, shifts)
        for i, alpha in enumerate(held):
            loo[i] += (1 - kept) * kernel(alpha)
    return loo, torch.stack(weights)


def _conjugate_gradients(
    product: Callable[[Tensor], Tensor], target: Tensor, shifts: Tensor
) -> Tensor:
    """``(K + s I)^-1 target`` for every shift s from one sequence of products with K.

    B. Jegerlehner, 1996: the residuals of all shifts are multiples (zeta) of each other. ``shifts``
    rise; the first converges last.

    Shapes:
        target [L, C], shifts [R] -> [R, L, C]
    """
    more = (shifts - shifts[0])[:, None]  # [R, 1]
    residual = direction = target
    directions = target.expand(len(shifts), -1, -1).clone()
    found = torch.zeros_like(directions)
    zeta = fall = torch.ones(len(shifts), target.shape[1], device=target.device)
    step, ratio = torch.ones_like(zeta[0]), torch.zeros_like(zeta[0])
    size = start = residual.square().sum(0).clamp_min(1e-30)  # [C]
    for _ in range(ITERATIONS):
        if bool((size <= TOLERANCE**2 * start).all()):
            break
        moved = product(direction) + shifts[0] * direction
        before, step = step, size / (direction * moved).sum(0).clamp_min(1e-30)
        fall = before / (step * ratio * (1 - fall) + before * (1 + more * step))  # of zeta
        zeta = zeta * fall
        found += (step * fall)[:, None] * directions
        residual = residual - step * moved
        now = residual.square().sum(0).clamp_min(1e-30)
        ratio, size = now / size, now
        direction = residual + ratio * direction
        directions = zeta[:, None] * residual + (ratio * fall.square())[:, None] * directions
    return found


def _precision(size: int) -> torch.dtype:
    return torch.float64 if size <= MANY_LABELS else torch.float32


def _inverse(matrix: Tensor, ridge: Tensor) -> Tensor:
    """``(matrix + ridge I)^-1`` by Cholesky; the ridge grows where rounding asks for it."""
    shifted = matrix.clone()
    shifted.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    for _ in range(8):
        if not bool(failed):
            break
        shifted.diagonal().add_(ridge)
        ridge = 2 * ridge
        factor, failed = torch.linalg.cholesky_ex(shifted)
    return torch.cholesky_inverse(factor)


def scored(problem: Problem) -> Tensor:
    """Labelled nodes whose class has another label, so that leaving one out is a fair test: [L]."""
    return problem.counts[problem.classes] >= 2


def _best(problem: Problem, loo: Tensor) -> tuple[int, float]:
    """Ridge and temperature of the least leave-one-out log-loss; the middle ones without a test.

    Few labels choose badly: half a nat or two, in all, hold the choice near the middle.
    """
    ridges = loo.shape[0]
    t = torch.tensor(TEMPERATURES, device=loo.device)
    middle = ridges - 3  # ridge 1
    away = torch.arange(ridges, device=loo.device)[:, None] - middle
    cost = 0.15 * (away.square() + (t.log2() - 2).square())  # [R, T]
    fair = scored(problem)
    if bool(fair.any()):
        logits = loo[:, None, fair] * t[:, None, None]  # [R, T, L, C]
        own = problem.classes[fair].expand(*logits.shape[:-1])[..., None]
        nll = -logits.log_softmax(-1).gather(-1, own)[..., 0]
        cost = cost + nll.sum(-1)
    best = int(cost.flatten().argmin())
    return best // len(TEMPERATURES), TEMPERATURES[best % len(TEMPERATURES)]


def _channel(problem: Problem, probabilities: Tensor) -> Channel:
    """With the floor, and pi for labelled nodes that are the only ones of their class."""
    probabilities = probabilities + FLOOR * (problem.prior - probabilities)
    alone = problem.labelled[~scored(problem)]
    probabilities[alone] = problem.prior
    return Channel(probabilities, leave_one_out_scores(problem, probabilities))


def leave_one_out_scores(problem: Problem, probabilities: Tensor) -> Tensor:
    """Accuracy over the majority class and log-loss gain, shrunk by two labels: [N, C] -> [2]."""
    fair = scored(problem)
    n = int(fair.sum())
    majority = float(problem.prior.max())
    if n == 0 or majority > 0.999:
        return torch.zeros(2, device=problem.device)
    loo, own = probabilities[problem.labelled[fair]], problem.classes[fair]
    accuracy = (loo.argmax(1) == own).float().mean()
    entropy = -(problem.prior * problem.prior.clamp_min(1e-9).log()).sum()
    nll = F.nll_loss(loo.clamp_min(1e-6).log(), own)
    gains = torch.stack([(accuracy - majority) / (1 - majority), (entropy - nll) / entropy])
    return gains.clamp(-1, 1) * n / (n + 2)


@stage("channels")
def spread_channel(problem: Problem, graph: SparseMatrix) -> Channel:
    """Labels spread over a graph, ``T = sum_k a^k S^k Y``, own labels left out.

    With r_k = T_k / n_k relative to its mean, ``P_k ~ pi_k (s + r_k)^t``. How far (k up to 2, 5 or
    12), s and t are by leave-one-out. Up to 512 labels leaving out is exact; of more, a sixteenth
    of them is left out at once.
    """
    if len(problem.seen) < 2 or graph.col.numel() <= problem.num_nodes:
        return absent(problem)
    fair = scored(problem)
    nodes, own = problem.labelled[fair], problem.classes[fair]
    rates = _spread_rates(problem, graph)
    costs = {
        (i, s, t): 0.3 * (i + abs(j - 2) + abs(k - 1))
        + float(F.cross_entropy(_spread_logits(problem, rate[nodes], s, t), own, reduction="sum"))
        for i, rate in enumerate(rates)
        for j, s in enumerate((1e-3, 1e-2, 1e-1, 1.0, 10.0))
        for k, t in enumerate((0.5, 1.0, 2.0))
    }
    i, s, t = min(costs, key=costs.__getitem__)
    return _channel(problem, _spread_logits(problem, rates[i], s, t).softmax(1))


def _spread_logits(problem: Problem, rate: Tensor, s: float, t: float) -> Tensor:
    return problem.prior.log() + t * (s + rate).log()


def _spread_rates(problem: Problem, graph: SparseMatrix) -> list[Tensor]:
    """``T_k / n_k`` relative to its mean, one for each of :data:`SPREAD_STEPS`: [N, C].

    Each column starts at labels of one group and class, and what a label's own group brings is
    left out of what reaches it; so many columns are spread at once as memory allows.
    """
    labels, num_classes = len(problem.labelled), len(problem.seen)
    group = column = torch.arange(labels, device=problem.device)
    groups, classes = column, problem.classes  # of columns
    if labels > EXACT_SPREAD:
        group = group % SPREAD_GROUPS
        column = group * num_classes + problem.classes
        every = torch.arange(SPREAD_GROUPS * num_classes, device=problem.device)
        groups, classes = every // num_classes, every % num_classes
    one_hot = F.one_hot(classes, num_classes).float()
    reached = [
        torch.zeros(problem.num_nodes, num_classes, device=problem.device) for _ in SPREAD_STEPS
    ]
    width = max(SPREAD_COLUMNS, SPREAD_NUMBERS // problem.num_nodes)
    for some in torch.split(torch.arange(len(groups), device=problem.device), width):
        mine = (column >= some[0]) & (column <= some[-1])
        now = torch.zeros(problem.num_nodes, len(some), device=problem.device)
        now[problem.labelled[mine], column[mine] - some[0]] = 1
        total = torch.zeros_like(now)
        theirs = group[:, None] == groups[some]  # [L, width]
        for step in range(1, max(SPREAD_STEPS) + 1):
            now = times(graph, now).mul_(SPREAD_DAMPING)
            total += now
            if step in SPREAD_STEPS:
                whole = reached[SPREAD_STEPS.index(step)]
                whole += total @ one_hot[some]
                whole[problem.labelled] -= (total[problem.labelled] * theirs) @ one_hot[some]
    rates = [whole.clamp_min(0) / problem.counts for whole in reached]
    return [rate / (rate @ problem.prior).mean().clamp_min(1e-12) for rate in rates]
