"""Numbers in print that come from random draws hold on seeds that no page has seen."""

import torch
from helpers import F64, like

from ssmbook import systems
from ssmbook.systems import System


def heads_for_99_percent(lags):
    """How many heads hold 99 % of the energy, by the eigenvalues of a Gram matrix."""
    n, rows = len(lags), lags.flatten(1)
    energy = torch.linalg.eigvalsh(rows.T @ (torch.arange(n, 0, -1)[:, None] * rows)).flip(0)
    return int((1 - energy.cumsum(0) / energy.sum() > 0.01).sum()) + 1


def lags_from_modes(system, n):
    """C A^τ B as a sum over the eigenvalues of A."""
    poles, E = torch.linalg.eig(system.A)
    written = torch.linalg.solve(E, system.B + 0j)  # (N, d)
    return torch.einsum("tn,pn,nd->tpd", poles ** torch.arange(n)[:, None], system.C.to(E) @ E, written).real


def test_a_random_system_with_64_states_takes_about_15_heads_for_99_percent():
    drawn = (systems.random_stable(64, 8, 8, rho=0.99, **like(seed)) for seed in range(1000, 1300))
    counts = sorted(heads_for_99_percent(lags_from_modes(system, 512)) for system in drawn)
    assert [counts[at] for at in (75, 150, 225)] == [13, 15, 16]
    assert 7 <= counts[0] and counts[-1] <= 22


def test_with_the_poles_of_s4d_or_legs_the_draw_hardly_matters():
    modes = systems.real_modes(systems.s4d_lin(64, dtype=torch.complex128))
    for A, middle, spread in ((modes, 45, 2), (systems.hippo_legs(64, dtype=F64)[0], 32, 3)):
        counts = []
        for seed in range(1000, 1015):
            new = like(seed)
            B, C = torch.randn(64, 8, **new), torch.randn(8, 64, **new)
            counts.append(heads_for_99_percent(System(A, B, C).discretize(0.01).lags(512)))
        assert abs(sorted(counts)[7] - middle) <= 1
        assert middle - spread <= min(counts) and max(counts) <= middle + spread
