"""Graders of the chapter *how-many-heads-really*."""

import math

import torch

from ssmbook.exercises import grader

_CASES = ((0.7, 2), (0.7, 5), (0.7, 6), (0.1, 20), (-0.4, 8), (-2.5, 3), (3.0, 2), (1.0, 30))


def _rotation_lags(theta, n):
    turn = theta * torch.arange(n, dtype=torch.float64)
    return torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()], dim=1).reshape(n, 2, 2)


def _fewest(theta, n):
    return 2 if (n - 1) * abs(theta) < math.pi else 3


@grader("how-many-heads-really/rotation")
def grade_rotation(answer):
    """A function (theta, n >= 2) -> alpha (H, n) by lag, positive, V (H, 2, 2), as few heads as possible."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    for theta, n in _CASES:
        alpha, V = (torch.as_tensor(part).detach().to(torch.float64) for part in answer(theta, n))
        H, where = _fewest(theta, n), f"at theta = {theta}, n = {n}"
        if V.ndim != 3 or tuple(V.shape[1:]) != (2, 2) or tuple(alpha.shape) != (len(V), n):
            return (
                f"{where}, expected alpha (H, n) and V (H, 2, 2); got {tuple(alpha.shape)}, {tuple(V.shape)}"
            )
        if not (alpha > 0).all():
            return f"{where}, a coefficient is not positive: no finite logit gives it"
        if not (alpha.sum(1) < 1).all():
            return f"{where}, the coefficients of a head sum to 1 or more: nothing is left for the sink"
        error = float((torch.einsum("hn,hpd->npd", alpha, V) - _rotation_lags(theta, n)).abs().max())
        if not error < 1e-8:
            return f"{where}, the heads miss a lag operator by {error:.1e}"
        if len(V) != H:
            return f"{where}, {H} heads suffice; got {len(V)}"
    return None
