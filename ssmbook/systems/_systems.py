"""Checks that every function on a state space system shares."""

from __future__ import annotations

import math

import torch

from ssmbook._checks import check_alike, check_finite, check_shape


def check_system(A, B=None, C=None, D=None, *, batched: bool = True) -> dict[str, int]:
    """Hold A, B, C, D to one system of one dtype, device and batch shape; returns the sizes N, d, p."""
    lead = "... " if batched else ""
    given = {"A": A, "B": B, "C": C, "D": D}
    patterns = {"A": "N N", "B": "N d", "C": "p N", "D": "p d"}
    given = {name: value for name, value in given.items() if value is not None}
    sizes: dict[str, int] = {}
    for name, value in given.items():
        sizes = check_shape(name, value, lead + patterns[name], sizes, complex_ok=True)
    check_alike(**given)
    for name, value in given.items():
        check_finite(name, value)
        if value.shape[:-2] != A.shape[:-2]:
            wanted, got = tuple(A.shape[:-2]), tuple(value.shape[:-2])
            raise ValueError(f"{name} must have the batch shape of A, {wanted}; got {got}")
    return sizes


def check_positive(name: str, value, *, zero_ok: bool = False) -> float:
    """Refuse anything but a finite positive Python number (``zero_ok``: or 0) and return it as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a Python number; got {type(value).__name__}")
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero_ok):
        raise ValueError(f"{name} must be finite and {'at least 0' if zero_ok else 'positive'}; got {value}")
    return float(value)


def double(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64 or complex128: the precision in which ranks are decided."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def default_rtol(tensor: torch.Tensor, rtol: float | None, factor: float) -> float:
    """``rtol`` if given, else ``factor`` rounding units of the tensor's own dtype: its data are no better."""
    if rtol is None:
        return factor * torch.finfo(tensor.dtype).eps
    return check_positive("rtol", rtol, zero_ok=True)
