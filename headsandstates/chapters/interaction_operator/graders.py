"""Graders of the chapter *interaction-operator*."""

import math
from functools import partial

import torch

from headsandstates.chapters._graded import block_rows, f64, fewest, misshaped, seeded, seeded_cases, summed
from headsandstates.exercises import grader
from ssmbook.operators import path_operator


def _planted(k: int, weakest: float = 1.0) -> torch.Tensor:
    """Blocks (5, 5, 3, 4) whose span has dimension ``k``, the weakest direction ``weakest`` of the first."""
    like = seeded(k)
    coefficients, value_maps = (torch.linalg.qr(torch.randn(m, k, **like)).Q for m in (25, 12))
    sizes = torch.logspace(0, math.log10(weakest), k, dtype=f64)
    return ((coefficients * sizes) @ value_maps.T).reshape(5, 5, 3, 4)


def _span(W, rtol):
    sigma = torch.linalg.svdvals(block_rows(W))
    return int((sigma > rtol * sigma.max()).sum())


@grader(
    "interaction-operator/span",
    right=_span,
    hint="not the count",
    mistakes={
        "that is the rank of one big matrix, not the number of independent blocks": (
            lambda W, rtol: _span(W.transpose(1, 2), rtol)
        ),
        "a Gram matrix squares the singular values and loses the weak direction": (
            lambda W, rtol: _span(W, rtol**0.5)
        ),
        "your threshold is a fixed number: compare with rtol times the largest singular value": (
            lambda W, rtol: int((torch.linalg.svdvals(block_rows(W)) > rtol).sum())
        ),
    },
    formula="Count the singular values of the matrix with rows vec W_ij above rtol times the largest, in "
    "double precision and without squaring them; a zero operator has dimension 0",
)
def span_cases():
    """For a function ((n, n, p, d) tensor, rtol) -> dimension of the span of its n² blocks."""
    yield _planted(3), 1e-10
    yield 1e-30 * _planted(3), 1e-10  # lost by a fixed threshold
    yield _planted(12), 1e-10
    yield _planted(5, weakest=1e-6), 1e-10  # lost by a Gram matrix, which squares it
    yield _planted(2, weakest=1e-6), 1e-3
    yield _planted(1), 1e-10
    yield torch.zeros(4, 4, 2, 2, dtype=f64), 1e-10


def _nearest(W, H, sizes=True):
    U, S, Vh = torch.linalg.svd(block_rows(W), full_matrices=False)
    alpha = U[:, :H] * S[:H] if sizes else U[:, :H]
    return alpha.T.unflatten(1, W.shape[:2]), Vh[:H].unflatten(1, W.shape[2:])


def _folded_columns(W, H):
    """The coefficients folded without transposing them first."""
    alpha, V = _nearest(W, H)
    return alpha.flatten(1).T.reshape(alpha.shape), V


def _projected(W, H, choose):
    """Heads by the eigenvectors of the Gram matrix, of which ``choose`` makes H rows."""
    _, vectors = torch.linalg.eigh(block_rows(W).T @ block_rows(W))
    V = choose(vectors, H).reshape(H, *W.shape[2:])
    return torch.einsum("ijpd,hpd->hij", W, V), V


@grader(
    "interaction-operator/heads",
    right=_nearest,
    judge=lambda heads, W, H: misshaped(heads, alpha=(H, *W.shape[:2]), V=(H, *W.shape[2:])),
    view=summed,
    hint="alpha and V are right in shape and not the nearest; in the blocks of their sum",
    mistakes={
        "the singular values are missing from your coefficients": partial(_nearest, sizes=False),
        "a head's coefficients are a column: transpose before you fold them": _folded_columns,
        "eigenvectors are columns: transpose before you fold them into value maps": (
            partial(_projected, choose=lambda vectors, H: vectors[:, -H:])
        ),
        "eigh returns the smallest eigenvalues first, and you took those": (
            partial(_projected, choose=lambda vectors, H: vectors[:, :H].T)
        ),
    },
    formula="Reshape W to (n * n, p * d); V are its first H right singular vectors, the eigenvectors of the "
    "Gram matrix, and alpha holds the inner products of the blocks with them, of shape (H, n, n)",
)
def heads_cases():
    """For a function (W (n, n, p, d), H) -> (alpha (H, n, n), V (H, p, d)), the best H heads."""
    sizes = ((4, 2, 2, 1), (5, 3, 2, 2), (3, 2, 4, 3))
    return [(torch.randn(n, n, p, d, **like), H) for like, (n, p, d, H) in seeded_cases(*sizes)]


def _heads_for(alpha, V, share, *, power=2):
    """The fewest heads that miss at most ``share``, of the energy if ``power`` is 2."""
    return fewest(torch.linalg.svdvals(block_rows(summed((alpha, V)))) ** power, share)


@grader(
    "interaction-operator/heads-for",
    right=_heads_for,
    hint="not the fewest heads",
    mistakes={
        "energy is the sum of the squares of the singular values": partial(_heads_for, power=1),
        "you looked at the coefficients alone, and value maps may depend on each other": (
            lambda alpha, V, share: fewest(torch.linalg.svdvals(alpha.flatten(1)) ** 2, share)
        ),
    },
    formula="Of the matrix with rows vec W_ij, the sum over h of alpha_ij times V_h, square the singular "
    "values; H heads miss the sum of those after the first H over the sum of all",
)
def heads_for_cases():
    """For a function (alpha (H, n, n), V (H, p, d), share) -> fewest heads that miss at most this share."""
    alpha, V = torch.randn(4, 6, 6, **seeded(1)).tril(), torch.randn(4, 3, 3, **seeded(2))
    dependent = torch.cat([V[:2], V[:2] + V[:2].flip(0)])
    return [(alpha, V, 0.1), (alpha, V, 0.3), (alpha, dependent, 1e-20), (alpha, V, 1e-20), (alpha, V, 1.0)]


def _jacobian(F, x):
    return torch.autograd.functional.jacobian(F, x).permute(0, 2, 1, 3)


@grader(
    "interaction-operator/path",
    right=lambda F, x: path_operator(F, x).to_dense(),
    hint="not the average of the derivative along the path",
    rtol=1e-4,
    atol=1e-5,
    mistakes={
        "that is the Jacobian at X: average it over the points tX with t from 0 to 1": _jacobian,
        "one point, X/2, does not make the integral": lambda F, x: _jacobian(F, x / 2),
    },
    formula="For Gauss-Legendre points t in [0, 1] and weights w add w times the Jacobian at t * x, then "
    "bring (n, p, n, d) into the order (n, n, p, d)",
)
def path_cases():
    """For a function (F, x (n, d)) -> path operator (n, n, p, d) of F at x, to four digits or better."""
    # Three maps, each with its point.
    like = seeded(3)
    A, points = torch.randn(2, 2, **like), [torch.randn(n, 2, **like) for n in (1, 4, 3)]
    maps = (lambda x: x**3, lambda x: torch.tanh(x.cumsum(-2) @ A.T), lambda x: x.cumsum(-2) * x.sin())
    return list(zip(maps, points, strict=True))
