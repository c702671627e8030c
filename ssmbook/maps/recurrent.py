"""Recurrences with a full state matrix, the same at every token: a linear SSM (S5, LRU) and an RNN."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ssmbook._checks import check_choice, check_integer
from ssmbook.maps.base import New, RecurrentMap, Unpack, random_parameter
from ssmbook.maps.elementary import ACTIVATIONS, Activation, activate, secant_slope
from ssmbook.numerics import half_to_float32, without_autocast
from ssmbook.operators import LagOperator, RecurrentOperator
from ssmbook.scans import lti_scan
from ssmbook.systems.system import System, check_system


class LTISSM(RecurrentMap):
    """Linear time-invariant SSM: W_ij = C A^(i-j) B for j <= i, plus D at i = j.

    h_i = A h_{i-1} + B x_i, y_i = C h_i + D x_i. ``system``: one real `System`, whose
    matrices are copied into parameters of the same names; ``layer.system`` is the `System`
    of the current parameters. W does not depend on X, so ``interaction(x)`` is unbatched.
    Raises ``TypeError`` for anything but a real System, ``ValueError`` for a batch.

    >>> turn = torch.tensor([[0.0, -0.9], [0.9, 0.0]])
    >>> layer = LTISSM(System(turn, torch.eye(2), torch.eye(2)))
    >>> layer.interaction(torch.randn(8, 2)).interaction_rank()  # a rotating state takes two heads
    2
    """

    def __init__(self, system: System):
        check_system(system, batched=False, complex_ok=False)
        super().__init__(system.d, system.p)
        self.N = system.N
        self.state_shape = (system.N,)
        for name, matrix in zip("ABCD", system, strict=True):
            copied = None if matrix is None else nn.Parameter(matrix.clone())
            self.register_parameter(name, copied)

    @property
    def system(self) -> System:
        """The parameters as a `System`, through which gradients pass."""
        return System._trusted(self.A, self.B, self.C, self.D)

    @classmethod
    def random(
        cls, d: int, p: int, *, N: int, rho: float = 0.9, skip: bool = False, **new: Unpack[New]
    ) -> LTISSM:
        """A system of N states with spectral radius rho: independent normal entries, A rescaled.

        Parameters
        ----------
        d, p : int
            Widths in and out.
        N : int
            States.
        rho : float, default 0.9
            The spectral radius.
        skip : bool, default False
            Whether there is a D.
        generator, dtype, device : optional
            Of the random parameters, as in ``torch.randn``.

        Returns
        -------
        LTISSM
            The map of that system.

        Raises
        ------
        TypeError, ValueError
            If ``N`` is no whole number of at least 1.
        """

        N = check_integer("N", N, low=1)

        def entries(*shape: int, fan_in: int) -> Tensor:
            return random_parameter(*shape, fan_in=fan_in, **new).detach()

        A = entries(N, N, fan_in=1)
        A = A * (rho / torch.linalg.eigvals(half_to_float32(A)).abs().max())
        B, C = entries(N, d, fan_in=d), entries(p, N, fan_in=N)
        return cls(System(A, B, C, entries(p, d, fan_in=d) if skip else None))

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, end = lti_scan(self.A, self.B, self.C, x, state)
        return y if self.D is None else y + x @ self.D.mT, end

    def _interaction(self, x: Tensor) -> LagOperator:
        return LagOperator(self.system.lags(x.shape[-2]), x.shape[-2])


class RNN(RecurrentMap):
    """Recurrent network h_i = sigma(A h_{i-1} + B x_i), y_i = C h_i.

    With z_i the pre-activation and D_i = diag(sigma(z_i)/z_i), W_ij = C D_i A D_{i-1} A ...
    A D_j B exactly: a secant, not the derivative. Parameters ``A`` (N, N), ``B`` (N, d),
    ``C`` (p, N). This is the core of the layer, without the biases, which would make F(0)
    differ from 0.

    Parameters
    ----------
    d, p : int
        Widths in and out.
    N : int
        States.
    activation : {"tanh", "relu", "silu", "gelu", "identity"}, default "tanh"
        sigma, with sigma(0) = 0.
    generator, dtype, device : optional
        Of the random parameters, as in ``torch.randn``.

    Raises
    ------
    TypeError, ValueError
        If ``N`` is no whole number of at least 1, or the activation is unknown.

    Examples
    --------
    >>> layer, x = RNN(3, 2, N=4), torch.randn(6, 3)
    >>> W = layer.interaction(x)
    >>> torch.allclose(layer(x), W @ x, atol=1e-5), W.past_future_rank() <= 4
    (True, True)
    """

    def __init__(self, d: int, p: int, *, N: int, activation: Activation = "tanh", **new: Unpack[New]):
        super().__init__(d, p)
        self.N = check_integer("N", N, low=1)
        self.state_shape = (self.N,)
        self.activation = check_choice("activation", activation, ACTIVATIONS)
        self.A = random_parameter(N, N, fan_in=N, **new)
        self.B = random_parameter(N, d, fan_in=d, **new)
        self.C = random_parameter(p, N, fan_in=N, **new)

    def _pre_activations(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """z of every token, (..., n, N), and the last state, from the state h."""
        A, z = half_to_float32(self.A), []
        with without_autocast(x.device.type):
            for u_t in half_to_float32(x @ self.B.mT).unbind(-2):
                z.append(h @ A.mT + u_t)
                h = activate(self.activation, z[-1])
        return (torch.stack(z, -2).to(x.dtype) if z else x.new_empty(*x.shape[:-1], self.N)), h

    def _run(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        z, end = self._pre_activations(x, state)
        return activate(self.activation, z) @ self.C.mT, end

    def _interaction(self, x: Tensor) -> RecurrentOperator:
        z, _ = self._pre_activations(x, self.initial_state(x.shape[:-2]))
        slope = secant_slope(self.activation, z)[..., None]
        A, B = slope * self.A, slope * self.B
        return RecurrentOperator(A, B, self.C.expand(*x.shape[:-1], self.p, self.N))


ZOO = {
    "LTI SSM": lambda of, new: LTISSM.random(of.d, of.p, N=of.N, **new),
    "LTI SSM with skip": lambda of, new: LTISSM.random(of.d, of.p, N=of.N, skip=True, **new),
    "RNN": lambda of, new: RNN(of.d, of.p, N=of.N, **new),
}
