"""The diagonal recurrence h_t = a_t h_{t-1} + b_t, to which every other scan here can be reduced.

Every channel has a decay a_t and an input b_t of its own, so channels never mix. Two steps
in a row are one step of the same form, with the decay a_2 a_1 and the input a_2 b_1 + b_2
(`prop-scan-associative`). So steps may be grouped in any way: that is what makes it a scan.
"""

import torch
from torch import Tensor

from ssmbook._checks import check_flag
from ssmbook.scans._shared import check_scan, half_in_float32
from ssmbook.scans.fast.diagonal import diagonal


@half_in_float32
def diagonal_scan_naive(
    a: Tensor, b: Tensor, state: Tensor | None = None, *, log: bool = False
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`diagonal_scan` as it is written, one step at a time.

    Parameters
    ----------
    a, b : Tensor (..., T, D)
        Decays and inputs.
    state : Tensor (..., D), optional
        The initial state, zero if None.
    log : bool, default False
        Whether ``a`` holds logarithms of decays.

    Returns
    -------
    h : Tensor (..., T, D)
        The states.
    end : Tensor (..., D)
        The last of them.

    Raises
    ------
    ValueError, TypeError
        For shapes that differ, and for mixed dtypes.
    """
    check_scan(complex_ok=True, a=(a, "... T D"), b=(b, "... T D"), state=(state, "... D"))
    h = b.new_zeros((*b.shape[:-2], b.shape[-1])) if state is None else state
    decay = a.exp() if log else a
    states = []
    for a_t, b_t in zip(decay.unbind(-2), b.unbind(-2), strict=True):
        h = a_t * h + b_t
        states.append(h)
    return torch.stack(states, -2) if states else b, h


@half_in_float32
def diagonal_scan(
    a: Tensor, b: Tensor, state: Tensor | None = None, *, log: bool = False
) -> tuple[Tensor, Tensor]:
    """Run the diagonal recurrence h_t = a_t h_{t-1} + b_t along dim -2, for every channel at once.

    A decay of zero (log-decay of minus infinity) forgets what came before, unless it is not finite: at
    the first step of each it separates sequences that are packed one after the other. After
    `blelloch1990prefix` and `martin2018parallelizing`.

    Parameters
    ----------
    a : Tensor (..., T, D)
        Decays, or their logarithms if ``log``.
    b : Tensor (..., T, D)
        Inputs, real or complex. All arguments have one dtype; float16 and bfloat16 are computed, and
        their states kept, in float32.
    state : Tensor (..., D), optional
        The initial state h_0, zero if None.
    log : bool, default False
        Whether ``a`` holds logarithms: more accurate near one; positive ones are allowed.

    Returns
    -------
    h : Tensor (..., T, D)
        The states, differentiable any number of times.
    end : Tensor (..., D)
        The last of them.

    Raises
    ------
    ValueError
        For shapes that differ, and for complex ``a`` with ``log``.
    TypeError
        For mixed dtypes.

    Examples
    --------
    >>> h, end = diagonal_scan(torch.full((3, 1), 0.5), torch.ones(3, 1))
    >>> h.flatten().tolist(), end.item()
    ([1.0, 1.5, 1.75], 1.75)
    """
    check_scan(complex_ok=True, a=(a, "... T D"), b=(b, "... T D"), state=(state, "... D"))
    if check_flag("log", log) and a.is_complex():
        raise ValueError(f"log=True needs real log-decays a; got dtype {a.dtype}")
    if b.shape[-2] == 0:
        return a * b, b.sum(-2) if state is None else state.clone()
    return diagonal(a, b, state, log)
