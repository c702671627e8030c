"""What every sequence map of the book shares: forward, interaction operator and, for recurrent maps, step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from ssmbook._checks import check_integer, check_same_dtype_device, check_shape, check_tensor
from ssmbook.numerics import autocasts, without_autocast
from ssmbook.operators import InteractionOperator

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of typing itself from Python 3.11 on
else:
    Unpack = dict

Family = Literal["token by token", "by position", "key side", "value side", "gated or mixed"]


class New(TypedDict, total=False):
    """How random parameters are made, as by ``torch.randn``."""

    generator: torch.Generator | None
    dtype: torch.dtype | None
    device: torch.device | str | int | None


class Sizes(NamedTuple):
    """The sizes of the maps of the zoo, of which each takes what it needs; ``head`` has those of heads."""

    d: int
    p: int
    n: int
    N: int
    head: dict[str, int]


class SequenceMap(nn.Module, ABC):
    """A map from n tokens of width d to n tokens of width p that knows its own interaction operator.

    Subclasses write ``_forward`` and ``_interaction``; x is checked here, before either is
    called. Maps with random parameters take ``generator``, ``dtype`` and ``device`` for
    them, as ``torch.randn`` does. Attributes: ``d``, ``p`` (int), ``causal`` (bool: output
    i depends on tokens j <= i only), and of maps of the zoo ``family``, where tokens mix.

    >>> from ssmbook.operators import PointwiseOperator
    >>> class Double(SequenceMap):
    ...     def _forward(self, x):
    ...         return 2 * x
    ...     def _interaction(self, x):
    ...         return PointwiseOperator(2 * torch.eye(self.d).repeat(x.shape[-2], 1, 1))
    >>> Double(3, 3).interaction(torch.randn(5, 3)).interaction_rank()
    1
    """

    family: ClassVar[Family]

    def __init__(self, d: int, p: int, *, causal: bool = True):
        super().__init__()
        self.d, self.p = check_integer("d", d, low=1), check_integer("p", p, low=1)
        self.causal = causal

    @abstractmethod
    def _forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _interaction(self, x: Tensor) -> InteractionOperator: ...

    def forward(self, x: Tensor) -> Tensor:
        """The output tokens (..., n, p) for x (..., n, d), in the dtype and on the device of the parameters.

        Under ``torch.autocast`` tokens of any dtype, and products of matrices in half
        precision; states stay in the precision of the parameters. Raises ``TypeError`` for
        another dtype, ``ValueError`` for another shape or device.
        """
        return self._forward(self._check("x", x, "... n d"))

    def interaction(self, x: Tensor) -> InteractionOperator:
        """The interaction operator W(X) in closed form, coefficients frozen at X: forward(x) == W(X) x.

        x as in ``forward``. Returns an operator with blocks W_ij(X) of shape (p, d), in the
        dtype of the parameters, under autocast too.

        >>> layer, x = Attention(4, 4, H=2, head_width=3), torch.randn(8, 4)
        >>> layer.interaction(x)
        FactorizedOperator(batch_shape=(), n=8, p=4, d=4, dtype=torch.float32)
        """
        x = self._check("x", x, "... n d")
        with without_autocast(x.device.type):
            return self._interaction(x)

    def _check(self, name: str, value: Tensor, pattern: str) -> Tensor:
        """Return tokens that fit the map; where autocast is on, in the dtype of its parameters."""
        check_shape(name, value, pattern, {"d": self.d})
        parameter = next(self.parameters(), None)
        if parameter is not None:
            value = value.to(parameter.dtype) if autocasts(value.device.type) else value
            check_same_dtype_device(**{"the parameters": parameter, name: value})
        return value

    def extra_repr(self) -> str:
        return f"d={self.d}, p={self.p}, causal={self.causal}"


class RecurrentMap(SequenceMap):
    """A causal map that can be run token by token from a state of fixed size.

    Subclasses write ``initial_state`` and ``_step`` as well as ``_forward`` and
    ``_interaction``.

    >>> layer, x = RetNet(4, 4, H=2, head_width=3), torch.randn(8, 4)
    >>> first, state = layer.run(x[:5])  # a sequence in two pieces
    >>> then, state = layer.run(x[5:], state)
    >>> torch.allclose(torch.cat([first, then]), layer(x), atol=1e-5)
    True
    """

    family = "value side"

    @abstractmethod
    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        """The zero state of a batch, (*batch_shape, ...), on the device and in the dtype of the parameters.

        For half precision it is float32, because a sum in bfloat16 loses increments below
        1/256 of it.
        """

    @abstractmethod
    def _step(self, x_t: Tensor, state: Tensor) -> tuple[Tensor, Tensor]: ...

    def step(self, x_t: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One token in, one token out: the same outputs as ``forward``, from a state.

        x_t: (..., d); state: from ``initial_state`` or the last ``step``, same batch shape
        (None: the zero state). Returns y_t (..., p) and the next state; neither argument is
        changed. Raises ``ValueError`` or ``TypeError`` for a token or a state of the wrong
        shape or dtype.

        >>> layer, x = RetNet(4, 4, H=2, head_width=3), torch.randn(8, 4)
        >>> y, state = layer.step(x[0])
        >>> torch.allclose(y, layer(x)[0], atol=1e-5)
        True
        """
        x_t = self._check("x_t", x_t, "... d")
        with without_autocast(x_t.device.type):
            return self._step(x_t, self._start(state, x_t.shape[:-1]))

    def run(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All tokens by ``step``, from a given state, so that a long sequence may come in pieces.

        x: (..., n, d); state as in ``step``. Returns y (..., n, p) and the final state.
        Raises as ``step``.
        """
        x = self._check("x", x, "... n d")
        state = self._start(state, x.shape[:-2])
        outputs = []
        with without_autocast(x.device.type):
            for x_t in x.unbind(-2):
                y_t, state = self._step(x_t, state)
                outputs.append(y_t)
        y = torch.stack(outputs, -2) if outputs else x.new_empty(*x.shape[:-1], self.p)
        return y, state

    def _start(self, state: Tensor | None, batch_shape: Sequence[int]) -> Tensor:
        """The given state, checked, or else the zero state."""
        zero = self.initial_state(batch_shape)
        if state is None:
            return zero
        check_tensor("state", state, complex_ok=True)
        if state.shape != zero.shape:
            raise ValueError(f"state must have shape {tuple(zero.shape)}; got {tuple(state.shape)}")
        check_same_dtype_device(**{"the initial state": zero, "state": state})
        return state


def random_parameter(
    *shape: int,
    fan_in: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
) -> nn.Parameter:
    """A parameter of independent normal entries with variance 1 / fan_in, drawn as ``torch.randn`` does."""
    entries = torch.randn(*shape, generator=generator, dtype=dtype, device=device)
    return nn.Parameter(entries / fan_in**0.5)


def random_steps(count: int, **new: Unpack[New]) -> Tensor:
    """Step sizes Delta (count,), log-uniform between 0.001 and 0.1 (`gu2024mamba`)."""
    return torch.exp(math.log(1e-3) + torch.rand(count, **new) * math.log(1e-1 / 1e-3))


def inverse_softplus(a: Tensor) -> Tensor:
    """The z with softplus(z) = a, for a > 0."""
    return a + torch.log(-torch.expm1(-a))
