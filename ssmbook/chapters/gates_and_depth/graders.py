"""Graders of the chapter *gates-and-depth*."""

import torch

from ssmbook.exercises import grader
from ssmbook.heads import residual_stack_operator

_CASES = ((4, 2, 1), (5, 7, 1), (3, 9, 2), (3, 10, 2), (2, 16, 3), (2, 1, 2), (3, 2, 4), (2, 125, 4))


@grader("gates-and-depth/layers")
def grade_layers(answer):
    """A function (A, n, H) -> alpha (L, H, n, n), V (L, H, N, N): residual layers with lags A^tau."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    for N, n, H in _CASES:
        A = torch.randn(N, N, generator=torch.Generator().manual_seed(N + n), dtype=torch.float64) / N**0.5
        alpha, V = (torch.as_tensor(part).detach().to(torch.float64) for part in answer(A.clone(), n, H))
        where = f"at N = {N}, n = {n}, H = {H}"
        if alpha.ndim != 4 or alpha.shape[1:] != (H, n, n) or V.shape != (len(alpha), H, N, N):
            shapes = f"{tuple(alpha.shape)}, {tuple(V.shape)}"
            return f"{where}, expected alpha (L, H, n, n) and V (L, H, N, N); got {shapes}"
        if (1 + H) ** max(len(alpha) - 1, 0) >= n and len(alpha):
            return f"{where}, {len(alpha) - 1} layers suffice; got {len(alpha)}"
        if alpha.triu(1).any():
            return f"{where}, a head reads a later token: keep alpha lower triangular"
        lags = torch.stack([torch.linalg.matrix_power(A, tau) for tau in range(n)])
        lag = torch.arange(n)[:, None] - torch.arange(n)
        wanted = lags[lag.clamp(min=0)] * (lag >= 0)[:, :, None, None]
        error = float((residual_stack_operator(alpha, V).to_dense() - wanted).abs().max())
        if not error < 1e-8:
            return f"{where}, a block is off by {error:.1e}: write each lag in base 1 + H"
    return None
