"""Interaction operators of callables whose inside is not known: path, Jacobian, secant."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ssmbook._checks import check_finite, check_integer, check_rtol, check_tensors
from ssmbook.operators.dense import DenseOperator
from ssmbook.operators.pullback import check_stackable, separate_pullback, value
from ssmbook.operators.quadrature import RayIntegral, relative_noise


def path_operator(
    F: Callable, x: torch.Tensor, points: int = 16, *, rtol: float | None = None, max_points: int = 1024
) -> DenseOperator:
    """Return the path operator W_ij(X) = ∫₀¹ (∂F_i/∂x_j)(tX) dt, for which F(X) = W(X) X.

    ``F``: any callable (..., n, d) -> (..., n, p) that autograd can differentiate and whose batch elements
    do not talk to each other, with F(0) = 0 (a module that wants exactly three dimensions is wrapped:
    ``lambda x: m(x.reshape(-1, n, d)).reshape(x.shape)``); ``x`` (..., n, d). Returns dense blocks (..., n,
    n, p, d) in the dtype and on the device of ``x``, detached.

    The integral is Gauss–Legendre with ``points`` nodes, exact when F is a polynomial of degree ≤ 2·points
    along the ray; where that is not enough the ray is bisected, panel by panel (a kink takes log₂(1/rtol) of
    them). The result is always compared with F: ‖F(X) − W X‖ ≤ rtol · max(‖F(X)‖, ‖F(X/2)‖) for each batch
    element. By default ``rtol`` is 1e-6, or the square root of F's own relative rounding where that is
    larger: 3e-4 when F works in float32, as a whole or (this is measured) in a part. Needs n·p backward
    passes for each 32 nodes.

    Raises ``ValueError`` when F(0) ≠ 0 (the offset is reported); when F mixes its batch, or a shape or value
    of F is not what it should be; when ``max_points`` nodes miss ``rtol`` (the miss is reported), as they do
    where F jumps or a branch of it hides from autograd. One W of many: adding any N with sum_j N_ij x_j = 0
    gives another. Introduced in *interaction-operator*.

    >>> x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    >>> W = path_operator(torch.square, x)  # half the Jacobian, so that W x = x²
    >>> [[round(size, 6) for size in row] for row in W.block_norms().tolist()]
    [[1.0, 0.0], [0.0, 2.0]]
    """
    check_tensors(x=(x, "... n d"), finite=True)
    points = check_integer("points", points, low=1)
    max_points = check_integer("max_points", max_points, low=points)
    y = value(F, x)
    _check_no_offset(F, x, y)
    if y.numel() == 0 or x.numel() == 0:
        return DenseOperator(x.new_zeros(*y.shape[:-1], x.shape[-2], y.shape[-1], x.shape[-1]))
    check_stackable(F, x, y)
    rtol = max(1e-6, relative_noise(F, x) ** 0.5) if rtol is None else rtol
    rtol = check_rtol(rtol)
    # A map may vanish at X by accident; its value half way keeps the tolerance meaningful there.
    norm = torch.linalg.matrix_norm
    tolerance = rtol * torch.maximum(norm(y), norm(value(F, 0.5 * x)))
    # Panels of two nodes follow kinks more cheaply than the panels that suit a smooth map.
    for nodes in (points, 2) if points > 2 else (points,):
        integral = RayIntegral(F, x, y, nodes)
        W, miss = _integrated(integral, tolerance, max_points)
        if W is not None:
            return W
    worst = int((miss / tolerance).flatten().argmax())
    raise ValueError(
        f"rtol must be reachable with max_points = {max_points}: {integral.node_count} nodes leave "
        f"‖F(x) − W x‖ ≈ {float(miss.flatten()[worst]):.3g} against a tolerance of "
        f"{float(tolerance.flatten()[worst]):.3g}. F may jump between 0 and x, hide a branch from autograd "
        f"(detach), or have more kinks than the nodes can follow"
    )


def _integrated(integral: RayIntegral, tolerance: torch.Tensor, max_points: int):
    """Refine the integral until W x misses F(x) by ``tolerance`` (...) at most: W or None, and the miss."""
    for share in (0.5, 0.05, 0.005):
        reached = integral.refine(share * tolerance, max_points)
        miss = integral.miss()
        # The panels are judged in a few directions; what is returned has passed in all of them.
        if bool((miss <= 2 * tolerance).all()):
            W = DenseOperator(integral.blocks())
            miss = torch.linalg.matrix_norm(integral.y - W.apply(integral.x))
            if bool((miss <= tolerance).all()):
                return W, miss
        if not reached:
            break
    return None, miss


def jacobian_operator(F: Callable, x: torch.Tensor) -> DenseOperator:
    """Return the Jacobian blocks ∂F_i/∂x_j at X as an operator.

    Beware: dy/dx is not W. In general F(X) ≠ J X; the two agree for linear F, and J/r is an interaction
    operator when F is positively homogeneous of degree r > 0. ``F`` and ``x`` as in ``path_operator`` (F(0)
    is free); returns dense blocks (..., n, n, p, d), dtype and device of ``x``, detached. Raises
    ``ValueError`` for a wrong shape of F's result or a result without a gradient. Introduced in
    *interaction-operator*.

    >>> x = torch.tensor([[1.0], [2.0]])
    >>> jacobian_operator(torch.square, x).block_norms().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    check_tensors(x=(x, "... n d"), finite=True)
    pull = separate_pullback(F, x)
    rows = [pull.row(i) for i in range(x.shape[-2])]
    empty = x.new_zeros(*x.shape[:-1], x.shape[-2], pull.y.shape[-1], x.shape[-1])
    return DenseOperator(torch.stack(rows, dim=-4) if rows else empty)


def secant_operator(y: torch.Tensor, x: torch.Tensor) -> DenseOperator:
    """Return W_ij = y_i x_jᵀ / ‖X‖², which takes X to Y whatever the map: W at one X is never unique.

    ``y`` (..., n, p), ``x`` (..., n, d), of one dtype, device and batch shape; returns dense blocks (..., n,
    n, p, d) with gradients. Where X = 0, Y must be 0 and so is W. Raises ``ValueError`` for other shapes,
    entries that are not finite or Y ≠ 0 at X = 0, ``TypeError`` for mixed dtypes. Introduced in
    *interaction-operator*.

    >>> x = torch.randn(5, 3)
    >>> y = x.flip(0).sin()  # any outputs whatever
    >>> W = secant_operator(y, x)
    >>> torch.allclose(W @ x, y, atol=1e-5)
    True
    """
    check_tensors(x=(x, "... n d"), y=(y, "... n p"), finite=True, one_batch=True)
    largest = x.detach().abs().amax((-2, -1), keepdim=True) if x.numel() else x.new_ones(1, 1)
    # Scaled by its largest entry first, so that squares neither overflow nor vanish.
    norm = largest * torch.linalg.matrix_norm(x / torch.where(largest == 0, 1.0, largest), keepdim=True)
    silent = norm == 0
    if bool((silent & (y != 0)).any()):
        raise ValueError("y must be 0 where x is 0: no interaction operator takes 0 to anything else")
    norm = torch.where(silent, torch.ones_like(norm), norm)
    return DenseOperator(torch.einsum("...ip,...jd->...ijpd", y / norm, x / norm))


def _check_no_offset(F, x, y):
    with torch.no_grad():
        offset = F(torch.zeros_like(x))
    check_finite("F(0)", offset)
    if offset.numel() == 0:
        return
    size, noise = float(offset.abs().max()), 1e3 * torch.finfo(x.dtype).eps * float(y.abs().max())
    if size > noise:
        where = torch.unravel_index(offset.abs().argmax(), offset.shape)
        at = f"(token, channel) = ({where[-2]}, {where[-1]})"
        raise ValueError(
            f"F(0) must be 0 for y = W x to be possible; got an offset of norm "
            f"{float(torch.linalg.vector_norm(offset)):.6g}, largest entry {float(offset[where]):.6g} "
            f"at {at}. Subtract it, or carry a constant channel in x"
        )
