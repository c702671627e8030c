"""Argument checks shared by the library: a failure names the argument, what came and what was wanted.

What every public function takes, unless its docstring says otherwise:

- A tensor is a dense ``torch.Tensor`` in float16, bfloat16, float32 or float64, where complex is allowed also
  complex64 or complex128. Lists, numbers, NumPy arrays, integers, booleans, float8 and sparse, nested or
  quantized tensors are refused: how they become numbers is the caller's to say (``torch.as_tensor``).
- The tensors of one call share dtype and device, and results come back in them; nothing is cast or moved in
  silence. Half precision is computed in float32 or wider. Ranks and counts are decided in float64: on a
  device without it (MPS) they ask for the data on a CPU.
- NaN and infinity are carried along by what carries numbers (scans, maps, operators applied) and refused by
  what decides something from them. So is ``meta``, whose tensors have a shape and no values.
- A whole number is an ``int`` or what stands for one: ``np.int64``, an integer tensor of dimension 0. Another
  number is a Python or NumPy one; a flag is True or False, never a word or a number.
- A sequence is anything whose members come in an order: no text, set or dictionary.

A wrong kind of thing (type, dtype, layout) is a ``TypeError``, a wrong one of its kind a ``ValueError``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real

import torch

# One more number than this in a tensor, and no machine holds it.
_ROOM = 2**38


def check_tensor(name: str, value, *, complex_ok: bool = False) -> None:
    """Refuse anything but a dense floating-point tensor (or complex, if allowed) with a ``TypeError``."""
    wanted = "a floating-point or complex torch.Tensor" if complex_ok else "a floating-point torch.Tensor"
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be {wanted}; got {type(value).__name__}")
    check_dtype(name, value.dtype, wanted, complex_ok=complex_ok)
    if value.layout != torch.strided or value.is_nested:
        got = "a nested tensor" if value.is_nested else value.layout
        raise TypeError(f"{name} must be {wanted}, dense; got {got}")


def check_dtype(
    name: str, dtype, wanted: str = "a floating-point torch.dtype", *, complex_ok: bool = False
) -> None:
    """Refuse a dtype that the library does not compute in: integers, float8, what is no dtype."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name} must be {wanted}; got {dtype!r}")
    real = dtype.is_floating_point and dtype.itemsize > 1
    if not real and not (complex_ok and dtype.is_complex and dtype.itemsize > 4):
        raise TypeError(f"{name} must be {wanted}; got dtype {dtype}")


def check_like(*, generator=None, dtype=None, device=None, complex_ok: bool = False) -> None:
    """Hold the options of what makes tensors to their kinds; None leaves each to PyTorch."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator or None; got {type(generator).__name__}")
    if dtype is not None:
        check_dtype("dtype", dtype, complex_ok=complex_ok)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(f"device must be one of this machine; got {device!r}") from error


def check_room(name: str, *shape: int) -> None:
    """Refuse, before memory is asked for, a tensor that no machine holds."""
    if math.prod(shape) > _ROOM:
        raise ValueError(
            f"{name} must leave tensors of at most 2^{_ROOM.bit_length() - 1} numbers; got shape {shape}"
        )


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


def check_tensors(
    sizes: Mapping[str, int] | None = None,
    *,
    finite: bool = False,
    one_batch: bool = False,
    complex_ok: bool = False,
    **given: tuple[torch.Tensor, str],
) -> dict[str, int]:
    """Hold tensors, each with its pattern, to shapes that share their letters, one dtype and device.

    ``finite``: and to finite entries; ``one_batch``: those of a pattern with ``...`` to the batch shape of
    the first. Returns the sizes of the letters; ``sizes`` binds some beforehand.
    """
    bound, batches = dict(sizes or {}), {}
    for name, (value, pattern) in given.items():
        bound = check_shape(name, value, pattern, bound, complex_ok=complex_ok)
        if pattern.startswith("..."):
            batches[name] = tuple(value.shape[: value.ndim - len(pattern.split()) + 1])
    check_alike(**{name: value for name, (value, _) in given.items()})
    if one_batch:
        (first, wanted), *others = batches.items()
        for name, batch in others:
            if batch != wanted:
                raise ValueError(f"{name} must have the batch shape of {first}, {wanted}; got {batch}")
    for name, (value, _) in given.items() if finite else ():
        check_finite(name, value)
    return bound


def shared_batch(**shapes) -> torch.Size:
    """Return the batch shape that arguments share, by name: each has that shape or is unbatched, ``()``.

    Sizes that merely would broadcast, such as ``(1,)`` against ``(3,)``, are refused.
    """
    owner, batch = "", torch.Size()
    for name, shape in shapes.items():
        shape = torch.Size(shape)
        if len(shape) == 0:
            continue
        if owner and shape != batch:
            raise ValueError(
                f"{name} must have the batch shape of {owner}, {tuple(batch)}, or none; got {tuple(shape)}"
            )
        owner, batch = name, shape
    return batch


def check_matrices(*, batched: bool = True, **matrices) -> None:
    """Hold A (N, N), B (N, d), C (p, N), D (p, d) or None to one dtype, device, batch shape, and finite."""
    patterns = {"A": "N N", "B": "N d", "C": "p N", "D": "p d"}
    given = {name: value for name, value in matrices.items() if name != "D" or value is not None}
    shapes = {name: (value, ("... " if batched else "") + patterns[name]) for name, value in given.items()}
    check_tensors(one_batch=batched, complex_ok=True, **shapes)
    for name, value in given.items():
        check_finite(name, value, meta_ok=True)


def check_values(name: str, tensor: torch.Tensor) -> None:
    """Refuse a tensor on ``meta`` where its values are needed."""
    if tensor.is_meta:
        raise ValueError(f"{name} must hold values; got a tensor on the device meta, a shape without them")


def check_wide(name: str, value) -> None:
    """Refuse what lies on a device without float64, before a rank is decided in it."""
    if value.device.type == "mps":
        raise TypeError(f"{name} must be on a device with float64, such as the CPU; got {value.device}")


def check_finite(name: str, tensor: torch.Tensor, *, meta_ok: bool = False) -> None:
    """Refuse NaN and infinity with a ``ValueError`` that counts them, and (unless ``meta_ok``) ``meta``."""
    if tensor.is_meta and meta_ok:
        return
    check_values(name, tensor)
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise ValueError(f"{name} must be finite; got {bad} non-finite of {tensor.numel()} entries")


def check_integer(name: str, value, *, low: int, high: int | None = None) -> int:
    """The ``int`` that ``value`` is or stands for, ``low <= value <= high``, else a refusal."""
    given = value
    if isinstance(value, torch.SymInt):  # a length that torch.export leaves open
        return value
    if isinstance(value, torch.Tensor) and value.ndim == 0:
        check_values(name, value)
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an int; got {_said(given)}")
    value = int(value)
    if value < low or (high is not None and value > high):
        wanted = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ValueError(f"{name} must be {wanted}; got {value}")
    return value


def _said(value) -> str:
    kind = type(value).__name__
    return f"{kind} of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else kind


def check_number(
    name: str, value, wanted: str = "a finite number", inside: Callable[[float], bool] = math.isfinite
) -> float:
    """The Python or NumPy number ``value`` as a float, where it is ``inside``, else a refusal."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {wanted}; got {_said(value)}")
    if not inside(value):
        raise ValueError(f"{name} must be {wanted}; got {value}")
    return float(value)


def check_sequence(name: str, value, of: str) -> list:
    """The members of ``value`` as a list; a text, a set and a table have none that stand in an order."""
    unordered = isinstance(value, (str, bytes, set, frozenset, Mapping))
    if unordered or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise TypeError(f"{name} must be a sequence of {of}; got {_said(value)}")
    return list(value)


def check_rtol(rtol, name: str = "rtol") -> float:
    """Refuse a tolerance that is not a number in [0, 1) (``TypeError`` / ``ValueError``)."""
    return check_number(name, rtol, "a number in [0, 1)", lambda value: 0 <= value < 1)


def check_eps(eps) -> float:
    """Refuse an error that is not a finite number of at least 0 (``TypeError`` / ``ValueError``)."""
    return check_positive("eps", eps, zero_ok=True)


def check_positive(name: str, value, *, zero_ok: bool = False) -> float:
    """Refuse anything but a finite positive number (``zero_ok``: or 0) and return it as a float."""
    wanted = f"finite and {'at least 0' if zero_ok else 'positive'}"
    return check_number(name, value, wanted, lambda v: 0 < v < math.inf or (zero_ok and v == 0))


def check_flags(**flags) -> None:
    """Refuse flags but True and False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False; got {flag!r}")


def check_choice(name: str, value, options: Iterable[str]) -> str:
    """Refuse a word that is none of the options, with a ``ValueError`` that lists them."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}")
    return value


def as_real(
    name: str, value, *, low: float | None = None, high: float | None = None, open_ends=True, like=None
) -> torch.Tensor:
    """A real tensor (kept) or a number (float64, or as ``like``), finite and inside the ends."""
    if isinstance(value, Real) and not isinstance(value, bool):
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
    if isinstance(value, Integral) and not isinstance(value, bool):
        if abs(value) >= 2**63:
            raise ValueError(f"{name} must be below 2^63 in size, to fit 64 bits; got {value}")
        value = torch.tensor(int(value))
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be an int or an integer tensor; got {type(value).__name__}")
    if value.dtype == torch.bool or value.is_floating_point() or value.is_complex():
        raise TypeError(f"{name} must be an int or an integer tensor; got dtype {value.dtype}")
    check_values(name, value)
    if bool((value < low).any()):
        raise ValueError(f"{name} must be at least {low}; got {int(value.min())}")
    return value


def together(**tensors: torch.Tensor) -> None:
    """Tensors meant elementwise have equal shapes, but for single numbers."""
    shaped = [(name, tuple(tensor.shape)) for name, tensor in tensors.items() if tensor.ndim]
    for (first, wanted), (name, got) in itertools.pairwise(shaped):
        if got != wanted:
            raise ValueError(f"{name} must be a number or have the shape of {first}, {wanted}; got {got}")
