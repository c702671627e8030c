"""The linear time-invariant system h_t = A h_(t-1) + B x_t, y_t = C h_t + D x_t, as one object."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ssmbook._checks import check_choice, check_integer, check_matrices
from ssmbook.numerics import item_if_scalar, tolerance
from ssmbook.scans import lti_kernel_naive
from ssmbook.scans.lti import lags
from ssmbook.systems import discretization
from ssmbook.systems.reachability import balance, minimal_states

if TYPE_CHECKING:
    from scipy.signal import StateSpace

# C A^-1 loses cond(A) rounding units. Past half the digits `System.from_scipy` adds d states instead.
_LARGEST_CONDITION = 1e8


@dataclass(frozen=True, eq=False, repr=False)
class System:
    """A linear time-invariant system with N states, d inputs and p outputs; checked once, then trusted.

    A (..., N, N), B (..., N, d), C (..., p, N) and the skip D (..., p, d) or None: one floating-point or
    complex dtype, one device, one batch shape, finite entries. The output reads the state *after* its
    token, so the lag operators are M_0 = C B + D and M_tau = C A^tau B. A continuous system, dh/dt = A h +
    B x, is written in the same letters and becomes a discrete one by `discretize`. Immutable: ``A, B, C, D
    = system`` takes it apart, ``system.replace(C=...)`` makes another.

    Raises ``TypeError`` for what is no tensor and for mixed dtypes, ``ValueError`` for shapes, devices and
    non-finite entries. Source: `kailath1980linear`.

    >>> A = torch.tensor([[0.5, 0.0], [0.0, -0.5]])
    >>> System(A, B=torch.ones(2, 1), C=torch.ones(1, 2))
    System(N=2, d=1, p=1, float32)
    """

    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor | None = None

    def __post_init__(self):
        check_matrices(A=self.A, B=self.B, C=self.C, D=self.D)

    @classmethod
    def _trusted(cls, *parts: Tensor | None) -> System:
        """A system made of the parts of a checked one: nothing is checked again."""
        system = object.__new__(cls)
        system.__dict__.update(zip("ABCD", parts, strict=True))
        return system

    def __iter__(self):
        return iter((self.A, self.B, self.C, self.D))

    def __repr__(self) -> str:
        batch = f", batch={tuple(self.batch_shape)}" if self.batch_shape else ""
        skip = "" if self.D is None else ", with skip"
        dtype = str(self.dtype).removeprefix("torch.")
        return f"System(N={self.N}, d={self.d}, p={self.p}{batch}, {dtype}{skip})"

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
        """The batch dimensions of the matrices: () for one system."""
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
        return replace(self, **matrices)

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

        In the system's dtype, differentiable. An unstable A is allowed as long as its lags stay finite.
        Raises ``ValueError`` for n < 0 and for lags that overflow the dtype (it names the first).

        >>> system = System(torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1))
        >>> system.lags(3).flatten()
        tensor([1.0000, 0.5000, 0.2500])
        """
        n = check_integer("n", n, low=0)
        A, B, C, D = self
        M = lags(A, B, C, n)
        if not M.is_meta and not torch.isfinite(M).all():
            M = lti_kernel_naive(A, B, C, n)  # step by step, modes that B does not reach cannot overflow
        if D is not None and n:
            M = torch.cat([M[..., :1, :, :] + D.unsqueeze(-3), M[..., 1:, :, :]], dim=-3)
        if n == 0 or M.is_meta:
            return M
        finite = torch.isfinite(M).flatten(-2).all(-1).reshape(-1, n).all(0)
        if not finite.all():
            first = int((~finite).nonzero()[0])
            raise ValueError(f"n must stay below the lag where M overflows {M.dtype}, {first}; got n = {n}")
        return M

    def discretize(self, step: float | torch.Tensor, method: str = "zoh") -> System:
        """Read A and B as dh/dt = A h + B x and take steps of length ``step``; C and D stay as they are.

        method: "zoh" exact for an input held constant over the step; "bilinear"; "euler", I + step A and
        step B; "mixed", the exact A with the Euler B. Mamba's code has the last, and `selective_scan` and
        `SelectiveSSM`, in which A is always exact, call it "euler". ``step`` a number or a tensor of the
        batch shape, at least 0. (scipy's bilinear form changes C and D too, because its output reads the
        state before the token.)
        Raises ``ValueError`` for an unknown method and for steps that overflow.

        >>> decay = System(-torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1))  # h' = -h + x
        >>> decay.discretize(1.0).lags(3).flatten()  # held inputs: e^(-tau) (1 - 1/e)
        tensor([0.6321, 0.2325, 0.0855])
        """
        check_choice("method", method, discretization.METHODS)
        A, B = discretization.step(self.A, self.B, step, method)
        batch = A.shape[:-2]
        C, D = (None if part is None else part.expand(*batch, *part.shape[-2:]) for part in (self.C, self.D))
        return System._trusted(A, B, C, D)

    def minimal(self, rtol: float | None = None) -> System:
        """The same lag operators with the fewest states: what is not reached or not seen is dropped.

        One system; in its dtype, worked in float64, in units in which states can be compared. ``rtol``: what
        counts as zero there, by default as for every head count. A zero system comes back with N = 0. Raises
        ``ValueError`` for a batch. Source: `kailath1980linear`.

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
        poles = torch.linalg.eigvals(self.A).abs()
        return poles.amax(-1) if self.N else poles.sum(-1)

    def is_stable(self) -> bool | Tensor:
        """Whether the spectral radius is below 1, so that every mode dies out: a bool, or one per system."""
        return item_if_scalar(self.spectral_radius() < 1)

    @classmethod
    def from_scipy(
        cls,
        system: Any,
        *,
        step: float | None = None,
    ) -> System:
        """Take over a system of scipy or python-control, or a tuple (A, B, C, D) or (A, B, C, D, dt).

        In scipy a discrete system reads its state *before* the token arrives, so its lags are M_0 = D and
        M_tau = C A^(tau-1) B. They stay the same: the result is (A, B, C A^-1, D - C A^-1 B) where A is
        safely invertible; else the state carries the last input too, N + d states. A continuous system (a
        tuple of four is one, as in scipy) needs a ``step`` and is discretized by a zero-order hold. The
        result is in float64.

        Raises ``TypeError`` for what has no A, B, C, D, ``ValueError`` for a continuous system without a
        step; else as the constructor.

        >>> System.from_scipy((0.5, 1.0, 0.5, 0.0, True))  # y_k = x_k / 2 with x_(k+1) = x_k / 2 + u_k
        System(N=1, d=1, p=1, float64, with skip)
        """
        if isinstance(system, (tuple, list)):
            *matrices, dt = system if len(system) == 5 else (*system, None)
        else:
            system = system.to_ss() if hasattr(system, "to_ss") else system
            matrices, dt = [getattr(system, name, None) for name in "ABCD"], getattr(system, "dt", None)
        if len(matrices) != 4 or any(matrix is None for matrix in matrices):
            raise TypeError("system must be a StateSpace or a tuple (A, B, C, D[, dt])")
        A, B, C, D = (np.atleast_2d(np.asarray(matrix, dtype=float)) for matrix in matrices)
        continuous = dt is None or dt == 0  # None in scipy, 0 in python-control; True is an unnamed step
        if continuous and step is None:
            raise ValueError("a continuous system needs a step: from_scipy(system, step=0.1)")
        if not continuous:
            A, B, C, D = _read_after_the_token(A, B, C, D)
        parts = A, B, C, D if D.any() else None
        found = cls(*(None if part is None else torch.from_numpy(part.copy()) for part in parts))
        return found.discretize(step) if continuous else found

    from_control = from_scipy

    def to_scipy(self, dt: float | bool = True) -> StateSpace:
        """Hand this discrete system to scipy: ``StateSpace`` (A, B, C A, C B + D) with time step ``dt``.

        The lags are the same, M_0 in its D and M_tau in C A^(tau-1) B with its C; exact, since no inverse
        is taken. ``scipy.signal.dfreqresp`` of the result is the frequency response. In float64. Raises
        ``ValueError`` for a batch of systems, ``TypeError`` for complex ones.
        """
        check_system(self, batched=False, complex_ok=False)
        from scipy.signal import StateSpace

        moved = self.detach().to("cpu", torch.float64)
        A, B, C, D = (None if part is None else part.numpy() for part in moved)
        return StateSpace(A, B, C @ A, C @ B if D is None else C @ B + D, dt=dt)


def _read_after_the_token(A, B, C, D):
    """The matrices of a system with the same lags whose output reads the state after its token."""
    N, d = B.shape
    if N == 0 or np.linalg.cond(A) < _LARGEST_CONDITION:
        early = np.linalg.solve(A.T, C.T).T
        return A, B, early, D - early @ B
    A = np.block([[A, B], [np.zeros((d, N + d))]])
    B = np.vstack([np.zeros((N, d)), np.eye(d)])
    return A, B, np.hstack([C, np.zeros((C.shape[0], d))]), D


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
