"""How much less exact than the plain recurrence each fast route is, family by family: the worst ratio.

Run ``python tests/scans/lti_error_table.py``; under a minute. Errors are against long double on the same
rounded A, B, C, relative to the largest value wanted; a plain recurrence better than half a rounding unit
counts as that, and the worst over four orders of the states, as in the tests. Where the recurrence itself
overflows, a system is left out and counted.
"""

import math

import torch
from test_scans_lti_powers import (
    FAMILIES,
    METHODS,
    caught,
    floor,
    lags_of_heads,
    members,
    off,
    orders,
    tensors,
    true_lags,
    true_scan,
)

from ssmbook.scans import lti_kernel, lti_kernel_naive, lti_scan, lti_scan_naive

COLUMNS = ("kernel", "heads", *METHODS)


def worst_of(errors, dtype):
    """The largest error, at least half a rounding unit; infinite where one is not finite."""
    errors = list(errors)
    return max(floor(dtype), *errors) if all(map(math.isfinite, errors)) else math.inf


def lag_ratios(A, B, C, n=200):
    """The error of the plain recurrence, and those of kernel and heads over it (None: refused)."""
    M = true_lags(A, B, C, n)
    plain = worst_of((off(lti_kernel_naive(*one, n), M) for _, one in orders(A, B, C)), A.dtype)
    found, said = caught(lti_kernel, A, B, C, n)
    try:
        heads = off(caught(lags_of_heads, A, B, C, n)[0], M) / plain
    except ValueError:
        heads = None
    return plain, {"kernel": off(found, M) / plain, "heads": heads}, bool(said)


def scan_ratios(A, B, C, T=150):
    """The same for every method of the scan, from a random state."""
    generator = torch.Generator().manual_seed(0)
    x, state = (torch.randn(s, generator=generator).to(A) for s in ((T, B.shape[1]), (len(A),)))
    y = true_scan(A, B, C, x, state)[0]
    runs = (lti_scan_naive(*one, x, state[order])[0] for order, one in orders(A, B, C))
    plain = worst_of((off(run, y) for run in runs), A.dtype)
    errors = {m: off(caught(lti_scan, A, B, C, x, state, method=m)[0][0], y) / plain for m in METHODS}
    return plain, errors


def row(family, dtype):
    """Worst ratios of a family by column, its worst plain error, members warned about, refused, left out."""
    worst, largest, counts = dict.fromkeys(COLUMNS, 0.0), 0.0, {"warned": 0, "refused": 0, "left out": 0}
    for system in members(family).values():
        A, B, C = tensors(system, dtype)
        plain, errors, said = lag_ratios(A, B, C)
        scanned, more = scan_ratios(A, B, C)
        if not math.isfinite(plain + scanned):
            counts["left out"] += 1
            continue
        counts["warned"] += said
        counts["refused"] += errors["heads"] is None
        largest = max(largest, plain, scanned)
        for name, ratio in (errors | more).items():
            worst[name] = max(worst[name], ratio or 0.0)
    return worst, largest, counts


def main():
    names = "".join(f"{name:>11}" for name in COLUMNS)
    print(f"{'family':<11}{'dtype':<8}{'members':>8}{names}{'plain error':>13}  warned refused left-out")
    for family in FAMILIES:
        for dtype in (torch.float32, torch.float64):
            worst, largest, counts = row(family, dtype)
            ratios = "".join(f"{worst[name]:11.2f}" for name in COLUMNS)
            tail = f"{counts['warned']:8}{counts['refused']:8}{counts['left out']:9}"
            label = f"{family:<11}{str(dtype).removeprefix('torch.'):<8}{len(members(family)):>8}"
            print(f"{label}{ratios}{largest:13.1e}{tail}", flush=True)


if __name__ == "__main__":
    main()
