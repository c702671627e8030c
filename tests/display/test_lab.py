"""The laboratory as a widget: what it is given, what it says, what it refuses."""

import pytest
import torch
from helpers import F64, gen

from headsandstates.lab import Lab
from ssmbook import System
from ssmbook.systems import jordan_block, random_stable


def test_the_system_that_is_read_back_has_the_lags_of_the_one_given():
    for seed, (N, d, p) in enumerate([(1, 1, 1), (4, 2, 3), (7, 4, 1), (8, 3, 4)]):
        system = random_stable(N, d, p, rho=0.95, generator=gen(seed), dtype=F64)
        if seed % 2:
            system = system.replace(D=torch.randn(p, d, generator=gen(seed), dtype=F64))
        lab = Lab(system, n=9)
        assert lab.n == 9 and lab.address.startswith("system&n=9&poles=")
        torch.testing.assert_close(lab.system.lags(9), system.lags(9), rtol=1e-9, atol=1e-10)


def test_what_comes_from_the_page():
    lab = Lab()
    lab.set_trait("matrices", {"A": [[0.5]], "B": [[1, 2]], "C": [[3], [1]], "n": 4})
    assert lab.n == 4 and lab.system.lags(2)[1].tolist() == [[1.5, 3.0], [0.5, 1.0]]
    lab.set_trait("matrices", {})
    with pytest.raises(ValueError, match="must show a state space model"):
        lab.system  # noqa: B018
    assert lab._esm.rstrip().endswith("};") and ".lab-board" in lab._css


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": jordan_block(2, 0.5).double()}, "distinct eigenvalues"),
        ({"A": torch.diag(torch.tensor([1.1, 0.5], dtype=F64))}, "size 1 at most; got 1.1"),
        ({"dt": 0}, "continuous"),
        ({"C": torch.ones(5, 2, dtype=F64)}, "4 outputs"),
    ],
)
def test_what_it_cannot_hold(change, message):
    eye = torch.eye(2, dtype=F64)
    parts = {"A": torch.diag(torch.tensor([0.9, 0.5], dtype=F64)), "B": eye, "C": eye}
    with pytest.raises(ValueError, match=message):
        Lab(System(**{**parts, **change}))
    with pytest.raises(ValueError, match="n must"):
        Lab(n=65)
