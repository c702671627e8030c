"""Passes over the rows vec W_ij that keep little: random sums of rows, a Gram matrix, captured energy."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ssmbook._checks import check_finite

# Columns of a Gram matrix computed at a time: what lies above the diagonal panel is not needed.
_PANEL = 256
# Entries this far below the largest carry no energy, but make arithmetic a hundred times slower.
_NEGLIGIBLE = 1e-150


class ScaledRows:
    """The rows of an operator in blocks (..., r, width): float64, checked finite, in units of an entry.

    The ``unit`` (..., 1, 1) is the largest entry of the first block that is not zero, unless it is set;
    ``largest`` is the largest of all that has been read.
    """

    def __init__(self, W) -> None:
        self.W = W
        self.unit = self.largest = torch.zeros(*W.batch_shape, 1, 1, dtype=torch.float64, device=W.device)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for block in self.W._span_blocks():
            block = block.to(torch.float64).expand(*self.W.batch_shape, *block.shape[-2:])
            if block.numel() == 0:
                continue
            largest = torch.maximum(block.amax((-2, -1), True), -block.amin((-2, -1), True))
            if not bool(torch.isfinite(largest).all()):
                check_finite("W", block)
            self.largest = torch.maximum(self.largest, largest)
            self.unit = torch.where(self.unit > 0, self.unit, largest)
            # hardshrink sets to zero what is below its threshold.
            yield torch.nn.functional.hardshrink(
                block / torch.where(self.unit > 0, self.unit, 1.0), _NEGLIGIBLE
            )


def _energy(block: torch.Tensor) -> torch.Tensor:
    """‖block‖² by rows: errors grow with the sides of a block and not with its area."""
    return torch.linalg.vector_norm(block, dim=-1).square().sum(-1)


class RowSketch:
    """One pass over the rows R of an operator.

    ``energy`` (...): ‖R‖²; ``gram`` (..., width, width): RᵀR, if asked for; ``sums`` (..., m, width): SR with
    at most ``buckets`` rows (none for 0), S having orthonormal rows: each row of R goes, with a random sign,
    into one bucket, and a bucket is divided by the root of its size. ``rows``, ``blocks``, ``tallest``,
    ``crowd``: how many rows there were, in how many blocks, the most of one block, and of one bucket.
    """

    def __init__(self, rows: ScaledRows, buckets: int, with_gram: bool, seed: int) -> None:
        generator, W = torch.Generator().manual_seed(seed), rows.W
        shape, width = W.batch_shape, W._width
        like = {"dtype": torch.float64, "device": W.device}
        self.energy = torch.zeros(shape, **like)
        self.gram = torch.zeros(*shape, width, width, **like) if with_gram else None
        self.sums, self._buckets = torch.zeros(*shape, 0, width, **like), buckets
        self._waiting = torch.zeros(0, dtype=torch.int64)
        self.rows = self.blocks = self.tallest = 0
        for block in rows:
            self.energy += _energy(block)
            if with_gram:
                _add_gram(self.gram, block)
            if buckets:
                self._drop(block, generator)
            self.rows, self.blocks = self.rows + block.shape[-2], self.blocks + 1
            self.tallest = max(self.tallest, block.shape[-2])
        # Buckets fill in turn: the sizes differ by one at most, and those waiting are one short.
        full = -(-self.rows // max(buckets, 1))
        sizes = torch.full((self.sums.shape[-2],), float(full), **like)
        sizes[self._waiting.to(W.device)] -= 1
        self.crowd = full
        self.sums /= sizes.sqrt()[:, None]

    def _drop(self, block: torch.Tensor, generator: torch.Generator) -> None:
        """Add rows to buckets with random signs, into new buckets first, then into all in random order."""
        fresh = min(block.shape[-2], self._buckets - self.sums.shape[-2])
        self.sums = torch.cat([self.sums, block[..., :fresh, :]], dim=-2) if fresh else self.sums
        count = block.shape[-2] - fresh
        while len(self._waiting) < count:
            self._waiting = torch.cat([self._waiting, torch.randperm(self._buckets, generator=generator)])
        where, self._waiting = self._waiting[:count], self._waiting[count:]
        sign = torch.randint(2, (count, 1), generator=generator).to(block) * 2 - 1
        self.sums.index_add_(-2, where.to(block.device), block[..., fresh:, :] * sign)

    def directions(self, count: int) -> torch.Tensor:
        """Return the ``count`` leading right singular vectors of SR as columns (..., width, count)."""
        return torch.linalg.svd(self.sums, full_matrices=False).Vh[..., :count, :].mT


def _add_gram(gram: torch.Tensor, block: torch.Tensor) -> None:
    """Add blockᵀ block to the lower panels of ``gram``."""
    for left in range(0, gram.shape[-1], _PANEL):
        panel = block[..., left : left + _PANEL]
        gram[..., left:, left : left + _PANEL] += block[..., left:].mT @ panel


def capture(rows: ScaledRows, Q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (RQ)ᵀ(RQ) (..., r, r) and ‖R − RQQᵀ‖² (...), the latter from the difference itself."""
    gram = Q.new_zeros(*Q.shape[:-2], Q.shape[-1], Q.shape[-1])
    left = Q.new_zeros(Q.shape[:-2])
    for block in rows:
        inside = block @ Q
        gram += inside.mT @ inside
        left += _energy(block - inside @ Q.mT)
    return gram, left
