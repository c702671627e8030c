"""The runs behind *learning-heads*: teachers as prescribed, gradients of samples, laws over training."""

import math

import pytest
import torch
from helpers import F64
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ssmbook.experiments import _data
from ssmbook.experiments._learning_heads import TEACHERS, _spectrum, conditioned_system
from ssmbook.experiments.students import class_systems
from ssmbook.heads import head_count, head_floor


@pytest.mark.parametrize(("k", "rho", "condition"), TEACHERS[::3])
def test_a_teacher_has_the_count_and_the_radius_asked_for(k, rho, condition):
    g = torch.Generator().manual_seed(k)
    system = conditioned_system(k, 4, 3, 20, rho=rho, condition=condition, generator=g)
    M = system.lags(20)
    assert math.isclose(float(torch.linalg.eigvals(system.A).abs().max()), rho, rel_tol=1e-9)
    assert head_count(M).value == k and float(head_floor(M)[k - 1]) >= 1e-4
    with pytest.raises(ValueError, match="least_share"):
        conditioned_system(k, 4, 3, 20, rho=rho, condition=condition, least_share=1.1, generator=g)


def test_the_step_on_samples_is_the_gradient_of_their_error():
    g = torch.Generator().manual_seed(0)
    n, p, d, batch = 5, 2, 3, 7
    missed = torch.randn(2, n * n, p * d, dtype=F64, generator=g)
    got = _data._sampled(
        missed, n, p, d, batch, {"generator": torch.Generator().manual_seed(1), "dtype": F64}
    )
    x = torch.randn(2, batch, n * d, dtype=F64, generator=torch.Generator().manual_seed(1)).unflatten(
        2, (n, d)
    )
    blocks = missed.clone().requires_grad_()
    y = torch.einsum("sijpd,sbjd->sbip", blocks.unflatten(1, (n, n)).unflatten(3, (p, d)), x)
    (wanted,) = torch.autograd.grad(y.square().sum() / (2 * batch), blocks)
    assert torch.allclose(got, wanted, rtol=1e-10)


def test_a_descent_warms_up_decays_and_cuts_its_gradients():
    """Over a tenth of the steps up to the rate, then down to nothing; no gradient is longer than 1."""
    model, rates, sizes = torch.nn.Linear(3, 1), [], []

    def watch(optimizer, *_):
        rates.append(optimizer.param_groups[0]["lr"])
        sizes.append(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()))

    handle = register_optimizer_step_pre_hook(watch)
    try:
        losses = _data.descend(
            model, lambda: 100 * model(torch.ones(1, 3)).square().sum(), steps=100, rate=0.2
        )
    finally:
        handle.remove()
    assert len(losses) == 100 and not losses[0].requires_grad and losses[-1] < losses[0]
    assert rates.index(max(rates)) in (9, 10) and max(rates) == pytest.approx(0.2, rel=0.01)
    assert rates[0] < 0.01 and rates[-1] < 0.001 and sorted(rates[10:], reverse=True) == rates[10:]
    assert max(sizes) == pytest.approx(1, rel=1e-4)


def test_the_rows_of_single_precision_lags_are_compared_in_double():
    M = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
    visible, rows, size = _data.visible_rows(M)
    assert rows.dtype == F64 and math.isclose(float(rows.norm()), 1, rel_tol=1e-14)
    i, j = visible.nonzero().T
    torch.testing.assert_close(size * rows, M[i - j].flatten(1).double(), rtol=1e-14, atol=0)


def test_heads_arrive_when_the_law_says():
    lags = torch.zeros(6, 2, 2, dtype=F64)
    lags[0, 0, 0], lags[1, 1, 1] = 1.0, 0.6
    run = _data.train_plain(lags, 3, seeds=2, steps=700, seed=0, records=200)
    for way in ("population", "samples"):
        assert run[way]["spectrum"].shape == (len(run["steps"]), 3)
    s0 = run["scale"] ** 2 * (1 + 36 / 4) / 4
    for r in (0, 1):
        s = float(run["sigma"][r])
        law = math.log(s / s0 - 1) / (2 * math.log1p(run["rate"] * s))
        for way in ("population", "samples"):
            row = run[way]["spectrum"][:, r]
            half = next(step for step, now in zip(run["steps"], row, strict=True) if now > s / 2)
            assert 0.75 * law < half < 1.25 * law


def test_with_much_data_the_error_is_floor_plus_parameters_times_noise():
    g = torch.Generator().manual_seed(2)
    M = conditioned_system(2, 2, 2, 6, rho=0.8, condition=1, least_share=0.05, generator=g).lags(6)
    run = _data.train_on_data(M, [1, 2], 2000, noise=0.5, seeds=4, steps=400, seed=3)
    floor = head_floor(M)
    for H, free, errors in zip(run["H"], run["free"], run["trained"], strict=True):
        rule = floor[H] + free * (0.5 + floor[H]) / (2000 * run["outputs"])
        assert abs(float(errors.mean() / rule) - 1) < 0.15


def test_the_pairwise_students_see_the_lags_they_are_asked_for():
    lags = torch.zeros(3, 1, 1, dtype=F64)
    lags[0] = 1.0  # y_i = x_i: one head with a coefficient that knows the lag
    run = _data.train_pairwise(lags, [1], seeds=1, steps=300, seed=0, hidden=16)
    assert float(run["trained"].max()) < 0.1


def test_the_systems_for_the_classes_count_differently():
    """Free coefficients need k heads; softmax with a sink as many only where a positive pole is."""
    systems = class_systems()
    poles = torch.linalg.eigvals(systems["positive poles"].A)
    assert sorted(poles.real.tolist()) == [0.5, 0.8, 0.95] and not poles.imag.any()
    angle = torch.linalg.eigvals(systems["rotation"].A).angle().abs()
    torch.testing.assert_close(angle, torch.full_like(angle, 0.7))
    first = torch.tensor([[1.11, -0.26], [0.8, 0.8]], dtype=F64)  # what the recorded students learned
    torch.testing.assert_close(systems["positive poles"].lags(1)[0], first)
    lags = {name: system.lags(20) for name, system in systems.items()}
    counts = {
        name: (head_count(M).value, head_count(M, coefficients="softmax").value) for name, M in lags.items()
    }
    assert counts == {"rotation": (2, 3), "positive poles": (3, 3), "turn and pole": (3, 3)}


def test_the_poles_of_s4d_are_learned_over_their_floor():
    given = {"spectrum": {"N": 6, "d": 2, "n": 12, "H": 2, "steps": 3}, "seeds": 2}
    found = _spectrum(given)
    assert found["states"] == 6 and found["floor"][0] == 1 and found["floor"][-1] < 1e-12
    for way in ("population", "samples"):
        assert (found[way]["error"] >= found["floor"][2]).all()
