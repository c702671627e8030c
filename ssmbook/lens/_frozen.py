"""What a reader returns: a linear map that is exactly what the layer computed, and the proof of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_finite, check_shape, check_tensors
from ssmbook.operators import DiagonalOperator, FactorizedOperator, InteractionOperator

EXACT, ROUNDED = 1e-10, 1e-5


@dataclass(frozen=True)
class Frozen:
    """The interaction operator of a layer with its coefficients frozen: y == W x + offset.

    ``W``: InteractionOperator; ``x`` (..., n, d) and ``y`` (..., n, p): what entered the layer's token mixing
    and what it returned; ``offset`` (..., n, p) or ``None``: what biases add; ``casts``: the layer computes
    partly in float32, whatever the dtype of its weights.

    >>> from ssmbook.maps import SSD
    >>> frozen = operator(SSD(4, 4, H=2, head_width=3, N=8).eval(), torch.randn(1, 16, 4))
    >>> frozen.W, torch.allclose(frozen.y, frozen.W @ frozen.x, atol=1e-5)
    (FactorizedOperator(batch_shape=(1,), n=16, p=4, d=4, dtype=torch.float64), True)
    """

    W: InteractionOperator
    x: Tensor
    y: Tensor
    offset: Tensor | None = None
    casts: bool = False

    @property
    def tolerance(self) -> float:
        """The relative miss allowed: 1e-10, or 1e-5 where float32 takes part."""
        return ROUNDED if self.casts or self.y.dtype != torch.float64 else EXACT

    def miss(self) -> float:
        """Return max |W x + offset - y| / max |y|."""
        got = self.W.apply(self.x)
        got = got if self.offset is None else got + self.offset
        gap, size = float((got - self.y).abs().max()), float(self.y.abs().max())
        return gap / size if size > 0 else gap


@dataclass(frozen=True)
class Softmax:
    """What the gradient of softmax heads needs: V_h = W_O[h] W_V[h] and the coefficients at other inputs.

    ``W_V`` (H, r, d), ``W_O`` (H, p, r), ``b_V`` (H, r); ``weights(x)`` (n, d) to (H, n, n), differentiable.
    """

    W_V: Tensor
    W_O: Tensor
    b_V: Tensor
    weights: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Reading:
    """What a reader found in a layer: its ``core``, the part that mixes tokens.

    ``softmax``: given for softmax heads, whose gradients have a closed form. ``F``: the whole layer as a
    function of its hidden states (n, d) to (n, p), and ``x`` these states, for the gradients of other layers.
    ``site``: the part of the layer that returns y, or receives it (``enters``) as ``put(y)``; without it the
    layer itself returns y. ``replace`` needs it.
    """

    core: Frozen
    softmax: Softmax | None = None
    F: Callable[[Tensor], Tensor] | None = None
    x: Tensor | None = None
    site: nn.Module | None = None
    enters: bool = False
    put: Callable[[Tensor], Tensor] | None = None

    @property
    def mixing(self) -> InteractionOperator | None:
        """The coefficients of each head as a scalar operator, batch (..., H); ``None`` without heads."""
        W = self.core.W
        return W.channels if isinstance(W, DiagonalOperator) else getattr(W, "mixing", None)

    @property
    def heads(self) -> int:
        return 1 if self.mixing is None else self.mixing.batch_shape[-1]


def check_frozen(name: str, frozen: Frozen) -> float:
    """Return the miss of y == W x + offset, or refuse the layer with it (``ValueError``)."""
    sizes = {"n": frozen.W.n, "p": frozen.W.p, "d": frozen.W.d}
    check_tensors(sizes, x=(frozen.x, "... n d"), y=(frozen.y, "... n p"))
    check_finite(f"the output of {name}", frozen.y)
    miss = frozen.miss()
    if not miss <= frozen.tolerance:
        raise ValueError(
            f"{name} must be read exactly, y == W x + offset to {frozen.tolerance:g}; got a relative miss of "
            f"{miss:.3g}: it does something its reader does not know"
        )
    return miss


def heads_of_channels(alpha: Tensor, width: int) -> FactorizedOperator:
    """Return heads that each own ``width`` neighboring channels: alpha (..., H, n, n), p = d = H width."""
    H = alpha.shape[-3]
    own = torch.eye(H, dtype=alpha.dtype, device=alpha.device).repeat_interleave(width, dim=-1)
    return FactorizedOperator(alpha, torch.diag_embed(own))


def convolve(x: Tensor, taps: Tensor) -> Tensor:
    """Apply a causal depthwise convolution as layers do before their scan: x (..., n, c), taps (c, w)."""
    n, w = x.shape[-2], taps.shape[-1]
    padded = functional.pad(x, (0, 0, w - 1, 0))
    return sum(padded[..., s : s + n, :] * taps[:, s] for s in range(w))


class Linear(NamedTuple):
    """Weight (p, d) and bias (p,) of a linear module of either layout."""

    W: Tensor
    b: Tensor


def linear(name: str, module) -> Linear:
    """Read ``nn.Linear`` or GPT-2's transposed ``Conv1D``; anything else (quantized) is refused."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise ValueError(
            f"{name} must be a linear layer with floating-point weights; got {type(module).__name__}: load "
            "the model without quantization"
        )
    check_shape(name, weight, "p d")
    W = weight.mT if type(module).__name__ == "Conv1D" else weight
    return Linear(W, W.new_zeros(len(W)) if bias is None else bias)
