"""The system as a noun: what it refuses, what it keeps, and how it meets scipy and python-control."""

import control
import helpers
import numpy as np
import pytest
import scipy.signal
import torch
from helpers import F64, plain_lags

from headsandstates.chapters.gradient_highway import decay
from ssmbook import heads, maps
from ssmbook.systems import System


def random_system(N=3, d=2, p=4, *, skip=True, batch=()):
    parts = helpers.random_system(N, d, p, 0.5, 0, batch)
    return System(*(parts if skip else parts[:3]))


def test_sizes_and_parts():
    system = random_system(batch=(5, 6))
    assert (system.N, system.d, system.p, system.batch_shape) == (3, 2, 4, (5, 6))
    assert all(
        one is other for one, other in zip(system, (system.A, system.B, system.C, system.D), strict=True)
    )
    assert repr(system) == "System(N=3, d=2, p=4, batch=(5, 6), float64, with skip)"
    assert random_system(skip=False).D is None


def test_parts_that_do_not_fit_and_changes_in_place_are_refused():
    system = random_system()
    for change in (
        {"B": torch.zeros(2, 2, dtype=F64)},
        {"D": torch.zeros(4, 3, dtype=F64)},
        {"A": torch.full((3, 3), torch.nan, dtype=F64)},
        {"B": torch.zeros(7, 3, 2, dtype=F64)},
    ):
        with pytest.raises(ValueError):
            system.replace(**change)
    for change in ({"C": torch.zeros(4, 3)}, {"B": np.zeros((3, 2))}, {"E": torch.zeros(1)}):
        with pytest.raises(TypeError):
            system.replace(**change)
    with pytest.raises(AttributeError):
        system.A = system.A
    assert system.replace(D=None).D is None


def test_a_system_holds_copies_through_which_gradients_pass():
    parts = [part.requires_grad_() for part in random_system()]
    system = System(*parts)
    before = system.lags(3).detach()
    system.lags(3).sum().backward()
    assert all(part.grad.abs().sum() > 0 for part in parts)
    with torch.no_grad():
        parts[0].zero_(), parts[1].fill_(torch.nan)
    assert torch.equal(system.lags(3).detach(), before)


def test_dtype_and_detached():
    system = random_system(skip=False)
    assert system.to(torch.float32).dtype == torch.float32
    assert system.to(torch.complex64).double().dtype == torch.complex128
    skipping = random_system(batch=(2,))
    assert torch.equal(skipping.detach().D, skipping.D)


FILTERS = {
    "butter": scipy.signal.butter(4, 0.3),
    "cheby1": scipy.signal.cheby1(5, 1, 0.2),
    "pure delay": ([0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]),
    "gain": ([2.5], [1.0]),
    "one pole at 0": ([0.5, 1.0], [1.0, 0.0]),
}


@pytest.mark.filterwarnings("ignore::scipy.signal.BadCoefficients")  # of the delay's leading zeros
@pytest.mark.parametrize("name", FILTERS)
def test_lags_are_those_of_scipy(name):
    """scipy's own simulation of an impulse, for invertible and for singular state matrices."""
    foreign = scipy.signal.StateSpace(*scipy.signal.tf2ss(*FILTERS[name]), dt=1)
    wanted = scipy.signal.dimpulse(foreign, n=40)[1][0]
    found = plain_lags(System.from_scipy(foreign), 40)[:, :, 0].numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-12 * abs(wanted).max())
    ratio = scipy.signal.TransferFunction(*FILTERS[name], dt=1)  # has no matrices, and is asked for them
    np.testing.assert_allclose(plain_lags(System.from_scipy(ratio), 40)[:, :, 0].numpy(), found, atol=1e-10)


@pytest.mark.parametrize("singular", [False, True])
def test_many_channels_there_and_back(singular):
    system = random_system(N=4, d=3, p=2)
    if singular:
        system = system.replace(A=system.A - torch.outer(system.A[:, 0], torch.eye(4, dtype=F64)[0]))
    assert system.to_scipy().dt is True
    assert np.allclose(system.replace(D=None).to_scipy().D, system.C @ system.B, atol=1e-14)
    foreign = system.replace(dt=0.5).to_scipy()
    u = np.random.default_rng(0).standard_normal((25, 3))
    simulated = scipy.signal.dlsim(foreign, u)[1]
    ours = torch.zeros(25, 2, dtype=F64)
    for tau, lag in enumerate(plain_lags(system, 25)):
        ours[tau:] += torch.as_tensor(u[: 25 - tau]) @ lag.mT
    np.testing.assert_allclose(simulated, ours.numpy(), atol=1e-12)
    back = System.from_scipy(foreign)
    assert back.dt == 0.5
    assert back.N == (7 if singular else 4)
    torch.testing.assert_close(plain_lags(back, 30), plain_lags(system, 30), atol=1e-11, rtol=0)


def test_parameters_half_precision_and_mere_shapes_are_answered():
    system = random_system(skip=True)
    trained = System(*(part.clone().requires_grad_() for part in system))
    assert np.array_equal(trained.to_scipy().A, system.A.numpy())
    twice = System(0.5 * torch.eye(2), torch.ones(2, 1), torch.ones(1, 2)).to(torch.bfloat16)
    assert twice.minimal().N == 1 and twice.minimal().dtype == torch.bfloat16
    assert system.to("meta").lags(4).shape == system.lags(4).shape


def test_a_continuous_system_is_marked_and_sampled():
    """By scipy's own zero-order hold, whose output comes one token later but for D."""
    A, B, C, D = np.diag([-1.0, -2.0]), np.ones((2, 1)), np.ones((1, 2)), np.array([[3.0]])
    for given in (scipy.signal.StateSpace(A, B, C, D), (A, B, C, D, None), control.ss(A, B, C, D)):
        system = System.from_scipy(given)
        assert system.dt == 0 and system.is_stable() and not system.replace(A=-system.A).is_stable()
        assert repr(system) == "System(N=2, d=1, p=1, float64, with skip, continuous)"
        held = system.discretize(0.1)
        assert held.dt == 0.1 and repr(held).endswith("skip, dt=0.1)")
        wanted = System.from_scipy(scipy.signal.cont2discrete((A, B, C, D), 0.1))
        np.testing.assert_allclose(held.replace(D=None).lags(11), wanted.lags(12)[1:], atol=1e-12)
        assert held.is_stable() and torch.equal(held.D, torch.tensor([[3.0]], dtype=F64))
    for wrong in (3.0, (A, B), "system"):
        with pytest.raises(TypeError):
            System.from_scipy(wrong)


CONTINUOUS = System(*torch.tensor([[[-1.0]], [[1.0]], [[1.0]]], dtype=F64), dt=0)


@pytest.mark.parametrize(
    "use",
    [
        lambda system: system.lags(3),
        lambda system: heads.head_count(system, 3),
        lambda system: heads.head_count(system, 3, "softmax"),
        lambda system: heads.head_count(system, 3, exact=True),
        lambda system: decay.diagonalizable_bound(system, 3),
        lambda system: decay.decay_window(system),
        maps.LTISSM,
    ],
)
def test_what_counts_or_scans_refuses_a_continuous_system(use):
    use(CONTINUOUS.discretize(0.1))
    with pytest.raises(ValueError, match="must be discrete; got a continuous one"):
        use(CONTINUOUS)


def test_the_time_step_stays_with_the_system():
    for dt in (0, 0.5, True):
        system = CONTINUOUS.replace(dt=dt)
        others = system.minimal(), system.double(), system.to(torch.float32), system.detach()
        assert all(other.dt == dt for other in others)
        there = system.to_control(), system.to_scipy()
        assert [foreign.dt for foreign in there] == [dt, dt or None]
        for foreign in there:
            back = System.from_control(foreign)
            assert back.dt == dt and torch.allclose(back.replace(dt=1).lags(5), system.replace(dt=1).lags(5))
    steps = torch.tensor([0.1, 0.2], dtype=F64)
    assert CONTINUOUS.discretize(steps).dt is CONTINUOUS.discretize(0).dt is True
    assert CONTINUOUS.discretize(steps[0]).dt == 0.1
    for wrong in (-1.0, False, "day"):
        with pytest.raises((TypeError, ValueError), match="dt must"):
            CONTINUOUS.replace(dt=wrong)


@pytest.mark.parametrize("singular", [False, True])
@pytest.mark.parametrize("dt", [True, 0.25])
def test_a_system_of_python_control_answers_as_it_does_there(singular, dt):
    """Its own simulation of a random input; a step of another length changes no lag."""
    A, B, C, D = (part.numpy() for part in random_system(N=4, d=3, p=2))
    if singular:
        A = A - np.outer(A[:, 0], np.eye(4)[0])
    foreign = control.ss(A, B, C, D, dt)
    u = np.random.default_rng(0).standard_normal((3, 20))
    wanted = control.forced_response(foreign, U=u).outputs
    found = plain_lags(System.from_control(foreign), 20).numpy()
    ours = sum(found[tau] @ np.pad(u, ((0, 0), (tau, 0)))[:, :20] for tau in range(20))
    np.testing.assert_allclose(ours, wanted, atol=1e-11)


def test_a_ratio_of_python_control_is_asked_for_its_matrices():
    ratio = control.tf([1.0, 2.0], [1.0, 0.5, 0.06], True)  # (z + 2) / (z^2 + z/2 + 3/50)
    wanted = scipy.signal.lfilter([0.0, 1.0, 2.0], [1.0, 0.5, 0.06], np.eye(1, 15)[0])
    np.testing.assert_allclose(plain_lags(System.from_control(ratio), 15).flatten(), wanted, atol=1e-13)


def test_hidden_states_are_dropped_and_the_skip_stays():
    system = random_system()
    wide = System(
        torch.block_diag(system.A, 0.7 * torch.eye(2, dtype=F64)),
        torch.cat([system.B, torch.zeros(2, 2, dtype=F64)]),
        torch.cat([system.C, torch.ones(4, 2, dtype=F64)], dim=1),
        system.D,
    )
    small = wide.minimal()
    assert small.N == 3
    torch.testing.assert_close(small.lags(12), plain_lags(system, 12))
    assert system.is_stable() and not wide.replace(A=2 * wide.A).is_stable()
    torch.testing.assert_close(wide.spectral_radius(), torch.tensor(0.7, dtype=F64))
