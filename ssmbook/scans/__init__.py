"""Recurrences along time: four scans, each a formula, a naive twin that is the formula, and a fast form.

Each file has one scan: what it computes, where it comes from, and the loop in PyTorch that
does it as it is written. How the same numbers are computed fast is in `ssmbook.scans.fast`.

On a CPU with Numba (``pip install "ssmbook[fast]"``) a scan is a compiled version of the
naive loop, with its state in double precision; the first call compiles it, and later
processes reuse it. On a GPU with Triton the diagonal and the selective scan are the same
loops as kernels. Their numbers and gradients were compared with the CPU's on an NVIDIA
H100, where in float32 forward and backward of 8 diagonal scans of 4,096 tokens and 1,024
channels take 3.4 ms, and of 4 selective ones of 2,048 tokens, 1,536 channels and 16 states
8 ms with either discretization, within 2e-7 of float64. Everywhere else, and with ``SSMBOOK_NUMBA=0`` in the
environment, a scan is computed by PyTorch in blocks of time: the same numbers, to 1e-6 of
the largest in float32 and 1e-13 in float64, several times slower than the loop. One step
of any of them is the scan of one token.
"""

from ssmbook.scans.diagonal import diagonal_scan as diagonal_scan
from ssmbook.scans.diagonal import diagonal_scan_naive as diagonal_scan_naive
from ssmbook.scans.lti import lti_kernel as lti_kernel
from ssmbook.scans.lti import lti_kernel_naive as lti_kernel_naive
from ssmbook.scans.lti import lti_scan as lti_scan
from ssmbook.scans.lti import lti_scan_naive as lti_scan_naive
from ssmbook.scans.selective import selective_scan as selective_scan
from ssmbook.scans.selective import selective_scan_naive as selective_scan_naive
from ssmbook.scans.ssd import ssd_scan as ssd_scan
from ssmbook.scans.ssd import ssd_scan_naive as ssd_scan_naive

# What is imported above, without the files themselves.
__all__ = sorted(name for name, value in vars().items() if "ssmbook" in getattr(value, "__module__", ""))
