"""Graders of the chapter *trained-layers*."""

import torch

from ssmbook.exercises import agrees, grader


def _heads_used(alpha, V, eps):
    left, right = (torch.linalg.qr(part.flatten(1).mT).R for part in (alpha, V))
    energy = torch.linalg.svdvals(left @ right.mT).square()
    tails = energy.flip(0).cumsum(0).flip(0) / energy.sum()
    return int((tails > eps).sum())


@grader("trained-layers/heads-used")
def grade_heads_used(answer):
    """A function (alpha (H, n, n), V (H, p, d), eps) -> fewest heads that leave at most eps of the energy."""
    generator = torch.Generator().manual_seed(0)
    new = {"generator": generator, "dtype": torch.float64}
    cases = []
    for H, n, p, d in ((4, 9, 3, 5), (6, 12, 4, 4), (2, 5, 7, 2)):
        alpha = torch.randn(H, n, n, **new).softmax(-1)
        V = torch.randn(H, p, d, **new) * 2.0 ** -torch.arange(H, dtype=torch.float64)[:, None, None]
        cases += [(alpha, V, eps) for eps in (0.1, 0.01, 0.001)]
    hint = (
        "the count is wrong: it belongs to sum_h alpha^h ⊗ V_h, so heads whose tables or value maps resemble "
        "one another must share a direction; and eps is a share of the energy, squares of singular values"
    )
    return agrees(answer, _heads_used, cases, hint)
