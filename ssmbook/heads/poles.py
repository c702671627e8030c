"""The eigenvalue test: when a positive real pole decides how many softmax heads with a sink it takes."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from scipy.linalg import eig, schur

from ssmbook.heads._cone import certify
from ssmbook.heads._evidence import PoleEvidence
from ssmbook.heads._lags import check_real_system
from ssmbook.heads.fixed import as_stored, fixed_head_count, spectrum_report
from ssmbook.systems.system import System

# Poles this close, relative to the spectral radius, are taken for one, and moduli below it
# for 0.
_NEARBY = 1e-7


def eigenvalue_test(system: System) -> PoleEvidence:
    """Decide from the poles whether k or k + 1 softmax heads with a sink are needed, and from which length.

    One real `System` without a skip. The verdict is "k" for every n where there is a
    positive real pole, and "k+1" for every n >= n0 where there is none; for n < n0, k heads
    suffice if k == nu, that is, if the residues are independent. n0 - 1 is the least degree
    of a nonnegative multiple of the minimal polynomial; an interval remains if margins are
    too small.

    The mathematics is exact, its input is not: the test is also inconclusive if k is a
    near-tie, or if poles and lags disagree about nu. Source: prop-eigenvalue-test.

    >>> turn = System(torch.tensor([[0.0, -0.9], [0.9, 0.0]]), torch.eye(2), torch.eye(2))
    >>> test = eigenvalue_test(turn)  # no positive real eigenvalue
    >>> test.verdict, test.n0_low, test.n0_high
    ('k+1', 3, 3)
    """
    test = verdict_of_poles(system)
    if test.verdict == "k+1" and test.k == test.nu and test.n0_low < test.n0_high:
        low, high = _narrow(test)
        test = replace(test, n0_low=low, n0_high=high)
    return test


def verdict_of_poles(system: System) -> PoleEvidence:
    """The eigenvalue test with the interval for n0 that needs no linear program."""
    if check_real_system(system).D is not None:
        raise ValueError("system must have no skip for the eigenvalue test; drop it with replace(D=None)")
    report = spectrum_report(system, system.N)
    exact = system.detach().to("cpu", torch.float64)
    # Rounding errors in the minimal matrix have the size of those of all states, not of its
    # own.
    noise = 10 * system.N * np.finfo(float).eps * np.abs(np.linalg.eigvals(exact.A.numpy())).max(initial=0.0)
    modes = _modes(exact.minimal(rtol=report.rtol).A.numpy(), noise)
    k, nu = report.rank, sum(index * (1 if value.imag == 0 else 2) for value, index, _ in modes)
    positive = [doubtful for value, _, doubtful in modes if value.imag == 0 and value.real > 0]

    def found(verdict, reason, *interval):
        pairs = tuple((value, index) for value, index, _ in modes)
        return PoleEvidence(verdict, reason, k, nu, pairs, *interval)

    if report.near_tie:
        return found("inconclusive", f"the rank is a near-tie: {report}")
    if report.degree != nu:
        reason = f"nu is {nu} by the poles and {report.degree} by the lags: some poles are too close to call"
        return found("inconclusive", reason)
    if positive and all(positive):
        return found("inconclusive", "a pole too close to the positive axis to call real")
    if k == 0:
        return found("k", "the zero system needs no heads")
    if positive and k == nu:
        return found("k", "a positive real pole and independent residues")
    if positive:
        return found("inconclusive", f"a positive real pole, but k = {k} < nu = {nu}")
    # The factor of a pole with angle theta has a nonnegative multiple of degree
    # ceil(pi/theta), none below.
    delay = sum(index for value, index, _ in modes if value == 0)
    turns = [(math.ceil(math.pi / abs(np.angle(v)) - 1e-12), index) for v, index, _ in modes if v != 0]
    high = 1 + delay + sum(turn * index for turn, index in turns)
    low = 1 + max([nu, *(delay + turn for turn, _ in turns)]) if k == nu else 1
    return found("k+1", "no positive real pole", low, high)


def poles_decide(test: PoleEvidence, system: System, n: int) -> bool:
    """Whether the poles decide the count for n tokens; the first lags must not show more heads than they."""
    if test.verdict == "inconclusive" or n < test.nu or (test.verdict == "k+1" and n < test.n0_high):
        return False
    return fixed_head_count(as_stored(system).lags(min(n, system.N + 1))) <= test.k


def _narrow(test: PoleEvidence) -> tuple[int, int]:
    """The interval for n0, as far as certificates for the solutions of the recurrence close it."""
    low, high = test.n0_low, test.n0_high
    delay = sum(index for value, index in test.modes if value == 0)
    rows = _solutions(test.modes, high - delay)

    @cache
    def kind(n):
        found = certify(rows[: n - delay], 1e-10, max(n * _NEARBY, 1e-12))
        proved = found.k == rows.shape[1] and (found.kind == "separating" or found.margin > n * _NEARBY)
        return found.kind if proved else "undecided"

    # n0 is the first length without a functional: k heads below it, a dependency from there
    # onward.
    lengths = range(low, high)
    first_open = low + bisect_left(lengths, True, key=lambda n: kind(n) != "separating")
    first_closed = low + bisect_left(lengths, True, key=lambda n: kind(n) == "dependency")
    return first_open, max(first_open, first_closed)


def _solutions(modes: tuple[tuple[complex, int], ...], length: int) -> np.ndarray:
    """The real sequences of the poles other than 0 as columns (length, nu - nu_0), each row up to scale."""
    tau, columns = np.arange(length), []
    largest = max(abs(value) for value, _ in modes)
    for value, index in modes:
        for m in range(index if value != 0 else 0):
            phase = np.exp(1j * np.angle(value) * tau)
            size = (abs(value) / largest) ** tau * (tau / max(length - 1, 1)) ** m
            columns += [size * phase.real] if value.imag == 0 else [size * phase.real, size * phase.imag]
    return np.stack(columns, 1)


def _modes(A, noise):
    """One (eigenvalue, index, doubtful) a cluster, conjugates merged; doubtful: real by tolerance only."""
    if len(A) == 0:
        return []
    values, radius = _eigenvalues(A)
    radius = np.maximum(radius, noise)
    limit = max(10 * _NEARBY * max(np.linalg.norm(A), np.abs(values).max()), noise)
    left, modes = list(range(len(values))), []
    while left:
        first = values[left[0]]
        apart = np.minimum(np.abs(values - first), np.abs(values - first.conjugate()))
        near = [s for s in left if apart[s] <= max(radius[s], radius[left[0]])]
        left = [s for s in left if s not in near]
        members, close = values[near], radius[near].max()
        real = np.abs(members.imag).max() <= close
        center = complex(members.real.mean(), 0 if real else np.abs(members.imag).mean())
        center = 0j if abs(center) <= close else center
        same = members if real else members[members.imag > 0]
        modes.append((center, _index(A, same, close, limit), bool(real and members.imag.any())))
    return modes


def _eigenvalues(A):
    """Eigenvalues, and the radius within which each is known: 1e-7, or its condition times rounding."""
    values, left, right = eig(A, left=True, right=True)
    size = np.linalg.norm(A, 2)
    overlap = np.abs((left.conj() * right).sum(0))
    rounding = 10 * len(A) * np.finfo(float).eps * size / np.maximum(overlap, 1e-300)
    return values, np.maximum(_NEARBY * np.abs(values).max(), np.minimum(rounding, 1e-3 * size))


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
