"""Real arguments that may be a number or a tensor."""

from __future__ import annotations

import torch

from ssmbook._checks import check_finite, check_tensor


def as_real(
    name: str, value, *, low: float | None = None, high: float | None = None, open_ends=True, like=None
) -> torch.Tensor:
    """A real tensor (kept) or a number (float64, or as ``like``), finite and inside the ends."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        standard = torch.empty(0, dtype=torch.float64) if like is None else like
        value = torch.tensor(float(value), dtype=standard.dtype, device=standard.device)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a number or a floating-point tensor; got {type(value).__name__}")
    check_tensor(name, value)
    check_finite(name, value)
    below = low is not None and bool(((value <= low) if open_ends else (value < low)).any())
    above = high is not None and bool(((value >= high) if open_ends else (value > high)).any())
    if below or above:
        left, right = ("(", ")") if open_ends else ("[", "]")
        left, low = (left, low) if low is not None else ("(", "-inf")
        right, high = (right, high) if high is not None else (")", "inf")
        outside = float(value.min()) if below else float(value.max())
        raise ValueError(f"{name} must lie in {left}{low}, {high}{right}; got {outside}")
    return value


def as_count(name: str, value, *, low: int) -> torch.Tensor:
    """An int or an integer tensor, every entry at least ``low``, as an integer tensor."""
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= 2**63:
            raise ValueError(f"{name} must be below 2^63 in size, to fit 64 bits; got {value}")
        value = torch.tensor(value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be an int or an integer tensor; got {type(value).__name__}")
    if value.dtype == torch.bool or value.is_floating_point() or value.is_complex():
        raise TypeError(f"{name} must be an int or an integer tensor; got dtype {value.dtype}")
    if bool((value < low).any()):
        raise ValueError(f"{name} must be at least {low}; got {int(value.min())}")
    return value


def together(first_name: str, first: torch.Tensor, second_name: str, second: torch.Tensor) -> None:
    """Two tensors meant elementwise have equal shapes, or one of them is a single number."""
    if first.ndim and second.ndim and first.shape != second.shape:
        raise ValueError(
            f"{second_name} must be a number or have the shape of {first_name}, {tuple(first.shape)}; "
            f"got {tuple(second.shape)}"
        )
