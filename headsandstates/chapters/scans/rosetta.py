"""One linear time-invariant map in seven forms, in three precisions, under one set of rules.

Parameters and inputs are rounded once, to the dtype of the run, before any form sees them. Kernels,
matrices and coefficients are stored in that dtype. In bfloat16 products and states are kept in float32.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ssmbook.heads import head_count
from ssmbook.numerics import toeplitz
from ssmbook.scans import lti_kernel, lti_scan, lti_scan_naive
from ssmbook.systems import System, rotation


def _wide(*tensors: Tensor) -> list[Tensor]:
    return [t.float() if t.dtype == torch.bfloat16 else t for t in tensors]


def _stored(kept: Tensor, x: Tensor) -> Tensor:
    return _wide(kept.to(x.dtype))[0]


def _kernel(A, B, C, x):
    return _stored(lti_kernel(*_wide(A, B, C), len(x)), x)


def recurrence(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    """h_t = A h_{t-1} + B x_t, y_t = C h_t, one step at a time."""
    return lti_scan_naive(A, B, C, x)[0]


def convolution(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    """y_t = sum over tau of M_tau x_{t - tau}, one lag at a time, from a stored kernel."""
    M, x = _kernel(A, B, C, x), _wide(x)[0]
    y = x.new_zeros(len(x), C.shape[0])
    for tau in range(len(x)):
        y[tau:] += x[: len(x) - tau] @ M[tau].T
    return y


def fourier(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    """The same convolution by the fast Fourier transform; NaN in bfloat16, for which there is none."""
    if x.dtype == torch.bfloat16:
        return x.new_full((len(x), len(C)), torch.nan)
    size, kernel = 2 * len(x), lti_kernel(A, B, C, len(x))
    spectrum = torch.einsum("fpd,fd->fp", torch.fft.rfft(kernel, size, 0), torch.fft.rfft(x, size, 0))
    return torch.fft.irfft(spectrum, size, 0)[: len(x)]


def associative(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    """The doubling scan of the pairs (A, B x_t)."""
    A, B, C, x = _wide(A, B, C, x)
    P, h, shift = A.expand(len(x), *A.shape), x @ B.T, 1
    while shift < len(x):
        h = torch.cat((h[:shift], h[shift:] + (P[shift:] @ h[:-shift, :, None])[..., 0]))
        P, shift = torch.cat((P[:shift], P[shift:] @ P[:-shift])), 2 * shift
    return h @ C.T


def chunked(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    """A kernel inside each chunk, a state between chunks."""
    return lti_scan(A, B, C, x, method="chunked")[0]


def matrix(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    """The stored semiseparable matrix W times the sequence."""
    W = toeplitz(_kernel(A, B, C, x), dim=-3)
    return torch.einsum("ijpd,jd->ip", W, _wide(x)[0])


def heads(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    """The k attention heads that equal the system, coefficients and value maps stored."""
    system, n = System(A, B, C).double(), len(x)
    found = system.operator(n).best_heads(head_count(system, n).value)
    mixed = torch.einsum("hij,jd->hid", _stored(found.alpha, x), _wide(x)[0])
    return torch.einsum("hid,hpd->ip", mixed, _stored(found.V, x))


def narrow_state(A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> Tensor:
    """The recurrence with its state in the dtype of x, whatever that is."""
    h, y = x.new_zeros(A.shape[0]), []
    for x_t in x:
        h = A @ h + B @ x_t
        y.append(C @ h)
    return torch.stack(y)


FORMS = {
    "recurrence": recurrence,
    "convolution": convolution,
    "Fourier": fourier,
    "associative scan": associative,
    "chunked": chunked,
    "matrix": matrix,
    "attention heads": heads,
}
"""Name -> form(A (N, N), B (N, d), C (p, N), x (n, d)) -> y (n, p), all of one dtype."""


def relative_error(form: Callable, A: Tensor, B: Tensor, C: Tensor, x: Tensor) -> float:
    """Largest error of a form, relative to the largest output of the float64 recurrence of the same system.

    The inputs are compared as they are after rounding, and the result of the form is rounded to their dtype.
    """
    truth = lti_scan_naive(A.double(), B.double(), C.double(), x.double())[0]
    got = form(A, B, C, x).to(x.dtype).double()
    return float((got - truth).abs().max() / truth.abs().max())


def rosetta_matrix(
    forms: dict[str, Callable],
    dtypes: Sequence[torch.dtype],
    rhos: Sequence[float],
    lengths: Sequence[int],
    generator: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """Relative errors of every form on the rotation rho R(0.7), B = C = I, and normal inputs.

    Returns dtype name -> (forms, len(rhos) * len(lengths)) float64, lengths running fastest.
    """
    errors = {}
    for dtype in dtypes:
        columns = []
        for rho in rhos:
            A = (rho * rotation(torch.tensor(0.7, dtype=torch.float64))).to(dtype)
            eye = torch.eye(2, dtype=dtype)
            for n in lengths:
                x = torch.randn(n, 2, generator=generator, dtype=torch.float64).to(dtype)
                columns.append([relative_error(form, A, eye, eye, x) for form in forms.values()])
        errors[str(dtype).removeprefix("torch.")] = torch.tensor(columns, dtype=torch.float64).T
    return errors
