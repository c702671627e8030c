"""Graders of the chapter *interaction-operator*."""

import math

import torch

from ssmbook.exercises import agrees, grader


def _planted(k: int, scale: float = 1.0, weakest: float = 1.0) -> torch.Tensor:
    """Blocks (5, 5, 3, 4) whose span has dimension ``k``, the weakest direction ``weakest`` of the first."""
    like = {"generator": torch.Generator().manual_seed(k), "dtype": torch.float64}
    tables, value_maps = (torch.linalg.qr(torch.randn(m, k, **like)).Q for m in (25, 12))
    sizes = scale * torch.logspace(0, math.log10(weakest), k, dtype=torch.float64)
    return ((tables * sizes) @ value_maps.T).reshape(5, 5, 3, 4)


def _cases():
    """(W, rtol) -> k. The weak direction is lost by a Gram matrix, which squares it, and kept by an SVD."""
    yield (_planted(1), 1e-10), 1
    yield (_planted(3, scale=1e-30), 1e-10), 3
    yield (_planted(12, scale=1e20), 1e-10), 12
    yield (_planted(5, weakest=1e-6), 1e-10), 5
    yield (_planted(2, weakest=1e-6), 1e-3), 1
    yield (torch.zeros(4, 4, 2, 2, dtype=torch.float64), 1e-10), 0


@grader("interaction-operator/span")
def grade_span(answer):
    """A function ((n, n, p, d) tensor, rtol) -> dimension of the span of its n² blocks."""
    hint = (
        "count the singular values of the table with rows vec W_ij that exceed rtol times the largest, in "
        "double precision and without squaring them; a zero operator has dimension 0"
    )
    for arguments, k in _cases():
        problem = agrees(answer, lambda W, rtol, k=k: k, [arguments], hint)
        if problem:
            return problem
    return None
