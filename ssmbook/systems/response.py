"""What a system does: its spectral radius, its stability, its response to a frequency."""

from __future__ import annotations

import torch

from ssmbook._checks import check_tensors
from ssmbook.numerics import in_single


@in_single
def spectral_radius(A: torch.Tensor) -> torch.Tensor:
    """rho, the largest modulus of an eigenvalue of A.

    A (..., N, N), real or complex -> real (...), same precision; 0 for N = 0. Raises TypeError/ValueError
    for a non-square or non-finite A. Introduced in *structured-dynamics*.

    >>> spectral_radius(torch.tensor([[0.0, -0.9], [0.9, 0.0]]))
    tensor(0.9000)
    """
    if check_tensors(A=(A, "... N N"), finite=True, complex_ok=True)["N"] == 0:
        return torch.zeros(A.shape[:-2], dtype=A.dtype.to_real(), device=A.device)
    return torch.linalg.eigvals(A).abs().amax(dim=-1)


def frequency_response(A, B, C, D, angles: torch.Tensor) -> torch.Tensor:
    """C (I - e^(-iw) A)^(-1) B + D at each angle, of checked matrices: see `System.response`."""
    check_tensors(angles=(angles, "m"), finite=True)
    dtype = torch.promote_types(A.dtype, torch.complex64)
    turn = torch.exp(-1j * angles.to(A.device, dtype.to_real()))[:, None, None].to(dtype)
    A, B, C = (part.to(dtype).unsqueeze(-3) for part in (A, B, C))
    eye = torch.eye(A.shape[-1], dtype=dtype, device=A.device)
    inside = (eye - turn * A).expand(*A.shape[:-3], len(angles), *A.shape[-2:])
    states, info = torch.linalg.solve_ex(inside, B.expand(*inside.shape[:-1], B.shape[-1]))
    if bool((info != 0).any()):
        raise ValueError("angles must avoid the eigenvalues of A on the unit circle; got one of them")
    return C @ states if D is None else C @ states + D.to(dtype).unsqueeze(-3)
