"""Grader of the chapter *how-many-states*: the states of a head."""

from functools import partial

import torch

from headsandstates.chapters._graded import fewest, seeded
from headsandstates.exercises import grader
from ssmbook.lens import states


def _most(alpha, eps, own=0, power=2):
    """The most states of a cut; with ``own``, the token at the cut is on both sides."""
    blocks = [alpha[t:, : t + own] for t in range(1, len(alpha))]
    return max(fewest(torch.linalg.svdvals(block) ** power, eps) for block in blocks)


@grader(
    "how-many-states/count",
    right=lambda alpha, eps: states(alpha, eps, cuts=len(alpha) - 1),
    hint="not the states of the head",
    mistakes={
        "the energy is the sum of the squares of the singular values": (partial(_most, power=1)),
        "you looked at the middle cut alone": lambda alpha, eps: states(alpha, eps, cuts=1),
        "the token at the cut belongs to the future; its own weight is not carried": (partial(_most, own=1)),
    },
    formula="For every t take the singular values of alpha[t:, :t]; count those that are needed until the "
    "squares of the rest are at most eps of all squares; return the largest count",
)
def count_cases():
    """For a function (alpha (n, n) causal, eps) -> states that leave eps of each cut's energy at most."""
    new = seeded(0)
    for n, sharp in ((5, 1.0), (12, 2.0), (17, 4.0)):
        logits = sharp * torch.randn(n, n, **new)
        alpha = logits.masked_fill(torch.ones(n, n).triu(1) > 0, -torch.inf).softmax(-1)
        yield from ((alpha, eps) for eps in (0.2, 0.05, 0.01, 0.001))
    lag = torch.arange(9)[:, None] - torch.arange(9)
    yield (lag == 3).double(), 0.01
    yield (lag >= 0) * 0.5 ** lag.clamp(min=0).double(), 0.01
