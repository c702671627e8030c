"""Graders of the chapter *zoo*."""

import torch

from ._grader import agrees, grader


def _selective_table(delta, A, B, C):
    n = len(delta)
    table = torch.zeros(n, n, dtype=delta.dtype)
    for j in range(n):
        h = delta[j] * B[j]
        for i in range(j, n):
            h = h if i == j else torch.exp(delta[i] * A) * h
            table[i, j] = C[i] @ h
    return table


def _case(n: int, N: int, seed: int, scale: float = 1.0):
    like = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    delta, A = scale * torch.rand(n, **like), -torch.rand(N, **like)
    return delta, A, torch.randn(n, N, **like), torch.randn(n, N, **like)


@grader("zoo/selective-table")
def grade_selective_table(answer):
    """A function (delta (n,), A (N,), B (n, N), C (n, N)) -> (n, n) table of one selective channel."""
    cases = [_case(1, 3, 0), _case(7, 1, 1), _case(9, 4, 2), _case(8, 2, 3, scale=400.0)]
    hint = (
        "entry (i, j) is the sum over states of C_i exp(A (delta_{j+1} + ... + delta_i)) delta_j B_j; the "
        "step of token j itself does not decay it, and nothing above the diagonal may overflow"
    )
    return agrees(answer, _selective_table, cases, hint)
