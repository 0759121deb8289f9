"""GraphGLOW in plain PyTorch: Eq. 9 - 18 and Algorithms 1 - 3 of the paper, dense and slow.

Read this with the paper in hand; ``test_paper_in_one_file.py`` holds the package to it, number by
number. "Open" marks what the paper leaves open, or what differs: see docs/paper_notes.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LAMBDA, THRESHOLD, T, TOLERANCE = 0.6, 0.0, 3, 0.0
ALPHA, RHO, ENTROPY, K = 0.7, 0.9, 0.5, 4  # open: K, and a weight of the entropy term
STEP_W, STEP_THETA, DECAY = 0.02, 0.05, 5e-4


@dataclass
class Problem:
    """A graph with its own GNN: w is (W^0, b^0, W^1, b^1, ..); open: there are biases."""

    a: Tensor  # D^-1/2 (A + I) D^-1/2 [N, N]; open: the self-loops
    x: Tensor  # [N, F]; open: rows of unit length
    y: Tensor
    train: Tensor
    val: Tensor
    pivots: Tensor  # [P]; open: may be drawn anew in every epoch
    w: list[Tensor]
    generator: torch.Generator


def similarity(z, pivots, theta):
    """Eq. 9: alpha_up = delta(1/H sum_h s(w1_h * z_u, w2_h * z_p)), s the cosine: [N, P]."""
    heads = [
        F.cosine_similarity((w1 * z)[:, None], (w2 * z[pivots])[None], dim=-1)
        for w1, w2 in zip(*theta, strict=True)
    ]
    mean = torch.stack(heads).mean(0)
    return torch.where(mean > THRESHOLD, mean, 0.0)  # delta, a threshold-based truncation


def row_norm(matrix):
    return matrix / matrix.sum(1, keepdim=True).clamp_min(1e-12)


def message_passing(a, gamma, z):
    """Eq. 10 and 11, mixed by lambda as in Eq. 12, before W and sigma."""
    to_pivots = row_norm(gamma.T) @ z  # C^(l+1/2) [P, D]
    to_nodes = row_norm(gamma) @ to_pivots  # C^(l+1) [N, D]
    return LAMBDA * a @ z + (1 - LAMBDA) * to_nodes


def gnn(a, x, gamma, w):
    """Algorithm 1: Z^(L-1), open: before its sigma, and Z^(L), the logits."""
    z = message_passing(a, gamma, x) @ w[0] + w[1]
    for weight, bias in zip(w[2::2], w[3::2], strict=True):
        before, z = z, message_passing(a, gamma, torch.relu(z)) @ weight + bias
    return before, z


def reward(b, x):
    """Eq. 14 (Eq. 13 on E = B2 B1, P x P): log p0. Open: a mean per entry, E / N in [0, 1]."""
    n, p = b.shape
    e = b.T @ b
    smooth = (e * (x[:, None] - x[None]).square().sum(-1)).sum() / (n * p**2)
    return -ALPHA * smooth - RHO * e.square().sum() / (n * p) ** 2


def log_pi(b, gamma):
    """Eq. 16: the log-probability of a drawn structure."""
    return (b * gamma.log() + (1 - b) * (1 - gamma).log()).sum()


def prior_loss(gamma, x, generator):
    """Eq. 17: L_r by REINFORCE. Open: over K - 1, where the paper has K, so as to be unbiased."""
    drawn = [torch.bernoulli(gamma.detach(), generator=generator) for _ in range(K)]
    rewards = torch.stack([reward(b, x) for b in drawn])
    advantages = rewards - rewards.mean()
    return -sum(r * log_pi(b, gamma) for r, b in zip(advantages, drawn, strict=True)) / (K - 1)


def entropy_loss(gamma):
    """Eq. 18: L_e."""
    return (gamma * gamma.log() + (1 - gamma) * (1 - gamma).log()).mean()


def one_pass(problem, theta, regularised):
    """The inner loop of Algorithms 2 and 3: the loss of a pass, and its last logits.

    Open: regularisers reach theta only; the "Delta^(0)" of the sum is the first refinement's.
    """
    a, x, w, pivots = problem.a, problem.x, problem.w, problem.pivots
    z, losses, converged = a @ x @ w[0], [], False  # Z^0 = GCN(A, X; w)
    while not converged and len(losses) < T:
        gamma = similarity(z, pivots, theta)
        z_next, logits = gnn(a, x, gamma, w)
        loss = F.cross_entropy(logits[problem.train], problem.y[problem.train])  # Eq. 15: L_s
        if regularised:
            policy = similarity(z.detach(), pivots, theta).clamp(1e-6, 1 - 1e-6)
            loss = loss + prior_loss(policy, x[pivots], problem.generator)
            loss = loss + ENTROPY * entropy_loss(policy)
        losses.append(loss)
        converged = (z_next - z).square().sum() <= TOLERANCE * z.square().sum()  # open
        z = z_next
    return losses[0] + sum(losses[1:]) / max(1, len(losses) - 1), logits


def validation(problem, theta):
    """Accuracy, then the lower loss, on the validation nodes."""
    with torch.no_grad():
        logits, y = one_pass(problem, theta, False)[1][problem.val], problem.y[problem.val]
    return float((logits.argmax(1) == y).double().mean()), -float(F.cross_entropy(logits, y))


def visit(problem, theta, epochs, optimizers, regularised):
    """Train w, and theta if it has an optimizer; open: keep the epoch with the best validation."""
    trained, history = [p for o in optimizers for g in o.param_groups for p in g["params"]], []
    best, kept = (-1.0, 0.0), []
    for _ in range(epochs):
        loss, _ = one_pass(problem, theta, regularised)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        history.append(loss.item())
        if (score := validation(problem, theta)) > best:
            best, kept = score, [p.detach().clone() for p in trained]
    for parameter, value in zip(trained, kept, strict=True):
        parameter.data.copy_(value)
    return history


def train_structure_learner(problems, theta, episodes, epochs):
    """Algorithm 2. Open: the theta that is kept is the best by mean validation accuracy."""
    ways = list(dict.fromkeys(theta))  # w1 and w2, which may be one
    theta_step = torch.optim.Adam(ways, lr=STEP_THETA)
    w_steps = [torch.optim.Adam(p.w, lr=STEP_W, weight_decay=DECAY) for p in problems]
    best, kept, history = -1.0, [], []
    for _ in range(episodes):
        for problem, w_step in zip(problems, w_steps, strict=True):
            history += visit(problem, theta, epochs, [w_step, theta_step], True)
            score = sum(validation(p, theta)[0] for p in problems) / len(problems)
            if score >= best:
                best, kept = score, [way.detach().clone() for way in theta]
    return kept, history


def train_target_gnn(problem, theta, epochs):
    """Algorithm 3: theta is frozen, and L_s alone trains w."""
    w_step = torch.optim.Adam(problem.w, lr=STEP_W, weight_decay=DECAY)
    return visit(problem, theta, epochs, [w_step], False)
