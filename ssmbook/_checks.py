"""Argument checks: an error names the argument, what came, and what was wanted.

Unless a docstring says otherwise, public functions take dense tensors in float16, bfloat16,
float32 or float64 (where complex is allowed, also complex64 and complex128). The tensors of
one call share dtype and device, and results come back in them. Nothing is cast or moved
silently. Scans, maps and operators compute half precision in float32 or wider; ranks and
counts are decided in float64. Functions that carry numbers (scans, maps, operators) pass
NaN and infinity on; functions that decide something from numbers refuse them.

The wrong kind of thing (type, dtype, layout) is a ``TypeError``, a wrong value of the right
kind a ``ValueError``. Each public function checks its arguments once, and what it calls
trusts them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real

import torch


def check_tensor(name: str, value, *, complex_ok: bool = False) -> None:
    """Refuse anything but a dense floating-point tensor (or complex, if allowed)."""
    wanted = "a floating-point or complex torch.Tensor" if complex_ok else "a floating-point torch.Tensor"
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be {wanted}; got {type(value).__name__}")
    dtype = value.dtype
    real = dtype.is_floating_point and dtype.itemsize > 1  # float8 has no arithmetic
    if not real and not (complex_ok and dtype.is_complex and dtype.itemsize > 4):
        raise TypeError(f"{name} must be {wanted}; got dtype {dtype}")
    if value.layout != torch.strided or value.is_nested:
        got = "a nested tensor" if value.is_nested else value.layout
        raise TypeError(f"{name} must be {wanted}, dense; got {got}")


def check_shape(
    name: str,
    value: torch.Tensor,
    pattern: str,
    sizes: Mapping[str, int] | None = None,
    *,
    complex_ok: bool = False,
) -> dict[str, int]:
    """Compare a tensor with a shape written in the book's letters and return the sizes of the letters.

    ``pattern`` lists dimensions separated by spaces: a letter (any size, the same wherever
    it recurs), a number (exactly that size), or a leading ``...`` (any batch shape).
    ``sizes`` binds letters beforehand.

    >>> check_shape("x", torch.zeros(2, 5, 3), "... n d", {"d": 3})
    {'d': 3, 'n': 5}
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
        known = ", ".join(f"{letter} = {size}" for letter, size in (sizes or {}).items() if letter in dims)
        wanted = "(" + ", ".join((["..."] if batched else []) + dims) + ")"
        raise ValueError(f"{name} must have shape {wanted}{f' with {known}' if known else ''}; got {shape}")
    return bound


def check_tensors(
    sizes: Mapping[str, int] | None = None,
    *,
    finite: bool = False,
    one_batch: bool = False,
    complex_ok: bool = False,
    **given: tuple[torch.Tensor, str],
) -> dict[str, int]:
    """Check several tensors, each with its pattern: shared letters, one dtype, one device.

    ``finite``: their entries, too; ``one_batch``: those of a pattern with ``...`` have the
    same batch shape. Returns the sizes of the letters; ``sizes`` binds some beforehand.

    >>> check_tensors(A=(torch.eye(2), "N N"), B=(torch.ones(2, 3), "N d"))
    {'N': 2, 'd': 3}
    """
    bound, batches = dict(sizes or {}), {}
    for name, (value, pattern) in given.items():
        bound = check_shape(name, value, pattern, bound, complex_ok=complex_ok)
        if pattern.startswith("..."):
            batches[name] = tuple(value.shape[: value.ndim - len(pattern.split()) + 1])
    check_same_dtype_device(**{name: value for name, (value, _) in given.items()})
    if one_batch:
        (first, wanted), *others = batches.items()
        for name, batch in others:
            if batch != wanted:
                raise ValueError(f"{name} must have the batch shape of {first}, {wanted}; got {batch}")
    for name, (value, _) in given.items() if finite else ():
        check_finite(name, value)
    return bound


def check_same_dtype_device(**tensors: torch.Tensor) -> None:
    """Refuse tensors whose dtype (``TypeError``) or device (``ValueError``) differs from the first one's."""
    (first, standard), *others = tensors.items()
    for name, tensor in others:
        if tensor.dtype != standard.dtype:
            raise TypeError(f"{name} must have the dtype of {first}, {standard.dtype}; got {tensor.dtype}")
        if tensor.device != standard.device:
            raise ValueError(
                f"{name} must be on the device of {first}, {standard.device}; got {tensor.device}"
            )


def check_finite(name: str, tensor: torch.Tensor) -> None:
    """Refuse NaN and infinity, and a tensor on ``meta``, which has no values to decide from."""
    if tensor.is_meta:
        raise ValueError(f"{name} must hold values; got a tensor on the device meta, a shape without them")
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise ValueError(f"{name} must be finite; got {bad} non-finite of {tensor.numel()} entries")


def shared_batch(**shapes) -> torch.Size:
    """Return the batch shape of the arguments: each has that shape or is unbatched.

    Sizes that would merely broadcast, such as ``(1,)`` against ``(3,)``, are refused.
    """
    owner, batch = "", torch.Size()
    for name, shape in shapes.items():
        if len(shape) and owner and tuple(shape) != tuple(batch):
            raise ValueError(
                f"{name} must have the batch shape of {owner}, {tuple(batch)}, or none; got {tuple(shape)}"
            )
        if len(shape):
            owner, batch = name, torch.Size(shape)
    return batch


def check_matrices(*, batched: bool = True, **matrices) -> None:
    """Check A (N, N), B (N, d), C (p, N) and D (p, d) or None: one dtype, device and batch shape, finite."""
    patterns = {"A": "N N", "B": "N d", "C": "p N", "D": "p d"}
    lead = "... " if batched else ""
    given = {name: (value, lead + patterns[name]) for name, value in matrices.items() if value is not None}
    check_tensors(one_batch=batched, complex_ok=True, **given)
    for name, (value, _) in given.items():
        if not value.is_meta:
            check_finite(name, value)


def check_integer(name: str, value, *, low: int, high: int | None = None) -> int:
    """Return the ``int`` that ``value`` is or stands for, ``low <= value <= high``."""
    if isinstance(value, torch.SymInt):  # a length that torch.export leaves open
        return value
    given = value.item() if isinstance(value, torch.Tensor) and value.ndim == 0 else value
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise TypeError(f"{name} must be an int; got {_kind(value)}")
    if given < low or (high is not None and given > high):
        wanted = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ValueError(f"{name} must be {wanted}; got {given}")
    return int(given)


def check_number(name: str, value, low: float, high: float = math.inf) -> float:
    """Return the number ``value`` as a float, ``low <= value < high``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number; got {_kind(value)}")
    if not low <= value < high:
        raise ValueError(f"{name} must lie in [{low}, {high}); got {value}")
    return float(value)


def check_flag(name: str, value) -> bool:
    """Refuse anything but True and False, such as a number that was meant for another argument."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False; got {_kind(value)}")
    return value


def check_choice(name: str, value, options: Iterable[str]) -> str:
    """Refuse a word that is none of the options, and list them."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}")
    return value


def as_real(
    name: str, value, *, low: float = -math.inf, high: float = math.inf, like: torch.Tensor | None = None
) -> torch.Tensor:
    """Return a real tensor, or a number as one (float64, or as ``like``), finite and in [low, high]."""
    if isinstance(value, Real) and not isinstance(value, bool):
        standard = torch.empty(0, dtype=torch.float64) if like is None else like
        value = torch.tensor(float(value), dtype=standard.dtype, device=standard.device)
    check_tensor(name, value)
    check_finite(name, value)
    if value.numel() and (value.min() < low or value.max() > high):
        outside = float(value.min()) if value.min() < low else float(value.max())
        raise ValueError(f"{name} must lie in [{low}, {high}]; got {outside}")
    return value


def _kind(value) -> str:
    kind = type(value).__name__
    return f"{kind} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else kind
