"""Argument checks shared by the library: a failure names the argument, what came and what was wanted."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch


def check_tensor(name: str, value, *, complex_ok: bool = False) -> None:
    """Refuse anything but a floating-point tensor (or complex, if allowed) with a ``TypeError``."""
    wanted = "a floating-point or complex torch.Tensor" if complex_ok else "a floating-point torch.Tensor"
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be {wanted}; got {type(value).__name__}")
    if not (value.is_floating_point() or (complex_ok and value.is_complex())):
        raise TypeError(f"{name} must be {wanted}; got dtype {value.dtype}")


def check_shape(
    name: str,
    value: torch.Tensor,
    pattern: str,
    sizes: Mapping[str, int] | None = None,
    *,
    complex_ok: bool = False,
) -> dict[str, int]:
    """Hold a tensor to a shape written in the book's letters and return the sizes of those letters.

    ``pattern`` lists dimensions separated by spaces: a letter (any size, the same wherever it recurs), a
    number (exactly that size), or a leading ``...`` (any batch shape). ``sizes`` binds letters beforehand.

    >>> check_shape("x", torch.zeros(2, 5, 3), "... n d", {"d": 3})
    {'d': 3, 'n': 5}

    Raises ``TypeError`` for a non-tensor or an integer dtype, ``ValueError`` for a wrong shape.
    """
    check_tensor(name, value, complex_ok=complex_ok)
    dims = pattern.split()
    batched = dims[0] == "..."
    dims = dims[1:] if batched else dims
    bound = dict(sizes or {})
    shape = tuple(value.shape)
    fits = len(shape) >= len(dims) if batched else len(shape) == len(dims)
    if fits:
        for dim, size in zip(dims, shape[len(shape) - len(dims) :], strict=True):
            wanted = int(dim) if dim.isdigit() else bound.setdefault(dim, size)
            fits = fits and wanted == size
    if not fits:
        known = ", ".join(f"{k} = {v}" for k, v in (sizes or {}).items() if k in dims)
        wanted = (
            "(" + ", ".join((["..."] if batched else []) + dims) + ")" + (f" with {known}" if known else "")
        )
        raise ValueError(f"{name} must have shape {wanted}; got {shape}")
    return bound


def check_alike(**tensors: torch.Tensor) -> None:
    """Refuse tensors whose dtype (``TypeError``) or device (``ValueError``) is not that of the first."""
    (first, standard), *others = tensors.items()
    for name, tensor in others:
        if tensor.dtype != standard.dtype:
            raise TypeError(f"{name} must have the dtype of {first}, {standard.dtype}; got {tensor.dtype}")
        if tensor.device != standard.device:
            raise ValueError(
                f"{name} must be on the device of {first}, {standard.device}; got {tensor.device}"
            )


def check_matrices(A, B=None, C=None, D=None, *, batched: bool = True) -> None:
    """Hold A (N, N), B (N, d), C (p, N), D (p, d) to one system of one dtype, device and batch shape."""
    given = {"A": A, "B": B, "C": C, "D": D}
    given = {name: value for name, value in given.items() if value is not None or name == "A"}
    patterns = {"A": "N N", "B": "N d", "C": "p N", "D": "p d"}
    sizes: dict[str, int] = {}
    for name, value in given.items():
        pattern = ("... " if batched else "") + patterns[name]
        sizes = check_shape(name, value, pattern, sizes, complex_ok=True)
    check_alike(**given)
    for name, value in given.items():
        if value.shape[:-2] != A.shape[:-2]:
            wanted, got = tuple(A.shape[:-2]), tuple(value.shape[:-2])
            raise ValueError(f"{name} must have the batch shape of A, {wanted}; got {got}")
        check_finite(name, value)


def check_finite(name: str, tensor: torch.Tensor) -> None:
    """Refuse NaN and infinity with a ``ValueError`` that counts them."""
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise ValueError(f"{name} must be finite; got {bad} non-finite of {tensor.numel()} entries")


def check_integer(name: str, value, *, low: int, high: int | None = None) -> None:
    """Refuse anything but an ``int`` with ``low <= value <= high`` (``TypeError`` / ``ValueError``)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int; got {type(value).__name__}")
    if value < low or (high is not None and value > high):
        wanted = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ValueError(f"{name} must be {wanted}; got {value}")


def check_rtol(rtol, name: str = "rtol") -> None:
    """Refuse a tolerance that is not a number in [0, 1) (``TypeError`` / ``ValueError``)."""
    if isinstance(rtol, bool) or not isinstance(rtol, (int, float)):
        raise TypeError(f"{name} must be a number in [0, 1); got {type(rtol).__name__}")
    if not 0 <= rtol < 1:
        raise ValueError(f"{name} must be a number in [0, 1); got {rtol}")


def check_eps(eps) -> None:
    """Refuse an error that is not a finite number of at least 0 (``TypeError`` / ``ValueError``)."""
    if isinstance(eps, bool) or not isinstance(eps, (int, float)):
        raise TypeError(f"eps must be a number; got {type(eps).__name__}")
    if not (math.isfinite(eps) and eps >= 0):
        raise ValueError(f"eps must be finite and at least 0; got {eps}")


def check_positive(name: str, value, *, zero_ok: bool = False) -> float:
    """Refuse anything but a finite positive Python number (``zero_ok``: or 0) and return it as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a Python number; got {type(value).__name__}")
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero_ok):
        raise ValueError(f"{name} must be finite and {'at least 0' if zero_ok else 'positive'}; got {value}")
    return float(value)


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
