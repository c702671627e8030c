"""The linear time-invariant system h_t = A h_(t-1) + B x_t, y_t = C h_t + D x_t, as one object."""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ssmbook._checks import check_choice, check_integer, check_matrices
from ssmbook.numerics import plain, tolerance
from ssmbook.scans import lti_kernel_naive
from ssmbook.scans.kernels import lags
from ssmbook.systems import foreign, response
from ssmbook.systems.discretization import bilinear, euler, mixed_euler, zoh
from ssmbook.systems.reachability import balance, minimal_states

if TYPE_CHECKING:
    from scipy.signal import StateSpace

_DISCRETIZATIONS = {"zoh": zoh, "bilinear": bilinear, "euler": euler, "mixed": mixed_euler}


class System:
    """A linear time-invariant system with N states, d inputs and p outputs; checked once, then trusted.

    A (..., N, N), B (..., N, d), C (..., p, N) and the skip D (..., p, d) or None: one floating-point or
    complex dtype, one device, one batch shape, finite entries. The output reads the state *after* its
    token, so the lag operators are M_0 = C B + D and M_tau = C A^tau B. A continuous system, dh/dt = A h +
    B x, is written in the same letters and becomes a discrete one by `discretize`. Immutable: ``A, B, C, D
    = system`` takes it apart, ``system.replace(C=...)`` makes another.

    Raises ``TypeError`` for what is no tensor and for mixed dtypes, ``ValueError`` for shapes, devices and
    non-finite entries. Source: `kailath1980linear`. Introduced in *structured-dynamics*.

    >>> A = torch.tensor([[0.5, 0.0], [0.0, -0.5]])
    >>> System(A, B=torch.ones(2, 1), C=torch.ones(1, 2))
    System(N=2, d=1, p=1, float32)
    """

    __slots__ = ("A", "B", "C", "D")

    def __init__(self, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None):
        check_matrices(A=A, B=B, C=C, D=D)
        self._hold(A, B, C, D)

    def _hold(self, A, B, C, D) -> None:
        for name, tensor in zip("ABCD", (A, B, C, D), strict=True):
            object.__setattr__(self, name, tensor)

    @classmethod
    def _trusted(cls, A, B, C, D) -> System:
        """A system made of the parts of a checked one: nothing is checked again."""
        system = object.__new__(cls)
        system._hold(A, B, C, D)
        return system

    def __setattr__(self, name, *value):
        raise AttributeError(f"a System cannot be changed; make another with system.replace({name}=...)")

    __delattr__ = __setattr__

    def __iter__(self):
        return iter((self.A, self.B, self.C, self.D))

    def __repr__(self) -> str:
        batch = f", batch={tuple(self.batch_shape)}" if self.batch_shape else ""
        skip = "" if self.D is None else ", with skip"
        dtype = str(self.dtype).removeprefix("torch.")
        return f"System(N={self.N}, d={self.d}, p={self.p}{batch}, {dtype}{skip})"

    def __reduce__(self):
        return System, tuple(self)

    @property
    def N(self) -> int:
        """The number of states."""
        return self.A.shape[-1]

    @property
    def d(self) -> int:
        """The width of an input token."""
        return self.B.shape[-1]

    @property
    def p(self) -> int:
        """The width of an output token."""
        return self.C.shape[-2]

    @property
    def batch_shape(self) -> torch.Size:
        """What stands before the matrix dimensions: () for one system."""
        return self.A.shape[:-2]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of all four matrices."""
        return self.A.dtype

    @property
    def device(self) -> torch.device:
        """The device of all four matrices."""
        return self.A.device

    def replace(self, **matrices: Tensor | None) -> System:
        """The system with some of A, B, C, D exchanged, checked anew (``D=None`` drops the skip)."""
        unknown = set(matrices) - set("ABCD")
        if unknown:
            raise TypeError(f"replace takes A, B, C and D; got {', '.join(sorted(unknown))}")
        return System(**{**dict(zip("ABCD", self, strict=True)), **matrices})

    def to(self, *args: Any, **kwargs: Any) -> System:
        """The system in another dtype or on another device, as ``Tensor.to`` takes them."""
        return System._trusted(*(None if part is None else part.to(*args, **kwargs) for part in self))

    def double(self) -> System:
        """The system in float64, or complex128: the precision in which ranks are decided."""
        return self.to(torch.complex128 if self.dtype.is_complex else torch.float64)

    def detach(self) -> System:
        """The system without its history of derivatives."""
        return System._trusted(*(None if part is None else part.detach() for part in self))

    def lags(self, n: int) -> Tensor:
        """The lag operators M_tau = C A^tau B for tau = 0 ... n-1, the skip D in M_0 too: (..., n, p, d).

        In the system's dtype, differentiable. Two-level powers, A^(iL+j) = A^(iL) A^j with L near sqrt(n);
        where powers of A grow before they decay and would be less exact, the plain recurrence; a
        ``TransientPeakWarning`` where that is off as well. An unstable A is allowed as long as its lags stay
        finite. Raises ``ValueError`` for n < 0 and for lags that overflow the dtype, the first of which is
        named, ``TypeError`` for an n that is no ``int``. Introduced in *structured-dynamics*.

        >>> system = System(torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1))
        >>> system.lags(3).flatten()
        tensor([1.0000, 0.5000, 0.2500])
        """
        n = check_integer("n", n, low=0)
        A, B, C, D = self
        M = lags(A, B, C, n)
        if not M.is_meta and not torch.isfinite(M).all():
            M = lti_kernel_naive(A, B, C, n)  # no power of A overflows here that B never excites
        M = with_skip(M, D)
        if n == 0 or M.is_meta:
            return M
        finite = torch.isfinite(M).flatten(-2).all(-1).reshape(-1, n).all(0)
        if not finite.all():
            first = int((~finite).nonzero()[0])
            raise ValueError(f"n must stay below the lag where M overflows {M.dtype}, {first}; got n = {n}")
        return M

    def response(self, angles: Tensor) -> Tensor:
        """The frequency response D + sum over tau of M_tau e^(-i w tau), at each angle w: (..., m, p, d).

        angles (m,), real, in radians per token; a complex result, C (I - e^(-iw) A)^(-1) B + D. Raises
        ``ValueError`` for shapes and where e^(iw) is an eigenvalue of A. Introduced in
        *structured-dynamics*.

        >>> system = System(torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1))
        >>> system.response(torch.tensor([0.0, torch.pi])).abs().flatten()  # a constant, and what flickers
        tensor([2.0000, 0.6667])
        """
        return response.frequency_response(*self, angles)

    def discretize(self, step: float | torch.Tensor, method: str = "zoh") -> System:
        """Read A and B as dh/dt = A h + B x and take steps of length ``step``; C and D stay as they are.

        method: "zoh" exact for an input held constant over the step; "bilinear", "euler"; "mixed", the exact
        A with the Euler B, as Mamba's code has it. ``step`` a number or a tensor of the batch shape, at least
        0. (scipy's bilinear form changes C and D too, because its output reads the state before the token.)
        Raises ``ValueError`` for an unknown method and for steps that overflow. Introduced in
        *structured-dynamics*.

        >>> decay = System(-torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1))  # h' = -h + x
        >>> decay.discretize(1.0).lags(3).flatten()  # held inputs: e^(-tau) (1 - 1/e)
        tensor([0.6321, 0.2325, 0.0855])
        """
        A, B = _DISCRETIZATIONS[check_choice("method", method, _DISCRETIZATIONS)](self.A, self.B, step)
        batch = A.shape[:-2]
        C, D = (None if part is None else part.expand(*batch, *part.shape[-2:]) for part in (self.C, self.D))
        return System._trusted(A, B, C, D)

    def minimal(self, rtol: float | None = None) -> System:
        """The same lag operators with the fewest states: what is not reached or not seen is dropped.

        One system; in its dtype, worked in float64, in units in which the states compare. ``rtol``: what
        counts as zero there, by default as for every head count. A zero system comes back with N = 0. Raises
        ``ValueError`` for a batch. Source: `kailath1980linear`. Introduced in *structured-dynamics*.

        >>> twice = System(0.5 * torch.eye(2), torch.ones(2, 1), torch.ones(1, 2))  # one state, kept twice
        >>> twice.minimal()
        System(N=1, d=1, p=1, float32)
        """
        check_system(self, batched=False)
        rtol = tolerance(rtol, self.dtype)
        A, B, C, _ = self.double()
        A, B, C, step, columns, rows = balance(A, B, C)
        A, B, C, _ = minimal_states(A, B, C, rtol)
        return System._trusted(*(part.to(self.dtype) for part in (A * step, B * columns, C * rows)), self.D)

    def spectral_radius(self) -> Tensor:
        """rho, the largest modulus of an eigenvalue of A: real, of the batch shape; 0 without states."""
        return response.spectral_radius(self.A)

    def is_stable(self) -> bool | Tensor:
        """Whether the spectral radius is below 1, so that every mode dies out: a bool, or one a system."""
        return plain(self.spectral_radius() < 1)

    @classmethod
    def from_scipy(
        cls, system: Any, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None
    ) -> System:
        """Take over a system of scipy or python-control, or a tuple (A, B, C, D) or (A, B, C, D, dt).

        ``system``: a ``StateSpace`` (of scipy also what has ``to_ss``), continuous or discrete; a tuple of
        four is continuous, as in scipy. A continuous system keeps its matrices. A discrete one reads its
        state *before* the token there, y_k = C x_k + D u_k with x_(k+1) = A x_k + B u_k: its lags are M_0 =
        D and M_tau = C A^(tau-1) B, one step later than here. Where A is safely invertible the result is
        (A, B, C A^-1, D - C A^-1 B); else the state carries the last input too, N + d states, and no
        inverse is taken. The lags are the same either way.

        Raises ``TypeError`` for what has no A, B, C, D; else as `System`. Introduced in
        *structured-dynamics*.

        >>> System.from_scipy((0.5, 1.0, 0.5, 0.0, True))  # y_k = x_k / 2 with x_(k+1) = x_k / 2 + u_k
        System(N=1, d=1, p=1, float64, with skip)
        """
        parts = (
            None if part is None else torch.as_tensor(part, dtype=dtype, device=device)
            for part in foreign.read(system)
        )
        return cls(*parts)

    from_control = from_scipy

    def to_scipy(self, dt: float | bool = True) -> StateSpace:
        """Hand this discrete system to scipy: ``StateSpace`` (A, B, C A, C B + D) with time step ``dt``.

        The lags are the same, M_0 in its D and M_tau in C A^(tau-1) B with its C; exact, since no inverse
        is taken. In float64. Raises ``ValueError`` for a batch of systems, ``TypeError`` for complex ones.
        """
        check_system(self, batched=False, complex_ok=False)
        from scipy.signal import StateSpace

        moved = self.detach().to("cpu", torch.float64)
        A, B, C, D = (None if part is None else part.numpy() for part in moved)
        return StateSpace(A, B, C @ A, C @ B if D is None else C @ B + D, dt=dt)

    @property
    def T(self) -> System:
        """The transposed system (A^T, C^T, B^T, D^T): inputs and outputs change places."""
        A, B, C, D = self
        return System._trusted(A.mT, C.mT, B.mT, None if D is None else D.mT)


def with_skip(M: Tensor, D: Tensor | None) -> Tensor:
    """Lags (..., n, p, d) of A, B and C with the skip D (..., p, d) in the first."""
    if D is None or M.shape[-3] == 0:
        return M
    return torch.cat([M[..., :1, :, :] + D.unsqueeze(-3), M[..., 1:, :, :]], dim=-3)


def check_system(system, *, batched: bool = True, complex_ok: bool = True) -> System:
    """Refuse anything but a `System`; where they do not belong, also a batch or complex entries."""
    if not isinstance(system, System):
        raise TypeError(
            f"system must be a System; got {type(system).__name__} (make one with System(A, B, C, D))"
        )
    if not batched and system.batch_shape:
        raise ValueError(
            f"system must be one system, without a batch; got batch shape {tuple(system.batch_shape)}"
        )
    if not complex_ok and system.dtype.is_complex:
        raise TypeError(f"system must be real: heads have real coefficients; got {system.dtype}")
    return system


def system_first(function):
    """Let a function with a parameter ``system`` say what it wants when it is called f(A, B, C, n).

    Python would count arguments, or miss a number where a matrix stands.
    """
    place = list(signature(function).parameters).index("system")

    @wraps(function)
    def checked(*args, **kwargs):
        if len(args) > place + 1 and isinstance(args[place + 1], Tensor):
            check_system(args[place])
        return function(*args, **kwargs)

    return checked
