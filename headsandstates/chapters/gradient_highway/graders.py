"""Graders of the chapter *gradient-highway*."""

import math
from functools import partial

import torch

from headsandstates.chapters._graded import seeded
from headsandstates.exercises import grader
from ssmbook.gradients import softmax_jacobian_row
from ssmbook.maps import softmax_coefficients


def _ratios(x, W_Q, W_K, V):
    alpha = softmax_coefficients((x @ W_Q.mT)[None], (x @ W_K.mT)[None])[0, -1]
    norms = torch.linalg.matrix_norm(softmax_jacobian_row(x, W_Q, W_K, V), ord=2)
    return (norms / (alpha * torch.linalg.svdvals(V)[1]))[:-1]


def _by_hand(x, W_Q, W_K, V, *, scale=None):
    """Norms of V + (v_j - y_i) g^T for j < i over sigma_2(V), or with another scale."""
    g = W_K.mT @ W_Q @ x[-1] / math.sqrt(scale or len(W_Q))
    values = x @ V.mT
    brackets = V + (values[:-1] - torch.softmax(x @ g, 0) @ values)[:, :, None] * g
    return torch.linalg.matrix_norm(brackets, ord=2) / torch.linalg.svdvals(V)[1]


@grader(
    "gradient-highway/lanes",
    right=_ratios,
    hint=(
        "a ratio of gradient to weight times second singular value is wrong",
        "Where to look: which vector multiplies v_j - y_i, and what becomes of the weight in the ratio",
    ),
    mistakes={
        "the logits are divided by sqrt(d_k)": partial(_by_hand, scale=1),
        "a token that moves also moves the weights": lambda x, W_Q, *rest: _by_hand(x, 0 * W_Q, *rest),
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


def _longest(a, B, *, sides=2, own=1):
    return own + math.floor(math.exp(sides * B) * (1 - a) / a)


@grader(
    "gradient-highway/capped",
    right=_longest,
    hint=(
        "not the largest number of tokens",
        "Where to look: how far apart two logits can be, and how many tokens compete with the answer",
    ),
    mistakes={
        "the competitors may have logit -B, so the margin can be 2B": partial(_longest, sides=1),
        "you counted the competitors: the answer is a token, too": partial(_longest, own=0),
        "a weight of a has odds a / (1 - a)": lambda a, B: 1 + math.floor(math.exp(2 * B) / a),
    },
    formula="the weight is at most e^(2B) / (e^(2B) + n - 1): solve for n and round down",
)
def capped_cases():
    """For a function (a, B) -> the largest n at which a head with logits in [-B, B] can give the weight a."""
    return [(0.9, 5.0), (0.5, 1.0), (0.99, 2.0), (0.3, 0.4)]


def _path_norms(layer, x, *, order=2):
    J = torch.func.jacrev(lambda x: layer(x)[-1])(x)  # (p, n, d)
    return torch.linalg.matrix_norm(J.transpose(0, 1), ord=order)


@grader(
    "gradient-highway/path",
    right=_path_norms,
    hint=(
        "these are not the norms of the derivatives of the last output",
        "Where to look: which axes of the derivative belong to one matrix, and which norm it gets",
    ),
    mistakes={
        "your norm adds up all entries: take the largest singular value of each matrix": partial(
            _path_norms, order="fro"
        ),
        "the first token comes first": lambda layer, x: _path_norms(layer, x).flip(0),
        "you differentiated the sum of the outputs: only the last one counts": lambda layer, x: (
            torch.linalg.matrix_norm(torch.func.jacrev(lambda x: layer(x).sum(0))(x).transpose(0, 1), ord=2)
        ),
    },
    formula="torch.func.jacrev of x -> layer(x)[-1] has shape (p, n, d): bring n to the front and take "
    "torch.linalg.matrix_norm with ord=2",
)
def path_cases():
    """For a function (layer, x (n, d)) -> (n,) norms ||dy_last/dx_j||_2 of a layer (n, d) -> (n, p)."""
    for seed, (n, d, p) in enumerate(((5, 3, 2), (8, 2, 4), (3, 1, 1))):
        like = seeded(seed)
        M, x = torch.randn(p, d, **like), torch.randn(n, d, **like)
        yield lambda x, M=M: torch.tanh(x.cumsum(0) @ M.mT) * x.square().sum(-1, keepdim=True), x


def _held(z, A):
    return torch.exp(A * torch.nn.functional.softplus(z).sum())


@grader(
    "gradient-highway/held",
    right=_held,
    hint=("the share kept is wrong", "Where to look: what multiplies the state at one token of the gap"),
    atol=1e-12,
    mistakes={
        "the step is softplus(z), not z": lambda z, A: torch.exp(A * z.sum()),
        "every token of the gap takes a step of its own": lambda z, A: _held(z.mean(), A),
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
    hint=("the margin is wrong", "Where to look: the odds of the answer against all the others together"),
    mistakes={
        "the answer does not compete with itself: n - 1 others do": lambda n, c: _flat(n + 1, c),
        "a weight of c has odds c / (1 - c)": lambda n, c: math.log(n - 1) + math.log(c),
    },
    formula="the odds c / (1 - c) are e^m over n - 1, so m is log(n - 1) + log(c / (1 - c))",
)
def margin_cases():
    """For a function (n, c) -> the logit above n - 1 equal others that earns the weight c."""
    return [(2, 0.5), (2, 0.9), (1025, 0.9), (17, 0.01), (65537, 0.999)]
