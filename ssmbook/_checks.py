"""Argument checks shared by the library: a failure names the argument, what came and what was wanted."""

from __future__ import annotations

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
