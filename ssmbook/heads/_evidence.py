"""What proves a count: one small class for each way in which heads are counted.

Counts with fixed coefficients have two more, each beside its algorithm: `SpectrumReport`
(`fixed`) and `ExactCertificate` (`exact`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor


@dataclass(frozen=True, eq=False)
class ConeEvidence:
    """The proof that softmax heads number k or k + 1: whether a functional is positive on every lag.

    Without a sink the blocks W_ij take the place of the lags M_tau.

    Parameters
    ----------
    kind : str
        "separating": U is positive on every lag, k heads. "dependency": the weights make
        the normalized lags cancel, k + 1 heads. "eigenvalue": the poles decide
        (`eigenvalue_test`). "zero": the zero system. "undecided": k to k + 1 heads. "row
        sums": they differ, and without a sink no number of heads is enough.
    reason : str
        The same in words.
    k : int or None
        The dimension of span{M_tau}; None for "row sums".
    margin : float or None
        By how much the proof holds, relative to |M_tau|; None where no functional was
        looked for.
    U : Tensor (p, d) or None
        With <U, M_tau> > 0 for every lag, for "separating".
    weights : Tensor (n,) or None
        At least 0, of sum 1, with sum_tau weights_tau M_tau / |M_tau| = 0, for
        "dependency".
    spread : float or None
        Without a sink the largest difference of row sums, relative to the largest block.

    Examples
    --------
    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> proof = head_count(turn.lags(3), coefficients="softmax").evidence
    >>> proof.kind, proof.k, proof.margin
    ('dependency', 2, 0.0)
    """

    kind: Literal["separating", "dependency", "eigenvalue", "zero", "undecided", "row sums"]
    reason: str
    k: int | None = None
    margin: float | None = None
    U: Tensor | None = None
    weights: Tensor | None = None
    spread: float | None = None


@dataclass(frozen=True, eq=False)
class PoleEvidence:
    """What the poles of a system say about softmax heads with a sink, and from which length on.

    Parameters
    ----------
    verdict : str
        "k": k heads for every n. "k+1": k + 1 heads for every n >= n0. "inconclusive".
    reason : str
        The same in words.
    k : int
        The interaction rank.
    nu : int
        The degree of the minimal polynomial.
    modes : tuple of (complex, int)
        Each eigenvalue with its power in that polynomial, one of each conjugate pair.
    n0_low, n0_high : int or None
        n0 lies between them, both included, for the verdict "k+1".

    Examples
    --------
    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> eigenvalue_test(turn).nu
    2
    """

    verdict: Literal["k", "k+1", "inconclusive"]
    reason: str
    k: int
    nu: int
    modes: tuple[tuple[complex, int], ...]
    n0_low: int | None = None
    n0_high: int | None = None


@dataclass(frozen=True, eq=False)
class RankLimitedEvidence:
    """The heads that attain the upper end of a count with a ``value_rank``, and its lower bounds.

    Parameters
    ----------
    k : int
        The dimension of span{M_tau}: the count without a limit.
    bounds : dict of str to int
        The lower bounds by name; the largest is the lower end of the count.
    V : Tensor (H, p, d)
        The value maps, in unit norm.
    coefficients : Tensor (H, n)
        M_tau = sum_h coefficients_h,tau V_h.
    relative_error : float
        By how much they miss the lags, in Frobenius norm.

    Examples
    --------
    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> proof = head_count(turn, 100, value_rank=1).evidence
    >>> proof.bounds["tensor rank"], proof.V.shape
    (3, torch.Size([3, 2, 2]))
    """

    k: int
    bounds: dict[str, int]
    V: Tensor
    coefficients: Tensor
    relative_error: float


@dataclass(frozen=True, eq=False)
class TokenEvidence:
    """What proves a count with coefficients that read the tokens, and what would change it.

    Parameters
    ----------
    k : int
        The dimension of span{M_tau}, the count with fixed coefficients.
    almost : int
        The largest dimension of span{M_tau x}: the count for two tokens at almost every
        input. With unbounded functions of all tokens it can be 1 (prop-almost-every).
    bounds : dict of str to int
        The lower bounds for every input by name; the largest is the lower end of the count.
    attained : str
        What makes the heads of the upper end: an algebra (`bounded_heads`), or "fixed
        coefficients".

    Examples
    --------
    >>> M = torch.randn(9, 2, 3)
    >>> proof = head_count(M, coefficients="any").evidence
    >>> proof.k, proof.almost, proof.bounds["no zero product"], proof.attained
    (6, 2, 4, 'complex numbers')
    """

    k: int
    almost: int
    bounds: dict[str, int] = field(default_factory=dict)
    attained: str = ""
