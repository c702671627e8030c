"""The linear time-invariant system h_t = A h_(t-1) + B x_t, y_t = C h_t + D x_t, as one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor

from ssmbook._checks import check_choice, check_integer, check_matrices, check_number
from ssmbook.numerics import item_if_scalar, tolerance
from ssmbook.operators import LagOperator
from ssmbook.scans import lti_kernel_naive
from ssmbook.scans.lti import lags
from ssmbook.systems.discretization import Discretization, sampled
from ssmbook.systems.reachability import balance, minimal_states

if TYPE_CHECKING:
    from scipy.signal import StateSpace

# C A^-1 loses cond(A) rounding units. Past half the digits `System.from_scipy` adds d
# states instead.
_LARGEST_CONDITION = 1e8


@dataclass(frozen=True, eq=False, repr=False)
class System:
    """A linear time-invariant system with N states, d inputs and p outputs; checked once, then trusted.

    The output reads the state *after* its token, so the lag operators are M_0 = C B + D and
    M_tau = C A^tau B. Immutable: ``A, B, C, D = system`` takes it apart,
    ``system.replace(C=...)`` makes another; ``system.operator(n)`` is its interaction
    operator, ``maps.LTISSM(system)`` runs on tokens. The four matrices have one
    floating-point or complex dtype, one device and one batch shape; they are copied.
    Source: `kailath1980linear`.

    Parameters
    ----------
    A : Tensor (..., N, N)
        Moves the state.
    B : Tensor (..., N, d)
        Writes the token into it.
    C : Tensor (..., p, N)
        Reads the output from it.
    D : Tensor (..., p, d), optional
        The skip from the input to the output.
    dt : float or bool, default True
        The time step as in python-control: a number, True where it is not named, 0 for a
        continuous system, dh/dt = A h + B x. What counts or scans refuses a continuous one;
        `discretize` makes it discrete.

    Raises
    ------
    TypeError
        For what is no tensor, and for mixed dtypes.
    ValueError
        For shapes, devices and entries that are not finite.

    Examples
    --------
    >>> A = torch.tensor([[0.5, 0.0], [0.0, -0.5]])
    >>> System(A, B=torch.ones(2, 1), C=torch.ones(1, 2))
    System(N=2, d=1, p=1, float32)
    """

    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor | None = None
    dt: float = True

    def __post_init__(self):
        check_matrices(A=self.A, B=self.B, C=self.C, D=self.D)
        if self.dt is not True:
            check_number("dt", self.dt, 0)
        copies = (None if part is None else part.clone() for part in self)  # so that what was checked stays
        self.__dict__.update(zip("ABCD", copies, strict=True))

    @classmethod
    def _trusted(cls, *parts: Tensor | None, dt: float = True) -> System:
        """A system made of the parts of a checked one: nothing is checked again."""
        system = object.__new__(cls)
        system.__dict__.update(zip("ABCD", parts, strict=True), dt=dt)
        return system

    def __iter__(self):
        return iter((self.A, self.B, self.C, self.D))

    def __repr__(self) -> str:
        batch = f", batch={tuple(self.batch_shape)}" if self.batch_shape else ""
        skip = "" if self.D is None else ", with skip"
        dtype = str(self.dtype).removeprefix("torch.")
        step = "" if self.dt is True else f", dt={self.dt:g}" if self.dt else ", continuous"
        return f"System(N={self.N}, d={self.d}, p={self.p}{batch}, {dtype}{skip}{step})"

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

    def replace(self, **parts: Tensor | float | None) -> System:
        """The system with some of A, B, C, D, dt exchanged, checked anew (``D=None`` drops the skip)."""
        return replace(self, **parts)

    def to(self, *args: Any, **kwargs: Any) -> System:
        """The system in another dtype or on another device, as ``Tensor.to`` takes them."""
        return self._mapped(lambda part: part.to(*args, **kwargs))

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> System:
        return System._trusted(*(None if part is None else change(part) for part in self), dt=self.dt)

    def double(self) -> System:
        """The system in float64, or complex128: the precision in which ranks are decided."""
        return self.to(torch.complex128 if self.dtype.is_complex else torch.float64)

    def detach(self) -> System:
        """The system without its history of derivatives."""
        return self._mapped(Tensor.detach)

    def lags(self, n: int) -> Tensor:
        """The lag operators M_tau = C A^tau B for tau = 0 ... n-1, the skip D in M_0 too: (..., n, p, d).

        In the system's dtype, differentiable. An unstable A is allowed as long as its lags
        stay finite. Raises ``ValueError`` for n < 0, for a continuous system and for lags
        that overflow the dtype (it names the first).

        >>> system = System(torch.tensor([[0.5]]), torch.ones(1, 1), torch.ones(1, 1))
        >>> system.lags(3).flatten()
        tensor([1.0000, 0.5000, 0.2500])
        """
        n = check_integer("n", n, low=0)
        A, B, C, D = check_system(self)
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

    def operator(self, n: int) -> LagOperator:
        """The interaction operator W_ij = M_(i-j) of n tokens, in the system's dtype, differentiable.

        Ask it for what fewer heads miss, for the heads themselves, or for the heads that
        leave a share of the energy. Raises as `lags`. Source: thm-head-count.

        >>> from ssmbook.heads import head_count
        >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
        >>> W, k = turn.operator(32), head_count(turn, 32).value
        >>> [round(missed, 4) for missed in W.floor().tolist()[:3]], W.epsilon_heads(0.5)
        ([1.0, 0.4386, 0.0], 1)
        >>> x = torch.randn(32, 2)
        >>> torch.allclose(W.best_heads(k) @ x, W @ x, atol=1e-5)  # k heads are the system
        True
        """
        return LagOperator(self.lags(n))

    def discretize(self, step: float | torch.Tensor, discretization: Discretization = "zoh") -> System:
        """Read A and B as dh/dt = A h + B x and take steps dt = ``step``; C and D stay as they are.

        discretization: "zoh" exact for an input held constant over the step; "bilinear"; "euler",
        I + step A and step B; "mixed", the exact A with Euler's B, as in Mamba's code. ``step`` a number
        or a tensor of the batch shape, at least 0. (scipy's bilinear form changes C and D too, because
        its output reads the state before the token.)
        Raises ``ValueError`` for an unknown discretization and for steps that overflow.

        >>> decay = System(-torch.ones(1, 1), torch.ones(1, 1), torch.ones(1, 1), dt=0)  # h' = -h + x
        >>> decay.discretize(1.0).lags(3).flatten()  # held inputs: e^(-tau) (1 - 1/e)
        tensor([0.6321, 0.2325, 0.0855])
        """
        check_choice("discretization", discretization, get_args(Discretization))
        A, B = sampled(self.A, self.B, step, discretization)
        batch = A.shape[:-2]
        C, D = (None if part is None else part.expand(*batch, *part.shape[-2:]) for part in (self.C, self.D))
        one = not isinstance(step, Tensor) or step.dim() == 0
        return System._trusted(A, B, C, D, dt=float(step) or True if one else True)

    def minimal(self, rtol: float | None = None) -> System:
        """The same lag operators with the fewest states: what is not reached or not seen is dropped.

        One system; in its dtype, worked in float64, in units in which states can be
        compared. ``rtol``: what counts as zero there, by default as for every head count. A
        zero system comes back with N = 0. Raises ``ValueError`` for a batch. Source:
        `kailath1980linear`.

        >>> twice = System(0.5 * torch.eye(2), torch.ones(2, 1), torch.ones(1, 2))  # one state, kept twice
        >>> twice.minimal()
        System(N=1, d=1, p=1, float32)
        """
        check_system(self, batched=False, continuous_ok=True)
        rtol = tolerance(rtol, self.dtype)
        A, B, C, _ = self.double()
        A, B, C, step, columns, rows = balance(A, B, C)
        A, B, C, _ = minimal_states(A, B, C, rtol)
        parts = (part.to(self.dtype) for part in (A * step, B * columns, C * rows))
        return System._trusted(*parts, self.D, dt=self.dt)

    def spectral_radius(self) -> Tensor:
        """rho, the largest modulus of an eigenvalue of A: real, of the batch shape; 0 without states."""
        poles = torch.linalg.eigvals(self.A).abs()
        return poles.amax(-1) if self.N else poles.sum(-1)

    def is_stable(self) -> bool | Tensor:
        """Whether every mode dies out: a bool, or one per system.

        The spectral radius is below 1; of a continuous system all real parts are below 0.
        """
        if self.dt:
            return item_if_scalar(self.spectral_radius() < 1)
        return item_if_scalar((torch.linalg.eigvals(self.A).real < 0).all(-1))

    @classmethod
    def from_scipy(cls, system: Any) -> System:
        """Take over a system of scipy or python-control, or a tuple (A, B, C, D) or (A, B, C, D, dt).

        In scipy a discrete system reads its state *before* the token arrives, so its lags
        are M_0 = D and M_tau = C A^(tau-1) B. They stay the same: the result is (A, B, C
        A^-1, D - C A^-1 B) where A is safely invertible; else the state carries the last
        input too, N + d states. A continuous system (a tuple of four is one, as in scipy)
        stays continuous, dt = 0. The result is in float64.

        Raises ``TypeError`` for what has no A, B, C, D; else as the constructor.

        >>> System.from_scipy((0.5, 1.0, 0.5, 0.0, True))  # y_k = x_k / 2 with x_(k+1) = x_k / 2 + u_k
        System(N=1, d=1, p=1, float64, with skip)
        >>> System.from_scipy((-1.0, 1.0, 1.0, 0.0)).discretize(0.1)
        System(N=1, d=1, p=1, float64, dt=0.1)
        """
        if isinstance(system, (tuple, list)):
            *matrices, dt = system if len(system) == 5 else (*system, None)
        else:
            system = system.to_ss() if hasattr(system, "to_ss") else system
            matrices, dt = [getattr(system, name, None) for name in "ABCD"], getattr(system, "dt", None)
        if len(matrices) != 4 or any(matrix is None for matrix in matrices):
            raise TypeError("system must be a StateSpace or a tuple (A, B, C, D[, dt])")
        A, B, C, D = (np.atleast_2d(np.asarray(matrix, dtype=float)) for matrix in matrices)
        dt = dt or 0  # None in scipy
        if dt:
            A, B, C, D = _read_after_the_token(A, B, C, D)
        parts = A, B, C, D if D.any() else None
        return cls(*(None if part is None else torch.tensor(part) for part in parts), dt=dt)

    from_control = from_scipy

    def to_scipy(self) -> StateSpace:
        """Hand this system to scipy: ``StateSpace`` (A, B, C A, C B + D) with its time step.

        The lags are the same, M_0 in its D and M_tau in C A^(tau-1) B with its C; exact,
        since no inverse is taken. A continuous system is (A, B, C, D) there, too.
        ``scipy.signal.dfreqresp`` of the result is the frequency response. In float64.
        Raises ``ValueError`` for a batch of systems, ``TypeError`` for complex ones.
        """
        from scipy.signal import StateSpace

        return StateSpace(*self._read_before_the_token(), **({"dt": self.dt} if self.dt else {}))

    def to_control(self) -> Any:
        """Hand this system to python-control with its time step, as ``to_scipy`` does to scipy."""
        return import_module("control").ss(*self._read_before_the_token(), self.dt)

    def _read_before_the_token(self) -> tuple[np.ndarray, ...]:
        check_system(self, batched=False, complex_ok=False, continuous_ok=True)
        A, B, C, D = self.detach().to("cpu", torch.float64)
        D = C.new_zeros(self.p, self.d) if D is None else D
        parts = (A, B, C @ A, C @ B + D) if self.dt else (A, B, C, D)
        return tuple(part.numpy() for part in parts)


def _read_after_the_token(A, B, C, D):
    """The matrices of a system with the same lags whose output reads the state after its token."""
    N, d = B.shape
    if N == 0 or np.linalg.cond(A) < _LARGEST_CONDITION:
        early = np.linalg.solve(A.T, C.T).T
        return A, B, early, D - early @ B
    A = np.block([[A, B], [np.zeros((d, N + d))]])
    B = np.vstack([np.zeros((N, d)), np.eye(d)])
    return A, B, np.hstack([C, np.zeros((C.shape[0], d))]), D


def check_system(
    system, *, batched: bool = True, complex_ok: bool = True, continuous_ok: bool = False
) -> System:
    """Refuse anything but a discrete `System`; where they do not belong, also a batch or complex entries."""
    if not isinstance(system, System):
        raise TypeError(
            f"system must be a System; got {type(system).__name__} (make one with System(A, B, C, D))"
        )
    if not system.dt and not continuous_ok:
        raise ValueError(
            "system must be discrete; got a continuous one, dt = 0: take system.discretize(step)"
        )
    if not batched and system.batch_shape:
        raise ValueError(
            f"system must be one system, without a batch; got batch shape {tuple(system.batch_shape)}"
        )
    if not complex_ok and system.dtype.is_complex:
        raise TypeError(f"system must be real: heads have real coefficients; got {system.dtype}")
    return system
