"""Channels: closed-form predictors, with leave-one-out predictions and scores from these.

For a view Phi with labelled rows Phi_L, one-hot labels Y, class shares pi and Yc = Y - pi::

    K = Phi_L Phi_L^T + 1      G = (K + l I)^-1      alpha = G Yc
    out   = Phi Phi_L^T alpha + 1^T alpha + pi       of all nodes
    loo_i = Yc_i - alpha_i / G_ii + pi               of labelled nodes

and, where labels outnumber columns, the same by ``(Phi_L^T Phi_L + l I)^-1``. Ridge l and
temperature t of ``P = softmax(t out)`` minimise the leave-one-out log-loss. For sparse rows with
more than :data:`EXACT` labels and columns, conjugate gradients solve without computing K, and an
eighth of the labels is left out at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from graphglow.graph.graph import Graph
from graphglow.linalg.rows import HiddenLayer, Rows, as_dense, take, times, transposed
from graphglow.linalg.sparse import SparseMatrix

RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # times the mean eigenvalue of K
TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MANY_LABELS = 1024
"""With more, the smallest ridge is not tried."""
EXACT = 2048
"""With more labels and columns, sparse rows are solved by conjugate gradients."""
EIGEN = {"cpu": True, "cuda": False}
"""Whether all ridges are solved by one eigendecomposition, which takes long on a GPU."""
FOLDS, ITERATIONS, TOLERANCE = 8, 100, 1e-3  # of conjugate gradients
JUDGES = 8192
"""Labels, evenly spaced, by whose log-loss ridges and other parameters are chosen."""
NUMBERS = 2**21  # of the dense rows in one block
FLOOR = 1e-3  # share of pi in each prediction, so that no class is impossible
SPREAD_STEPS, SPREAD_DAMPING = (2, 5, 12), 0.9
SPREAD_FLOORS, SPREAD_POWERS = (1e-3, 1e-2, 1e-1, 1.0, 10.0), (0.5, 1.0, 2.0)
EXACT_SPREAD, SPREAD_GROUPS = 512, 16
SPREAD_COLUMNS = 64  # at least, in one block
COMMUNITY_PSEUDO = (0.1, 0.3, 1.0, 3.0, 10.0)


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
    ridges = torch.tensor(RIDGES if labels <= MANY_LABELS else RIDGES[1:], device=graph.device)
    by_rows = width >= labels or (isinstance(rows, SparseMatrix) and width > EXACT)
    if not by_rows:
        loo, solutions = _primal(rows, graph.labelled, target, ridges)
    else:
        phi = take(rows, graph.labelled)
        if isinstance(phi, SparseMatrix) and labels > EXACT:
            loo, solutions = _iterative(phi, target, ridges)
        else:
            loo, solutions = _dual(phi, target, ridges)
    loo += graph.prior
    ridge, temperature = _best(graph, loo)
    weight = solutions[ridge]  # [1 + D, C], or alpha [L, C]
    if by_rows:
        weight = torch.cat([weight.sum(0, keepdim=True), times(transposed(phi), weight)])
    weight[0] += graph.prior
    out = times(rows, weight[1:]) + weight[0]
    out[graph.labelled] = loo[ridge]
    hidden = {"mean": rows.mean} if isinstance(rows, HiddenLayer) else {}
    return _channel(graph, (temperature * out).softmax(1), temperature * weight, hidden)


def _dual(rows: Rows, target: Tensor, ridges: Tensor) -> tuple[Tensor, Tensor]:
    """Solve by the kernel K of labelled rows [L, D]: leave-one-out outputs and alpha, [R, L, C]."""
    every = torch.arange(len(target), device=target.device)
    blocks = torch.split(every, max(1, NUMBERS // rows.shape[1]))
    kernel = torch.cat(
        [times(rows, as_dense(take(rows, block)).T.contiguous()) for block in blocks], 1
    )
    kernel = kernel.double() + 1
    shifts = ridges[:, None] * kernel.diagonal().mean()
    if EIGEN[kernel.device.type]:
        values, vectors = torch.linalg.eigh(kernel)
        shares = 1 / (values.clamp_min(0) + shifts)  # [R, L]
        alpha = vectors @ (shares[..., None] * (vectors.T @ target.to(kernel)))
        diagonal = shares @ vectors.square().T  # [R, L] G_ii
    else:
        inverse = _inverses(kernel, shifts)
        alpha, diagonal = inverse @ target.to(kernel), inverse.diagonal(dim1=1, dim2=2)
    return (target - alpha / diagonal[..., None]).float(), alpha.float()


def _primal(rows: Rows, labelled: Tensor, target: Tensor, ridges: Tensor) -> tuple[Tensor, Tensor]:
    """Solve by the Gram matrix of the columns: leave-one-out outputs [R, L, C], [R, 1 + D, C]."""
    width = 1 + rows.shape[1]
    step = max(1, NUMBERS // width)
    parts = list(zip(torch.split(labelled, step), torch.split(target, step), strict=True))

    def with_constant(nodes: Tensor) -> Tensor:
        phi = as_dense(take(rows, nodes))
        return torch.cat([phi.new_ones(len(phi), 1), phi], 1).double()

    gram = moment = torch.zeros((), dtype=torch.float64, device=target.device)
    for nodes, truth in parts:
        phi = with_constant(nodes)
        gram, moment = gram + phi.T @ phi, moment + phi.T @ truth.to(phi)
    shifts = ridges[:, None] * gram.diagonal().sum() / len(labelled)
    if EIGEN[gram.device.type]:
        values, vectors = torch.linalg.eigh(gram)
        shares = 1 / (values.clamp_min(0) + shifts)  # [R, 1 + D]
        weights = vectors @ (shares[..., None] * (vectors.T @ moment))
    else:
        inverse = _inverses(gram, shifts)
        weights = inverse @ moment
    loo = []
    for nodes, truth in parts:
        phi = with_constant(nodes)
        if EIGEN[gram.device.type]:
            leverage = shares @ (phi @ vectors).square_().T
        else:
            leverage = torch.stack([(phi @ one).mul_(phi).sum(1) for one in inverse])
        leverage = leverage[..., None].clamp_max_(1 - 1e-6)
        loo.append(((phi @ weights - leverage * truth) / (1 - leverage)).float())
    return torch.cat(loo, 1), weights.float()


def _inverses(matrix: Tensor, shifts: Tensor) -> Tensor:
    """Return ``(matrix + shift I)^-1`` for each shift: [D, D], [R, 1] -> [R, D, D]."""
    shifted = matrix + shifts[..., None] * torch.eye(len(matrix)).to(matrix)
    return torch.cholesky_inverse(torch.linalg.cholesky(shifted))


def _iterative(rows: SparseMatrix, target: Tensor, ridges: Tensor) -> tuple[Tensor, Tensor]:
    """Solve by conjugate gradients, for all labels and without each fold: as :func:`_dual`."""
    columns, classes = transposed(rows), target.shape[1]
    every = torch.arange(len(target), device=target.device)
    left_out = every[:, None] % FOLDS == torch.arange(-1, FOLDS, device=target.device)
    kept = (~left_out).float().repeat_interleave(classes, 1)  # [L, (1 + FOLDS) C]

    def kernel(v: Tensor) -> Tensor:
        return times(rows, times(columns, v)) + v.sum(0)

    loo, solutions = [], []
    wanted = kept * target.repeat(1, 1 + FOLDS)
    for shift in ridges * (rows.values.square().sum() / len(target) + 1):
        alpha = _conjugate_gradients(lambda v: kept * kernel(v), wanted, shift)
        out = kernel(alpha).view(len(target), 1 + FOLDS, classes)
        loo.append(out[every, 1 + every % FOLDS])
        solutions.append(alpha[:, :classes])
    return torch.stack(loo), torch.stack(solutions)


def _conjugate_gradients(
    product: Callable[[Tensor], Tensor], target: Tensor, shift: Tensor
) -> Tensor:
    """Solve ``(K + shift I) x = target`` by products with K, each column by itself: [L, C]."""
    residual = direction = target
    solution = torch.zeros_like(target)
    size = start = target.square().sum(0).clamp_min(1e-30)
    for _ in range(ITERATIONS):
        if bool((size <= TOLERANCE**2 * start).all()):
            break
        moved = product(direction) + shift * direction
        step = size / (direction * moved).sum(0).clamp_min(1e-30)
        solution += step * direction
        residual = residual - step * moved
        before, size = size, residual.square().sum(0).clamp_min(1e-30)
        direction = residual + size / before * direction
    return solution


def _best(graph: Graph, loo: Tensor) -> tuple[int, Tensor]:
    """Choose the ridge and temperature of least leave-one-out log-loss, the middle ones by default.

    A penalty of a few nats keeps the choice near the middle where labels are few.

    Shapes:
        [R, L, C] -> number, []
    """
    t = torch.tensor(TEMPERATURES, device=graph.device)
    cost = log_loss(graph, lambda some: loo[:, None, some] * t[:, None, None])  # [R, T]
    place = torch.arange(len(cost), device=graph.device)[:, None]
    cost += 0.15 * ((place - len(cost) + 3) ** 2 + (t.log2() - 2) ** 2)
    ridge, temperature = divmod(int(cost.argmin()), len(t))
    return ridge, t[temperature]


def community_channel(graph: Graph, member: Tensor) -> Channel:
    """Predict the class shares among the labels of a node's community [N], except for its own.

    ``P_c = (n_c + s pi_c) / (n + s)``; s minimises the leave-one-out log-loss.
    """
    if len(graph.seen) < 2 or len(graph.low) == 0:
        return absent(graph)
    one_hot = torch.eye(len(graph.seen), device=graph.device)[graph.classes]
    counts = graph.prior.new_zeros(int(member.max()) + 1, len(graph.seen))
    near = counts.index_add_(0, member[graph.labelled], one_hot)[member]  # [N, C]
    near[graph.labelled] -= one_hot
    size = near.sum(1, keepdim=True)
    pseudo = torch.tensor(COMMUNITY_PSEUDO, device=graph.device)[:, None, None]
    loo, total = near[graph.labelled], size[graph.labelled]
    cost = log_loss(
        graph,
        lambda some: ((loo[some] + pseudo * graph.prior) / (total[some] + pseudo)).log(),
    )
    best = pseudo[int(cost.argmin())]
    return _channel(graph, (near + best * graph.prior) / (size + best))


def leave_one_out_mask(graph: Graph) -> Tensor:
    """Mark the labelled nodes whose class has another label, for leave-one-out tests: [L]."""
    return graph.counts[graph.classes] >= 2


def log_loss(graph: Graph, logits_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Sum the leave-one-out log-loss of several choices over :data:`JUDGES` labels: [..].

    ``logits_of`` returns leave-one-out logits of labels [K] by every choice: [.., K, C].
    """
    labels = len(graph.labelled)
    some = torch.linspace(0, labels - 1, min(labels, JUDGES), device=graph.device).long()
    logits = logits_of(some)
    truth = graph.classes[some].expand(logits.shape[:-1])[..., None]
    loss = -logits.log_softmax(-1).gather(-1, truth)[..., 0]
    total: Tensor = loss @ leave_one_out_mask(graph)[some].float()
    return total


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
    s, t = (torch.tensor(c, device=graph.device) for c in (SPREAD_FLOORS, SPREAD_POWERS))
    near, floors, powers = (
        rates[:, None, None, graph.labelled],
        s[:, None, None, None],
        t[:, None, None],
    )
    cost = log_loss(  # [I, S, T]
        graph, lambda some: graph.prior.log() + powers * (floors + near[..., some, :]).log()
    )
    choices = list(product(range(len(rates)), range(len(s)), range(len(t))))
    penalty = [0.3 * (i + abs(j - 2) + abs(k - 1)) for i, j, k in choices]  # the middle is likely
    cost = cost.flatten() + torch.tensor(penalty, device=graph.device)
    i, j, k = choices[int(cost.argmin())]
    probabilities = (graph.prior.log() + t[k] * (s[j] + rates[i]).log()).softmax(1)
    chosen = {"steps": torch.tensor(SPREAD_STEPS[i]), "floor": s[j], "power": t[k]}
    return _channel(graph, probabilities, chosen=chosen | {"mean": means[i]})


def _spread_rates(graph: Graph, adjacency: SparseMatrix) -> tuple[Tensor, Tensor]:
    """Return ``T_k / n_k`` relative to its mean, for each of the :data:`SPREAD_STEPS`; the means.

    A column starts at the labels of one group and class; a label is not reached by its own group.

    Shapes:
        [I, N, C], [I]
    """
    labels, num_classes = len(graph.labelled), len(graph.seen)
    group = torch.arange(labels, device=graph.device)
    if labels > EXACT_SPREAD:
        group = group % SPREAD_GROUPS
    columns, column = torch.unique(group * num_classes + graph.classes, return_inverse=True)
    groups, one_hot = columns // num_classes, torch.eye(num_classes, device=graph.device)
    one_hot = one_hot[columns % num_classes]
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
