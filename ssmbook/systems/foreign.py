"""Systems of other libraries, whose state is read before its token: M_0 = D there, M_0 = C B + D here."""

from __future__ import annotations

import numpy as np

# C A^-1 loses cond(A) rounding units; past half the digits the exact form with d more states is taken.
_LARGEST_CONDITION = 1e8


def read(system) -> tuple[np.ndarray | None, ...]:
    """A, B, C, D in the book's convention, float64, D None where it is zero: see `System.from_scipy`."""
    if isinstance(system, (tuple, list)):
        if len(system) not in (4, 5):
            raise TypeError(f"system must hold (A, B, C, D) or (A, B, C, D, dt); got {len(system)} parts")
        *matrices, dt = system if len(system) == 5 else (*system, None)
    else:
        if hasattr(system, "to_ss"):
            system = system.to_ss()
        missing = [name for name in "ABCD" if not hasattr(system, name)]
        if missing:
            raise TypeError(
                f"system must be a StateSpace or a tuple (A, B, C, D[, dt]); got {type(system).__name__}"
            )
        matrices, dt = (system.A, system.B, system.C, system.D), getattr(system, "dt", None)
    A, B, C, D = (np.atleast_2d(np.asarray(matrix, dtype=float)) for matrix in matrices)
    # dt is None in scipy, 0 in python-control, for continuous time; True stands for an unnamed step
    if dt is not None and dt != 0:
        A, B, C, D = _read_after(A, B, C, D)
    return A, B, C, D if D.any() else None


def _read_after(A, B, C, D):
    """The same lags with the state read after its token."""
    N, d = B.shape
    if N == 0 or np.linalg.cond(A) < _LARGEST_CONDITION:
        early = np.linalg.solve(A.T, C.T).T
        return A, B, early, D - early @ B
    A = np.block([[A, B], [np.zeros((d, N + d))]])
    B = np.vstack([np.zeros((N, d)), np.eye(d)])
    return A, B, np.hstack([C, np.zeros((C.shape[0], d))]), D
