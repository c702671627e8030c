"""What every sequence map of the book shares: forward, interaction operator and, if recurrent, a state."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypedDict, overload

import torch
from torch import Tensor, nn

from ssmbook._checks import check_integer, check_same_dtype_device, check_shape, check_tensor
from ssmbook.numerics import autocasts, half_to_float32, without_autocast
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
    """A causal map that can go on from a state of fixed size.

    Subclasses write ``_run``, which takes checked tokens (at least one) and a state and returns
    outputs and the next state, ``_interaction``, and ``state_shape``, the shape of one
    sequence's state, which is zero at first.

    >>> layer, x = RetNet(4, 4, H=2, head_width=3), torch.randn(8, 4)
    >>> first, state = layer(x[:5], layer.initial_state())  # a sequence in two pieces
    >>> then, state = layer(x[5:], state)
    >>> torch.allclose(torch.cat([first, then]), layer(x), atol=1e-5)
    True
    """

    family = "value side"
    state_shape: tuple[int, ...]

    @abstractmethod
    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]: ...

    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        """The zero state of a batch, (*batch_shape, *state_shape), of the parameters' device and dtype.

        For half precision it is float32, because a sum in bfloat16 loses increments below
        1/256 of it.
        """
        return half_to_float32(next(self.parameters()).detach()).new_zeros(*batch_shape, *self.state_shape)

    @overload
    def forward(self, x: Tensor, state: None = None, resets: Tensor | None = None) -> Tensor: ...

    @overload
    def forward(self, x: Tensor, state: Tensor, resets: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

    def forward(
        self, x: Tensor, state: Tensor | None = None, resets: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The output tokens y for x; with a state, which goes on from there, y and the next state.

        Only a call that is given a state returns one, so that a layer without one is like any
        other module; from the beginning that is ``initial_state(batch_shape)``, or ``run``.
        Autocast is as in every map; states stay in the precision of the parameters.

        Parameters
        ----------
        x : Tensor (..., n, d)
            Tokens, in the dtype and on the device of the parameters.
        state : Tensor (..., *state_shape), optional
            From ``initial_state`` or an earlier call, in that dtype, with the batch shape of
            x; it is not changed. None: zero.
        resets : Tensor (n,) or (..., n), optional
            Bool: True at the first token of each sequence of several that are packed one
            after the other; it sees nothing of what was before. There is one call of a scan
            between one such token of the batch and the next.

        Returns
        -------
        Tensor (..., n, p), or a pair of it and the state after the last token

        Raises
        ------
        TypeError, ValueError
            For tokens, a state or resets of another shape, dtype or device.

        Examples
        --------
        >>> layer, x = RetNet(4, 4, H=2, head_width=3), torch.randn(8, 4)
        >>> y = layer(x, resets=torch.arange(8) == 5)  # five tokens, then three of something else
        >>> torch.allclose(y[5:], layer(x[5:]), atol=1e-5)
        True
        """
        y, end = self.run(x, state, resets)
        return y if state is None else (y, end)

    _forward = forward  # which is whole

    def step(self, x_t: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One token in, one token out, and the next state: ``run`` for x_t (..., d) and y_t (..., p).

        >>> layer, x = RetNet(4, 4, H=2, head_width=3), torch.randn(8, 4)
        >>> y, state = layer.step(x[0])
        >>> torch.allclose(y, layer(x)[0], atol=1e-5)
        True
        """
        x_t = self._check("x_t", x_t, "... d")
        y, state = self._run(x_t[..., None, :], self._start(state, x_t.shape[:-1]))
        return y.squeeze(-2), state

    def run(
        self, x: Tensor, state: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The output tokens and the final state: ``forward`` with a state, zero if none is given."""
        x = self._check("x", x, "... n d")
        state = self._start(state, x.shape[:-2])
        if resets is not None:
            return self._run_packed(x, state, resets)
        return self._run(x, state) if x.shape[-2] else (x.new_empty(*x.shape[:-1], self.p), state)

    def _run_packed(self, x: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
        """From one reset to the next, wherever a sequence of the batch has one."""
        if not isinstance(resets, Tensor) or resets.dtype != torch.bool:
            raise TypeError(f"resets must be a bool torch.Tensor; got {getattr(resets, 'dtype', resets)}")
        if resets.shape not in (x.shape[:-1], x.shape[-2:-1]):
            wanted = f"({x.shape[-2]},) or {tuple(x.shape[:-1])}"
            raise ValueError(f"resets must have shape {wanted}, one per token; got {tuple(resets.shape)}")
        resets = resets.to(x.device).expand(x.shape[:-1])
        starts = resets.reshape(-1, x.shape[-2]).any(0).nonzero().flatten().tolist()
        zero, outputs = torch.zeros_like(state), []
        for first, last in itertools.pairwise([*sorted({0, *starts}), x.shape[-2]]):
            fresh = resets[..., first : first + 1].any(-1)
            state = torch.where(fresh.view(*fresh.shape, *(1 for _ in self.state_shape)), zero, state)
            y, state = self.run(x[..., first:last, :], state)
            outputs.append(y)
        return torch.cat(outputs, -2), state

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
