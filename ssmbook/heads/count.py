"""How many heads a system takes: one function for every class of coefficients."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, overload

from torch import Tensor

from ssmbook._checks import check_choice
from ssmbook.heads._count import Count
from ssmbook.heads._evidence import ConeEvidence, RankLimitedEvidence, TokenEvidence
from ssmbook.heads._lags import lags_of
from ssmbook.heads.bounded import every_input_head_count
from ssmbook.heads.exact import Exact, ExactCertificate, exact_head_count
from ssmbook.heads.fixed import SpectrumReport, fixed_head_count
from ssmbook.heads.pairwise import pairwise_head_count
from ssmbook.heads.rank_limited import narrow_head_count, rank_limited_head_count
from ssmbook.heads.sinkless import blocks_of, sinkless_head_count, visible_blocks
from ssmbook.heads.softmax import softmax_head_count
from ssmbook.systems.system import System

FIXED = {"fixed": fixed_head_count, "softmax": softmax_head_count, "sinkless": sinkless_head_count}
READING = {
    "pairwise": pairwise_head_count,
    "any": every_input_head_count,
    "any softmax": partial(every_input_head_count, sink=True),
}
CLASSES = {**FIXED, **READING}
Softmax = Literal["softmax", "sinkless"]
Reading = Literal["pairwise", "any", "any softmax"]


# For type checkers and completion: which class of coefficients has which evidence.
@overload
def head_count(
    system: System | Tensor,
    n: int | None = None,
    coefficients: Literal["fixed"] = "fixed",
    *,
    rtol: float | None = None,
) -> Count[SpectrumReport]: ...
@overload
def head_count(
    system: System | Tensor, n: int | None = None, *, value_rank: int, rtol: float | None = None
) -> Count[RankLimitedEvidence]: ...
@overload
def head_count(system: Exact, n: int, *, exact: Literal[True]) -> Count[ExactCertificate]: ...
@overload
def head_count(  # type: ignore[overload-overlap]
    system: System | Tensor,
    n: int | None = None,
    coefficients: Softmax = ...,
    *,
    value_rank: int | None = None,
    rtol: float | None = None,
) -> Count[ConeEvidence]: ...
@overload
def head_count(
    system: System | Tensor,
    n: int | None = None,
    coefficients: Reading = ...,
    *,
    value_rank: int | None = None,
    rtol: float | None = None,
) -> Count[TokenEvidence]: ...


def head_count(
    system: Any,
    n: int | None = None,
    coefficients: Literal["fixed", "softmax", "sinkless", "pairwise", "any", "any softmax"] = "fixed",
    *,
    value_rank: int | None = None,
    exact: bool = False,
    rtol: float | None = None,
) -> Count[Any]:
    """Return the fewest heads that equal a system, for one class of coefficients and one width.

    Two questions change the answer: what the coefficients may read, and where they must be
    right. Functions of all tokens that are unbounded, at almost every input, can do with
    one head (prop-almost-every). Bounded ones, as softmax's are, take as many as at every
    input. Each class has its own evidence, which proves the count. Lags alone do not show modes
    that decay below rtol within n tokens; a System does. A close call of "fixed" for a
    System is made again in its minimal states. If it stays close, ``HeadCountTieWarning``
    warns and the count is open, as for lags that were rounded to half precision; a System
    in half precision is the numbers that it stores. Source: thm-head-count, prop-rank-limited,
    prop-rank-one-count, thm-sink-count, thm-exact-reach, thm-pairwise-count,
    thm-strong-form, prop-token-heads.

    Parameters
    ----------
    system : System or Tensor (n, p, d)
        A real system, or its lag operators M. For "sinkless" blocks W (n, n, p, d) are
        taken as well; with ``exact`` also matrices (A, B, C) or (A, B, C, D) as nested
        lists of ints and ``fractions.Fraction``, sympy matrices or integer tensors.
    n : int, optional
        The number of tokens, beside a System or matrices; left out beside lags.
    coefficients : str, default "fixed"
        "fixed": real numbers that do not depend on the input. The count is k, the number of
        independent lag operators; evidence: `SpectrumReport`. "softmax": softmax weights
        with fixed logits and a sink, k or k + 1 heads; `ConeEvidence`. "sinkless": the same
        without a sink; only systems without memory have a count. "pairwise": functions of
        the two tokens, equality at almost every input; `TokenEvidence`. "any": real
        functions of all tokens, equality at every input. "any softmax": the same as softmax
        weights with a sink and any logits.
    value_rank : int, optional
        From 1 to min(p, d): the largest rank of a value map, the width of a head. The count
        is then often an interval. For "fixed" it comes with `RankLimitedEvidence`.
    exact : bool, default False
        Rational arithmetic, for "fixed"; `ExactCertificate`. The floats of a System are the
        binary fractions that they are (0.1 is not 1/10).
    rtol : float, optional
        Singular values below it, relative to the largest, count as zero. Default: 1e-10 in
        float64 and for a System in half precision, 16 machine epsilons otherwise.

    Returns
    -------
    Count
        A number, or an interval where the number is not known, such as after a near-tie.

    Raises
    ------
    ValueError
        If ``exact`` stands beside another class or a ``value_rank``; for a width that no
        value map has, and entries that are not finite.
    TypeError
        If n is missing, or given beside lags; with ``exact``, for entries that are not
        rational.

    Examples
    --------
    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> print(head_count(turn, 100), head_count(turn, 100, "softmax"), sep="; ")
    2 heads (spectrum, modal); 3 heads (eigenvalue)
    >>> print(head_count(turn, 100, value_rank=1))
    3 heads (value maps of rank at most 1)
    >>> M = torch.randn(30, 8, 8)  # k = 30
    >>> head_count(M, coefficients="any").value, head_count(M, coefficients="any softmax").short
    (8, '8 to 9')
    """
    check_choice("coefficients", coefficients, CLASSES)
    if exact and (coefficients != "fixed" or value_rank is not None):
        raise ValueError(
            f'exact needs coefficients="fixed" without value_rank; got {coefficients!r}, {value_rank}'
        )
    if exact:
        return exact_head_count(system, n)
    if coefficients in READING:
        return READING[coefficients](system, n, rtol=rtol, value_rank=value_rank)
    if value_rank is None:
        return FIXED[coefficients](system, n, rtol=rtol)
    if coefficients == "fixed":
        return rank_limited_head_count(system, n, r=value_rank, rtol=rtol)
    sinkless = coefficients == "sinkless"
    M = visible_blocks(blocks_of(system, n)) if sinkless else lags_of(system, n)
    return narrow_head_count(FIXED[coefficients](system, n, rtol=rtol), M, value_rank, rtol)
