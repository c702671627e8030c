"""Weights in the format safetensors: a header of JSON, then the numbers. Enough of it to need no package."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ssmbook._commands import replace

DTYPES = {"F16": "<f2", "F32": "<f4"}
NAMES = {torch.float16: "F16", torch.float32: "F32"}


def save(weights: dict[str, Tensor], path: Path, notes: dict[str, str]) -> None:
    """Write tensors and notes as safetensors, in the dtype they have (float16 or float32) and in one step.

    Introduced in *trained-layers*.
    """
    header, parts, end = {"__metadata__": notes}, [], 0
    for name, tensor in weights.items():
        data = tensor.detach().numpy().tobytes()
        place = {"shape": [*tensor.shape], "data_offsets": [end, end + len(data)]}
        header[name] = {"dtype": NAMES[tensor.dtype], **place}
        end += len(data)
        parts.append(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    replace(path, struct.pack("<Q", len(head)) + head + b"".join(parts))


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors, in float32, and notes from a file of safetensors. Introduced in *trained-layers*."""
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    notes, start = header.pop("__metadata__", {}), 8 + length
    found = {}
    for name, at in header.items():
        first, last = at["data_offsets"]
        numbers = np.frombuffer(whole[start + first : start + last], DTYPES[at["dtype"]])
        found[name] = torch.from_numpy(numbers.astype("float32")).reshape(at["shape"])
    return found, notes
