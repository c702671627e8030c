"""Graders of the chapter *trade-off*."""

import torch

from ssmbook.exercises import agrees, grader
from ssmbook.maps import LTISSM


def _cases():
    for seed, (n, weight) in enumerate(((40, 0.5), (64, 0.1), (25, 1.0), (30, 0.002))):
        generator = torch.Generator().manual_seed(seed)
        like = {"generator": generator, "dtype": torch.float64}
        M = LTISSM.random(4, 3, N=5, rho=0.8, **like).system.lags(n).detach()
        yield M, torch.randn(3, 4, **like), weight
    V = torch.eye(2, dtype=torch.float64)
    M = torch.zeros(12, 2, 2, dtype=torch.float64)
    M[5] = -V  # a hole far out: nothing before it is safe
    yield M, V, 1.0
    yield torch.zeros_like(M), V, 1.0  # safe from the start
    M = M.clone()
    M[7] = torch.tensor([[3.0, 0.0], [0.0, -1.0]], dtype=torch.float64)  # a large norm hides the hole
    yield M, V, 1.0
    M = M.clone()
    M[-1] = -V  # never safe
    yield M, V, 1.0


def _safe_from(M, V, a):
    """The first T such that sigma_2(a V + M_tau) >= a sigma_2(V) / 2 for every tau from T to the end."""
    second = torch.linalg.svdvals(a * V + M)[:, 1]
    bad = torch.nonzero(second < a * torch.linalg.svdvals(V)[1] / 2).flatten()
    return int(bad[-1]) + 1 if len(bad) else 0


@grader("trade-off/safe-distance")
def grade_safe_distance(answer):
    """A function (M (n, p, d), V (p, d), a) -> int: the distance from which the sum's floor stays up."""
    hint = (
        "take the second singular value of a * V + M[tau] for every tau; the answer is one more than the "
        "last tau where it is below half of a * sigma_2(V) (0 if there is none)"
    )
    return agrees(answer, _safe_from, _cases(), hint)
