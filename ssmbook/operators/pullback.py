"""A callable seen from outside: its checked values, and its vector-Jacobian products by autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ssmbook._checks import check_finite, check_tensors

_MEANT = "F must map (..., n, d) to (..., n, p), each batch element by itself and alike on each call"


def _called(F: Callable, x: torch.Tensor) -> torch.Tensor:
    """F(x), held to the tokens, batch shape, dtype and device of x."""
    if not callable(F):
        raise TypeError(f"F must be callable, (..., n, d) -> (..., n, p); got {type(F).__name__}")
    y = F(x.clone())  # a copy: F may write into its argument
    check_tensors(x=(x, "... n d"), **{"F(x)": (y, "... n p")}, one_batch=True)
    check_finite("F(x)", y)
    return y


def value(F: Callable, x: torch.Tensor) -> torch.Tensor:
    """Return F(x) without a graph; refuse a result of the wrong kind and one that is not finite."""
    with torch.no_grad():
        return _called(F, x)


class Pullback:
    """F at x with its graph, evaluated once: ``y`` (..., n, p), and what seeds on y pull back to x.

    One ordinary backward pass for each seed, so that custom autograd functions without batching rules work.
    Batch elements must not talk to each other (``check_separate``): one pass then serves the whole batch.
    """

    def __init__(self, F: Callable, x: torch.Tensor) -> None:
        self._leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            graph = _called(F, self._leaf)
        self.y, self._graph = graph.detach(), graph
        if not graph.requires_grad and bool((self.y != 0).any()):
            raise ValueError("F(x) must be differentiable in x by autograd; got a result without a gradient")

    def __call__(self, seed: torch.Tensor) -> torch.Tensor:
        """Return the gradient (..., n, d) of ⟨seed, F(x)⟩, finite or refused."""
        if not self._graph.requires_grad:
            return torch.zeros_like(self._leaf)
        seed = seed.expand_as(self._graph)
        (gradient,) = torch.autograd.grad(
            self._graph, self._leaf, seed, retain_graph=True, materialize_grads=True
        )
        check_finite("the gradient of F", gradient)
        return gradient

    def row(self, i: int, weights: torch.Tensor | None = None) -> torch.Tensor:
        """Return the blocks ∂y_i/∂x_j of one output token, (..., n, p, d).

        ``weights`` (t): sum them over the leading dimension of x, of size t, with these weights.
        """
        rows = []
        for a in range(self.y.shape[-1]):
            seed = self.y.new_zeros(self.y.shape[-2:])
            seed[i, a] = 1
            gradient = self(seed)
            rows.append(gradient if weights is None else torch.einsum("t,t...->...", weights, gradient))
        if not rows:  # asked for without weights only: there is nothing to sum
            return self._leaf.new_zeros(*self._leaf.shape[:-1], 0, self._leaf.shape[-1])
        return torch.stack(rows, dim=-2)


def separate_pullback(F: Callable, x: torch.Tensor) -> Pullback:
    """Return the pullback of F at x after holding F to its batch rule (``check_separate``)."""
    pull = Pullback(F, x)
    check_separate(F, x, pull.y)
    return pull


def check_separate(F: Callable, x: torch.Tensor, y: torch.Tensor) -> None:
    """Refuse an F whose result for one batch element depends on the others, or changes from call to call.

    Two elements differ in some binary digit of their position. So for each digit the elements with a 0
    there get another input, then those with a 1, while the results of the rest must stay: equal shapes make
    equal roundings, whatever precision F works in. ``y``: F(x).
    """
    size = _largest(y)
    spread = _largest(_raw(F, x) - y)
    _require(spread <= _coarse(y) * size, "a result that changes when F is called again")
    allowed = 1e3 * torch.finfo(y.dtype).eps * size + 10 * spread
    batch = x.shape[:-2]
    place = torch.arange(batch.numel(), device=x.device).reshape(batch)
    other = -0.5 * x.flip(-2)
    other = torch.where(other == x, x + 1, other)  # a zero is another input too
    for digit in range((batch.numel() - 1).bit_length()):
        for half in (0, 1):
            moved = ((place >> digit) & 1) == half
            beside = _raw(F, torch.where(moved[..., None, None], other, x))
            gap = _largest((beside - y)[~moved])
            _require(gap <= allowed, "a result that changes with the other elements of the batch")


def check_stackable(F: Callable, x: torch.Tensor, y: torch.Tensor) -> None:
    """Refuse an F for which a new leading dimension is not a batch dimension. ``y``: F(x)."""
    stack = torch.stack([x, 0.5 * x])
    together = _raw(F, stack)
    size = max(_largest(y), _largest(together))
    # Stacking may change the order of sums, so a part of F in float32 moves its last digits, not more.
    same = _largest(together[0] - y) <= _coarse(y) * size
    _require(same, "a result that changes when inputs are stacked along a new leading dimension")
    check_separate(F, stack, together)


def _raw(F, x):
    """F(x) where nothing is known about x yet: any shape but the right one is a broken batch rule."""
    with torch.no_grad():
        y = F(x.clone())
    fits = isinstance(y, torch.Tensor) and y.dim() == x.dim() and y.shape[:-1] == x.shape[:-1]
    _require(fits, f"shape {tuple(getattr(y, 'shape', ()))} for an input of shape {tuple(x.shape)}")
    return y


def _require(fulfilled, got: str) -> None:
    if not fulfilled:
        raise ValueError(f"{_MEANT}; got {got}")


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _coarse(y: torch.Tensor) -> float:
    """Relative room for the rounding of an F that works in float32, or in the dtype of y if shorter."""
    return min(0.1, 1e3 * max(torch.finfo(torch.float32).eps, torch.finfo(y.dtype).eps))
