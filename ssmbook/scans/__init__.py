"""Fast recurrences in plain torch, each with a naive twin and a step form (floor 0: torch alone)."""

from ._transients import TransientPeakWarning
from .diagonal import diagonal_scan, diagonal_scan_naive, diagonal_step
from .kernels import diagonal_kernel, diagonal_kernel_naive, lti_kernel, lti_kernel_naive
from .lti import lti_scan, lti_scan_naive, lti_step
from .selective import selective_scan, selective_scan_naive, selective_step
from .ssd import ssd_scan, ssd_scan_naive, ssd_step

__all__ = [
    "TransientPeakWarning",
    "diagonal_kernel",
    "diagonal_kernel_naive",
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
