"""Graders of the chapter *interaction-operator*."""

import torch

from ..operators import DenseOperator
from ._grader import agrees, grader


def _planted(k: int, scale: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    alpha = torch.randn(5, 5, k, generator=generator, dtype=torch.float64)
    V = torch.randn(k, 3, 4, generator=generator, dtype=torch.float64)
    return scale * torch.einsum("ijh,hpd->ijpd", alpha, V)


@grader("interaction-operator/span")
def grade_span(answer):
    """A function (n, n, p, d) tensor -> dimension of the span of its n² blocks."""
    tables = [_planted(k, scale, k) for k, scale in ((1, 1.0), (3, 1e-30), (12, 1e20))]
    tables.append(torch.zeros(4, 4, 2, 2, dtype=torch.float64))
    hint = (
        "count the singular values of the table with rows vec W_ij that exceed rtol times the largest; "
        "a zero operator has dimension 0"
    )
    return agrees(answer, lambda W: DenseOperator(W).interaction_rank(), [(W,) for W in tables], hint)
