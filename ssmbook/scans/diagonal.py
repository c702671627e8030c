"""The diagonal recurrence h_t = a_t h_{t-1} + b_t, the one scan every other one here reduces to."""

from __future__ import annotations

import torch
from torch import Tensor

from ssmbook.numerics import single
from ssmbook.scans._ops import diagonal
from ssmbook.scans._validate import check_arguments, check_options, one_step, outside_autocast

SHAPES = "a: ... T D, b: ... T D, state: ... D"


@outside_autocast
def diagonal_scan(
    a: Tensor,
    b: Tensor,
    state: Tensor | None = None,
    *,
    log: bool = False,
    reverse: bool = False,
    reset: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the diagonal recurrence h_t = a_t h_{t-1} + b_t along dim -2, for every channel at once.

    a: (..., T, D) decays, or their logarithms if ``log`` (more accurate near one; positive ones are
    allowed); b: (..., T, D) inputs; state: (..., D) initial state h_0, zero if None. Returns h (..., T, D)
    and the final state (..., D). With ``reverse`` time runs from the last step to the first. ``reset``
    (..., T), boolean, is true at the steps that forget what came before (their decay is taken as zero):
    sequences packed one after the other are run in one call by a reset at the first step of each. Zero times
    NaN or infinity is NaN, so these two are not forgotten (by :func:`lti_scan` they are).

    Real or complex, in the dtype and on the device of the inputs; float16 and bfloat16 are computed, and
    their states kept, in float32. Differentiable in a, b and state, any number of times. On a CPU with
    Numba it is the loop as written, its state in double precision; elsewhere a block form of it (see
    ``ssmbook.scans``). A decay of modulus above one may overflow to infinity as the recurrence itself does;
    NaN stays in its channel and in later times. Raises ``ValueError`` for shapes that differ, other devices
    and complex ``a`` with ``log``; ``TypeError`` for other or mixed dtypes. After
    `blelloch1990prefix` and `martin2018parallelizing`. Introduced in *scans*.

    >>> h, end = diagonal_scan(torch.full((3, 1), 0.5), torch.ones(3, 1))
    >>> h.flatten().tolist(), end.item()
    ([1.0, 1.5, 1.75], 1.75)
    """
    check_arguments(SHAPES, a, b, state, single=("state",), complex_ok=True)
    check_options(reset, b, 1, log=log, reverse=reverse)
    if log and a.is_complex():
        raise ValueError(f"log=True needs real log-decays a; got dtype {a.dtype}")
    dtype = b.dtype
    a, b, state = map(single, (a, b, state))
    if b.shape[-2] == 0:
        return (a * b).to(dtype), b.sum(-2) if state is None else state.clone()
    if reset is not None:
        a = a.masked_fill(reset.unsqueeze(-1), -torch.inf if log else 0)
    h, end = diagonal(a, b, state, log, reverse)
    return h.to(dtype), end


def diagonal_scan_naive(
    a: Tensor, b: Tensor, state: Tensor | None = None, *, log: bool = False
) -> tuple[Tensor, Tensor]:
    """The recurrence of :func:`diagonal_scan` as it is written, one step at a time."""
    check_arguments(SHAPES, a, b, state, single=("state",), complex_ok=True)
    check_options(None, b, 1, log=log)
    h = b.new_zeros((*b.shape[:-2], b.shape[-1])) if state is None else state
    out = []
    for a_t, b_t in zip((a.exp() if log else a).unbind(-2), b.unbind(-2), strict=True):
        h = a_t * h + b_t
        out.append(h)
    return torch.stack(out, -2) if out else b, h


def diagonal_step(
    a_t: Tensor, b_t: Tensor, state: Tensor | None = None, *, log: bool = False
) -> tuple[Tensor, Tensor]:
    """Take one step of :func:`diagonal_scan`: the output and the next state, equal here but for their dtype.

    a_t, b_t: (..., D) decay (its logarithm if ``log``) and input; state: (..., D), zero if None. Returns
    h_t and the new state, both (..., D). Raises as :func:`diagonal_scan` does. Introduced in *scans*.

    >>> half, one = torch.tensor([0.5]), torch.ones(1)
    >>> h, state = diagonal_step(half, one)
    >>> diagonal_step(half, one, state)[0].item()
    1.5
    """
    h, state = diagonal_scan(*one_step(-2, a=a_t, b=b_t), state, log=log)
    return h.squeeze(-2), state
