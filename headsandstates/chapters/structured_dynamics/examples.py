"""Two systems that the chapter draws: a mass on a spring, and the modes that S4D starts from."""

import torch
from torch import Tensor

from ssmbook.systems import System, hippo_legs


def mass_on_spring(mass: float, damping: float, stiffness: float, *, dtype=torch.float32) -> System:
    """A mass on a damped spring in continuous time: m q'' + c q' + k q = x, y = q; the state is (q, q')."""
    A = torch.tensor([[0.0, 1.0], [-stiffness / mass, -damping / mass]], dtype=torch.float64)
    B = torch.tensor([[0.0], [1.0 / mass]], dtype=torch.float64)
    C = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    return System(A, B, C, dt=0).to(dtype)


def s4d_legs(N: int) -> Tensor:
    """S4D-LegS (`gu2022parameterization`): N/2 eigenvalues of HiPPO-LegS's normal part, one of each pair.

    They are complex128, with growing positive imaginary parts; N is even.
    """
    A, _ = hippo_legs(N, dtype=torch.float64)
    # A = -I/2 + skew - P P^T with P = B / sqrt(2): all but the last, of rank one, is the normal part.
    skew = (A.tril(-1) - A.tril(-1).mT) / 2
    frequencies = torch.linalg.eigvalsh(1j * skew)[N // 2 :]  # ascending, in pairs of either sign
    return torch.complex(torch.full_like(frequencies, -0.5), frequencies)
