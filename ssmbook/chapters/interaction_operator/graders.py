"""Graders of the chapter *interaction-operator*."""

import math
from functools import partial

import torch

from ssmbook.chapters._graded import f64, heads_agree, seeded
from ssmbook.exercises import grader
from ssmbook.operators import path_operator, secant_operator


def _planted(k: int, scale: float = 1.0, weakest: float = 1.0) -> torch.Tensor:
    """Blocks (5, 5, 3, 4) whose span has dimension ``k``, the weakest direction ``weakest`` of the first."""
    like = seeded(k)
    tables, value_maps = (torch.linalg.qr(torch.randn(m, k, **like)).Q for m in (25, 12))
    sizes = scale * torch.logspace(0, math.log10(weakest), k, dtype=f64)
    return ((tables * sizes) @ value_maps.T).reshape(5, 5, 3, 4)


def _count(values, rtol):
    return int((values > rtol * values.max()).sum())


def _tall(W):
    return W.flatten(0, 1).flatten(1)


def _span(W, rtol):
    return _count(torch.linalg.svdvals(_tall(W)), rtol)


def _by_gram(W, rtol):
    return _count(torch.linalg.eigvalsh(_tall(W).T @ _tall(W)).clamp(min=0), rtol)


@grader(
    "interaction-operator/span",
    right=_span,
    hint="not the count",
    mistakes={
        "that is the rank of W as one big matrix, not the number of independent blocks": (
            lambda W, rtol: _count(torch.linalg.svdvals(W.transpose(1, 2).flatten(2).flatten(0, 1)), rtol)
        ),
        "a Gram matrix squares the singular values: the weak direction is under the threshold": _by_gram,
        "in single precision rounding noise counts as directions, and 1e-30 of them as none": (
            lambda W, rtol: _span(W.float(), rtol)
        ),
        "the threshold is rtol times the largest, and your function does not look at rtol": (
            lambda W, rtol: _span(W, 1e-10)
        ),
        "your threshold is absolute: multiplied by a number, W must keep its count": (
            lambda W, rtol: int((torch.linalg.svdvals(_tall(W)) > rtol).sum())
        ),
    },
    formula="Count the singular values of the table with rows vec W_ij above rtol times the largest, in "
    "double precision and without squaring them; a zero operator has dimension 0",
)
def span_cases():
    """For a function ((n, n, p, d) tensor, rtol) -> dimension of the span of its n² blocks."""
    # The weak direction is lost by a Gram matrix, which squares it, and kept by an SVD.
    yield _planted(1), 1e-10
    yield _planted(3, scale=1e-30), 1e-10
    yield _planted(12, scale=1e20), 1e-10
    yield _planted(5, weakest=1e-6), 1e-10
    yield _planted(2, weakest=1e-6), 1e-3
    yield torch.zeros(4, 4, 2, 2, dtype=f64), 1e-10


def _nearest(W, H, sizes=True):
    U, S, Vh = torch.linalg.svd(_tall(W), full_matrices=False)
    return ((U[:, :H] * (S[:H] if sizes else 1.0)) @ Vh[:H]).reshape(W.shape)


def _first_blocks(W, H):
    """Project on the span of the first H blocks in reading order: heads, and not the best."""
    Q = torch.linalg.qr(_tall(W)[:H].T).Q
    return (_tall(W) @ Q @ Q.T).reshape(W.shape)


HEADS_MISTAKES = {
    "your heads have the right maps and tables of size one: the singular values are missing": (
        partial(_nearest, sizes=False)
    ),
    "you leave the strongest direction out: singular values come in falling order": (
        lambda W, H: _nearest(W, H + 1) - _nearest(W, 1)
    ),
    "your maps are blocks of W: the best ones are mixtures of all of them": _first_blocks,
}


@grader(
    "interaction-operator/heads",
    formula="Reshape W to (n * n, p * d), take its SVD; V are the first H right singular vectors, alpha the "
    "left ones times their singular values, reshaped to (H, n, n)",
)
def grade_heads(answer):
    """A function (W (n, n, p, d), H) -> (alpha (H, n, n), V (H, p, d)), the best H heads."""
    sizes = ((4, 2, 2, 1), (5, 3, 2, 2), (3, 2, 4, 3))
    cases = [(torch.randn(n, n, p, d, **seeded(seed)), H) for seed, (n, p, d, H) in enumerate(sizes)]
    hint = "alpha and V are right in shape and not the nearest; in the blocks of their sum"
    return heads_agree(answer, _nearest, cases, lambda W, H: (H, *W.shape[1:]), hint, mistakes=HEADS_MISTAKES)


def _jacobian(F, x):
    return torch.autograd.functional.jacobian(F, x).permute(0, 2, 1, 3)


def _path(F, x):
    return path_operator(F, x).to_dense()


@grader(
    "interaction-operator/path",
    right=_path,
    hint="not the average of the derivative along the path",
    rtol=1e-4,
    atol=1e-5,
    mistakes={
        "that is the Jacobian at X: average it over the points tX with t from 0 to 1": _jacobian,
        "you take the derivative at X/2 only: one point does not make the integral": (
            lambda F, x: _jacobian(F, x / 2)
        ),
        "it reproduces F(X) and knows nothing of F: your blocks are y_i x_j over the size of X": (
            lambda F, x: secant_operator(F(x), x).to_dense()
        ),
        "your positions are exchanged: the first index is that of the output": (
            lambda F, x: _path(F, x).transpose(0, 1)
        ),
    },
    formula="For Gauss-Legendre points t in [0, 1] and weights w add w times the Jacobian at t * x, then "
    "bring (n, p, n, d) into the order (n, n, p, d)",
)
def path_cases():
    """For a function (F, x (n, d)) -> path operator (n, n, p, d) of F at x, to four digits or better."""
    # Three maps, each with the point at which it is asked.
    like = seeded(3)
    A, points = torch.randn(2, 2, **like), [torch.randn(n, 2, **like) for n in (1, 4, 3)]
    maps = (lambda x: x**3, lambda x: torch.tanh(x.cumsum(-2) @ A.T), lambda x: x.cumsum(-2) * x.sin())
    return list(zip(maps, points, strict=True))
