"""Graders of the chapter *gradient-flow*."""

import math

from ssmbook.exercises import grader


@grader("gradient-flow/start-for")
def grade_start_for(answer):
    """A function (T, c) -> nu with exp(-exp(nu)) ** T = c: the start at which T steps keep the share c."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    for T in (1, 7, 100, 20_000):
        for c in (0.5, 0.005, 1e-9):
            got, wanted = answer(T, c), math.log(math.log(1 / c) / T)
            if not isinstance(got, (int, float)) or not math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-9):
                return (
                    f"for T = {T}, c = {c} the parameter is {wanted:.6g}; got {got!r}. "
                    "Solve exp(-exp(ν) T) = c, and take care not to round the pole to 1 on the way"
                )
    return None
