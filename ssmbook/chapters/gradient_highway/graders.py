"""Graders of the chapter *gradient-highway*."""

import math
from functools import partial

import torch

from ssmbook.chapters._graded import seeded
from ssmbook.exercises import grader
from ssmbook.gradients import softmax_jacobian_row, softmax_row_weights


def _ratios(x, W_Q, W_K, V):
    alpha = softmax_row_weights(x, W_Q, W_K)
    norms = torch.linalg.matrix_norm(softmax_jacobian_row(x, W_Q, W_K, V), ord=2)
    return (norms / (alpha * torch.linalg.svdvals(V)[1]))[:-1]


def _by_hand(x, W_Q, W_K, V, *, scale=None, order=2, sigma=1):
    """Norms of V + (v_j - y_i) g^T for j < i over sigma_2(V), or with another scale, norm or sigma."""
    g = W_K.mT @ W_Q @ x[-1] / math.sqrt(scale or len(W_Q))
    values = x @ V.mT
    y = torch.softmax(x @ g, 0) @ values
    brackets = V + (values[:-1] - y)[:, :, None] * g
    return torch.linalg.matrix_norm(brackets, ord=order) / torch.linalg.svdvals(V)[sigma]


@grader(
    "gradient-highway/lanes",
    right=_ratios,
    hint="a ratio of gradient to weight times second singular value is wrong",
    mistakes={
        "right only for keys of width 1: the logits are divided by sqrt(d_k)": partial(_by_hand, scale=1),
        "your logits are divided by the square root of the token's width, not of the key's": (
            lambda x, *rest: _by_hand(x, *rest, scale=x.shape[1])
        ),
        "queries and keys have changed places: the last token asks": (
            lambda x, W_Q, W_K, V: _by_hand(x, W_K, W_Q, V)
        ),
        "right only where W_Q = 0: a token that moves also moves the weights": (
            lambda x, W_Q, *rest: _by_hand(x, 0 * W_Q, *rest)
        ),
        "your norm is that of Frobenius; the floor is about the largest singular value": (
            partial(_by_hand, order="fro")
        ),
        "you divide by the largest singular value of V; the floor has the second": partial(_by_hand, sigma=0),
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


def _held(z, A, step=torch.nn.functional.softplus):
    return torch.exp(A * step(z).sum())


@grader(
    "gradient-highway/held",
    right=_held,
    hint="the share kept is wrong",
    atol=1e-12,
    mistakes={
        "the step is softplus of the pre-activation, not the pre-activation": (
            partial(_held, step=lambda z: z)
        ),
        "one step only: every token of the gap takes its own": lambda z, A: _held(z.mean(), A),
        "softplus of the mean is less than the mean of softplus: right only where all tokens are alike": (
            lambda z, A: _held(z.mean(), len(z) * A)
        ),
        "yours grows: A is negative already": lambda z, A: _held(z, -A),
        "exp is a bound on softplus and not softplus": partial(_held, step=torch.exp),
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
        "the answer does not compete with itself: n - 1 others do": lambda n, c: _flat(n + 1, c),
        "that gives odds of c to one; a weight of c has odds c / (1 - c)": (
            lambda n, c: math.log(n - 1) + math.log(c)
        ),
        "right only for two keys: where are the other competitors?": lambda n, c: _flat(2, c),
        "softmax takes powers of e, you took logarithms to base 2": lambda n, c: _flat(n, c) / math.log(2),
    },
    formula="the odds c / (1 - c) are e^m over n - 1, so m is log(n - 1) + log(c / (1 - c))",
)
def margin_cases():
    """For a function (n, c) -> the logit above n - 1 equal others that earns the weight c."""
    return [(2, 0.5), (2, 0.9), (1025, 0.9), (17, 0.01), (65537, 0.999)]
