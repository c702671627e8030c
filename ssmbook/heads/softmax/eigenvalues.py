"""The eigenvalue test: when a positive real pole decides how many softmax heads with a sink are needed."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from scipy.linalg import eig, schur

from ssmbook._checks import check_rtol
from ssmbook.heads._target import check_real
from ssmbook.heads.fixed import spectrum_report
from ssmbook.heads.softmax.certify import certify
from ssmbook.systems.reachability import balance
from ssmbook.systems.system import System

# Poles this close, relative to the spectral radius, are taken for one.
_NEARBY = 1e-7


@dataclass(frozen=True)
class EigenvalueTest:
    """Verdict of the eigenvalue test (prop-eigenvalue-test; introduced in *how-many-heads-really*).

    ``verdict`` is "k" (k heads for every n), "k+1" (k + 1 heads for every n >= some n0 with ``n0_low <= n0 <=
    n0_high``; k heads below n0 when ``independent``) or "inconclusive", with ``reason`` in words. ``k`` and
    ``nu`` are the interaction rank and the degree of the minimal polynomial of the minimal realization, as
    the poles show it; ``independent`` is k == nu. ``modes`` lists (eigenvalue, index) with one entry per
    conjugate pair, index being its power in that polynomial.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> test = eigenvalue_test(turn)
    >>> test.verdict, test.k, test.modes[0][1]
    ('k+1', 2, 1)
    """

    verdict: str
    reason: str
    k: int
    nu: int
    independent: bool
    modes: tuple[tuple[complex, int], ...]
    n0_low: int | None = None
    n0_high: int | None = None


def eigenvalue_test(system: System, rtol: float = _NEARBY) -> EigenvalueTest:
    """Decide from the poles whether k or k + 1 softmax heads with a sink are needed, and from which n.

    With independent R_{s,m} = C N_s^m P_s B (k = nu): k heads for every n iff the minimal realization has a
    positive real eigenvalue. Without one, k + 1 heads from n0 on, 1 plus the least degree of a nonzero
    multiple of the minimal polynomial with coefficients >= 0. The test looks for it between 1 + nu_0 + max(nu
    - nu_0, max ceil(pi/theta_s)) and 1 + nu_0 + sum nu_s ceil(pi/theta_s), over negative eigenvalues (theta =
    pi) and conjugate pairs with angle theta_s and index nu_s, nu_0 being the index of the eigenvalue 0: an
    interval remains where a margin is below n ``rtol``. (`least_positive_multiple` is exact, for rational
    coefficients.) The upper bound needs no independence; a positive eigenvalue without it is inconclusive.

    One real `System` without a skip, any stability and units. Works in float64; eigenvalues within ``rtol``
    (relative to the spectral radius) are taken for one, and moduli below it for 0. The mathematics is exact,
    its input — eigenvalues and ranks — is numerical: inconclusive also where k is a near-tie and where poles
    and lags disagree on nu, as they do for two poles within ``rtol``. Raises ``TypeError``/``ValueError`` for
    a bad system and one with a skip. Source: prop-eigenvalue-test. Introduced in
    *how-many-heads-really*.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> test = eigenvalue_test(turn)  # no positive real eigenvalue
    >>> test.verdict, test.n0_low, test.n0_high
    ('k+1', 3, 3)
    """
    test = verdict_of_poles(system, rtol)
    if test.verdict != "k+1" or not test.independent or test.n0_low == test.n0_high:
        return test
    return replace(test, **_narrowed(test, rtol))


def verdict_of_poles(system: System, rtol: float = _NEARBY) -> EigenvalueTest:
    """The eigenvalue test with the interval for n0 that needs no linear program."""
    if check_real(system).D is not None:
        raise ValueError("system must have no skip for the eigenvalue test; drop it with replace(D=None)")
    rtol = check_rtol(rtol)
    report = spectrum_report(system, system.N)
    exact = system.detach().to("cpu", torch.float64)
    # Rounding errors in the minimal matrix have the size of those of all states, not of its own.
    noise = 10 * system.N * np.finfo(float).eps * float(balance(*list(exact)[:3]).step)
    modes = _modes(exact.minimal(rtol=report.rtol).A.numpy(), rtol, noise)
    k, nu = report.rank, sum(index * (1 if value.imag == 0 else 2) for value, index, _ in modes)
    pairs = tuple((value, index) for value, index, _ in modes)
    known = {"k": k, "nu": nu, "independent": k == nu, "modes": pairs}
    positive = [doubtful for value, _, doubtful in modes if value.imag == 0 and value.real > 0]
    doubt = _doubt(report, nu, bool(positive) and all(positive))
    if doubt:
        return EigenvalueTest("inconclusive", doubt, **known)
    if k == 0:
        return EigenvalueTest("k", "the zero system needs no heads", **known)
    if positive and k == nu:
        return EigenvalueTest("k", "a positive real pole and independent R_{s,m}", **known)
    if positive:
        return EigenvalueTest("inconclusive", f"a positive real pole, but k = {k} < nu = {nu}", **known)
    delay = sum(index for value, index, _ in modes if value == 0)
    turns = [(math.ceil(math.pi / abs(np.angle(v)) - 1e-12), index) for v, index, _ in modes if v != 0]
    high = 1 + delay + sum(turn * index for turn, index in turns)
    low = 1 + max([nu, *(delay + turn for turn, _ in turns)]) if k == nu else None
    return EigenvalueTest("k+1", "no positive real pole", n0_low=low, n0_high=high, **known)


def _narrowed(test, rtol) -> dict[str, int]:
    """The interval for n0, as far as certificates for the solutions of the recurrence close it."""
    low, high = test.n0_low, test.n0_high
    delay = sum(index for value, index in test.modes if value == 0)
    rows = _solutions(test.modes, high - delay)

    @cache
    def kind(n):
        found = certify(rows[: n - delay], 1e-10, max(n * rtol, 1e-12))
        proved = found.k == rows.shape[1] and (found.kind == "separating" or found.margin > n * rtol)
        return found.kind if proved else "undecided"

    # n0 is the first length without a functional: k heads below it, a dependency from it on.
    lengths = range(low, high)
    first_open = low + bisect_left(lengths, True, key=lambda n: kind(n) != "separating")
    first_closed = low + bisect_left(lengths, True, key=lambda n: kind(n) == "dependency")
    return {"n0_low": first_open, "n0_high": max(first_open, first_closed)}


def _solutions(modes, length) -> np.ndarray:
    """The real sequences of the poles other than 0 as columns (length, nu - nu_0), each row up to scale."""
    tau, columns = np.arange(length), []
    largest = max(abs(value) for value, _ in modes)
    for value, index in modes:
        for m in range(index if value != 0 else 0):
            phase = np.exp(1j * np.angle(value) * tau)
            size = (abs(value) / largest) ** tau * (tau / max(length - 1, 1)) ** m
            columns += [size * phase.real] if value.imag == 0 else [size * phase.real, size * phase.imag]
    return np.stack(columns, 1)


def _doubt(report, nu, nearly_real) -> str:
    """Why ranks and poles, which are numbers, do not decide here; empty where they do."""
    if report.near_tie:
        return f"the rank is a near-tie: {report}"
    if report.degree != nu:
        return f"nu is {nu} by the poles and {report.degree} by the lags: some poles are too close to call"
    return "a pole too close to the positive axis to call real" if nearly_real else ""


def _modes(A, rtol, noise):
    """One (eigenvalue, index, doubtful) a cluster, conjugates merged; doubtful: real by tolerance only."""
    values, radius = _eigenvalues(A, rtol)
    radius = np.maximum(radius, noise)
    limit = max(10 * rtol * max(np.linalg.norm(A), np.abs(values).max(initial=0.0)), noise)
    left, modes = list(range(len(values))), []
    while left:
        first = values[left[0]]
        apart = np.minimum(np.abs(values - first), np.abs(values - first.conjugate()))
        near = [s for s in left if apart[s] <= max(radius[s], radius[left[0]])]
        left = [s for s in left if s not in near]
        members = values[near]
        real = np.abs(members.imag).max() <= radius[near].max()
        center = complex(members.real.mean(), 0 if real else np.abs(members.imag).mean())
        center = 0j if abs(center) <= radius[near].max() else center
        same = members if real else members[members.imag > 0]
        modes.append((center, _index(A, same, radius[near].max(), limit), bool(real and members.imag.any())))
    return modes


def _eigenvalues(A, rtol):
    """Eigenvalues, and the radius within which each is known: rtol, or its condition times rounding."""
    if len(A) == 0:
        return np.zeros(0, dtype=complex), np.zeros(0)
    values, left, right = eig(A, left=True, right=True)
    size = np.linalg.norm(A, 2)
    overlap = np.abs((left.conj() * right).sum(0))
    rounding = 10 * len(A) * np.finfo(float).eps * size / np.maximum(overlap, 1e-300)
    return values, np.maximum(rtol * np.abs(values).max(), np.minimum(rounding, 1e-3 * size))


def _index(A, members, radius, limit):
    """Index of a cluster of eigenvalues: the least power of its nilpotent part that is at most ``limit``."""
    if len(members) == 1 or not A.any():
        return 1
    triangle, _, size = schur(
        A.astype(complex), output="complex", sort=lambda z: np.abs(members - z).min() <= radius
    )
    nilpotent = triangle[:size, :size] - np.mean(members) * np.eye(size)
    power, index = nilpotent, 1
    while index < size and np.linalg.norm(power) > limit:
        power, index = power @ nilpotent / max(np.linalg.norm(nilpotent), 1e-300), index + 1
    return index
