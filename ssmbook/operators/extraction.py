"""Interaction operators of black-box callables: path, Jacobian, secant."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ssmbook._checks import check_finite, check_integer, check_number, check_tensors
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.structured import DenseOperator

# Inputs that go through the callable in one call.
_NODES_AT_ONCE = 32
# Random directions in which the misses of the panels are measured, before any block is
# computed.
_PROBES = 16


def path_operator(
    F: Callable, x: Tensor, points: int = 16, *, rtol: float | None = None, max_points: int = 1024
) -> PathOperator:
    """Return the path operator W_ij(X) = ∫₀¹ (∂F_i/∂x_j)(tX) dt, for which F(X) = W(X) X + F(0).

    No operator makes F(0), what biases leave where no token speaks. It is kept beside W, as
    ``W.offset``; where it is 0, F(X) = W(X) X.

    The integral is Gauss–Legendre with ``points`` nodes, exact when F is a polynomial of
    degree ≤ 2·points along the ray; where that is not enough, the ray is bisected. Needs
    n·p backward passes for each 32 nodes.

    Parameters
    ----------
    F : callable (..., n, d) -> (..., n, p)
        What autograd can differentiate and treats batch elements independently. Wrap a
        module that wants exactly three dimensions: ``lambda x: m(x.reshape(-1, n,
        d)).reshape(x.shape)``.
    x : Tensor (..., n, d)
        Where W is taken; finite.
    points : int, default 16
        Nodes of a panel, at least 1.
    rtol : float, optional
        With G = F − F(0), ‖G(X) − W X‖ ≤ rtol · max(‖G(X)‖, ‖G(X/2)‖), or rounding of
        ‖F(0)‖ where that is more. By default 1e-6, and 3e-4 for float32; give 1e-3 when x
        is in float64 and a part of F works in float32.
    max_points : int, default 1024
        Nodes of all panels together, at least ``points``.

    Returns
    -------
    PathOperator
        Blocks (..., n, n, p, d) in the dtype and on the device of x, detached; a
        ``DenseOperator`` with ``offset`` (..., n, p), exactly 0 where it is rounding.

    Raises
    ------
    ValueError
        If F mixes its batch, F(X) or F(0) is not finite or of another shape, or
        ``max_points`` nodes miss ``rtol``, as they do where F jumps or hides a branch from
        autograd.

    Examples
    --------
    >>> x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    >>> W = path_operator(torch.square, x)  # half the Jacobian, so that W x = x²
    >>> [[round(size, 6) for size in row] for row in W.block_norms().tolist()]
    [[1.0, 0.0], [0.0, 2.0]]
    >>> W = path_operator(torch.cos, x)  # cos 0 = 1
    >>> W.offset.flatten().tolist(), torch.allclose(W @ x + W.offset, x.cos())
    ([1.0, 1.0], True)
    """
    points = check_integer("points", points, low=1)
    max_points = check_integer("max_points", max_points, low=points)
    y = checked_pullback(F, x).y
    rtol = max(1e-6, torch.finfo(x.dtype).eps ** 0.5) if rtol is None else check_number("rtol", rtol, 0, 1)
    if y.numel() == 0 or x.numel() == 0:
        blocks = x.new_zeros(*y.shape[:-1], x.shape[-2], y.shape[-1], x.shape[-1])
        return PathOperator(blocks, torch.zeros_like(y))
    offset = _offset(F, x, y)
    together = _value(F, torch.stack([0.5 * x, x]))
    _require_same(together[1], y, "inputs are stacked")
    y, half_way = y - offset, together[0] - offset
    # A map may vanish at X by accident; its value half way keeps the tolerance meaningful
    # there.
    norm = torch.linalg.matrix_norm
    tolerance = rtol * torch.maximum(norm(y), norm(half_way))
    tolerance = torch.maximum(tolerance, 1e3 * torch.finfo(x.dtype).eps * norm(offset))
    # Panels of two nodes follow kinks more cheaply than the panels that suit a smooth map.
    for nodes in (points, 2) if points > 2 else (points,):
        integral = _RayIntegral(F, x.detach(), y, nodes)
        # The panels are judged in a few directions; what is returned has passed in all of
        # them.
        if integral.refine(0.3 * tolerance, max_points):
            W = PathOperator(integral.blocks(), offset)
            if bool((norm(y - W.apply(integral.x)) <= tolerance).all()):
                return W
    raise ValueError(
        f"rtol = {rtol:.3g} must be reachable with max_points = {max_points}; got ‖F(x) − F(0) − W x‖ ≈ "
        f"{float(integral.miss().max()):.3g}. F may jump between 0 and x, hide a branch from autograd "
        f"(detach), work in float32 inside, or have more kinks than the nodes can follow"
    )


class PathOperator(DenseOperator):
    """Dense blocks W with F(X) = W X + ``offset``; sums and products of it are those of W alone."""

    def __init__(self, W: Tensor, offset: Tensor) -> None:
        super().__init__(W)
        self.offset = offset

    def _mapped(self, change):
        return PathOperator(change(self.W), change(self.offset))


def jacobian_operator(F: Callable, x: Tensor) -> JacobianOperator:
    """Return the Jacobian blocks ∂F_i/∂x_j at X as an operator, computed as far as they are asked for.

    Beware: dy/dx is not W. In general F(X) ≠ J X; the two agree for linear F, and J/r is an
    interaction operator when F is positively homogeneous of degree r > 0. ``F`` and ``x``
    as in ``path_operator``; blocks (..., n, n, p, d) in the dtype and on the
    device of ``x``, detached. A row ``J[i]``, the blocks of one output token, or a block
    ``J[i, j]``, takes p backward passes, and all else n·p. Raises ``ValueError`` for a
    wrong shape of F's result or a result without a gradient, and, where it is used, for a
    gradient that is not finite.

    >>> x = torch.tensor([[1.0], [2.0]])
    >>> jacobian_operator(torch.square, x).block_norms().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    >>> jacobian_operator(lambda x: x.cumsum(0), torch.ones(3, 2))[-1, 0]  # of the last token by the first
    tensor([[1., 0.],
            [0., 1.]])
    """
    return JacobianOperator(checked_pullback(F, x))


class JacobianOperator(DenseOperator):
    """Dense blocks of gradients: all of them are computed where more than a row is asked for."""

    def __init__(self, pull: Pullback) -> None:
        x, y = pull.x.detach(), pull.y
        InteractionOperator.__init__(self, x, x.shape[:-2], x.shape[-2], y.shape[-1], x.shape[-1])
        self.pull = pull

    @functools.cached_property
    def W(self) -> Tensor:
        rows = [self._row(i) for i in range(self.n)]
        return torch.stack(rows, dim=-4) if rows else self._zeros(self.n, self.n, self.p, self.d)

    def _row(self, i):
        row = self.pull.row(i)
        check_finite("the gradient of F", row)
        return row

    def _in_float32(self) -> JacobianOperator:
        return self  # F worked in its own precision


def secant_operator(y: Tensor, x: Tensor) -> DenseOperator:
    """Return W_ij = y_i x_jᵀ / ‖X‖², which takes X to Y whatever the map: W at one X is never unique.

    ``y`` (..., n, p), ``x`` (..., n, d), of one dtype, device and batch shape; returns
    dense blocks (..., n, n, p, d) with gradients. Where X = 0, Y must be 0 and so is W.
    Raises ``ValueError`` for other shapes, entries that are not finite or Y ≠ 0 at X = 0,
    ``TypeError`` for mixed dtypes.

    >>> x = torch.randn(5, 3)
    >>> y = x.flip(0).sin()  # any outputs whatever
    >>> W = secant_operator(y, x)
    >>> torch.allclose(W @ x, y, atol=1e-5)
    True
    """
    check_tensors(x=(x, "... n d"), y=(y, "... n p"), finite=True, one_batch=True)
    norm = torch.linalg.matrix_norm(x, keepdim=True)
    silent = norm == 0
    if bool((silent & (y != 0)).any()):
        raise ValueError("y must be 0 where x is 0: no interaction operator takes 0 to anything else")
    norm = torch.where(silent, torch.ones_like(norm), norm)
    return DenseOperator(torch.einsum("...ip,...jd->...ijpd", y / norm, x / norm))


class Pullback:
    """F at x with its graph: ``y`` (..., n, p), and the gradients in x of what seeds pick from y.

    One ordinary backward pass for each seed, so that custom autograd functions without
    batching rules work; it serves the whole batch, since batch elements do not depend on
    each other.
    """

    def __init__(self, F: Callable, x: Tensor) -> None:
        self.x = x.detach().requires_grad_()
        with torch.enable_grad():
            self.graph = F(self.x.clone())  # a copy: F may write into its argument
        self.y = self.graph.detach()

    def __call__(self, seed: Tensor) -> Tensor:
        """Return the gradient (..., n, d) of ⟨seed, F(x)⟩."""
        if not self.graph.requires_grad:
            return torch.zeros_like(self.x)
        seed = seed.expand_as(self.graph)
        return torch.autograd.grad(self.graph, self.x, seed, retain_graph=True, materialize_grads=True)[0]

    def row(self, i: int) -> Tensor:
        """Return the blocks ∂y_i/∂x_j of one output token, (..., n, p, d)."""
        n, p = self.y.shape[-2:]
        seeds = self.y.new_zeros(p, n, p)
        seeds[:, i] = torch.eye(p).to(seeds)
        rows = [self(seed) for seed in seeds]
        return torch.stack(rows, dim=-2) if rows else self.x.detach()[..., None, :][..., :0, :]


def checked_pullback(F: Callable, x: Tensor) -> Pullback:
    """Return F at x with its graph after checking x, the kind of F(x), and that F keeps its batch apart."""
    check_tensors(x=(x, "... n d"), finite=True)
    y = _value(F, x)
    check_tensors(x=(x, "... n d"), **{"F(x)": (y, "... n p")}, one_batch=True)
    check_finite("F(x)", y)
    pull = Pullback(F, x)
    _require_same(pull.y, y, "F is called again")
    if not pull.graph.requires_grad and bool((y != 0).any()):
        raise ValueError("F(x) must be differentiable in x by autograd; got a result without a gradient")
    # Every second element of the batch gets another input, which the results of the rest
    # must not show.
    moved = (torch.arange(x.shape[:-2].numel(), device=x.device) % 2 == 0).reshape(*x.shape[:-2], 1, 1)
    beside = torch.where(moved, y, _value(F, torch.where(moved, 1 - x, x)))
    _require_same(beside, y, "other elements of the batch change")
    return pull


def _value(F: Callable, x: Tensor) -> Tensor:
    with torch.no_grad():
        return F(x.clone())


def _require_same(found: Tensor, y: Tensor, when: str) -> None:
    # There is room for the rounding of a map that works in float32 inside.
    room = min(0.1, 1e3 * max(torch.finfo(torch.float32).eps, torch.finfo(y.dtype).eps))
    room = room * float(y.abs().max()) if y.numel() else 0.0
    if found.shape != y.shape or not torch.allclose(found, y, rtol=0, atol=room):
        raise ValueError(
            f"F must map (..., n, d) to (..., n, p), each batch element by itself and alike on each call; "
            f"got a result that changes when {when}"
        )


def _offset(F: Callable, x: Tensor, y: Tensor) -> Tensor:
    """Return F(0) (..., n, p), 0 where it is what rounding leaves of F(x)."""
    offset = _value(F, torch.zeros_like(x))
    check_finite("F(0)", offset)
    rounding = 1e3 * torch.finfo(y.dtype).eps * float(y.abs().max())
    return offset if float(offset.abs().max()) > rounding else torch.zeros_like(offset)


class _RayIntegral:
    """∫₀¹ (∂F/∂x)(tx) dt by Gauss–Legendre panels of ``points`` nodes.

    On a panel [a, b] the integral of (d/dt) F(tx) is known: F(bx) − F(ax). So each panel
    can be judged by values and a few backward passes, before the n·p passes that the blocks
    cost are spent on good panels.
    """

    def __init__(self, F: Callable, x: Tensor, y: Tensor, points: int) -> None:
        self.F, self.x, self.y = F, x, y
        nodes, weights = np.polynomial.legendre.leggauss(points)
        self.nodes, self.weights = torch.as_tensor((nodes + 1) / 2), torch.as_tensor(weights / 2)
        # ⟨signs, m⟩² is ‖m‖² on average.
        generator = torch.Generator().manual_seed(0)
        self.probes = (torch.randint(2, (_PROBES, *y.shape[-2:]), generator=generator) * 2 - 1).to(y)
        self.panels = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
        self.misses = self._measure(self.panels)

    def miss(self) -> Tensor:
        """Return an estimate of ‖F(x) − W x‖, (...)."""
        return self.misses.sum(0).square().mean(0).sqrt()

    def refine(self, tolerance: Tensor, max_points: int) -> bool:
        """Bisect until the misses of all panels sum to ``tolerance`` (...); False where nodes run out."""
        while True:
            errors = self.misses.square().mean(1).sqrt()
            share = torch.where(errors == 0, 0.0, errors / tolerance)
            if float(share.sum(0).max()) <= 1:
                return True
            poor = ~(share.reshape(len(self.panels), -1).amax(1) <= 0.5 / len(self.panels)).cpu()
            if (len(self.panels) + int(poor.sum())) * len(self.nodes) > max_points:
                return False
            a, b = self.panels[poor].T
            halves = torch.cat([torch.stack([a, (a + b) / 2], 1), torch.stack([(a + b) / 2, b], 1)])
            self.panels = torch.cat([self.panels[~poor], halves])
            self.misses = torch.cat([self.misses[~poor], self._measure(halves)])

    def blocks(self) -> Tensor:
        """Return the integral itself, (..., n, n, p, d)."""
        total = 0
        for nodes, weights in self._rule(self.panels):
            pull = Pullback(self.F, self._rays(nodes))
            rows = [torch.einsum("t,t...->...", weights, pull.row(i)) for i in range(self.y.shape[-2])]
            total = total + torch.stack(rows, dim=-4)
        return total

    def _rule(self, panels):
        """Nodes and weights of the panels, a few at a time."""
        low, width = panels[:, :1], panels[:, 1:] - panels[:, :1]
        nodes, weights = (low + width * self.nodes).to(self.x), (width * self.weights).to(self.x)
        parts = nodes.flatten().split(_NODES_AT_ONCE), weights.flatten().split(_NODES_AT_ONCE)
        return zip(*parts, strict=True)

    def _measure(self, panels):
        """Return ⟨probe, F(bx) − F(ax) − ∫ (d/dt) F(tx) dt⟩ for each panel: (panels, probes, ...)."""
        slopes = []
        for nodes, weights in self._rule(panels):
            pull = Pullback(self.F, self._rays(nodes))
            parts = [torch.einsum("t...jd,...jd->t...", pull(probe), self.x) for probe in self.probes]
            slopes.append(torch.einsum("t,rt...->tr...", weights, torch.stack(parts)))
        integral = torch.cat(slopes).unflatten(0, (len(panels), -1)).sum(1)
        low, high = (_value(self.F, self._rays(ends)) for ends in panels.T.to(self.x))
        return torch.einsum("k...ip,rip->kr...", high - low, self.probes) - integral

    def _rays(self, nodes: Tensor) -> Tensor:
        return torch.einsum("t,...->t...", nodes, self.x)
