"""What every sequence map of the book shares: forward, interaction operator and, for recurrent maps, step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature

import torch
from torch import Tensor, nn

from ssmbook._checks import (
    check_alike,
    check_flags,
    check_integer,
    check_like,
    check_room,
    check_sequence,
    check_shape,
    check_tensor,
)
from ssmbook.numerics import single
from ssmbook.operators import InteractionOperator


class SequenceMap(nn.Module, ABC):
    """A map from n tokens of width d to n tokens of width p that knows its own interaction operator.

    Subclasses write ``_forward`` and ``_interaction``; the input is checked here, once for all of them.

    Attributes: ``d``, ``p`` (int), ``causal`` (bool: output i depends on tokens j <= i only).
    Introduced in *zoo*.

    >>> from ssmbook.operators import PointwiseOperator
    >>> class Double(SequenceMap):
    ...     def _forward(self, x):
    ...         return 2 * x
    ...     def _interaction(self, x):
    ...         return PointwiseOperator(2 * torch.eye(self.d).repeat(x.shape[-2], 1, 1))
    >>> Double(3, 3).interaction(torch.randn(5, 3)).interaction_rank()
    1
    """

    def __init__(self, d: int, p: int, *, causal: bool = True):
        super().__init__()
        d = check_integer("d", d, low=1)
        p = check_integer("p", p, low=1)
        check_flags(causal=causal)
        self.d, self.p, self.causal = d, p, causal

    @abstractmethod
    def _forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _interaction(self, x: Tensor) -> InteractionOperator: ...

    def forward(self, x: Tensor) -> Tensor:
        """The output tokens.

        x: (..., n, d), any batch shape, n = 0 included; in the dtype and on the device of the parameters.
        Returns (..., n, p) in the same dtype. Raises ``TypeError`` (not a floating-point tensor, other
        dtype) or ``ValueError`` (wrong shape, other device). Introduced in *zoo*.
        """
        self._check(x)
        return self._forward(x)

    def interaction(self, x: Tensor) -> InteractionOperator:
        """The interaction operator W(X) in closed form, coefficients frozen at X: forward(x) == W(X) x.

        x: as in ``forward``. Returns an operator with blocks W_ij(X) of shape (p, d), in the dtype of x.
        Raises as ``forward`` does. Introduced in *zoo*.

        >>> layer, x = Attention(4, 4, H=2, head_width=3), torch.randn(8, 4)
        >>> layer.interaction(x)
        FactorizedOperator(batch_shape=(), n=8, p=4, d=4, dtype=torch.float32)
        """
        self._check(x)
        return self._interaction(x)

    def _check(self, x: Tensor) -> None:
        check_shape("x", x, "... n d", {"d": self.d})
        self._check_alike("x", x)

    def _check_alike(self, name: str, value: Tensor) -> None:
        standard = self._standard()
        if standard is not None:
            check_alike(**{"the parameters": standard, name: value})

    def _standard(self) -> Tensor | None:
        """The tensor whose dtype and device the inputs must share (None for a map without parameters)."""
        return next(self.parameters(), None)

    def extra_repr(self) -> str:
        return f"d={self.d}, p={self.p}, causal={self.causal}"


class RecurrentMap(SequenceMap):
    """A causal map that can be run token by token from a state of fixed size.

    Subclasses write ``initial_state`` and ``_step`` beside what ``SequenceMap`` asks for.
    Introduced in *zoo*.

    >>> layer, x = RetNet(4, 4, H=2, head_width=3), torch.randn(8, 4)
    >>> first, state = layer.run(x[:5])  # a sequence in two pieces
    >>> then, state = layer.run(x[5:], state)
    >>> torch.allclose(torch.cat([first, then]), layer(x), atol=1e-5)
    True
    """

    def __init__(self, d: int, p: int):
        super().__init__(d, p, causal=True)

    @abstractmethod
    def initial_state(self, batch_shape: Sequence[int] = ()) -> Tensor:
        """The zero state for a batch, (*batch_shape, ...).

        Device and dtype are those of the parameters, but float32 for half precision (an increment below one
        part in 256 would be lost) and complex where the state is. Introduced in *zoo*.
        """

    @abstractmethod
    def _step(self, x_t: Tensor, state: Tensor) -> tuple[Tensor, Tensor]: ...

    def step(self, x_t: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One token in, one token out: the same outputs as ``forward``, from a state.

        x_t: (..., d); state: what ``initial_state`` or the last ``step`` returned, same batch shape (None:
        the zero state). Returns y_t (..., p) and the next state; neither argument is changed. Raises
        ``ValueError`` or ``TypeError`` for a token or a state that does not fit. Introduced in *zoo*.

        >>> layer, x = RetNet(4, 4, H=2, head_width=3), torch.randn(8, 4)
        >>> y, state = layer.step(x[0])
        >>> torch.allclose(y, layer(x)[0], atol=1e-5)
        True
        """
        check_shape("x_t", x_t, "... d", {"d": self.d})
        self._check_alike("x_t", x_t)
        if state is None:
            state = self.initial_state(x_t.shape[:-1])
        self._check_state(state, x_t.shape[:-1])
        return self._step(x_t, state)

    def run(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All tokens by ``step``, from a given state: pass the state on and a sequence may come in pieces.

        x: (..., n, d); state: as in ``step`` (None: the zero state). Returns y (..., n, p)
        and the final state. Raises as ``step`` does. Introduced in *zoo*.
        """
        self._check(x)
        batch_shape = x.shape[:-2]
        if state is None:
            state = self.initial_state(batch_shape)
        self._check_state(state, batch_shape)
        outputs = []
        for x_t in x.unbind(-2):
            y_t, state = self._step(x_t, state)
            outputs.append(y_t)
        return stack_tokens(outputs, x.new_empty(*batch_shape, 0, self.p)), state

    def _check_state(self, state: Tensor, batch_shape: Sequence[int]) -> None:
        wanted = self.initial_state(batch_shape)
        check_tensor("state", state, complex_ok=wanted.is_complex())
        if state.shape != wanted.shape:
            raise ValueError(f"state must have shape {tuple(wanted.shape)}; got {tuple(state.shape)}")
        check_alike(**{"the initial state": wanted, "state": state})


def zero_state(like: Tensor, batch_shape: Sequence[int], *shape: int) -> Tensor:
    """Zeros (*batch_shape, *shape) on the device and in the dtype of ``like``, float32 for half precision."""
    batch_shape = check_sequence("batch_shape", batch_shape, "ints")
    sizes = (check_integer("batch_shape", size, low=0) for size in batch_shape)
    return single(like.new_zeros(*sizes, *shape))


def stack_tokens(tokens: list[Tensor], empty: Tensor) -> Tensor:
    """Stack tokens (..., c) along time into (..., n, c); ``empty`` (..., 0, c) is the answer for n = 0."""
    return torch.stack(tokens, dim=-2) if tokens else empty


def draw(
    *shape: int,
    fan_in: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> nn.Parameter:
    """A parameter of independent normal entries with variance 1 / fan_in."""
    check_like(generator=generator, dtype=dtype, device=device)
    check_room("the sizes of a map", *shape)
    value = torch.randn(*shape, generator=generator, dtype=dtype, device=device)
    return nn.Parameter(value / int(fan_in) ** 0.5)


def spelled_out(constructor: Callable) -> Callable:
    """Let a constructor's signature name what its ``**new`` holds: generator, dtype, device, as in `draw`."""
    shown, new = signature(constructor), signature(draw).parameters
    own = [parameter for name, parameter in shown.parameters.items() if name != "new"]
    parameters = [*own, *(new[name] for name in ("generator", "dtype", "device"))]
    known = {parameter.name for parameter in parameters}

    @wraps(constructor)
    def checked(self, *args, **given):
        if unknown := sorted(given.keys() - known):
            raise TypeError(f"{type(self).__name__} has no argument {unknown[0]!r}")
        constructor(self, *args, **given)

    checked.__signature__ = shown.replace(parameters=parameters)
    return checked
