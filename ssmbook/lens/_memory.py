"""How much memory a report will take, said before it starts."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from ssmbook.lens._layers import MixingLayer
from ssmbook.lens._readers.attention import heads_of

_FLOAT64 = 8
# Python with torch and transformers loaded.
_LIBRARIES = 450_000_000
# Copies of the coefficients and of the value maps alive at the peak, beside those of each text (measured).
_COPIES = 6


def bytes_needed(model: nn.Module, layers: list[MixingLayer], texts: int, n: int) -> int:
    """Bytes of the libraries, the model's weights and its largest layer while it is measured: an estimate."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return _LIBRARIES + weights + max(layer_bytes(layer, texts, n) for layer in layers)


def layer_bytes(layer: MixingLayer, texts: int, n: int) -> int:
    """Bytes of one layer in float64: its copy, coefficients (H, n, n) and maps (H, p, d) of each text.

    Channels that do not mix keep their states (d, n, N) instead.
    """
    copy = sum(p.numel() for p in layer.module.parameters())
    H, p, d = sizes(layer.module)
    if H == p == d:
        rates = getattr(layer.module, "A_log", None)
        N = 1 if rates is None else rates.shape[-1]
        return _FLOAT64 * (2 * copy + (2 * texts + _COPIES) * d * n * (N + 1) + 3 * d * n * n + 4 * d * d)
    return _FLOAT64 * (2 * copy + (texts + _COPIES) * (2 * H * n * n + 2 * H * p * d))


def sizes(module: nn.Module) -> tuple[int, int, int]:
    """(H, p, d) of a layer's core before it is read; (0, 0, 0) for a family that does not say."""
    heads = heads_of(module)
    if heads is not None:
        H, p, r = heads.W_O.shape
        return H, H * r if heads.gated else p, heads.W_V.shape[-1]
    out = next((getattr(module, name) for name in ("out_proj", "linear_out") if hasattr(module, name)), None)
    if not isinstance(out, nn.Linear):
        return 0, 0, 0
    channels = out.in_features
    H = getattr(module, "num_heads", None) or getattr(module, "num_v_heads", None) or channels
    return H, channels, channels


def bytes_free() -> int | None:
    """Memory that this machine can give now, where it says so."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
