"""Settings shared by the unit tests and the notebooks, loaded by pytest before either (see pyproject.toml).

One thread: on a busy machine two can slow a small operation a hundredfold, and one sums in one order.
"""

import os
import sys

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # read by torch and numpy when they load, here and in the notebooks' kernels

SANITIZE = "tests/nbval_sanitize.cfg"


def pytest_configure(config):
    options = config.option
    if getattr(options, "nbval", False) and not options.nbval_sanitize_with:
        options.nbval_sanitize_with = str(config.rootpath / SANITIZE)
    if hasattr(options, "nbval_current_env") and not options.nbval_kernel_name:
        options.nbval_current_env = True
    if getattr(options, "dist", "no") == "load":
        options.dist = "loadfile"  # the cells of one notebook share one kernel


def pytest_sessionstart(session):
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
