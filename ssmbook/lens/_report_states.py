"""How many states carry the heads of a causal layer, with and without their first key, as a text grows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssmbook.lens._states import cut_places
from ssmbook.operators.spectra import tail_energies

# Blocks whose shorter side is longer are sketched, with so many combinations at first.
_EXACT, _WIDTH = 512, 64


def grown(n: int) -> list[int]:
    """A quarter, a half and the whole of a text."""
    return [n // 4, n // 2, n]


def states_at(alpha: Tensor, shares: Sequence[float], first: bool) -> Tensor:
    """Return ``states(alpha, share, first=first)`` of causal heads (H, n, n) for all shares: (shares, H)."""
    n, start = alpha.shape[-1], 0 if first else 1
    found = [torch.zeros(len(shares), len(alpha), dtype=torch.int64, device=alpha.device)]
    for t in (place for place in cut_places(n) if place > start):
        found.append(fewest(alpha[:, t:, start:t].to(torch.float64), shares))
    return torch.stack(found).amax(0)


def fewest(blocks: Tensor, shares: Sequence[float]) -> Tensor:
    """Return the fewest singular values of each block (H, a, b) that leave at most each share: (shares, H).

    A long block B is sketched: with orthonormal columns Q, N values leave at least the tail
    of Q^T B and at most that tail and ‖B - Q Q^T B‖² (see ``operators.sketch``). The sketch
    grows until both ends give one count, so the count does not depend on what was drawn.
    """
    eps, width = blocks.new_tensor(shares)[:, None, None], _WIDTH
    blocks = blocks if blocks.shape[-2] <= blocks.shape[-1] else blocks.mT
    whole = blocks.square().sum((-2, -1)).clamp_min(1e-300)[:, None]
    while blocks.shape[-2] > max(_EXACT, 2 * width):
        generator = torch.Generator().manual_seed(0)
        draw = torch.randn(blocks.shape[-1], width, generator=generator, dtype=blocks.dtype).to(blocks.device)
        Q = torch.linalg.qr(blocks @ (blocks.mT @ (blocks @ draw))).Q
        inside = Q.mT @ blocks
        missed = (blocks - Q @ inside).square().sum((-2, -1))[:, None] / whole
        left = _squares(inside).flip(-1).cumsum(-1).flip(-1) / whole
        low, high = (left > eps).sum(-1), (left + missed > eps).sum(-1)
        if torch.equal(low, high):
            return low
        width *= 2
    return (tail_energies(_squares(blocks).sqrt()) > eps).sum(-1)


def _squares(blocks: Tensor) -> Tensor:
    """Squared singular values, descending, right to 1e-16 of the largest: enough for shares from 1e-3 on."""
    return torch.linalg.eigvalsh(blocks @ blocks.mT).flip(-1).clamp_min(0)
