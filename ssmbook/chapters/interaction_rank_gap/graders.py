"""Graders of the chapter *interaction-rank-gap*."""

import torch

from ssmbook.exercises import agrees, grader


def _diagonal_gap(a: float, b: float, n: int) -> float:
    tau = torch.arange(n, dtype=torch.float64)
    poles = torch.tensor([a, b], dtype=torch.float64)
    rows = (n - tau).sqrt()[:, None] * poles ** tau[:, None]
    energy = torch.linalg.svdvals(rows) ** 2
    return float(energy[1:].sum() / energy.sum())


@grader("interaction-rank-gap/diagonal-gap")
def grade_diagonal_gap(answer):
    """A function (a, b, n) -> share of the energy that one head misses of A = diag(a, b), B = C = I."""
    cases = [(0.9, 0.5, 20), (0.9, -0.9, 7), (0.3, 0.3, 12), (1.0, 0.0, 5), (-0.7, 0.2, 1), (1.1, 0.99, 40)]
    hint = (
        "lag tau is diag(a^tau, b^tau) and occurs n - tau times; the smaller eigenvalue of the "
        "2 x 2 Gram matrix over its trace is the share (n = 1 and a = b give 0, and 0^0 is 1)"
    )
    return agrees(answer, _diagonal_gap, cases, hint)
