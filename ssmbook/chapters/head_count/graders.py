"""Graders of the chapter *head-count*."""

import torch

from ssmbook.exercises import close, grader
from ssmbook.experiments.learning_heads import population_error
from ssmbook.heads import head_floor
from ssmbook.systems import random_stable


def _cases():
    for seed, (N, d, p, n) in enumerate(((5, 3, 2, 12), (4, 2, 2, 30), (9, 2, 3, 6), (3, 1, 4, 8))):
        generator = torch.Generator().manual_seed(seed)
        M = random_stable(N, d, p, rho=0.9, generator=generator, dtype=torch.float64).lags(n)
        for H in (0, 1, 2, min(n, p * d)):
            yield M, H


@grader("head-count/best-heads")
def grade_best_heads(answer):
    """A function (M (n, p, d), H) -> kernels c (H, n), value maps V (H, p, d), judged by its error alone."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    for M, H in _cases():
        n, p, d = M.shape
        c, V = answer(M.clone(), H)
        for name, given, shape in (("c", c, (H, n)), ("V", V, (H, p, d))):
            if tuple(given.shape) != shape:
                return f"{name} must have shape {shape} for H = {H}; got {tuple(given.shape)}"
        lag = (torch.arange(n)[:, None] - torch.arange(n)).clamp(min=0)
        error = population_error(c.double()[:, lag].tril(), V.double(), M)
        floor = head_floor(M)[H]
        hint = (
            f"at H = {H} your heads miss {float(error):.4f} of the energy, {float(floor):.4f} is possible: "
            "lag τ occurs n − τ times, so its row must weigh √(n − τ) in the decomposition, and the weight "
            "must be taken out of the kernels again"
        )
        problem = close(error, floor, hint, rtol=1e-6, atol=1e-12)
        if problem:
            return problem
    return None
