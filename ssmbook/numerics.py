"""Numbers that the whole library shares: one rule of tolerance, one report of a rank, scalar functions."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from ssmbook._checks import check_finite, check_number, check_tensor

# Below this modulus phi1 is summed as a series: expm1(z)/z is accurate there, but its
# derivatives cancel.
_SERIES_RADIUS = 1.0
_SERIES_TERMS = 20
HALF = (torch.float16, torch.bfloat16)


def default_rtol(dtype: torch.dtype) -> float:
    """Return the share of the largest singular value at which others count as zero, for this real ``dtype``.

    1e-10 for float64 and 16 machine epsilons for shorter types (1.9e-6 for float32):
    entries that were rounded once put the noise near one epsilon of the largest singular
    value.

    >>> default_rtol(torch.float64), f"{default_rtol(torch.float32):.2g}"
    (1e-10, '1.9e-06')
    """
    return 1e-10 if dtype == torch.float64 else 16 * torch.finfo(dtype).eps


def tolerance(rtol: float | None, dtype: torch.dtype) -> float:
    """Return the caller's relative tolerance, or the default for the dtype of the data."""
    return default_rtol(dtype.to_real()) if rtol is None else check_number("rtol", rtol, 0, 1)


def numerical_rank(
    singular_values: torch.Tensor, rtol: float, scale: torch.Tensor | float | None = None
) -> int | torch.Tensor:
    """Count the singular values (..., m) above ``rtol`` times the largest, or times ``scale``.

    Returns an ``int`` when unbatched, else int64 of shape (...). A zero matrix has rank 0.
    Raises ``ValueError`` for values that are not finite.

    >>> numerical_rank(torch.tensor([5.0, 1e-3, 1e-9]), rtol=1e-6)
    2
    """
    check_finite("singular_values", singular_values)
    if scale is None:
        scale = torch.nn.functional.pad(singular_values, (0, 1)).amax(-1)
    threshold = rtol * torch.as_tensor(scale).to(singular_values)
    return item_if_scalar((singular_values > threshold[..., None]).sum(-1))


def item_if_scalar(value: torch.Tensor):
    """Return the Python number of a 0-dimensional tensor, and any other tensor as it is."""
    return value.item() if value.dim() == 0 else value


@dataclass(frozen=True, eq=False)
class RankReport:
    """A rank with the singular values it was read from, so that a close call can be seen.

    ``gap`` is the last singular value kept over the first one dropped: infinite when
    nothing, or an exact zero, was dropped, or nothing was kept. ``int(report)`` is the rank.

    Parameters
    ----------
    rank : int or Tensor (...)
        int64 for a batch.
    spectrum : Tensor (..., m)
        The singular values in float64, descending.
    rtol : float
        The share of the largest that a singular value had to exceed.
    high : int or Tensor (...), optional
        What the rank may be at most, where rounding leaves it open.

    Examples
    --------
    >>> report = DenseOperator(torch.tensor([[[[3.0, 0.0], [0.0, 2.0]]]])).rank_report()
    >>> int(report), round(report.rtol, 8), report.gap  # nothing was dropped
    (1, 1.91e-06, inf)
    """

    rank: int | torch.Tensor
    spectrum: torch.Tensor
    rtol: float
    high: int | torch.Tensor | None = field(default=None, kw_only=True)

    def __int__(self) -> int:
        return int(self.rank)

    @property
    def gap(self) -> float | torch.Tensor:
        counts = torch.as_tensor(self.rank, device=self.spectrum.device)[..., None]
        one = self.spectrum.new_full((*self.spectrum.shape[:-1], 1), torch.inf)
        last = torch.cat([one, self.spectrum], dim=-1).gather(-1, counts)[..., 0]
        first = torch.cat([self.spectrum, torch.zeros_like(one)], dim=-1).gather(-1, counts)[..., 0]
        return item_if_scalar(last / first)


def rank_report(spectrum: torch.Tensor, rtol: float, scale: torch.Tensor | float | None = None) -> RankReport:
    """Return the `RankReport` of a descending spectrum (..., m), cut as in `numerical_rank`.

    >>> report = rank_report(torch.tensor([5.0, 1e-3, 1e-9]), rtol=1e-6)
    >>> report.rank, round(report.gap)
    (2, 1000000)
    """
    return RankReport(numerical_rank(spectrum, rtol, scale), spectrum, rtol)


def norms(rows: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean norms (...) of rows (..., m), also where the squares of entries leave the range.

    >>> norms(torch.tensor([3e30, 4e30]))
    tensor(5.0000e+30)
    """
    size = torch.nn.functional.pad(rows.detach().abs(), (0, 1)).amax(-1, keepdim=True)
    size = torch.where((size > 0) & size.isfinite(), size, 1.0)
    return torch.linalg.vector_norm(rows / size, dim=-1) * size.squeeze(-1)


def toeplitz(values: torch.Tensor, n: int | None = None, dim: int = -1) -> torch.Tensor:
    """Replace dimension ``dim`` (negative, of size L) by two, (n, n), with entry i - j of its L at (i, j).

    Zero where i - j is negative or at least L; n >= L (default: L). ``values`` of any
    dtype.
    """
    L = values.shape[dim]
    n = L if n is None else n
    shape = list(values.shape)
    shape[dim] = 1
    i = torch.arange(n, device=values.device)
    lag = i[:, None] - i[None, :]
    index = torch.where((lag >= 0) & (lag < L), lag, L)
    spread = torch.cat([values, values.new_zeros(shape)], dim=dim).index_select(dim, index.flatten())
    return spread.unflatten(dim, (n, n))


def to_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in float64 or complex128, the precision in which ranks are decided."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def half_to_float32(value):
    """Return a tensor or `System` in half precision as float32, and anything else as it is."""
    return value.to(torch.float32) if getattr(value, "dtype", None) in HALF else value


def autocasts(device: str) -> bool:
    """Return whether autocast is on for a kind of device."""
    known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(device)
    return known and torch.is_autocast_enabled(device)


def without_autocast(device: str) -> AbstractContextManager:
    """Return a context in which autocast rounds nothing: for what a recurrence adds up or a count decides."""
    return torch.autocast(device, enabled=False) if autocasts(device) else nullcontext()


def sink_softmax(logits: torch.Tensor, sink: float | None = 0.0) -> torch.Tensor:
    """Return the softmax of logits (..., m) beside a sink, a further key with this logit and the value 0.

    The weights of a row sum to less than 1, because the sink takes the rest. None: without
    a sink.

    >>> sink_softmax(torch.zeros(3))
    tensor([0.2500, 0.2500, 0.2500])
    """
    if sink is None:
        return torch.softmax(logits, -1)
    return torch.softmax(torch.nn.functional.pad(logits, (0, 1), value=sink), -1)[..., :-1]


def phi1(z: torch.Tensor) -> torch.Tensor:
    """Return φ₁(z) = (e^z − 1)/z entry by entry, with φ₁(0) = 1: the mean of e^{sz} over 0 ≤ s ≤ 1.

    This is the factor between the inputs of the Euler step and of the zero-order hold. z
    (...), real or complex; the result and its derivatives are accurate near 0, too. Source:
    `gu2022efficiently`.

    >>> phi1(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 1.7183])
    """
    check_tensor("z", z, complex_ok=True)
    near = z.abs() < _SERIES_RADIUS
    # Each branch gets a safe argument where the other one is used, so that no gradient is
    # NaN.
    small, large = torch.where(near, z, 0.0), torch.where(near, 1.0, z)
    series = torch.ones_like(z)
    for k in range(_SERIES_TERMS, 1, -1):
        series = 1 + series * small / k
    return torch.where(near, series, torch.expm1(large) / large)
