"""Graders of the chapter *gradient-highway*."""

import math

import torch

from ssmbook.chapters._graded import seeded
from ssmbook.exercises import agrees, grader
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


def _frozen(x, W_Q, W_K, V):
    sigma = torch.linalg.svdvals(V)
    return (sigma[0] / sigma[1]).expand(len(x) - 1)


def _with_weight(x, W_Q, W_K, V):
    return softmax_row_weights(x, W_Q, W_K)[:-1] * _ratios(x, W_Q, W_K, V)


LANES_MISTAKES = [
    (_over(1, scale=1), "right only for keys of width 1: the logits are divided by sqrt(d_k)"),
    (
        _over(1, scale="d"),
        "your logits are divided by the square root of the token's width, not of the key's",
    ),
    (_over(1, swapped=True), "queries and keys have changed places: the last token asks"),
    (_frozen, "right only where W_Q = 0: a token that moves also moves the weights"),
    (_over(1, order="fro"), "your norm is that of Frobenius; the floor is about the largest singular value"),
    (_over(0), "you divide by the largest singular value of V; the floor has the second"),
    (_with_weight, "your numbers still contain the weight alpha_ij"),
]


def _case(n: int, d: int, p: int, d_k: int, seed: int, scale: float = 1.0):
    like = seeded(seed)
    x, W_Q = torch.randn(n, d, **like), scale * torch.randn(d_k, d, **like)
    return x, W_Q, torch.randn(d_k, d, **like), torch.randn(p, d, **like)


@grader(
    "gradient-highway/lanes",
    formula="the weight cancels: the ratio is the norm of V + (v_j - y_i) g_i^T over sigma_2(V), with "
    "g_i = W_K^T W_Q x_i / sqrt(d_k) and i the last token; leave out j = i",
)
def grade_lanes(answer):
    """A function (x, W_Q, W_K, V) -> (n - 1,) ratios ||dy_last/dx_j||_2 / (alpha_j sigma_2(V)), j < n - 1."""
    sizes = ((2, 2, 2, 1, 0), (9, 4, 3, 2, 1), (17, 5, 6, 8, 2), (11, 3, 3, 4, 3, 8.0))
    cases = [_case(*size) for size in sizes]
    hint = "a ratio of gradient to weight times second singular value is wrong"
    return agrees(answer, _ratios, cases, hint, mistakes=LANES_MISTAKES)


def _held(z, A):
    return torch.exp(A * torch.nn.functional.softplus(z).sum())


HELD_MISTAKES = [
    (
        lambda z, A: torch.exp(A * z.sum()),
        "the step is softplus of the pre-activation, not the pre-activation",
    ),
    (
        lambda z, A: torch.exp(A * torch.nn.functional.softplus(z.mean())),
        "one step only: every token of the gap takes its own",
    ),
    (
        lambda z, A: torch.exp(A * len(z) * torch.nn.functional.softplus(z.mean())),
        "softplus of the mean is less than the mean of softplus: right only where all tokens are alike",
    ),
    (
        lambda z, A: torch.exp(-A * torch.nn.functional.softplus(z).sum()),
        "yours grows: A is negative already",
    ),
    (lambda z, A: torch.exp(A * z.exp().sum()), "exp is a bound on softplus and not softplus"),
]


@grader("gradient-highway/held", formula="sum the steps softplus(z_l), multiply by A and take exp once")
def grade_held(answer):
    """A function (z (T,), A < 0) -> number: the share of a state that a gap of T tokens keeps."""
    sizes = ((1, 0.0, -1.0), (7, -2.0, -0.5), (40, -4.0, -1.0), (5, 3.0, -0.1))
    cases = [(torch.randn(T, **seeded(seed)) + offset, A) for seed, (T, offset, A) in enumerate(sizes)]
    return agrees(answer, _held, cases, "the share kept is wrong", mistakes=HELD_MISTAKES, atol=1e-12)


def _flat(n, c):
    return math.log(n - 1) + math.log(c / (1 - c))


MARGIN_MISTAKES = [
    (
        lambda n, c: math.log(n) + math.log(c / (1 - c)),
        "the answer does not compete with itself: n - 1 others do",
    ),
    (
        lambda n, c: math.log(n - 1) + math.log(c),
        "that gives odds of c to one; a weight of c has odds c / (1 - c)",
    ),
    (lambda n, c: math.log(c / (1 - c)), "right only for two keys: where are the other competitors?"),
    (
        lambda n, c: math.log2(n - 1) + math.log2(c / (1 - c)),
        "softmax takes powers of e, you took logarithms to base 2",
    ),
]


@grader(
    "gradient-highway/margin",
    formula="the odds c / (1 - c) are e^m over n - 1, so m is log(n - 1) + log(c / (1 - c))",
)
def grade_margin(answer):
    """A function (n, c) -> the logit above n - 1 equal others that earns the weight c."""
    cases = [(2, 0.5), (2, 0.9), (1025, 0.9), (17, 0.01), (65537, 0.999)]
    return agrees(answer, _flat, cases, "the margin is wrong", mistakes=MARGIN_MISTAKES)
