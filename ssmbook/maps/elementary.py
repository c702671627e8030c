"""Plain layers: feed-forward, KAN and convolution; their secant slopes make W exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook._checks import check_choice, check_integer
from ssmbook.maps.base import New, RecurrentMap, SequenceMap, Unpack, random_parameter
from ssmbook.operators import LagOperator, PointwiseOperator

Activation = Literal["tanh", "relu", "silu", "gelu", "identity"]


def _tanh_slope(z: Tensor) -> Tensor:
    # For |z| < 1 Lambert's tanh(z)/z = 1/(1 + z^2/(3 + z^2/(5 + ...))), cut where the next
    # level adds 1e-20. All terms are positive, so nothing cancels, and derivatives near 0
    # come from z^2 and not from a difference of nearly equal numbers.
    near = z.abs() < 1.0
    square, large = torch.where(near, z, 0.0).square(), torch.where(near, 1.0, z)
    level = torch.full_like(z, 23)
    for odd in range(21, 0, -2):
        level = odd + square / level
    return torch.where(near, 1 / level, torch.tanh(large) / large)


# name -> (sigma, sigma(z)/z). The quotient is simplified, so no value and no derivative
# needs a case z = 0. The term 0 z keeps NaN. ReLU has no derivative at 0; torch's
# convention is 0.
ACTIVATIONS = {
    "tanh": (torch.tanh, _tanh_slope),
    "relu": (torch.relu, lambda z: (z > 0) + 0 * z),
    "silu": (functional.silu, torch.sigmoid),
    "gelu": (functional.gelu, lambda z: 0.5 * torch.erfc(-math.sqrt(0.5) * z)),
    "identity": (lambda z: z, lambda z: 1 + 0 * z),
}


def activate(name: Activation, z: Tensor) -> Tensor:
    """sigma(z), entry by entry, for a sigma of ``ACTIVATIONS``."""
    return ACTIVATIONS[name][0](z)


def secant_slope(name: Activation, z: Tensor) -> Tensor:
    """The slope sigma(z) / z of the chord from the origin to (z, sigma(z)), sigma'(0) at z = 0.

    Entry by entry; as smooth as sigma, so derivatives at and near 0 are right too. Raises
    ``ValueError`` for a sigma that is not in ``ACTIVATIONS``.
    """
    return ACTIVATIONS[check_choice("activation", name, ACTIVATIONS)][1](z)


class FeedForward(SequenceMap):
    """Two-layer perceptron on each token: y_i = W_2 sigma(W_1 x_i), W_ii = W_2 diag(sigma(z_i)/z_i) W_1.

    Parameters ``W_1`` (width, d), ``W_2`` (p, width). This is the core of the layer,
    without the biases, which would make F(0) differ from 0.

    Parameters
    ----------
    d, p : int
        Widths in and out.
    width : int
        Hidden units.
    activation : {"tanh", "relu", "silu", "gelu", "identity"}, default "silu"
        sigma, with sigma(0) = 0.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    TypeError, ValueError
        If ``width`` is no whole number of at least 1, or the activation is unknown.

    Examples
    --------
    >>> W = FeedForward(4, 4, width=8).interaction(torch.randn(5, 4))
    >>> W.past_future_rank()  # no token reads another
    0
    """

    family = "token by token"

    def __init__(self, d: int, p: int, *, width: int, activation: Activation = "silu", **new: Unpack[New]):
        super().__init__(d, p)
        self.width = check_integer("width", width, low=1)
        self.activation = check_choice("activation", activation, ACTIVATIONS)
        self.W_1 = random_parameter(width, d, fan_in=d, **new)
        self.W_2 = random_parameter(p, width, fan_in=width, **new)

    def _forward(self, x: Tensor) -> Tensor:
        return activate(self.activation, x @ self.W_1.mT) @ self.W_2.mT

    def _interaction(self, x: Tensor) -> PointwiseOperator:
        slope = secant_slope(self.activation, x @ self.W_1.mT)
        return PointwiseOperator(torch.einsum("pk,...nk,kd->...npd", self.W_2, slope, self.W_1))


class KAN(SequenceMap):
    """Kolmogorov-Arnold layer, y_i[a] = sum_b phi_ab(x_i[b]), with piecewise-linear edges and phi_ab(0) = 0.

    W_ii[a, b] = phi_ab(x_i[b]) / x_i[b], at 0 the slope of the middle piece. Parameter
    ``slopes`` (p, d, grid). This is the core of the layer, without the SiLU branch beside
    each spline and splines of higher order (`liu2024kan`).

    Parameters
    ----------
    d, p : int
        Widths in and out.
    grid : int, default 5
        Linear pieces, an odd number, so that 0 lies inside the middle one; they split [-2,
        2] evenly and the outer two extend to infinity.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    ValueError
        If grid is even.

    Examples
    --------
    >>> layer, x = KAN(3, 2), torch.randn(5, 3)
    >>> torch.allclose(layer(x), layer.interaction(x) @ x, atol=1e-5)
    True
    """

    family = "token by token"

    def __init__(self, d: int, p: int, *, grid: int = 5, **new: Unpack[New]):
        super().__init__(d, p)
        if grid % 2 == 0:
            raise ValueError(f"grid must be odd (0 inside the middle piece); got {grid}")
        self.grid = grid
        self.slopes = random_parameter(p, d, grid, fan_in=d, **new)

    def _forward(self, x: Tensor) -> Tensor:
        return torch.einsum("pdg,...ndg->...np", self.slopes, self._lengths(x))

    def _interaction(self, x: Tensor) -> PointwiseOperator:
        at_zero = (x == 0)[..., None]
        share = self._lengths(x) / torch.where(at_zero, 1.0, x[..., None])
        middle = torch.arange(self.grid, device=x.device) == self.grid // 2
        share = torch.where(at_zero, middle.to(x.dtype), share)
        return PointwiseOperator(torch.einsum("pdg,...ndg->...npd", self.slopes, share))

    def _lengths(self, x: Tensor) -> Tensor:
        """Signed length of [0, x] inside each piece: (..., grid), summing to x."""
        inner = torch.linspace(-2, 2, self.grid + 1, dtype=x.dtype, device=x.device)[1:-1]
        end = x.new_full((1,), float("inf"))
        low, high = torch.cat([-end, inner]), torch.cat([inner, end])
        zero = x.new_zeros(()).clamp(low, high)
        return x[..., None].clamp(low, high) - zero


class Convolution(RecurrentMap):
    """Causal convolution y_i = sum over 0 <= tau < width of K_tau x_{i - tau}; W_ij = K_{i - j}.

    Parameter ``K`` (width, p, d), K[0] the tap at lag 0 (``torch.nn.functional.conv1d``
    correlates: its kernel is K flipped). The state is the last width - 1 tokens.

    Parameters
    ----------
    d, p : int
        Widths in and out.
    width : int
        Taps.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    TypeError, ValueError
        If ``width`` is no whole number of at least 1.

    Examples
    --------
    >>> layer = Convolution(4, 4, width=3)
    >>> layer.interaction(torch.randn(8, 4)).interaction_rank()  # a matrix for each lag
    3
    """

    family = "by position"

    def __init__(self, d: int, p: int, *, width: int, **new: Unpack[New]):
        super().__init__(d, p)
        self.width = check_integer("width", width, low=1)
        self.state_shape = width - 1, d
        self.K = random_parameter(width, p, d, fan_in=width * d, **new)

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        return super().initial_state(batch_shape).to(self.K.dtype)  # tokens are no sums: in half too

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        n, before = x.shape[-2], self.width - 1
        padded = torch.cat((state, x), -2)
        y = sum(padded.narrow(-2, before - tau, n) @ tap.mT for tau, tap in enumerate(self.K.unbind(0)))
        return y, padded[..., n:, :]

    def _interaction(self, x: Tensor) -> LagOperator:
        n = x.shape[-2]
        return LagOperator(self.K[:n], n)


ZOO = {
    "feed-forward": lambda of, new: FeedForward(of.d, of.p, width=of.d + of.p, **new),
    "KAN": lambda of, new: KAN(of.d, of.p, grid=5, **new),
    "convolution": lambda of, new: Convolution(of.d, of.p, width=3, **new),
}
