"""The one batch rule of the operators: every batch shape is the same, or absent."""

from __future__ import annotations

import torch


def shared_batch(**shapes) -> torch.Size:
    """Return the batch shape several arguments share; each is that shape or unbatched ``()``.

    ``shapes`` maps argument names to batch shapes. Sizes that merely would broadcast, such as ``(1,)``
    against ``(3,)``, raise a ``ValueError`` that names the argument.
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
