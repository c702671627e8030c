"""How many heads a system takes: one function for every class of coefficients."""

from __future__ import annotations

import torch

from ssmbook._checks import check_choice
from ssmbook.heads._count import Count
from ssmbook.heads.bounded import every_input_head_count
from ssmbook.heads.exact import Exact, exact_head_count
from ssmbook.heads.fixed import fixed_head_count
from ssmbook.heads.pairwise import pairwise_head_count
from ssmbook.heads.rank_limited import rank_limited_head_count
from ssmbook.heads.sinkless import sinkless_head_count
from ssmbook.heads.softmax import softmax_head_count
from ssmbook.systems.system import System

CLASSES = {
    "fixed": fixed_head_count,
    "softmax": softmax_head_count,
    "sinkless": sinkless_head_count,
    "pairwise": pairwise_head_count,
    "any": every_input_head_count,
}


def head_count(
    system: System | torch.Tensor | Exact,
    n: int | None = None,
    coefficients: str = "fixed",
    *,
    value_rank: int | None = None,
    exact: bool = False,
    rtol: float | None = None,
) -> Count:
    """Return the fewest heads that equal a system, for one class of coefficients.

    A real `System` and the number n of tokens, or its lag operators M (n, p, d) alone. ``coefficients``:

    - "fixed": real numbers that do not depend on the input. The count is k, the number of independent lag
      operators. ``value_rank`` limits the rank of the value maps; the count is then often an interval.
    - "softmax": softmax weights with fixed logits and a sink, k or k + 1 heads.
    - "sinkless": the same without a sink; only systems without memory have a count. Blocks W (n, n, p, d) are
      taken as well.
    - "pairwise": functions of the two tokens; the heads equal the system at almost every input.
    - "any": functions of all tokens, softmax with any logits included; equality at every input.

    ``exact``: rational arithmetic, for "fixed"; it also takes matrices (A, B, C) or (A, B, C, D) as nested
    lists of ints and ``fractions.Fraction``, sympy matrices or integer tensors. The floats of a System are
    the binary fractions that they are (0.1 is not 1/10). ``rtol``: singular values below it, relative to the
    largest, count as zero (default: 1e-10 in float64, 16 machine epsilons in shorter types). `Evidence` lists
    what proves each count. Warns ``HeadCountTieWarning`` about a close call of "fixed" for a System. Lags
    alone do not show modes that decay below rtol within n tokens; a System does.

    Source: thm-head-count, prop-rank-limited, prop-rank-one-count, thm-sink-count, thm-exact-reach,
    thm-pairwise-count, thm-strong-form.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> print(head_count(turn, 100), head_count(turn, 100, "softmax"), sep="; ")
    2 heads (spectrum, modal); 3 heads (eigenvalue)
    >>> print(head_count(turn, 100, value_rank=1))
    3 heads (value maps of rank at most 1)
    """
    check_choice("coefficients", coefficients, CLASSES)
    if (exact or value_rank is not None) and coefficients != "fixed":
        raise ValueError(f'exact and value_rank need coefficients="fixed"; got {coefficients!r}')
    if exact and value_rank is not None:
        raise ValueError("exact and value_rank do not go together")
    if exact:
        return exact_head_count(system, n)
    if value_rank is not None:
        return rank_limited_head_count(system, n, r=value_rank, rtol=rtol)
    return CLASSES[coefficients](system, n, rtol=rtol)
