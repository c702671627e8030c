"""Linear systems: continuous to discrete, to lag operators, and back to the smallest state.

`System` holds A, B, C and D together, and functions that need all four take or return a
System. Functions of a matrix A or of a pair (A, B) take plain tensors, ``A (N, N)``, ``B
(N, d)``, ``C (p, N)``. Decisions about a rank are taken in float64 and come with the
spectrum they were taken on.
"""

from ssmbook.numerics import phi1 as phi1
from ssmbook.systems.discretization import zoh as zoh
from ssmbook.systems.initialization import hippo_legs as hippo_legs
from ssmbook.systems.initialization import jordan_block as jordan_block
from ssmbook.systems.initialization import random_orthogonal as random_orthogonal
from ssmbook.systems.initialization import random_stable as random_stable
from ssmbook.systems.initialization import real_modes as real_modes
from ssmbook.systems.initialization import rotation as rotation
from ssmbook.systems.initialization import s4d_lin as s4d_lin
from ssmbook.systems.reachability import controllability_rank as controllability_rank
from ssmbook.systems.reachability import observability_matrix as observability_matrix
from ssmbook.systems.reachability import observability_rank as observability_rank
from ssmbook.systems.realization import hankel_matrix as hankel_matrix
from ssmbook.systems.realization import ho_kalman as ho_kalman
from ssmbook.systems.realization import mcmillan_degree as mcmillan_degree
from ssmbook.systems.system import System as System

# What is imported above, without the files themselves.
__all__ = sorted(name for name, value in vars().items() if "ssmbook" in getattr(value, "__module__", ""))
