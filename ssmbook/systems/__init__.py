"""Linear systems: continuous to discrete, to lag operators, and back to the smallest state.

`System` holds A, B, C and D together, and functions that need all four take or return a
System. Functions of a matrix A or of a pair (A, B) take plain tensors, ``A (N, N)``, ``B
(N, d)``, ``C (p, N)``. Decisions about a rank are taken in float64 and come with the
spectrum they were taken on.
"""

from ssmbook.numerics import phi1
from ssmbook.systems.discretization import zoh
from ssmbook.systems.initialization import (
    hippo_legs,
    jordan_block,
    random_orthogonal,
    random_stable,
    real_modes,
    rotation,
    s4d_lin,
)
from ssmbook.systems.reachability import controllability_rank, observability_matrix, observability_rank
from ssmbook.systems.realization import hankel_matrix, ho_kalman, mcmillan_degree
from ssmbook.systems.system import System

__all__ = [
    "System",
    "controllability_rank",
    "hankel_matrix",
    "hippo_legs",
    "ho_kalman",
    "jordan_block",
    "mcmillan_degree",
    "observability_matrix",
    "observability_rank",
    "phi1",
    "random_orthogonal",
    "random_stable",
    "real_modes",
    "rotation",
    "s4d_lin",
    "zoh",
]
