"""Graders of the chapter *gradient-highway*."""

import torch

from ssmbook.exercises import agrees, grader
from ssmbook.gradients import softmax_jacobian_row, softmax_row_weights


def _ratios(x, W_Q, W_K, V):
    alpha = softmax_row_weights(x, W_Q, W_K)
    norms = torch.linalg.matrix_norm(softmax_jacobian_row(x, W_Q, W_K, V), ord=2)
    return (norms / (alpha * torch.linalg.svdvals(V)[1]))[:-1]


def _case(n: int, d: int, p: int, d_k: int, seed: int, scale: float = 1.0):
    like = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    x, W_Q = torch.randn(n, d, **like), scale * torch.randn(d_k, d, **like)
    return x, W_Q, torch.randn(d_k, d, **like), torch.randn(p, d, **like)


@grader("gradient-highway/lanes")
def grade_lanes(answer):
    """A function (x, W_Q, W_K, V) -> (n - 1,) ratios ||dy_last/dx_j||_2 / (alpha_j sigma_2(V)), j < n - 1."""
    sizes = ((2, 2, 2, 1, 0), (9, 4, 3, 2, 1), (17, 5, 6, 8, 2), (11, 3, 3, 4, 3, 8.0))
    cases = [_case(*size) for size in sizes]
    hint = (
        "the weight cancels: the ratio is the norm of V + (v_j - y_i) g_i^T over sigma_2(V), with "
        "g_i = W_K^T W_Q x_i / sqrt(d_k) and i the last token; leave out j = i"
    )
    return agrees(answer, _ratios, cases, hint)
