"""What a reader returns: a linear map that is exactly what the layer did, and the proof of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ssmbook._checks import check_finite, check_sequence, check_shape, check_tensors, shared_batch
from ssmbook.operators import DiagonalOperator, FactorizedOperator, InteractionOperator

EXACT, ROUNDED = 1e-10, 1e-5


@dataclass(frozen=True)
class Frozen:
    """The interaction operator of a layer with its coefficients frozen: y == W x + offset.

    ``W``: InteractionOperator; ``x`` (..., n, d) and ``y`` (..., n, p): what entered and what the layer
    itself put out; ``offset`` (..., n, p) or ``None``: what its biases add; ``casts``: the layer computes
    partly in float32, whatever its weights are. ``notes``: what was changed to read it. Introduced in
    *trained-layers*.

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
    notes: tuple[str, ...] = ()

    @property
    def tolerance(self) -> float:
        """The relative miss allowed: 1e-10, or 1e-5 where float32 takes part."""
        return ROUNDED if self.casts or self.y.dtype != torch.float64 else EXACT

    def miss(self) -> float:
        """Return max |W x + offset - y| / max |y|. Introduced in *trained-layers*."""
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
    """A layer as its reader found it: the core that mixes tokens, and the mixer from hidden to hidden state.

    ``core``: W_ij without the short convolution, gates and norms around it; ``mixer``: all of the layer
    (``None``: the same as the core). ``H``: the heads it has (by default those of the core's
    coefficients). ``softmax``: given for softmax heads, whose gradients have a closed form. ``F``: the layer
    as a function of its hidden states (n, d) to (n, p), for other gradients. Introduced in *trained-layers*.
    """

    core: Frozen
    mixer: Frozen | None = None
    H: int | None = None
    softmax: Softmax | None = None
    F: Callable[[Tensor], Tensor] | None = None

    @property
    def mixing(self) -> InteractionOperator | None:
        """The coefficients of each head as a scalar operator, batch (..., H); ``None`` without heads."""
        W = self.core.W
        return W.channels if isinstance(W, DiagonalOperator) else getattr(W, "mixing", None)

    @property
    def heads(self) -> int:
        return self.H or (1 if self.mixing is None else self.mixing.batch_shape[-1])


class FrozenMap(InteractionOperator):
    """Linear stages one after the other, never built as a matrix: a mixer whose gates and norms are frozen.

    ``stages``: linear functions of (..., n, ·); ``like``: a tensor with the operator's dtype and device.
    Introduced in *trained-layers*.
    """

    def __init__(
        self,
        stages: Sequence[Callable[[Tensor], Tensor]],
        like: Tensor,
        batch: Sequence[int],
        n: int,
        p: int,
        d: int,
    ) -> None:
        super().__init__(like, batch, n, p, d)
        self.stages = tuple(check_sequence("stages", stages, "functions"))

    def _apply(self, x):
        batch = shared_batch(W=self.batch_shape, x=x.shape[:-2])
        for stage in self.stages:
            x = stage(x)
        return x.expand(*batch, *x.shape[-2:])

    def _scaled(self, factor):
        stages = (*self.stages, lambda y: factor * y)
        return FrozenMap(stages, self._standard, self.batch_shape, self.n, self.p, self.d)

    def _mapped(self, change):
        raise TypeError("a mixer read by the lens keeps its gates in its stages: it is not moved or cast")


def convolved(
    W: InteractionOperator,
    x: Tensor,
    y: Tensor,
    project: Linear,
    convolution: tuple,
    gate: Tensor,
    out: Linear,
) -> Frozen:
    """The mixer around a core: in projection, short convolution, slopes of what follows it, core, gate, out.

    ``convolution``: taps (c, w), bias (c,) or 0, and slopes (..., n, c) of the activation behind it.
    """
    taps, bias, slope = convolution
    stages = (
        lambda x: x @ project.W.mT,
        lambda v: depthwise(v, taps) * slope,
        W.apply,
        lambda s: (s * gate) @ out.W.mT,
    )
    mixer = FrozenMap(stages, project.W, W.batch_shape, W.n, len(out.W), project.W.shape[1])
    entered = (depthwise(project.b.expand(*x.shape[:-1], -1), taps) + bias) * slope
    return Frozen(mixer, x, y, (W.apply(entered) * gate) @ out.W.mT + out.b, casts=True)


def check_frozen(name: str, frozen: Frozen) -> float:
    """Return the miss of y == W x + offset, or refuse the layer with it (``ValueError``)."""
    sizes = {"n": frozen.W.n, "p": frozen.W.p, "d": frozen.W.d}
    check_tensors(sizes, x=(frozen.x, "... n d"), y=(frozen.y, "... n p"))
    check_finite(f"the input of {name}", frozen.x)
    check_finite(f"the output of {name}", frozen.y)
    miss = frozen.miss()
    if not miss <= frozen.tolerance:
        raise ValueError(
            f"{name} must be read exactly, y == W x + offset to {frozen.tolerance:g}; got a relative miss of "
            f"{miss:.3g}: it does something its reader does not know"
        )
    return miss


def diagonal_heads(alpha: Tensor, width: int) -> FactorizedOperator:
    """Heads that each own ``width`` neighboring channels: alpha (..., H, n, n), p = d = H width."""
    H = alpha.shape[-3]
    own = torch.eye(H, dtype=alpha.dtype, device=alpha.device).repeat_interleave(width, dim=-1)
    return FactorizedOperator(alpha, torch.diag_embed(own))


def depthwise(x: Tensor, taps: Tensor) -> Tensor:
    """Causal depthwise correlation, as the short convolutions do it: x (..., n, c), taps (c, w)."""
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
    check_shape(name, weight, "p d")
    W = weight.mT if type(module).__name__ == "Conv1D" else weight
    return Linear(W, W.new_zeros(len(W)) if bias is None else bias)
