"""Channels: closed-form predictors, each with its leave-one-out predictions and their worth.

For a view Phi with labelled rows Phi_L, one-hot labels Y, class shares pi and Yc = Y - pi::

    K = Phi_L Phi_L^T + 1      G = (K + l I)^-1      alpha = G Yc
    out   = Phi Phi_L^T alpha + 1^T alpha + pi       of all nodes
    loo_i = Yc_i - alpha_i / G_ii + pi               of labelled nodes

and, where labels outnumber columns, the same through ``(Phi_L^T Phi_L + l I)^-1``. Ridge l and
temperature t of ``P = softmax(t out)`` are those of the least leave-one-out log-loss.
"""

from dataclasses import dataclass

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
MOST_LABELS = 10_000
"""Above, sparse rows are replaced by their low-rank view: K would have 10^8 entries."""
FLOOR = 1e-3  # share of pi in each prediction: no class is ever impossible
SPREAD_STEPS, SPREAD_DAMPING = (2, 5, 12), 0.9
EXACT_SPREAD, SPREAD_GROUPS = 512, 16


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
def ridge_channel(problem: Problem, rows: Rows | None, fallback: Tensor) -> Channel:
    """Ridge regression from a view, by leave-one-out.

    Args:
        problem: Whose labels to use.
        rows: The view; None or no columns: absent.
        fallback: Its low-rank form, for more than :data:`MOST_LABELS` labels and sparse rows.

    Shapes:
        rows [N, D], fallback [N, q]
    """
    if len(problem.seen) < 2 or rows is None or rows.shape[1] == 0:
        return absent(problem)
    labels = len(problem.labelled)
    if isinstance(rows, SparseMatrix) and labels > MOST_LABELS:
        rows = fallback
    here = take(rows, problem.labelled)
    target = F.one_hot(problem.classes, len(problem.seen)).float() - problem.prior  # [L, C] Yc
    solve = _primal if rows.shape[1] < labels else _dual
    loo, weights = solve(here, target, RIDGES if labels <= MANY_LABELS else RIDGES[1:])
    ridge, temperature = _best(problem, loo + problem.prior)
    out = times(rows, weights[ridge, 1:]) + weights[ridge, 0] + problem.prior
    out[problem.labelled] = loo[ridge] + problem.prior
    return _channel(problem, (temperature * out).softmax(1))


def _dual(here: Rows, target: Tensor, ridges: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Leave-one-out outputs [R, L, C] and weights, the constant first [R, 1 + D, C]."""
    kernel = times(here, as_dense(transposed(here)).contiguous()) + 1
    kernel = kernel.to(_precision(len(target)))
    scale = kernel.diagonal().mean()
    target = target.to(kernel)
    loo, weights = [], []
    back = transposed(here)
    for ridge in ridges:
        inverse = _inverse(kernel, ridge * scale)
        alpha = inverse @ target
        loo.append((target - alpha / inverse.diagonal()[:, None]).float())
        alpha = alpha.float()
        weights.append(torch.cat([alpha.sum(0, keepdim=True), times(back, alpha)]))
    return torch.stack(loo), torch.stack(weights)


def _primal(here: Rows, target: Tensor, ridges: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    phi = as_dense(here)
    phi = torch.cat([phi.new_ones(len(phi), 1), phi], 1).to(_precision(phi.shape[1]))
    gram, moment = phi.T @ phi, phi.T @ target.to(phi)
    scale = gram.diagonal().sum() / len(phi)
    loo, weights = [], []
    for ridge in ridges:
        inverse = _inverse(gram, ridge * scale)
        weight = inverse @ moment
        leverage = ((phi @ inverse) * phi).sum(1, keepdim=True).clamp(0, 1 - 1e-6)
        fit = phi @ weight
        loo.append(((fit - leverage * target) / (1 - leverage)).float())
        weights.append(weight.float())
    return torch.stack(loo), torch.stack(weights)


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
    options = [
        (problem.prior.log() + t * (s + rate).log(), 0.3 * (i + abs(j - 2) + abs(k - 1)))
        for i, rate in enumerate(_spread_rates(problem, graph))
        for j, s in enumerate((1e-3, 1e-2, 1e-1, 1.0, 10.0))
        for k, t in enumerate((0.5, 1.0, 2.0))
    ]
    fair = scored(problem)
    nodes, own = problem.labelled[fair], problem.classes[fair]
    held = torch.stack([logits[nodes] for logits, _ in options])  # [O, L, C]
    cost = torch.tensor([c for _, c in options], device=problem.device)
    nll = -held.log_softmax(2).gather(2, own.expand(len(options), -1)[..., None])
    best = int((cost + nll.sum((1, 2))).argmin())
    return _channel(problem, options[best][0].softmax(1))


def _spread_rates(problem: Problem, graph: SparseMatrix) -> list[Tensor]:
    """``T_k / n_k`` relative to its mean, one for each of :data:`SPREAD_STEPS`: [N, C]."""
    labels, num_classes = len(problem.labelled), len(problem.seen)
    position = torch.arange(labels, device=problem.device)
    one_hot = F.one_hot(problem.classes, num_classes).float()
    exact = labels <= EXACT_SPREAD
    group = position if exact else position % SPREAD_GROUPS * num_classes + problem.classes
    columns = labels if exact else SPREAD_GROUPS * num_classes
    now = torch.zeros(problem.num_nodes, columns, device=problem.device)
    now[problem.labelled, group] = 1
    total, rates = torch.zeros_like(now), []
    for step in range(1, max(SPREAD_STEPS) + 1):
        now = SPREAD_DAMPING * times(graph, now)
        total += now
        if step not in SPREAD_STEPS:
            continue
        if exact:
            own = total[problem.labelled, position][:, None] * one_hot
            reached = total @ one_hot
        else:
            parts = total.view(problem.num_nodes, SPREAD_GROUPS, num_classes)
            own = parts[problem.labelled, position % SPREAD_GROUPS]
            reached = parts.sum(1)
        reached[problem.labelled] -= own
        rate = reached.clamp_min(0) / problem.counts
        rates.append(rate / (rate @ problem.prior).mean().clamp_min(1e-12))
    return rates
