"""Graders of the chapter *tasks*."""

import torch

from ssmbook.exercises import grader


@grader("tasks/clock")
def grade_clock(answer):
    """A function turns (n,) in {0, 1, 2} -> positions (n,) mod 3, judged also where a drift would show."""
    if not callable(answer):
        return f"expected a function; got {type(answer).__name__}"
    generator = torch.Generator().manual_seed(0)
    for n in (1, 7, 400, 20_000):
        turns = torch.randint(3, (n,), generator=generator)
        got = torch.as_tensor(answer(turns.clone()))
        wanted = turns.cumsum(0) % 3
        if got.shape != wanted.shape:
            return f"expected positions of shape ({n},); got {tuple(got.shape)}"
        wrong = (got != wanted).nonzero()
        if len(wrong):
            return (
                f"the position at token {int(wrong[0])} of {n} is wrong: the angle of a turn is 2π/3, in "
                "double precision, and the position is the nearest third of the circle"
            )
    return None
