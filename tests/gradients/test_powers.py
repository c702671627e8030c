"""Bounds on the powers of A against the powers themselves, and depth against autograd."""

import cmath
import math

import pytest
import torch
from helpers import F64, gen, randn
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmbook import gradients
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
@given(
    N=st.integers(1, 9),
    d=st.integers(1, 3),
    p=st.integers(1, 3),
    seed=st.integers(0, 10**6),
    rho=st.floats(0.3, 1.1),
)
@settings(max_examples=80, deadline=None)
def test_diagonalizable_systems_stay_under_their_bound(N, d, p, seed, rho):
    A, B, C = randn(N, N, seed=seed), randn(N, d, seed=seed + 1), randn(p, N, seed=seed + 2)
    A = rho * A / torch.linalg.eigvals(A).abs().max()
    tau = torch.arange(50)
    assert bool(
        (lag_norms(A, B, C, 50) <= gradients.diagonalizable_bound(System(A, B, C), tau) * (1 + 1e-9)).all()
    )


@pytest.mark.guards("prop-lti-decay")
def test_the_bound_is_attained_by_orthogonal_systems_and_needs_kappa_otherwise():
    Q = torch.linalg.qr(randn(5, 5)).Q
    eye, tau = torch.eye(5, dtype=F64), torch.arange(40)
    assert torch.allclose(
        gradients.diagonalizable_bound(System(0.8 * Q, eye, eye), tau), lag_norms(0.8 * Q, eye, eye, 40)
    )
    nothing = gradients.diagonalizable_bound(System(0 * Q, eye, eye), tau)
    assert nothing[0] == 1 and not nothing[1:].any()
    steep = torch.tensor([[0.9, 50.0], [0.0, 0.8]], dtype=F64)  # non-normal: grows before it decays
    eye = torch.eye(2, dtype=F64)
    norms, bound = (
        lag_norms(steep, eye, eye, 40),
        gradients.diagonalizable_bound(System(steep, eye, eye), tau),
    )
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
        found = gradients.decay_window(system)
        assert found.nu == nu and found.floor > 0
        radius = float(system.A.diagonal().abs().max() if kind == "Jordan" else system.spectral_radius())
        assert found.rho == pytest.approx(radius, rel=1e-6)
        sizes = lag_norms(system.A / found.rho, system.B, system.C, 60 + nu)  # ||M_s|| rho^-s
        windows = sizes.unfold(0, nu, 1).amax(-1)
        assert bool((windows >= found.floor * (1 - 1e-6)).all()), (kind, seed)


@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize("N", [12, 24, 40])
def test_many_states_have_their_window_or_lags_that_end(N):
    """However large the norm of A is to the power N."""
    for seed in range(3):
        system = random_stable(N, 2, 2, rho=0.9, generator=gen(seed), dtype=F64)
        found = gradients.decay_window(system)
        assert found.rho == pytest.approx(0.9, rel=1e-9) and 0 < found.nu <= N
        sizes = lag_norms(system.A / found.rho, system.B, system.C, 60 + N)
        assert bool((sizes.unfold(0, found.nu, 1).amax(-1) >= found.floor * (1 - 1e-6)).all())
        Q = torch.linalg.qr(randn(N, N, seed=seed)).Q
        ends = System(Q @ jordan(N, 0.0) @ Q.mT, randn(N, 2, seed=seed), randn(2, N, seed=seed))
        with pytest.raises(ValueError, match="system must have lags that do not end"):
            gradients.decay_window(ends)


@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize("nu", [1, 2, 5, 8])
def test_no_shorter_window_would_do(nu):
    """One token goes round a cycle and is seen in one place: nu - 1 lags in a row are zero."""
    system = System(*cycle(nu))
    found = gradients.decay_window(system)
    sizes = lag_norms(*cycle(nu), 4 * nu)
    assert found.nu == nu and found.rho == pytest.approx(1) and found.floor == pytest.approx(1 / nu)
    assert sizes.tolist() == [float(tau % nu == 0) for tau in range(4 * nu)]


@pytest.mark.guards("prop-lti-decay")
def test_the_window_does_not_see_hidden_states_skips_or_units():
    A, B, C = (torch.diag(torch.tensor([0.9, -0.9, 1.5], dtype=F64)), randn(3, 1), randn(1, 3, seed=1))
    C[:, 2] = 0  # the fast mode is not seen
    found = gradients.decay_window(System(A, B, C, randn(1, 1)))
    residues = (B * C.mT).abs().flatten()  # of two poles of one size the larger one keeps the lags up
    assert found.floor == pytest.approx(float(residues[:2].max()))
    T = torch.diag(torch.tensor([1e-6, 1.0, 1e4], dtype=F64))
    other = gradients.decay_window(System(T.inverse() @ A @ T, T.inverse() @ B, C @ T))
    assert found.nu == other.nu == 2 and found.rho == pytest.approx(0.9)
    assert other.floor == pytest.approx(found.floor, rel=1e-9)
    one = gradients.decay_window(System(A[:1, :1], B[:1], C[:, :1]))
    assert one.floor == pytest.approx(abs(float(B[0, 0] * C[0, 0]))) and one.nu == 1
    turned = gradients.decay_window(System(A[:1, :1] * cmath.exp(0.7j), B[:1] + 0j, C[:, :1] + 0j))
    assert (turned.nu, turned.rho) == (1, pytest.approx(0.9)) and turned.floor == pytest.approx(one.floor)
    with pytest.raises(ValueError, match="system must have lags that do not end"):
        gradients.decay_window(System(jordan(3, 0.0), randn(3, 1), randn(1, 3)))


@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_lags_that_end_are_told_from_lags_of_any_size_behind_a_change_of_basis(scale):
    for seed in range(5):
        Q = torch.linalg.qr(randn(5, 5, seed=seed)).Q
        B, C = randn(5, 2, seed=seed + 10), randn(2, 5, seed=seed + 20)
        with pytest.raises(ValueError, match="system must have lags that do not end"):
            gradients.decay_window(System(scale * Q @ jordan(5, 0.0) @ Q.mT, B, C))
        for T in (randn(3, 3, seed=seed + 327), randn(2, 2, seed=seed + 161)):
            rounded = scale * T @ jordan(len(T), 0.0) @ torch.linalg.inv(T)
            with pytest.raises(ValueError, match="system must have lags that do not end"):
                gradients.decay_window(System(rounded, B[: len(T)], C[:, : len(T)]))
        lasting = torch.diag(torch.tensor([1.0, 0.9, 0.8, 0.7, 0.6], dtype=F64))
        assert gradients.decay_window(System(scale * Q @ lasting @ Q.mT, B, C)).rho == pytest.approx(scale)


@pytest.mark.guards("prop-lti-decay")
def test_of_two_poles_of_nearly_one_size_the_larger_one_makes_the_promise():
    B, C = torch.ones(2, 1, dtype=F64), torch.tensor([[0.1, 5.0]], dtype=F64)
    found = gradients.decay_window(
        System(torch.diag(torch.tensor([0.9, -0.9 * (1 - 1e-7)], dtype=F64)), B, C)
    )
    assert found.rho == pytest.approx(0.9, rel=1e-9) and found.floor == pytest.approx(0.1, rel=1e-6)


def seen_as_a_sum(A):
    """A system of one input and one output on turned states that sees all of A alike."""
    Q, ones = torch.linalg.qr(randn(*A.shape)).Q, torch.ones(len(A), 1, dtype=F64)
    return System(Q @ A @ Q.mT, Q @ ones, ones.mT @ Q.mT)


@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize(("m", "other"), [(2, 0.985 * 0.9), (3, 0.985 * 0.9), (3, 0.8), (5, -0.9), (6, -0.9)])
def test_the_rate_of_a_block_is_its_pole_and_not_a_part_that_rounding_splits_off(m, other):
    found = gradients.decay_window(seen_as_a_sum(torch.block_diag(jordan(m, 0.9), jordan(1, other))))
    assert found.nu == m + 1 and found.rho == pytest.approx(0.9, rel=1e-9)
    if other == -0.9:  # the simple pole of the same size makes its own promise, its residue 1
        assert found.floor >= 1 - 1e-6


@pytest.mark.guards("prop-lti-decay")
def test_two_close_poles_are_not_one_double_pole():
    close = torch.diag(torch.tensor([0.9, 0.9 * (1 - 2e-5)], dtype=F64))
    assert gradients.decay_window(seen_as_a_sum(close)).rho == pytest.approx(0.9, rel=1e-9)


@pytest.mark.guards("prop-lti-decay")
def test_the_degree_of_a_system_in_single_precision_has_its_tolerance():
    Q = torch.linalg.qr(randn(4, 4)).Q
    A = Q @ torch.diag(torch.tensor([0.9, 0.9, 0.5, 0.5], dtype=F64)) @ Q.mT
    assert gradients.decay_window(System(A.float(), torch.eye(4), torch.eye(4))).nu == 2
    near = System(
        torch.diag(torch.tensor([0.9, 0.8999], dtype=F64)), torch.eye(2).double(), torch.eye(2).double()
    )
    assert [gradients.decay_window(near, rtol=rtol).nu for rtol in (None, 1e-2)] == [2, 1]


@pytest.mark.guards("prop-lti-decay")
@pytest.mark.parametrize("seed", range(3))
def test_the_degree_of_powers_that_grow_first_is_told_beside_their_size(seed):
    """Rounding grows with the powers: what misses one of norm 1e3 by 1e-13 of it is no new direction."""
    steep = torch.tensor([[0.9, 1e3], [0.0, 0.8]], dtype=F64)
    Q, eye = torch.linalg.qr(randn(4, 4, seed=seed)).Q, torch.eye(4, dtype=F64)
    found = gradients.decay_window(System(Q @ torch.block_diag(steep, steep) @ Q.mT, eye, eye))
    assert found.nu == 2 and found.rho == pytest.approx(0.9, rel=1e-6)


@pytest.mark.guards("prop-lti-decay")
def test_the_rate_is_a_limsup_and_not_a_limit():
    A = torch.tensor([[0.0, 0.81], [1.0, 0.0]], dtype=F64)  # poles +-0.9; B, C see even lags only
    B, C = torch.tensor([[1.0], [0.0]], dtype=F64), torch.tensor([[1.0, 0.0]], dtype=F64)
    norms = lag_norms(A, B, C, 61)
    assert float(norms[1::2].max()) == 0.0
    assert torch.allclose(norms[::2], 0.9 ** torch.arange(0, 61, 2).double())
    fit = gradients.fit_log_slope(torch.arange(0, 61, 2), norms[::2])
    assert fit.slope == pytest.approx(math.log(0.9), rel=1e-9)


@pytest.mark.guards("prop-lti-decay")
def test_a_hidden_slow_mode_does_not_slow_the_lags():
    A = torch.diag(torch.tensor([0.5, 0.99], dtype=F64))
    B, C = torch.tensor([[1.0], [0.0]], dtype=F64), torch.tensor([[1.0, 1.0]], dtype=F64)
    fit = gradients.fit_log_slope(torch.arange(1, 60), lag_norms(A, B, C, 60)[1:])
    assert fit.slope == pytest.approx(math.log(0.5), rel=1e-9)  # rho of the minimal realization, not of A


@pytest.mark.guards("prop-jordan-decay")
@pytest.mark.parametrize("m", [1, 2, 3, 6])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95, 1.0])
def test_jordan_powers_stay_under_their_envelope_and_close_to_it(m, rho):
    tau = torch.arange(200)
    norms, envelope = gradients.power_norms(jordan(m, rho), 200), gradients.jordan_envelope(rho, m, tau)
    assert bool((norms <= envelope * (1 + 1e-10) + 1e-300).all())
    terms = [math.comb(150, k) * rho ** (150 - k) for k in range(m)]
    assert float(envelope[150]) == pytest.approx(sum(terms), rel=1e-11, abs=1e-300)
    if rho:
        assert float(norms[150]) >= max(terms) * (1 - 1e-12) and float(envelope[150]) <= 1.2 * float(
            norms[150]
        )


@pytest.mark.guards("prop-jordan-decay")
def test_jordan_systems_behind_a_change_of_basis():
    P = randn(5, 5, seed=3)
    J = torch.block_diag(jordan(3, 0.9), jordan(2, -0.7))
    A, B, C = P @ J @ torch.linalg.inv(P), randn(5, 2, seed=4), randn(3, 5, seed=5)
    size = math.prod(float(torch.linalg.matrix_norm(M, ord=2)) for M in (B, C))
    bound = size * float(torch.linalg.cond(P)) * gradients.jordan_envelope(0.9, 3, torch.arange(300))
    norms = lag_norms(A, B, C, 300)
    assert bool((norms <= bound).all())
    window = (150, 299)
    raw = gradients.fit_log_slope(torch.arange(300), norms, window=window).slope
    straight = norms[1:] / torch.arange(1, 300) ** 2
    fitted = gradients.fit_log_slope(torch.arange(1, 300), straight, window=window).slope
    assert fitted == pytest.approx(math.log(0.9), rel=0.02)
    assert raw == pytest.approx(math.log(0.9) + 2 / 220, rel=0.02) and abs(raw - math.log(0.9)) > 0.05 * abs(
        raw
    )


@pytest.mark.guards("prop-jordan-decay")
@pytest.mark.parametrize("L", [1, 2, 5])
def test_stacked_equal_poles_by_autograd(L):
    def stack(x):
        for _ in range(L):
            h, out = torch.zeros_like(x[..., 0, :]), []
            for t in range(x.shape[-2]):
                h = 0.9 * h + x[..., t, :]
                out.append(h)
            x = torch.stack(out, dim=-2)
        return x

    distances, norms = gradients.gradient_profile(stack, randn(60, 1))
    assert torch.allclose(norms, gradients.stacked_pole_kernel(0.9, L, distances), rtol=1e-12)
    exact = [math.comb(t + L - 1, L - 1) * 0.9**t for t in (0, 7, 59)]
    assert gradients.stacked_pole_kernel(0.9, L, torch.tensor([0, 7, 59])).tolist() == pytest.approx(
        exact, rel=1e-12
    )
    tau = torch.arange(500, 2000)
    kernel = gradients.stacked_pole_kernel(0.9, L, tau)
    fit = gradients.fit_log_slope(tau, kernel / tau.double() ** (L - 1))
    assert fit.slope == pytest.approx(math.log(0.9), rel=0.02)


def test_kernels_at_zero_rho_and_far_out():
    tau = torch.arange(4)
    assert gradients.stacked_pole_kernel(0.0, 3, tau).tolist() == [1, 0, 0, 0]
    assert gradients.jordan_envelope(0.0, 2, tau).tolist() == [1, 1, 0, 0]
    far = gradients.jordan_envelope(0.5, 200, 2000)
    exact = sum(math.comb(2000, k) * 2.0 ** (k - 2000) for k in range(200))
    assert float(far) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("kernel", [gradients.jordan_envelope, gradients.stacked_pole_kernel])
def test_rates_in_single_precision_are_worked_out_in_double(kernel):
    rates = torch.tensor([0.5, 0.9])
    found = torch.stack([kernel(rate, 3, torch.arange(200)) for rate in rates])
    wanted = torch.stack([kernel(float(rate), 3, torch.arange(200)) for rate in rates])
    assert found.dtype == F64 and torch.equal(found, wanted)
    late = kernel(rates, 3, 199)  # both at one lag
    assert late.dtype == F64 and torch.allclose(late, wanted[:, 199], rtol=1e-12, atol=0)


@pytest.mark.guards("prop-lti-decay")
@given(N=st.integers(2, 7), seed=st.integers(0, 10**6), rho=st.floats(0.2, 0.97), steep=st.floats(0.1, 30))
@settings(max_examples=40, deadline=None)
def test_the_hump_is_the_largest_power_of_all(N, seed, rho, steep):
    A = torch.triu(steep * randn(N, N, seed=seed), 1) + torch.diag(
        rho * (2 * torch.rand(N, generator=gen(seed)).double() - 1)
    )
    peak, place = gradients.transient_peak(A)
    norms = gradients.power_norms(A, place + 2000)
    assert peak == pytest.approx(float(norms.max()), rel=1e-9) and peak == pytest.approx(
        float(norms[place]), rel=1e-9
    )


@pytest.mark.guards("prop-lti-decay")
def test_transients_by_hand():
    A = torch.tensor([[0.5, 100.0], [0.0, 0.5]], dtype=F64)
    peak, place = gradients.transient_peak(A)
    assert place in (1, 2) and peak == pytest.approx(100.0, rel=0.01)
    short = 1 + int((gradients.power_norms(A, 50) > 1).sum())  # the first power that contracts
    assert gradients.transient_peak(A, max_steps=short) == (peak, place)
    with pytest.raises(ValueError, match="A must have a power"):
        gradients.transient_peak(A, max_steps=short - 1)
    level = torch.diag(torch.tensor([2.0, 1.0], dtype=F64), 1)  # norms 1, 2, 2, 0
    assert gradients.transient_peak(level) == (2.0, 1)
    Q = torch.linalg.qr(randn(6, 6)).Q
    assert gradients.transient_peak(Q) == (1.0, 0) and gradients.transient_peak(0.3 * Q) == (1.0, 0)
    assert gradients.power_norms(A, 0).shape == (0,)
    for n in (0, 3):
        assert gradients.power_norms(A.to(torch.complex128), n).dtype == F64
    with pytest.raises(ValueError, match="A must have a power"):
        gradients.transient_peak(jordan(2, 1.0), max_steps=500)
    with pytest.raises(ValueError, match="A must have a power"):
        gradients.transient_peak(1.5 * Q)


def test_bad_arguments_are_refused_by_name():
    A, B, C = randn(3, 3), randn(3, 2), randn(2, 3)

    def bound_of_block(k, size):
        eye = torch.eye(k, dtype=F64)
        return gradients.diagonalizable_bound(System(jordan(k, size), eye, eye), 3)

    bad = [
        (lambda: gradients.diagonalizable_bound(System(A[:2], B, C), 3), ValueError, "A must"),
        (lambda: gradients.diagonalizable_bound(System(A, B[:2], C), 3), ValueError, "B must"),
        (
            lambda: gradients.diagonalizable_bound(System(A, B.float(), C), 3),
            TypeError,
            "B must",
        ),
        (
            lambda: gradients.diagonalizable_bound(System(*(t.expand(2, *t.shape) for t in (A, B, C))), 3),
            ValueError,
            "system must be one",
        ),
        (lambda: gradients.diagonalizable_bound(System(A, B, C), -1), ValueError, "tau must be at least 0"),
        *[
            (lambda k=k, size=size: bound_of_block(k, size), ValueError, "A must be diagonalizable")
            for k in (2, 3)
            for size in (0.01, 0.5, 1.0, 3.0, 5.0, 90.0)
        ],
        (
            lambda: gradients.diagonalizable_bound(System(A * math.nan, B, C), 3),
            ValueError,
            "A must",
        ),
        (lambda: gradients.jordan_envelope(-0.1, 2, 3), ValueError, "rho must lie"),
        (lambda: gradients.jordan_envelope(0.5, 0, 3), ValueError, "m must be at least 1"),
        (lambda: gradients.stacked_pole_kernel(0.5, 1.5, 3), TypeError, "L must"),
        (lambda: gradients.stacked_pole_kernel(0.5, 1, 0.5), TypeError, "tau must"),
        (lambda: gradients.power_norms(A[:0, :0], 3), ValueError, "A must have at least one state"),
    ]
    for call, error, words in bad:
        with pytest.raises(error, match=words):
            call()


def test_what_overflows_or_needs_more_steps_is_said():
    eye = torch.eye(2, dtype=F64)
    assert gradients.power_norms(1e100 * eye, 4)[3] == pytest.approx(1e300)
    with pytest.raises(ValueError, match=r"n must be at most 4, before A\^4 overflows torch.float64; got 5"):
        gradients.power_norms(1e100 * eye, 5)
    with pytest.raises(ValueError, match=r"got powers that overflow torch.float64 at A\^4"):
        gradients.transient_peak(1e100 * eye)
    slow = jordan(2, 1 - 1e-4)
    with pytest.raises(ValueError, match=r"spectral radius 1 - 1\.0e-04; raise max_steps"):
        gradients.transient_peak(slow, max_steps=1000)
    assert gradients.transient_peak(slow, max_steps=200_000)[0] > 1000
    with pytest.raises(ValueError, match=r"least norm of 1\.6\d* and the spectral radius 1 - 0\.0e\+00$"):
        gradients.transient_peak(jordan(2, 1.0), max_steps=500)
    with pytest.raises(ValueError, match=r"n must be below 2\^63 in size, to fit 64 bits; got 1180"):
        gradients.required_margin(0.5, 2**70)
    with pytest.raises(TypeError, match="sink must be a number or a floating-point tensor; got bool"):
        gradients.softmax_row_weights(eye, eye, eye, sink=True)
    with pytest.raises(ValueError, match="the gradient of F must be finite"):
        gradients.gradient_profile(lambda x: (x - 1).abs().sqrt() * (x - 1), torch.ones_like(eye))
