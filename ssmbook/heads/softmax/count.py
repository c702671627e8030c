"""How many softmax heads with a sink a time-invariant system needs, with a certificate for the answer."""

from __future__ import annotations

from dataclasses import replace

import torch

from ssmbook._count import Count
from ssmbook.heads._target import lags_of
from ssmbook.heads.fixed import head_count
from ssmbook.heads.softmax.certify import SoftmaxCertificate, certify, counted, shaped, trust
from ssmbook.heads.softmax.eigenvalues import verdict_of_poles
from ssmbook.heads.softmax.rows import lag_rows
from ssmbook.systems.system import System


def softmax_head_count(
    system: System | torch.Tensor,
    n: int | None = None,
    rtol: float | None = None,
    lag_rtol: float | None = None,
) -> Count:
    """Return the fewest causal softmax heads with a sink that are a system exactly, and the certificate.

    Class: coefficients independent of the input, finite logits on j <= i, a sink of value 0 (equivalently
    softmax with a + 1 in the denominator), equality of operators. The count is k = dim span{M_tau} if some U
    has <U, M_tau> > 0 for *all* lags, else k + 1 (a zero lag always costs the extra head); 0 for the zero
    system.

    A real `System` and n, or lag operators M (n, p, d) alone; the work is done in float64. ``rtol`` is the
    rank tolerance relative to the largest singular value, ``lag_rtol`` the relative accuracy to which each
    lag is trusted: margins below it are not decided unless exact arithmetic settles them. Defaults: 1e-10 and
    1e-12 in float64, 16 epsilons in shorter types. Returns a `Count` (k to k + 1 where undecided), evidence a
    `SoftmaxCertificate`. Of a System without a skip the eigenvalue test is asked first, which neither
    underflows nor needs a linear program, and the lags only where it cannot decide this length. A lag that
    underflowed to zero is made again from the System; given as a number it is a zero lag.

    Raises ``TypeError``/``ValueError`` for a wrong dtype or shape, NaN and infinity, and tolerances that are
    not numbers in [0, 1). Source: thm-sink-count. Introduced in *how-many-heads-really*.

    >>> one = torch.ones(1, 1)
    >>> print(softmax_head_count(System(0.5 * one, one, one), 8))
    1 head (eigenvalue)
    >>> print(softmax_head_count(System(-0.5 * one, one, one), 8))  # it changes sign, and no weight may
    2 heads (eigenvalue)
    """
    M, behind = lags_of(system, n), system if isinstance(system, System) else None
    tolerances = trust(M, rtol, lag_rtol)
    test = verdict_of_poles(system) if behind is not None and behind.D is None else None
    if test is not None and _decides(test, M, system.N):
        return _by_eigenvalues(test, M[: system.N + 1])
    certificate = certify(lag_rows(M, behind)[0], *tolerances)
    if test is not None and certificate.kind == "undecided":
        certificate = replace(certificate, reason=f"{certificate.reason}; of the poles: {test.reason}")
    return counted(shaped(certificate, M))


def _decides(test, M, N) -> bool:
    """Whether the poles decide the count of these lags, which show no more heads than the poles do."""
    n = len(M)
    if n < test.nu or test.k == 0 or test.verdict == "inconclusive":
        return False
    if test.verdict == "k+1" and n < test.n0_high:
        return False
    return head_count(M[: N + 1]) <= test.k


def _by_eigenvalues(test, lags):
    """The count where the poles decide, with the spectrum of the first lags."""
    spectrum = torch.linalg.svdvals(lags.detach().double().flatten(1))
    certificate = SoftmaxCertificate("eigenvalue", test.k, float("nan"), False, test.reason, spectrum, 0.0)
    count = test.k + (test.verdict == "k+1")
    return Count(count, count, "eigenvalue", certificate)
