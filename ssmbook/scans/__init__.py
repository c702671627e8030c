"""Recurrences along time, each with a naive twin and a step form (floor 0: torch; Numba and Triton if there).

On a CPU with Numba (``pip install "ssmbook[fast]"``) a scan is the loop that its naive twin writes down,
compiled, its state carried in double precision; the first call compiles it, later processes find it compiled.
On a card with Triton (``"ssmbook[cuda]"``; builds of PyTorch for a card bring it) the diagonal and the
selective scan are the same loops as kernels, checked in an interpreter and not yet timed on a card; the
others are matrix products there. Everywhere else, and with ``SSMBOOK_NUMBA=0`` in the environment, it is a
block form in torch: the same numbers, to 1e-6 of the largest in float32 and 1e-13 in float64, several times
slower than the loop.
"""

from ssmbook.scans._transients import TransientPeakWarning
from ssmbook.scans.diagonal import diagonal_scan, diagonal_scan_naive, diagonal_step
from ssmbook.scans.kernels import lti_kernel, lti_kernel_naive
from ssmbook.scans.lti import lti_scan, lti_scan_naive, lti_step
from ssmbook.scans.selective import selective_scan, selective_scan_naive, selective_step
from ssmbook.scans.ssd import ssd_scan, ssd_scan_naive, ssd_step

__all__ = [
    "TransientPeakWarning",
    "diagonal_scan",
    "diagonal_scan_naive",
    "diagonal_step",
    "lti_kernel",
    "lti_kernel_naive",
    "lti_scan",
    "lti_scan_naive",
    "lti_step",
    "selective_scan",
    "selective_scan_naive",
    "selective_step",
    "ssd_scan",
    "ssd_scan_naive",
    "ssd_step",
]
