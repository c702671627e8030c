"""Interaction operators of callables whose inside is not known: path, Jacobian, secant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from .._checks import check_alike, check_finite, check_integer, check_shape
from .dense import DenseOperator
from .ranks import check_rtol

# Quadrature nodes that go through the callable in one call.
_NODES_AT_ONCE = 32


def path_operator(
    F: Callable, x: torch.Tensor, points: int = 16, *, rtol: float | None = None, max_points: int = 1024
) -> DenseOperator:
    """Return the path operator W_ij(X) = ∫₀¹ (∂F_i/∂x_j)(tX) dt, for which F(X) = W(X) X.

    ``F``: any callable (..., n, d) -> (..., n, p) that autograd can differentiate and whose batch elements
    do not talk to each other, with F(0) = 0; ``x`` (..., n, d). Returns dense blocks (..., n, n, p, d) in
    the dtype and on the device of ``x``, detached. The integral is Gauss–Legendre with ``points`` nodes:
    exact when F is a polynomial of degree ≤ 2·``points`` along the ray. With ``rtol`` the nodes are doubled
    until ‖F(X) − W X‖ ≤ rtol max(‖F(X)‖, ‖F(X/2)‖). Needs n·p backward passes. Raises ``ValueError`` when
    F(0) ≠ 0 (the offset is reported), when a shape or value of F is not what it should be, or when
    ``max_points`` nodes miss ``rtol``. One W of many: adding any N with sum_j N_ij x_j = 0 gives another.
    Introduced in *interaction-operator*.
    """
    check_shape("x", x, "... n d")
    check_finite("x", x)
    check_integer("points", points, low=1)
    check_integer("max_points", max_points, low=points)
    y = _value(F, x)
    _check_no_offset(F, x, y)
    if rtol is None:
        return DenseOperator(_path_integral(F, x, y.shape[-1], points))
    check_rtol(rtol)
    # A map may vanish at X by accident; its value half way keeps the tolerance meaningful there.
    size = max(float(torch.linalg.vector_norm(value)) for value in (y, _value(F, 0.5 * x)))
    while True:
        W = DenseOperator(_path_integral(F, x, y.shape[-1], points))
        miss = float(torch.linalg.vector_norm(y - W.apply(x)))
        if miss <= rtol * size:
            return W
        if 2 * points > max_points:
            raise ValueError(
                f"rtol must be reachable with max_points = {max_points}: {points} points leave "
                f"‖F(x) − W x‖ = {miss:.3g} against a tolerance of {rtol * size:.3g}"
            )
        points *= 2


def jacobian_operator(F: Callable, x: torch.Tensor) -> DenseOperator:
    """Return the Jacobian blocks ∂F_i/∂x_j at X as an operator.

    Beware: dy/dx is not W. In general F(X) ≠ J X; the two agree for linear F, and J/r is an interaction
    operator when F is positively homogeneous of degree r > 0. ``F`` and ``x`` as in ``path_operator`` (F(0)
    is free); returns dense blocks (..., n, n, p, d), dtype and device of ``x``, detached. Raises
    ``ValueError`` for a wrong shape of F's result or a result without a gradient. Introduced in
    *interaction-operator*.
    """
    check_shape("x", x, "... n d")
    check_finite("x", x)
    y = _value(F, x)
    nodes = torch.ones(1, dtype=x.dtype, device=x.device)
    return DenseOperator(_weighted_jacobian(F, x, y.shape[-1], nodes, nodes))


def secant_operator(y: torch.Tensor, x: torch.Tensor) -> DenseOperator:
    """Return W_ij = y_i x_jᵀ / ‖X‖², which takes X to Y whatever the map: W at one X is never unique.

    ``y`` (..., n, p), ``x`` (..., n, d), of one dtype, device and batch shape; returns dense blocks (..., n,
    n, p, d) with gradients. Where X = 0, Y must be 0 and so is W. Raises ``ValueError`` for other shapes or Y
    ≠ 0 at X = 0, ``TypeError`` for mixed dtypes. Introduced in *interaction-operator*.
    """
    sizes = check_shape("x", x, "... n d")
    check_shape("y", y, "... n p", {"n": sizes["n"]})
    check_alike(x=x, y=y)
    if y.shape[:-2] != x.shape[:-2]:
        raise ValueError(
            f"y must have the batch shape of x, {tuple(x.shape[:-2])}; got {tuple(y.shape[:-2])}"
        )
    largest = x.detach().abs().amax((-2, -1), keepdim=True) if x.numel() else x.new_ones(*x.shape[:-2], 1, 1)
    # Scaled by its largest entry first, so that squares neither overflow nor vanish.
    norm = largest * torch.linalg.matrix_norm(x / torch.where(largest == 0, 1.0, largest), keepdim=True)
    silent = norm == 0
    if bool((silent & (y != 0)).any()):
        raise ValueError("y must be 0 where x is 0: no interaction operator takes 0 to anything else")
    norm = torch.where(silent, torch.ones_like(norm), norm)
    return DenseOperator(torch.einsum("...ip,...jd->...ijpd", y / norm, x / norm))


def _value(F, x):
    with torch.no_grad():
        y = F(x.detach().clone())
    check_shape("F(x)", y, "... n p", {"n": x.shape[-2]})
    if y.shape[:-2] != x.shape[:-2]:
        raise ValueError(
            f"F(x) must have the batch shape of x, {tuple(x.shape[:-2])}; got {tuple(y.shape[:-2])}"
        )
    check_alike(x=x, **{"F(x)": y})
    check_finite("F(x)", y)
    return y


def _check_no_offset(F, x, y):
    with torch.no_grad():
        offset = F(torch.zeros_like(x))
    check_finite("F(0)", offset)
    if offset.numel() == 0:
        return
    size, noise = float(offset.abs().max()), 1e3 * torch.finfo(x.dtype).eps * float(y.abs().max())
    if size > noise:
        where = np.unravel_index(int(offset.abs().argmax()), tuple(offset.shape))
        at = f"(token, channel) = ({where[-2]}, {where[-1]})"
        raise ValueError(
            f"F(0) must be 0 for y = W x to be possible; got an offset of norm "
            f"{float(torch.linalg.vector_norm(offset)):.6g}, largest entry {float(offset[where]):.6g} "
            f"at {at}. Subtract it, or carry a constant channel in x"
        )


def _path_integral(F, x, p, points):
    nodes, weights = np.polynomial.legendre.leggauss(points)
    nodes = torch.as_tensor((nodes + 1) / 2, dtype=x.dtype, device=x.device)
    weights = torch.as_tensor(weights / 2, dtype=x.dtype, device=x.device)
    parts = zip(nodes.split(_NODES_AT_ONCE), weights.split(_NODES_AT_ONCE), strict=True)
    return sum(_weighted_jacobian(F, x, p, some, heavy) for some, heavy in parts)


def _weighted_jacobian(F, x, p, nodes, weights):
    """Return sum_t weights[t] (dF/dx)(nodes[t] x), shape (..., n, n, p, d)."""
    n, d = x.shape[-2:]
    rays = torch.einsum("t,...->t...", nodes, x.detach()).requires_grad_()
    with torch.enable_grad():
        y = F(rays)
        alone = F(rays[-1].detach())
    check_shape("F(x)", y, "... n p", {"n": n, "p": p})
    check_finite("F(t x)", alone)
    _check_batched(y.detach()[-1], alone.detach())
    blocks = x.new_zeros(*x.shape[:-2], n, n, p, d)
    if not y.requires_grad:
        if y.numel() and bool((y != 0).any()):
            raise ValueError("F(x) must be differentiable in x by autograd; got a result without a gradient")
        return blocks
    for i in range(n):
        for a in range(p):
            # Batch elements are independent, so one backward pass serves the whole batch.
            seed = torch.zeros_like(y)
            seed[..., i, a] = 1
            (grad,) = torch.autograd.grad(y, rays, seed, retain_graph=True, materialize_grads=True)
            blocks[..., i, :, a, :] = torch.einsum("t,t...->...", weights, grad)
    check_finite("the gradient of F", blocks)
    return blocks


def _check_batched(together, alone):
    """Refuse a callable that takes a leading dimension for something other than a batch."""
    same = together.shape == alone.shape
    if same and alone.numel():
        noise = (
            1e3 * torch.finfo(alone.dtype).eps * max(float(alone.abs().max()), float(together.abs().max()))
        )
        same = float((together - alone).abs().max()) <= noise
    if not same:
        raise ValueError(
            "F must map (..., n, d) to (..., n, p), each batch element by itself and alike on each call; "
            "got a result that changes when inputs are stacked along a new leading dimension"
        )
