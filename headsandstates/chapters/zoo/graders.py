"""Graders of the chapter *zoo*."""

from functools import partial, reduce

import torch

from headsandstates.chapters._graded import block_rows, f64, rank, seeded, seeded_cases
from headsandstates.exercises import grader
from ssmbook.testing import MapContract


def _selective_coefficients(delta, A, B, C, own_step=False):
    """The coefficients by the state itself; with ``own_step`` a token's own step decays it."""
    columns = []
    for j in range(len(delta)):
        h, column = delta[j] * B[j], [0 * delta[0]] * j
        for i in range(j, len(delta)):
            h = torch.exp(delta[i] * A) * h if i > j or own_step else h
            column.append(C[i] @ h)
        columns.append(torch.stack(column))
    return torch.stack(columns, 1)


def _with_gradients(alpha, *case):
    """The coefficients and their gradients by delta, A, B and C, with a weight of its own for each entry."""
    weights = torch.linspace(1, 2, alpha.numel(), dtype=f64).view_as(alpha)
    by_case = [torch.zeros_like(given) for given in case]
    if alpha.requires_grad:
        by_case = torch.autograd.grad((weights * alpha).sum(), case, materialize_grads=True)
    return alpha.detach(), *by_case


@grader(
    "zoo/selective-coefficients",
    right=_selective_coefficients,
    view=_with_gradients,
    parts=("the coefficients", *(f"their gradient by {name}" for name in ("delta", "A", "B", "C"))),
    hint="not the coefficients of the channel with their gradient",
    mistakes={
        "a token decays by the steps after its own": partial(_selective_coefficients, own_step=True),
        "tokens enter with their step, delta_j B_j": (
            lambda delta, A, B, C: _selective_coefficients(delta, A, B / delta[:, None], C)
        ),
    },
    formula="Entry (i, j) is the sum over s of C_is exp(A_s (delta_{j+1} + ... + delta_i)) delta_j B_js, "
    "and 0 above the diagonal; bound the exponent before you take the exponential, or the gradient overflows",
)
def selective_coefficients_cases():
    """For a function (delta (n,), A (N,), B (n, N), C (n, N)) -> (n, n) coefficients, with gradient."""
    for like, (n, N, scale) in seeded_cases((1, 3, 1.0), (7, 1, 1.0), (9, 4, 1.0), (8, 2, 400.0)):
        delta, A = scale * torch.rand(n, **like), -torch.rand(N, **like)
        case = delta, A, torch.randn(n, N, **like), torch.randn(n, N, **like)
        yield tuple(part.requires_grad_() for part in case)


def _delta_coefficients(q, k, beta, *, writes=True, own=False):
    """The coefficients of DeltaNet by the state itself; the switches make the natural mistakes."""
    n, r = k.shape
    alpha, eye = torch.zeros(n, n, dtype=f64), torch.eye(r, dtype=f64)
    G = [eye - beta[i] * torch.outer(k[i], k[i]) for i in range(n)]
    for j in range(n):
        written = (beta[j] if writes else 1.0) * k[j]
        for i in range(j, n):
            alpha[i, j] = reduce(torch.matmul, G[j + (not own) : i + 1], written) @ q[i]
    return alpha


@grader(
    "zoo/delta-coefficients",
    right=_delta_coefficients,
    hint="not the coefficients of DeltaNet",
    mistakes={
        "tokens write with strength beta_j": partial(_delta_coefficients, writes=False),
        "a token meets the erasures of later tokens only": partial(_delta_coefficients, own=True),
    },
    formula="Entry (i, j) is beta_j k_j G_{j+1} ... G_i q_i for j <= i, with G_l = I - beta_l k_l k_l^T",
)
def delta_coefficients_cases():
    """For a function (q (n, r), k (n, r), beta (n,)) -> (n, n) coefficients of one DeltaNet head."""
    for like, (n, r) in seeded_cases((1, 2), (5, 2), (8, 3)):
        k = torch.nn.functional.normalize(torch.randn(n, r, **like))
        yield torch.randn(n, r, **like), k, torch.rand(n, **like)


def _row_rank(W):
    return max(rank(row.flatten(1)) for row in W)


@grader(
    "zoo/row-rank",
    right=_row_rank,
    hint="not the largest row rank",
    mistakes={
        "that is k, of the whole matrix: count within each output": (lambda W: rank(block_rows(W))),
        "you look down the columns: an output is a row, W[i]": lambda W: _row_rank(W.transpose(0, 1)),
    },
    formula="For each i take the rank of the n x pd matrix with rows vec W_ij, and of these the largest",
)
def row_rank_cases():
    """For a function (W (n, n, p, d)) -> largest number of independent blocks within one output."""
    like = seeded(7)
    W = torch.einsum("hij,hpd->ijpd", torch.randn(2, 6, 6, **like).tril(), torch.randn(2, 2, 3, **like))
    more = W.clone()
    more[3] += torch.randn(6, 2, 3, **like)  # the fourth output has more than the last one
    gated_output = W * torch.randn(6, 1, 2, 1, **like)
    return [(W,), (gated_output,), (W * torch.randn(1, 6, 1, 3, **like),), (more,)]


@grader("zoo/own-map")
def grade_own_map(answer):
    """A subclass of ``MapContract`` whose ``make`` builds a map that the library does not have."""
    if not (isinstance(answer, type) and issubclass(answer, MapContract)):
        return "expected a class that inherits from MapContract, with the method make(self, **new)"
    laws = [name for name in dir(MapContract) if name.startswith("test_")]
    for name in (*laws, "check"):
        if getattr(answer, name) is not getattr(MapContract, name):
            return f"the laws are those of MapContract; yours changes {name}"
    made = type(answer().map())
    if made.__module__.startswith("ssmbook."):
        return f"{made.__name__} is a map of the library; make one that it does not have"
    try:
        answer().check()
    except AssertionError as broken:
        return f"a law is broken: {str(broken).splitlines()[0]}"
    return None
