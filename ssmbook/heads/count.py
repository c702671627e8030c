"""How many heads a system takes: one function for every class of coefficients."""

from __future__ import annotations

from typing import Any, Literal, overload

from torch import Tensor

from ssmbook._checks import check_choice
from ssmbook.heads._count import Count
from ssmbook.heads._evidence import ConeEvidence, RankLimitedEvidence, TokenEvidence
from ssmbook.heads.bounded import every_input_head_count
from ssmbook.heads.exact import Exact, ExactCertificate, exact_head_count
from ssmbook.heads.fixed import SpectrumReport, fixed_head_count
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
Softmax = Literal["softmax", "sinkless"]
Reading = Literal["pairwise", "any"]


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
    system: System | Tensor, n: int | None = None, coefficients: Softmax = ..., *, rtol: float | None = None
) -> Count[ConeEvidence]: ...
@overload
def head_count(
    system: System | Tensor, n: int | None = None, coefficients: Reading = ..., *, rtol: float | None = None
) -> Count[TokenEvidence]: ...


def head_count(
    system: Any,
    n: int | None = None,
    coefficients: Literal["fixed", "softmax", "sinkless", "pairwise", "any"] = "fixed",
    *,
    value_rank: int | None = None,
    exact: bool = False,
    rtol: float | None = None,
) -> Count[Any]:
    """Return the fewest heads that equal a system, for one class of coefficients.

    Each class has its own evidence, which proves the count. Lags alone do not show modes
    that decay below rtol within n tokens; a System does. A close call of "fixed" for a
    System is made again in its minimal states. If it stays close, ``HeadCountTieWarning``
    warns and the count is open, as for lags that were rounded to half precision; a System
    in half precision is the numbers that it stores. Source: thm-head-count, prop-rank-limited,
    prop-rank-one-count, thm-sink-count, thm-exact-reach, thm-pairwise-count,
    thm-strong-form.

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
        the two tokens, equality at almost every input; `TokenEvidence`. "any": functions of
        all tokens, softmax with any logits included; equality at every input.
    value_rank : int, optional
        At least 1, for "fixed": the largest rank of a value map. The count is then often an
        interval; `RankLimitedEvidence`.
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
        If ``exact`` or ``value_rank`` stands beside another class, or both are given; for
        entries that are not finite.
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
