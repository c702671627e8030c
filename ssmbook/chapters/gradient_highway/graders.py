"""Graders of the chapter *gradient-highway*."""

import math

import torch

from ssmbook.chapters._graded import seeded
from ssmbook.exercises import grader
from ssmbook.gradients import softmax_jacobian_row, softmax_row_weights


def _ratios(x, W_Q, W_K, V):
    alpha = softmax_row_weights(x, W_Q, W_K)
    norms = torch.linalg.matrix_norm(softmax_jacobian_row(x, W_Q, W_K, V), ord=2)
    return (norms / (alpha * torch.linalg.svdvals(V)[1]))[:-1]


def _brackets(x, W_Q, W_K, V, scale=None):
    """V + (v_j - y_i) g^T for j < i, by hand, with another scale where one is given."""
    g = W_K.mT @ W_Q @ x[-1] / math.sqrt(scale or len(W_Q))
    values = x @ V.mT
    y = torch.softmax(x @ g, 0) @ values
    return V + (values[:-1] - y)[:, :, None] * g


def _over(sigma, scale=None, swapped=False, order=2):
    def wrong(x, W_Q, W_K, V):
        W_Q, W_K = (W_K, W_Q) if swapped else (W_Q, W_K)
        at = len(V[0]) if scale == "d" else scale
        norms = torch.linalg.matrix_norm(_brackets(x, W_Q, W_K, V, at), ord=order)
        return norms / torch.linalg.svdvals(V)[sigma]

    return wrong


@grader(
    "gradient-highway/lanes",
    right=_ratios,
    hint="a ratio of gradient to weight times second singular value is wrong",
    mistakes={
        "right only for keys of width 1: the logits are divided by sqrt(d_k)": _over(1, scale=1),
        "your logits are divided by the square root of the token's width, not of the key's": (
            _over(1, scale="d")
        ),
        "queries and keys have changed places: the last token asks": _over(1, swapped=True),
        "right only where W_Q = 0: a token that moves also moves the weights": (
            lambda x, W_Q, W_K, V: _over(1)(x, 0 * W_Q, W_K, V)
        ),
        "your norm is that of Frobenius; the floor is about the largest singular value": (
            _over(1, order="fro")
        ),
        "you divide by the largest singular value of V; the floor has the second": _over(0),
        "your numbers still contain the weight alpha_ij": (
            lambda x, W_Q, *rest: softmax_row_weights(x, W_Q, rest[0])[:-1] * _ratios(x, W_Q, *rest)
        ),
    },
    formula="the weight cancels: the ratio is the norm of V + (v_j - y_i) g_i^T over sigma_2(V), with "
    "g_i = W_K^T W_Q x_i / sqrt(d_k) and i the last token; leave out j = i",
)
def lanes_cases():
    """For a function (x, W_Q, W_K, V) -> (n - 1,) ratios ||dy_last/dx_j||_2 / (alpha_j sigma_2(V))."""
    sizes = ((2, 2, 2, 1, 1), (9, 4, 3, 2, 1), (17, 5, 6, 8, 1), (11, 3, 3, 4, 8))
    for seed, (n, d, p, d_k, scale) in enumerate(sizes):
        like = seeded(seed)
        x, W_Q = torch.randn(n, d, **like), scale * torch.randn(d_k, d, **like)
        yield x, W_Q, torch.randn(d_k, d, **like), torch.randn(p, d, **like)


def _held(z, A):
    return torch.exp(A * torch.nn.functional.softplus(z).sum())


@grader(
    "gradient-highway/held",
    right=_held,
    hint="the share kept is wrong",
    atol=1e-12,
    mistakes={
        "the step is softplus of the pre-activation, not the pre-activation": (
            lambda z, A: torch.exp(A * z.sum())
        ),
        "one step only: every token of the gap takes its own": (
            lambda z, A: torch.exp(A * torch.nn.functional.softplus(z.mean()))
        ),
        "softplus of the mean is less than the mean of softplus: right only where all tokens are alike": (
            lambda z, A: torch.exp(A * len(z) * torch.nn.functional.softplus(z.mean()))
        ),
        "yours grows: A is negative already": (
            lambda z, A: torch.exp(-A * torch.nn.functional.softplus(z).sum())
        ),
        "exp is a bound on softplus and not softplus": lambda z, A: torch.exp(A * z.exp().sum()),
    },
    formula="sum the steps softplus(z_l), multiply by A and take exp once",
)
def held_cases():
    """For a function (z (T,), A < 0) -> number: the share of a state that a gap of T tokens keeps."""
    sizes = ((1, 0.0, -1.0), (7, -2.0, -0.5), (40, -4.0, -1.0), (5, 3.0, -0.1))
    return [(torch.randn(T, **seeded(seed)) + offset, A) for seed, (T, offset, A) in enumerate(sizes)]


def _flat(n, c):
    return math.log(n - 1) + math.log(c / (1 - c))


@grader(
    "gradient-highway/margin",
    right=_flat,
    hint="the margin is wrong",
    mistakes={
        "the answer does not compete with itself: n - 1 others do": (
            lambda n, c: math.log(n) + math.log(c / (1 - c))
        ),
        "that gives odds of c to one; a weight of c has odds c / (1 - c)": (
            lambda n, c: math.log(n - 1) + math.log(c)
        ),
        "right only for two keys: where are the other competitors?": lambda n, c: math.log(c / (1 - c)),
        "softmax takes powers of e, you took logarithms to base 2": (
            lambda n, c: math.log2(n - 1) + math.log2(c / (1 - c))
        ),
    },
    formula="the odds c / (1 - c) are e^m over n - 1, so m is log(n - 1) + log(c / (1 - c))",
)
def margin_cases():
    """For a function (n, c) -> the logit above n - 1 equal others that earns the weight c."""
    return [(2, 0.5), (2, 0.9), (1025, 0.9), (17, 0.01), (65537, 0.999)]
