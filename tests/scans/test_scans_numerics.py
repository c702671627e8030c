"""How accurate the diagonal scan is, over decays that make it hard.

Error of a tensor: per channel, the largest deviation from the reference over time divided by the largest
absolute value of the reference; the worst channel counts. The reference runs the recurrence one step at a
time on the same numbers in numpy's long double (in float64, for float32 inputs and where long double is no
wider).
"""

import numpy as np
import pytest
import torch
from scan_examples import draw, with_gradients

from ssmbook.scans import diagonal_scan, selective_scan, selective_scan_naive

D = 4


DECAYS = {
    "near one": lambda u, v: 0.9 + 0.1 * u,
    "uniform": lambda u, v: u,
    "tiny": lambda u, v: 1e-6 * u,
    "softplus": lambda u, v: torch.exp(-torch.nn.functional.softplus(6 * u - 6)),
    "very near one": lambda u, v: 1 - 1e-4 * u,
    "constant": lambda u, v: torch.full_like(u, 0.99999),
    "one": lambda u, v: torch.ones_like(u),
    "with zeros": lambda u, v: (1 - 1e-4 * u) * (v > 0.003),
    "with resets": lambda u, v: torch.where(v > 0.01, 1 - 1e-4 * u, 1e-3 * u),
    "signed": lambda u, v: 2 * u - 1,
    "near minus one": lambda u, v: 1e-4 * u - 1,
    "minus constant": lambda u, v: torch.full_like(u, -0.99999),
    "growing in turn": lambda u, v: (0.5 + u) * 1e3 ** torch.tensor([1, -1]).repeat(len(u) // 2)[:, None],
    "rotations": lambda u, v: torch.polar(1 - 1e-4 * u, 6.0 * v),
    "one rotation": lambda u, v: torch.polar(torch.full_like(u, 0.99999), torch.full_like(u, 0.7)),
}


def decays(name, T, generator):
    return DECAYS[name](*torch.rand(2, T, D, generator=generator, dtype=torch.float64))


NAMES = tuple(DECAYS)
LOGARITHMS = NAMES[: NAMES.index("signed")]  # the others have no real ones
GOAL = {torch.float32: 1e-6, torch.float64: 1e-13}


def reference(a, b, state, d_h, d_end, log):
    """Outputs and all gradients of the recurrence, step by step in the widest float there is."""
    wide = np.clongdouble if a.is_complex() else np.longdouble
    a, b, state, d_h, d_end = (t.numpy().astype(wide) for t in (a, b, state, d_h, d_end))
    decay = np.exp(a) if log else a
    T = len(b)
    h, g = np.zeros_like(b), np.zeros_like(b)
    carry = state
    for t in range(T):
        h[t] = carry = decay[t] * carry + b[t]
    carry = d_end
    for t in reversed(range(T)):
        g[t] = carry = carry + d_h[t]
        carry = decay[t].conj() * carry
    grad_a = g * np.concatenate((state[None], h[:-1])).conj()
    return {"h": h, "end": h[-1:], "db": g, "da": grad_a * decay if log else grad_a, "dstate": carry[None]}


def error(got, wanted):
    scale = np.abs(wanted).max(0)
    deviation = np.abs(got.detach().numpy().reshape(wanted.shape).astype(wanted.dtype) - wanted).max(0)
    return float((deviation / np.where(scale > 0, scale, 1)).max())


def draws(a, dtype, log, generator):
    """a, b, state, and gradients of h and of the end; in the complex form of ``dtype`` where a is complex."""
    T, D = a.shape
    b, d_h = (torch.randn(T, D, generator=generator, dtype=a.dtype) for _ in range(2))
    state, d_end = (torch.randn(D, generator=generator, dtype=a.dtype) for _ in range(2))
    dtype = dtype.to_complex() if a.is_complex() else dtype
    return [t.to(dtype) for t in (a.log() if log else a, b, state, d_h, d_end)]


def scan_errors(a, dtype, log, generator):
    a, b, state, d_h, d_end = draws(a, dtype, log, generator)
    wanted = reference(a, b, state, d_h, d_end, log)
    leaves = [t.requires_grad_() for t in (a, b, state)]
    h, end = diagonal_scan(*leaves, log=log)
    da, db, dstate = torch.autograd.grad((h, end), leaves, (d_h, d_end))
    got = {"h": h, "end": end[None], "da": da, "db": db, "dstate": dstate[None]}
    return {key: error(got[key], wanted[key]) for key in wanted if key not in ("end", "dstate")} | {
        # A single value may be small by chance: it is held against the largest value of its own sequence.
        "end": error(
            torch.cat((end[None], h.detach().abs().amax(0)[None])),
            np.concatenate((wanted["end"], np.abs(wanted["h"]).max(0)[None])),
        ),
        "dstate": error(
            torch.cat((dstate[None], db.abs().amax(0)[None])),
            np.concatenate((wanted["dstate"], np.abs(wanted["db"]).max(0)[None])),
        ),
    }


CASES = [(name, log, 4096) for name in NAMES for log in (False, True) if not log or name in LOGARITHMS]
CASES += [(name, False, 65_536) for name in ("very near one", "constant", "one rotation")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name, log, T", CASES)
def test_relative_error_over_the_grid_of_decays(name, log, T, dtype):
    generator = torch.Generator().manual_seed(len(name) + T)
    for quantity, size in scan_errors(decays(name, T, generator), dtype, log, generator).items():
        assert size <= GOAL[dtype], (quantity, size)


@pytest.mark.parametrize("log", [False, True], ids=["decays", "logarithms"])
def test_relative_error_of_equal_gates(log):
    """Equal gates are rounded alike at every step: the errors add up."""
    gates = 1 - torch.logspace(-6, -2, 17, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for quantity, size in scan_errors(gates.expand(8192, 17), torch.float32, log, generator).items():
        assert size <= GOAL[torch.float32], (quantity, size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_free_decay_keeps_its_relative_accuracy_at_every_step(dtype):
    """From a state alone, h_t = a^t h_0 is right to a few digits even where it is 1e-30 of where it began."""
    T, a = 400, 0.84
    decay = torch.full((T, 1), a, dtype=dtype)
    h, _ = diagonal_scan(decay, torch.zeros(T, 1, dtype=dtype), torch.ones(1, dtype=dtype))
    exact = decay[0, 0].double() ** torch.arange(1, T + 1)
    assert ((h[:, 0].double() / exact - 1).abs().max()) < 400 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_fast_channel_keeps_its_relative_accuracy_beside_a_slow_one(dtype):
    """Products close to one and far below it in one call: each by the way that keeps its digits."""
    decay = torch.tensor([0.3, 0.9999], dtype=dtype)
    h, _ = diagonal_scan(decay.expand(64, 2), torch.zeros(64, 2, dtype=dtype), torch.ones(2, dtype=dtype))
    exact = decay.double() ** torch.arange(1, 65)[:, None]
    assert (h.double() / exact - 1).abs().max() < 100 * torch.finfo(dtype).eps


def test_a_memory_of_a_million_steps_in_float64():
    """A product of equal gates is rounded alike in every block: without care 1e-13, with it 1e-15."""
    T, generator = 65_536, torch.Generator().manual_seed(0)
    a = torch.full((T, 1), 1 - 1e-6, dtype=torch.float64)
    b, d_h = torch.randn(2, T, 1, dtype=torch.float64, generator=generator)
    state = d_end = torch.zeros(1, dtype=torch.float64)
    wanted = reference(a, b, state, d_h, d_end, False)
    b.requires_grad_()
    h, _ = diagonal_scan(a, b)
    (db,) = torch.autograd.grad(h, b, d_h)
    assert error(h, wanted["h"]) < 1e-14 and error(db, wanted["db"]) < 1e-14


@pytest.mark.parametrize("discretization", ["zoh", "mixed"])
def test_a_selective_scan_keeps_what_a_slow_decay_lacks_of_one(discretization):
    """In single precision these decays lie half-way between two numbers: off alike at every step."""
    x, one, b = 0.01 * draw(120, 1), torch.ones(120, 1), 1 + 0.1 * draw(120, 2)
    rates = -torch.tensor([[2.5, 4.5]]) / 2**24
    arguments = [t.float() for t in (x, one, rates, b, b.flip(-1), one[0], one[:2].mT)]
    found = with_gradients(lambda *t: selective_scan(*t, discretization=discretization), arguments)
    wide = [t.double() for t in arguments]
    wanted = with_gradients(lambda *t: selective_scan_naive(*t, discretization=discretization), wide)
    for i, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert (got - want).abs().max() <= 5e-7 * want.abs().max(), i
