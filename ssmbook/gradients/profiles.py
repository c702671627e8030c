"""Exact gradients against distance, by autograd, for any callable."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ssmbook._checks import check_integer, check_tensors
from ssmbook.numerics import single
from ssmbook.operators.pullback import separate_pullback


def jacobian_blocks(F: Callable, x: torch.Tensor, target: int = -1) -> torch.Tensor:
    """The blocks dy_i/dx_j of one output position i = ``target`` with respect to every input position j.

    F: any torch callable (..., n, d) -> (..., n, p) that treats batch entries independently; x (..., n, d),
    left untouched. Returns (..., n, p, d): entry [..., j, a, b] is the derivative of y_i's a-th by x_j's
    b-th coordinate, in the dtype and on the device of x. One backward pass for each of the p output
    coordinates: exact, O(n) memory over that of F, and it works through any custom autograd function, which
    batched vector-Jacobian products do not. Raises TypeError/ValueError for a malformed x, a target outside
    the sequence, an F of the wrong kind. Introduced in *gradient-highway*.

    >>> jacobian_blocks(lambda x: x.cumsum(0), torch.ones(3, 2)).shape  # a matrix for each input token
    torch.Size([3, 2, 2])
    """
    sizes = check_tensors(x=(x, "... n d"), finite=True)
    target = check_integer("target", target, low=-sizes["n"], high=sizes["n"] - 1)
    return separate_pullback(F, x).row(range(sizes["n"])[target])


def gradient_profile(F: Callable, x: torch.Tensor, target: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """How wide the gradient path is at each distance: the spectral norm of dy_i/dx_{i - tau}.

    F, x, target as in :func:`jacobian_blocks`. Returns (distances, norms): int64 (i + 1,) = 0, 1, ..., i and
    (..., i + 1), in the dtype and on the device of x; positions after i are left out. Use float64: half-lives
    multiply, and 0.5**tau leaves float32 at tau = 150. Raises as :func:`jacobian_blocks`.
    Introduced in *gradient-highway*.

    >>> distance, width = gradient_profile(lambda x: 0.5 * x + x.roll(1, 0), torch.ones(4, 2))
    >>> distance.tolist(), width.tolist()  # half of the token itself, all of the one before
    ([0, 1, 2, 3], [0.5, 1.0, 0.0, 0.0])
    """
    blocks = jacobian_blocks(F, x, target)
    i = range(x.shape[-2])[target]
    past = blocks[..., : i + 1, :, :].flip(-3)
    distances = torch.arange(i + 1, device=x.device)
    if past.numel() == 0:
        return distances, past.new_zeros(past.shape[:-2])
    return distances, torch.linalg.matrix_norm(single(past), ord=2).to(past.dtype)
