"""The warning where powers of A grow before they decay.

It tells what the plain recurrence loses, and which poles rounding has pushed outside.
"""

from __future__ import annotations

import sys
import warnings

import torch
from torch import Tensor

from ssmbook.scans._blocks import dense as step_by_step
from ssmbook.scans._powers import is_finite, value_of, widest

# A recurrence further off than this, relative to its largest value, is worth a word.
LIMITS = {torch.float32: 1e-3, torch.complex64: 1e-3, torch.float64: 1e-9, torch.complex128: 1e-9}
SCALE = 0.7  # of a second run: no power of two, so that other numbers are rounded
SHARE = 0.1  # of a limit: two runs may agree by chance better than either agrees with the truth
STEPS = 4096  # steps that are run a second time
WORK = 1 << 31  # products of numbers spent on the peak
OUTERMOST = 8  # eigenvalues looked at


class TransientPeakWarning(UserWarning):
    """The powers of A grow so far before they decay that rounding spoils even the plain recurrence.

    Or rounding has made A unstable. The message names the peak max ||A^k||, what is lost, and the spectral
    radius where rounding may have brought it above one. More digits help, or another form of the same system:
    a balanced realization, sections of low order in a row. Introduced in *scans*.
    """


def warn_of_transient(A: Tensor, n: int, values: Tensor, again: Tensor) -> None:
    """Warn where the recurrence with A over n steps is off by more than the limit of its dtype.

    Or where rounding may have made A unstable. What is lost is measured: ``values`` against ``again``, the
    same by the recurrence in the dtype of A but rounded elsewhere.
    """
    limit = LIMITS.get(A.dtype)
    if limit is None or not is_finite(A):
        return
    with torch.no_grad():
        each = tuple(range(A.ndim - 2, values.ndim))  # one number a system
        lost = value_of(((values - again).abs().amax(each) / values.abs().amax(each)).nan_to_num(0.0))
        radius = radius_by_rounding(A)
        if not lost > SHARE * limit and radius is None:
            return
        text = f"the powers of A grow to max ||A^k|| = {transient_peak(A, n):.1e} before they decay"
    if lost > SHARE * limit:
        text += f", and rounding with them: in {A.dtype} even one step at a time is off by about {lost:.0e}"
    if radius is not None:
        text += (
            f"; as rounded to {A.dtype}, A has spectral radius 1 + {radius - 1:.1e}: "
            "rounding can have pushed a pole of a stable system outside the unit circle"
        )
    text += "; use more digits, a balanced realization, or sections of low order in a row"
    warnings.warn(text, TransientPeakWarning, stacklevel=frames_inside())


def warn_of_states(A: Tensor, C: Tensor, u: Tensor, state: Tensor, reset: Tensor | None, y: Tensor) -> None:
    """Warn where the outputs C h of the first sequence are off: against those of 0.7 u, rounded elsewhere."""
    with torch.no_grad():
        u, state, y = (t.detach().flatten(0, -3)[0] if t.ndim > 2 else t.detach() for t in (u, state, y))
        u, y = u[:STEPS], y[:STEPS]
        state = state.reshape(-1, state.shape[-1])[0]
        reset = None if reset is None else reset.reshape(-1, reset.shape[-1])[0, :STEPS]
        again = step_by_step(A.detach(), SCALE * u, SCALE * state, False, reset)[0] @ C.detach().mT / SCALE
    warn_of_transient(A, len(u), y, again)


def radius_by_rounding(A: Tensor) -> float | None:
    """The spectral radius of A where it is above one, and only by rounding errors of A; else None.

    On the way from a stable matrix to A an eigenvalue crosses the unit circle: there, the distance of A to a
    matrix with that eigenvalue is at most the change. It is looked for where the rays through the outermost
    eigenvalues meet the circle: each of them that is outside has to have crossed so.
    """
    wide = A.detach().to(torch.complex128)
    values = torch.linalg.eigvals(wide)
    if not value_of(values.abs()) > 1:
        return None
    size, place = values.abs().topk(min(OUTERMOST, values.shape[-1]))
    on_circle = values.gather(-1, place) / torch.where(size > 1, size, 1)
    shifted = on_circle[..., None, None] * torch.eye(A.shape[-1], dtype=wide.dtype, device=A.device)
    distance = torch.linalg.svdvals(shifted - wide.unsqueeze(-3))[..., -1]
    largest = wide.abs().amax((-2, -1), keepdim=True)  # the norm of large entries overflows before they do
    norm = (torch.linalg.matrix_norm(wide / largest, keepdim=True) * largest).squeeze(-1)
    rounded = distance <= torch.finfo(A.dtype).eps * norm
    pushed = (size[..., 0] > 1) & ((size <= 1) | rounded).all(-1)
    return value_of(torch.where(pushed, size.amax(-1), 0)) or None


def transient_peak(A: Tensor, n: int) -> float:
    """The largest ||A^k|| for k < n, one power at a time, at most ``STEPS`` of them, fewer of large matrices.

    It ends with a power of norm below 1: all later are below the peak then.
    """
    first = power = best = A.detach().to(widest(A.dtype))
    peak = 0.0
    for _ in range(min(n - 1, STEPS, WORK // A.shape[-1] ** 3 + 1)):
        norm = value_of(torch.linalg.matrix_norm(power))
        if not 1 < norm < float("inf"):
            break
        if norm > peak:
            peak, best = norm, power
        power = first @ power
    return max(1.0, value_of(torch.linalg.matrix_norm(best, 2)))


def frames_inside() -> int:
    """The ``stacklevel`` that lets a warning point at the first line outside this library."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("ssmbook.", "torch.")):
        frame, level = frame.f_back, level + 1
    return level
