"""What a reader returns: a linear map that is exactly what the layer computed, and the proof of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssmbook._checks import check_finite, check_shape, check_tensors
from ssmbook.operators import DiagonalOperator, FactorizedOperator, InteractionOperator

EXACT, ROUNDED = 1e-10, 1e-5


@dataclass(frozen=True)
class LayerOperator:
    """The interaction operator of a layer with its coefficients frozen: y == W x + offset.

    Parameters
    ----------
    W : InteractionOperator
        The part of the layer that mixes tokens.
    x : Tensor (..., n, d)
        What entered that part.
    y : Tensor (..., n, p)
        What it returned.
    offset : Tensor (..., n, p) or None
        What biases add.
    casts : bool, default False
        The layer computes partly in float32, whatever the dtype of its weights.

    Examples
    --------
    >>> from ssmbook.maps import SSD
    >>> found = operator(SSD(4, 4, H=2, head_width=3, N=8).eval(), torch.randn(1, 16, 4))
    >>> found.W, torch.allclose(found.y, found.W @ found.x, atol=1e-5)
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

    def miss(self, got: Tensor | None = None) -> float:
        """Return max |W x + offset - y| / max |y|; ``got``: W x + offset, where it is known."""
        if got is None:
            got = self.W.apply(self.x)
            got = got if self.offset is None else got + self.offset
        gap, size = float((got - self.y).abs().max()), float(self.y.abs().max())
        return gap / size if size > 0 else gap


@dataclass(frozen=True)
class Softmax:
    """What the gradient of softmax heads needs: V_h = W_O[h] W_V[h] and the coefficients at other inputs.

    Parameters
    ----------
    W_V : Tensor (H, r, d)
        Weights of the values.
    W_O : Tensor (H, p, r)
        Weights of the output.
    b_V : Tensor (H, r)
        Biases of the values.
    weights : callable
        x (n, d) to coefficients (H, n, n), differentiable.
    """

    W_V: Tensor
    W_O: Tensor
    b_V: Tensor
    weights: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Reading:
    """What a reader found in a layer.

    Parameters
    ----------
    core : LayerOperator
        The part of the layer that mixes tokens.
    softmax : Softmax or None
        Given for softmax heads, whose gradients have a closed form.
    F : callable or None
        The whole layer as a function of its hidden states, (n, d) to (n, p), for the gradients of
        other layers.
    x : Tensor (n, d) or None
        These hidden states, where they are not those of the core.
    site : Module or None
        The part of the layer that returns y; without it the layer itself does. ``replace`` needs it.
    enters : bool, default False
        Whether y enters that part instead of leaving it.
    put : callable or None
        What becomes of y on its way there, such as a gate.
    enter : callable or None
        y to a context in which y stands in the place of the layer's own core, where no part holds it.
    padding : Tensor (..., n) or None
        Which tokens are padding, which no coefficient reads or writes.
    """

    core: LayerOperator
    softmax: Softmax | None = None
    F: Callable[[Tensor], Tensor] | None = None
    x: Tensor | None = None
    site: nn.Module | None = None
    enters: bool = False
    put: Callable[[Tensor], Tensor] | None = None
    enter: Callable[[Tensor], AbstractContextManager] | None = None
    padding: Tensor | None = None

    @property
    def mixing(self) -> InteractionOperator | None:
        """The coefficients of each head as a scalar operator, batch (..., H); ``None`` without heads."""
        W = self.core.W
        return W.channels if isinstance(W, DiagonalOperator) else getattr(W, "mixing", None)

    @property
    def H(self) -> int:
        """How many heads the layer has; 1 for an operator without heads."""
        return 1 if self.mixing is None else self.mixing.batch_shape[-1]

    @property
    def alpha(self) -> Tensor:
        """The coefficients of the heads, or of the channels, (..., H, n, n)."""
        W, gone = self.core.W, self.padding
        if isinstance(W, FactorizedOperator):
            alpha = W.alpha
        elif isinstance(W, DiagonalOperator):
            alpha = W.channels.to_dense()[..., 0, 0]
        else:
            raise ValueError(f"the layer must have heads or channels to be changed; got a {type(W).__name__}")
        return alpha if gone is None else alpha.masked_fill((gone[:, None] | gone[..., None])[:, None], 0)

    @property
    def factors(self) -> tuple[Tensor, Tensor]:
        """The value maps of the heads as products V_h = W_O[h] W_V[h]: (H, p, r) and (H, r, d)."""
        if self.softmax is not None:
            return self.softmax.W_O, self.softmax.W_V
        V = self.core.W.V
        own = torch.eye(V.shape[-2], dtype=V.dtype, device=V.device)
        return own.expand(*V.shape[:-2], -1, -1), V


@torch.no_grad()
def check_read(
    name: str, found: LayerOperator, tolerance: float | None = None, got: Tensor | None = None
) -> float:
    """Return the miss of y == W x + offset, or refuse the layer with it (``ValueError``).

    ``tolerance``: the relative miss allowed, by default what the operator says; ``got``: W x +
    offset by another way.
    """
    tolerance = found.tolerance if tolerance is None else tolerance
    sizes = {"n": found.W.n, "p": found.W.p, "d": found.W.d}
    check_tensors(sizes, x=(found.x, "... n d"), y=(found.y, "... n p"))
    check_finite(f"the output of {name}", found.y)
    miss = found.miss(got)
    if not miss <= tolerance:
        raise ValueError(
            f"{name} must be read exactly, y == W x + offset to {tolerance:g}; got a relative miss of "
            f"{miss:.3g}: it does something its reader does not know"
        )
    return miss


def has(names: str) -> Callable[[nn.Module], bool]:
    """Return whether a module has all of these parts and sizes, as a function of the module."""
    return lambda module: all(hasattr(module, name) for name in names.split())


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


def _linear_map(module: nn.Module, like: Tensor) -> Linear:
    """What a module of several linear parts computes, from its results on unit vectors."""
    d = module.in_features
    results = module(torch.cat([like.new_zeros(1, d), torch.eye(d, dtype=like.dtype, device=like.device)]))
    return Linear((results[1:] - results[0]).mT, results[0])


def linear(name: str, module) -> Linear:
    """Read ``nn.Linear`` or GPT-2's transposed ``Conv1D``; a low-rank adapter (LoRA) is merged.

    Anything else is refused, such as quantized weights.
    """
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        kept = [*module.parameters(), *module.buffers()]
        packed = any(not part.is_floating_point() for part in kept)
        raise ValueError(
            f"{name} must be a linear layer with floating-point weights; got {type(module).__name__}"
            + ": load the model without quantization" * packed
        )
    if any("lora_" in part for part, _ in module.named_parameters()):
        return _linear_map(module, weight)
    check_shape(name, weight, "p d")
    W = weight.mT if type(module).__name__ == "Conv1D" else weight
    return Linear(W, W.new_zeros(len(W)) if bias is None else bias)
