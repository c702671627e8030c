"""Lags and scans of filters, of stiff systems, and where powers grow before they decay: in long double.

The measure is the plain recurrence in the same dtype: nothing may be more than ten times as far off. One run
of it may be lucky, so the worst of a few orders of the states counts.
"""

import functools
import math
import warnings

import numpy as np
import pytest
import scipy.signal
import torch

from ssmbook.maps import LTISSM
from ssmbook.scans import lti_kernel, lti_kernel_naive, lti_scan, lti_scan_naive
from ssmbook.systems import System

METHODS = ("auto", "recurrence", "chunked")
DESIGNS = {
    "butter": lambda N, cutoff: scipy.signal.butter(N, cutoff),
    "cheby1": lambda N, cutoff: scipy.signal.cheby1(N, 1, cutoff),
    "cheby2": lambda N, cutoff: scipy.signal.cheby2(N, 40, cutoff),
    "ellip": lambda N, cutoff: scipy.signal.ellip(N, 1, 40, cutoff),
    "bessel": lambda N, cutoff: scipy.signal.bessel(N, cutoff),
}


def ports(N, generator, d=2, p=2):
    return generator.standard_normal((N, d)), generator.standard_normal((p, N))


def filters(design):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.signal.BadCoefficients)
        return [
            scipy.signal.tf2ss(*DESIGNS[design](N, cutoff))[:3]
            for N in (2, 4, 5, 8, 10)
            for cutoff in (0.03, 0.3, 0.9)
        ]


def non_normal():
    generator = np.random.default_rng(0)
    for N in (5, 10, 20, 40):  # the matrices of Grcar and Kahan
        A = np.eye(N) - np.eye(N, k=-1) + np.eye(N, k=1) + np.eye(N, k=2) + np.eye(N, k=3)
        yield (0.95 * A / abs(np.linalg.eigvals(A)).max(), *ports(N, generator))
        s, c = math.sin(0.9), math.cos(0.9)
        A = np.diag(s ** np.arange(N)) @ (np.eye(N) - c * np.triu(np.ones((N, N)), 1))
        yield (0.95 * A, *ports(N, generator))


def transients():
    """Random systems, ever further from normal: their powers first grow to about 1e0 ... 1e6."""
    generator = np.random.default_rng(2)
    for N in (4, 8, 16):
        turn = np.linalg.qr(generator.standard_normal((N, N)))[0]
        lam = np.diag(generator.uniform(0.5, 0.97, N) * generator.choice([-1, 1], N))
        above = np.triu(generator.standard_normal((N, N)), 1)
        for size in (0.1, 0.3, 1, 3, 10, 30):
            yield (turn @ (lam + size * above / math.sqrt(N)) @ turn.T, *ports(N, generator))


def stiff():
    """Fast and slow modes side by side, in good and in bad units."""
    generator = np.random.default_rng(3)
    for N in (4, 8, 16):
        turn = np.linalg.qr(generator.standard_normal((N, N)))[0]
        A = turn @ np.diag(np.exp(-np.logspace(-5, 2, N))) @ turn.T
        B, C = ports(N, generator)
        for power in (0, 1, 4):
            units = np.logspace(-power, power, N)
            yield units[:, None] * A / units, units[:, None] * B, C / units


FAMILIES = {design: functools.partial(filters, design) for design in DESIGNS}
FAMILIES |= {"non-normal": non_normal, "transients": transients, "stiff": stiff}


def long(tensor):
    return tensor.detach().numpy().astype(np.longdouble)


def true_scan(A, B, C, x, state):
    A, B, C, x, h, y = *(long(t) for t in (A, B, C, x, state)), []
    for x_t in x:
        h = h @ A.T + x_t @ B.T
        y.append(h @ C.T)
    return np.stack(y)


def true_lags(A, B, C, n):
    A, column, C, lags = long(A), long(B), long(C), []
    for _ in range(n):
        lags.append(C @ column)
        column = A @ column
    return np.stack(lags)


def off(got, wanted):
    """Largest deviation, relative to the largest value wanted."""
    return float(abs(long(got) - wanted).max() / abs(wanted).max())


def orders(A, B, C):
    """The system as it is and with its states in three other orders."""
    yield torch.arange(len(A)), (A, B, C)
    for seed in range(3):
        order = torch.randperm(len(A), generator=torch.Generator().manual_seed(seed))
        yield order, (A[order][:, order], B[order], C[:, order])


def worst(errors, floor):
    """None where rounding has made the system unstable, so that the recurrence itself overflows."""
    return max(floor, *errors) if all(map(math.isfinite, errors)) else None


def systems(family, dtype):
    for system in FAMILIES[family]():
        yield [torch.tensor(np.ascontiguousarray(m)).to(dtype) for m in system]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("family", FAMILIES)
def test_lags_and_scans_are_as_exact_as_the_recurrence(family, dtype):
    n, T, floor = 200, 150, torch.finfo(dtype).eps / 2
    generator = torch.Generator().manual_seed(0)
    for i, (A, B, C) in enumerate(systems(family, dtype)):
        M = true_lags(A, B, C, n)
        errors = [off(lti_kernel_naive(*one, n), M) for _, one in orders(A, B, C)]
        if plain := worst(errors, floor):
            assert off(lti_kernel(A, B, C, n), M) <= 10 * plain, i
            assert off(System(A, B, C).lags(n), M) <= 10 * plain, i
        x, state = torch.randn(T, B.shape[1], generator=generator), torch.randn(len(A), generator=generator)
        x, state = x.to(dtype), state.to(dtype)
        y = true_scan(A, B, C, x, state)
        errors = [off(lti_scan_naive(*one, x, state[order])[0], y) for order, one in orders(A, B, C)]
        if plain := worst(errors, floor):
            for method in METHODS:
                for recorded in (False, True):
                    found = lti_scan(A.clone().requires_grad_(recorded), B, C, x, state, method)[0]
                    assert off(found, y) <= 10 * plain, (i, method, recorded)


def test_one_bad_system_in_a_batch_and_one_under_vmap():
    good, bad = (torch.tensor(m) for m in ([[0.5, 0.1], [0.0, 0.4]], [[0.9, 1e6], [0.0, -0.8]]))
    A, B, C = (
        torch.stack([good, bad]).double(),
        torch.eye(2).double().expand(2, 2, 2),
        torch.ones(2, 1, 2).double(),
    )
    x = torch.randn(90, 2, generator=torch.Generator().manual_seed(0)).double()
    for M in (System(A, B, C).lags(100), torch.func.vmap(lambda *s: lti_kernel(*s, 100))(A, B, C)):
        for i in range(2):
            assert off(M[i], true_lags(A[i], B[i], C[i], 100)) < 1e-13
    for y, *system in zip(torch.func.vmap(lambda *s: lti_scan(*s, x)[0])(A, B, C), A, B, C, strict=True):
        assert off(y, true_scan(*system, x, torch.zeros(2))) < 1e-12


def test_gradients_and_a_layer_where_the_recurrence_takes_over():
    A, B, C = (torch.tensor(m) for m in scipy.signal.tf2ss(*scipy.signal.butter(4, 0.05))[:3])
    x = torch.randn(2, 90, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    given = [t.clone().requires_grad_() for t in (A, B, C, x)]

    def gradients(scan):
        return torch.autograd.grad((scan(*given)[0] * x.flip(1)).sum(), given)

    for method in METHODS:
        got = gradients(functools.partial(lti_scan, method=method))
        for one, other in zip(got, gradients(lti_scan_naive), strict=True):
            assert (one - other).abs().max() <= 1e-9 * other.abs().max()
    layer = LTISSM(System(*(t.float() for t in (A, B, C))))
    with torch.no_grad():
        difference = layer(x.float()) - layer.run(x.float())[0]
        assert difference.abs().max() < 1e-3 * layer(x.float()).abs().max()
