"""Two systems that the chapter draws: a mass on a spring, and the modes that S4D starts from."""

import torch
from torch import Tensor

from ssmbook.systems import System, hippo_legs


def mass_on_spring(mass: float, damping: float, stiffness: float, *, dtype=torch.float32) -> System:
    """A mass on a damped spring, pushed by a force, seen by its position: m q'' + c q' + k q = x, y = q.

    A continuous-time `System` with the state (q, q'); `System.discretize` takes its steps.

    >>> swing = mass_on_spring(mass=1.0, damping=0.0, stiffness=4.0)
    >>> torch.linalg.eigvals(swing.A).imag.abs()  # two radians per second
    tensor([2.0000, 2.0000])
    """
    A = torch.tensor([[0.0, 1.0], [-stiffness / mass, -damping / mass]], dtype=torch.float64)
    B = torch.tensor([[0.0], [1.0 / mass]], dtype=torch.float64)
    C = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    return System(A, B, C).to(dtype)


def s4d_legs(N: int) -> tuple[Tensor, Tensor]:
    """S4D-LegS: eigenvalues of HiPPO-LegS's normal part, one of each conjugate pair, and B in that basis.

    Returns lam (N/2,), real part -1/2 and growing positive imaginary part, and B (N/2, 1), complex128, for an
    even N; `real_modes` gives back N real states. Source: `gu2022parameterization`.

    >>> lam, B = s4d_legs(4)
    >>> lam.shape, [round(value, 4) for value in lam.real.tolist()]
    (torch.Size([2]), [-0.5, -0.5])
    """
    A, B = hippo_legs(N, dtype=torch.float64)
    # A = -I/2 + skew - P P^T with P = B / sqrt(2): all but the last, of rank one, is the normal part.
    skew = (A.tril(-1) - A.tril(-1).mT) / 2
    # i * skew is Hermitian: eigh keeps the basis unitary, which a general eigensolver does not promise.
    values, vectors = torch.linalg.eigh(1j * skew.to(torch.complex128))
    # skew v = -i values v: negative values are the positive frequencies, largest first.
    pairs = slice(0, N // 2)
    lam = torch.complex(torch.full((N // 2,), -0.5, dtype=torch.float64), -values[pairs]).flip(0)
    return lam, (vectors[:, pairs].mH @ B.to(torch.complex128)).flip(0)
