"""Bounds on the powers of A against the powers themselves, and depth against autograd."""

import cmath
import math

import pytest
import torch
from helpers import F64, gen, like, randn
from hypothesis import given, settings
from hypothesis import strategies as st

from headsandstates.chapters.gradient_highway import decay
from ssmbook.systems import System, random_stable


def jordan(m, lam):
    return lam * torch.eye(m, dtype=F64) + torch.diag(torch.ones(m - 1, dtype=F64), 1)


def lag_norms(A, B, C, n):
    norms, state = [], B
    for _ in range(n):
        norms.append(torch.linalg.matrix_norm(C @ state, ord=2))
        state = A @ state
    return torch.stack(norms)


@pytest.mark.guards("prop-lti-decay")
def test_the_bound_is_attained_by_orthogonal_systems_and_needs_kappa_otherwise():
    Q = torch.linalg.qr(randn(5, 5)).Q
    eye, tau = torch.eye(5, dtype=F64), torch.arange(40)
    bound = decay.diagonalizable_bound(System(0.8 * Q, eye, eye), tau)
    assert torch.allclose(bound, lag_norms(0.8 * Q, eye, eye, 40))
    steep = torch.tensor([[0.9, 50.0], [0.0, 0.8]], dtype=F64)  # non-normal: grows before it decays
    eye = torch.eye(2, dtype=F64)
    norms, bound = lag_norms(steep, eye, eye, 40), decay.diagonalizable_bound(System(steep, eye, eye), tau)
    assert bool((norms <= bound).all()) and float(norms[5] / 0.9**5) > 100
    assert float((norms / bound).max()) > 0.4


def cycle(nu):
    eye = torch.eye(nu, dtype=F64)
    return eye.roll(1, dims=0), eye[:, :1], eye[:1]


def drawn(kind, seed):
    """A system of one kind and the degree of its minimal polynomial, known by construction."""
    rng = gen(seed)
    N = int(torch.randint(1, 7, (), generator=rng))
    rho = float(0.5 + 0.6 * torch.rand((), generator=rng))
    A = torch.randn(N, N, generator=rng, dtype=F64)
    if kind == "non-normal":
        A = A.triu(1) * 20 + torch.diag(torch.linspace(-1.0, 0.8, N, dtype=F64))
    elif kind == "cycle":
        A = cycle(N)[0]
    elif kind == "Jordan":
        A = jordan(N, (-1.0) ** seed)
    elif kind == "repeated":  # two equal blocks: nu = N, with 2 N states
        A = torch.block_diag(A, A)
    A = rho * A / torch.linalg.eigvals(A).abs().max()
    B, C = torch.randn(len(A), 2, generator=rng, dtype=F64), torch.randn(3, len(A), generator=rng, dtype=F64)
    return System(A, B, C), N


@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize("kind", ["random", "non-normal", "cycle", "Jordan", "repeated"])
def test_every_window_of_nu_lags_holds_one_of_the_promised_size(kind):
    for seed in range(40):
        system, nu = drawn(kind, seed)
        found = decay.decay_window(system)
        assert found.nu == nu and found.floor > 0
        radius = float(system.A.diagonal().abs().max() if kind == "Jordan" else system.spectral_radius())
        assert found.rho == pytest.approx(radius, rel=1e-6)
        sizes = lag_norms(system.A / found.rho, system.B, system.C, 60 + nu)  # ||M_s|| rho^-s
        windows = sizes.unfold(0, nu, 1).amax(-1)
        assert bool((windows >= found.floor * (1 - 1e-6)).all()), (kind, seed)


@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize("N", [3, 24])
def test_many_states_have_their_window_or_lags_that_end(N):
    system = random_stable(N, 2, 2, rho=0.9, **like())
    found = decay.decay_window(system)
    assert found.rho == pytest.approx(0.9, rel=1e-9) and 0 < found.nu <= N
    sizes = lag_norms(system.A / found.rho, system.B, system.C, 60 + N)
    assert bool((sizes.unfold(0, found.nu, 1).amax(-1) >= found.floor * (1 - 1e-6)).all())
    Q = torch.linalg.qr(randn(N, N)).Q
    with pytest.raises(ValueError):
        decay.decay_window(System(Q @ jordan(N, 0.0) @ Q.mT, randn(N, 2), randn(2, N)))


@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize("nu", [1, 2, 5, 8])
def test_no_shorter_window_would_do(nu):
    """One token goes round a cycle and is seen in one place: nu - 1 lags in a row are zero."""
    system = System(*cycle(nu))
    found = decay.decay_window(system)
    sizes = lag_norms(*cycle(nu), 4 * nu)
    assert found.nu == nu and found.rho == pytest.approx(1) and found.floor == pytest.approx(1 / nu)
    assert sizes.tolist() == [float(tau % nu == 0) for tau in range(4 * nu)]


@pytest.mark.guards("prop-lti-decay")
def test_the_window_does_not_see_hidden_states_skips_or_units():
    A, B, C = torch.diag(torch.tensor([0.9, -0.9, 1.5], dtype=F64)), randn(3, 1), randn(1, 3, seed=1)
    C[:, 2] = 0  # the fast mode is not seen
    found = decay.decay_window(System(A, B, C, randn(1, 1)))
    residues = (B * C.mT).abs().flatten()  # of two poles of one size the larger one keeps the lags up
    assert found.floor == pytest.approx(float(residues[:2].max()))
    T = torch.diag(torch.tensor([1e-6, 1.0, 1e4], dtype=F64))
    other = decay.decay_window(System(T.inverse() @ A @ T, T.inverse() @ B, C @ T))
    assert found.nu == other.nu == 2 and found.rho == pytest.approx(0.9)
    assert other.floor == pytest.approx(found.floor, rel=1e-9)
    one = System(A[:1, :1] * cmath.exp(0.7j), B[:1] + 0j, C[:, :1] + 0j)
    assert decay.decay_window(one) == pytest.approx((1, abs(float(B[0, 0] * C[0, 0])), 0.9))


@pytest.mark.guards("prop-jordan-decay")
@pytest.mark.parametrize("m", [1, 2, 3, 6])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95, 1.0])
def test_jordan_powers_stay_under_their_envelope_and_close_to_it(m, rho):
    tau = torch.arange(200)
    norms, envelope = decay.power_norms(jordan(m, rho), 200), decay.jordan_envelope(rho, m, tau)
    assert bool((norms <= envelope * (1 + 1e-10) + 1e-300).all())
    terms = [math.comb(150, k) * rho ** (150 - k) for k in range(m)]
    assert float(envelope[150]) == pytest.approx(sum(terms), rel=1e-11, abs=1e-300)
    if rho:
        assert max(terms) * (1 - 1e-12) <= float(norms[150]) >= float(envelope[150]) / 1.2


@pytest.mark.guards("prop-lti-decay")
@given(N=st.integers(2, 7), seed=st.integers(0, 10**6), rho=st.floats(0.2, 0.97), steep=st.floats(0.1, 30))
@settings(max_examples=40, deadline=None)
def test_the_hump_is_the_largest_power_of_all(N, seed, rho, steep):
    poles = rho * (2 * torch.rand(N, generator=gen(seed)).double() - 1)
    A = torch.triu(steep * randn(N, N, seed=seed), 1) + torch.diag(poles)
    peak, place = decay.transient_peak(A)
    norms = decay.power_norms(A, place + 2000)
    assert [peak, peak] == pytest.approx([float(norms.max()), float(norms[place])], rel=1e-9)


@pytest.mark.guards("prop-lti-decay")
def test_transients_by_hand():
    A = torch.tensor([[0.5, 100.0], [0.0, 0.5]], dtype=F64)
    peak, place = decay.transient_peak(A)
    assert place in (1, 2) and peak == pytest.approx(100.0, rel=0.01)
    short = 1 + int((decay.power_norms(A, 50) > 1).sum())  # the first power that contracts
    assert decay.transient_peak(A, max_steps=short) == (peak, place)
    with pytest.raises(ValueError):
        decay.transient_peak(A, max_steps=short - 1)
    Q = torch.linalg.qr(randn(6, 6)).Q
    assert decay.transient_peak(Q) == (1.0, 0) and decay.transient_peak(0.3 * Q) == (1.0, 0)
    for unbounded in (jordan(2, 1.0), 1.5 * Q):
        with pytest.raises(ValueError):
            decay.transient_peak(unbounded, max_steps=500)
    with pytest.raises(ValueError):  # a Jordan block is not diagonalizable
        decay.diagonalizable_bound(System(jordan(2, 0.5), A, A), 3)
