"""Where to put the nodes of ∫₀¹ (∂F/∂x)(tx) dt: panels on the ray, bisected until F itself agrees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ssmbook.operators.pullback import Pullback, value

# Inputs that go through the callable in one call.
_NODES_AT_ONCE = 32
# Random directions in which the misses of the panels are measured, before any block is computed.
_PROBES = 16
# Relative steps far below the scales of F, some of which move its digits if they are those of float32, and
# the rounding that they may show in float64.
_NUDGES = (2.0**-27, 2.0**-24, 2.0**-21, 2.0**-18)
_FLOAT64_NOISE = 1e-9


class RayIntegral:
    """∫₀¹ (∂F/∂x)(tx) dt by Gauss–Legendre panels of ``points`` nodes.

    On a panel [a, b] the integral of (d/dt) F(tx) is known: F(bx) − F(ax). So each panel can be judged by
    values and a few backward passes, before the n·p passes that the blocks cost are spent on good panels.
    """

    def __init__(self, F: Callable, x: torch.Tensor, y: torch.Tensor, points: int) -> None:
        self.F, self.x, self.y = F, x.detach(), y
        nodes, weights = np.polynomial.legendre.leggauss(points)
        self._nodes = torch.as_tensor((nodes + 1) / 2, dtype=torch.float64)
        self._weights = torch.as_tensor(weights / 2, dtype=torch.float64)
        size, count = y.shape[-2:].numel(), min(_PROBES, y.shape[-2:].numel())
        draw = torch.randn(size, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        # The mean square along orthonormal directions, times their number, is a square norm on average.
        directions = size**0.5 * torch.linalg.qr(draw).Q.mT
        self._probes = directions.reshape(count, *y.shape[-2:]).to(y)
        self.panels = [(0.0, 1.0)]
        self._misses = self._measure(self.panels)

    @property
    def node_count(self) -> int:
        return len(self.panels) * len(self._nodes)

    def miss(self) -> torch.Tensor:
        """Return an estimate of ‖F(x) − W x‖, (...), from a few random directions."""
        return self._misses.sum(0).square().mean(0).sqrt()

    def refine(self, tolerance: torch.Tensor, max_points: int) -> bool:
        """Bisect until the misses of all panels sum to ``tolerance`` (...); False where nodes run out."""
        while True:
            errors = self._misses.square().mean(1).sqrt()
            share = torch.where(errors == 0, 0.0, errors / tolerance)
            if not share.numel() or float(share.sum(0).max()) <= 1:
                return True
            poor = share.reshape(len(self.panels), -1).amax(1) > 0.5 / len(self.panels)
            if self.node_count + int(poor.sum()) * len(self._nodes) > max_points:
                return False
            self._bisect(poor.tolist())

    def _bisect(self, poor: list[bool]) -> None:
        halves = []
        for (a, b), bad in zip(self.panels, poor, strict=True):
            halves += [(a, (a + b) / 2), ((a + b) / 2, b)] if bad else []
        kept = [panel for panel, bad in zip(self.panels, poor, strict=True) if not bad]
        good = torch.tensor([not bad for bad in poor], device=self._misses.device)
        self._misses = torch.cat([self._misses[good], self._measure(halves)])
        self.panels = kept + halves

    def _rule(self, panels) -> tuple[torch.Tensor, torch.Tensor]:
        """Nodes and weights (panels, points) of the panels."""
        ends = torch.tensor(panels, dtype=torch.float64)
        width = ends[:, 1:] - ends[:, :1]
        return (ends[:, :1] + width * self._nodes).to(self.x), (width * self._weights).to(self.x)

    def _measure(self, panels) -> torch.Tensor:
        """Return ⟨probe, F(bx) − F(ax) − ∫ (d/dt) F(tx) dt⟩ for each panel: (panels, probes, ...)."""
        nodes, weights = self._rule(panels)
        slopes = torch.cat([self._slopes(part) for part in nodes.flatten().split(_NODES_AT_ONCE)])
        integral = torch.einsum("kt,kt...->k...", weights, slopes.unflatten(0, nodes.shape))
        ends = torch.tensor(panels, dtype=torch.float64).to(self.x).T
        low, high = (value(self.F, self._rays(end)) for end in ends)
        return torch.einsum("k...ip,rip->kr...", high - low, self._probes) - integral

    def _slopes(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return ⟨probe, (d/dt) F(tx)⟩ at some nodes: (nodes, probes, ...)."""
        pull = Pullback(self.F, self._rays(nodes))
        parts = [torch.einsum("t...jd,...jd->t...", pull(probe), self.x) for probe in self._probes]
        return torch.stack(parts, dim=1)

    def _rays(self, nodes: torch.Tensor) -> torch.Tensor:
        return torch.einsum("t,...->t...", nodes, self.x)

    def blocks(self) -> torch.Tensor:
        """Return the integral itself, (..., n, n, p, d)."""
        nodes, weights = (part.flatten().split(_NODES_AT_ONCE) for part in self._rule(self.panels))
        n, p = self.y.shape[-2:]
        total = 0
        for some, heavy in zip(nodes, weights, strict=True):
            pull = Pullback(self.F, self._rays(some))
            total = total + torch.stack([pull.row(i, heavy) for i in range(n)], dim=-4)
        return total


def relative_noise(F: Callable, x: torch.Tensor) -> float:
    """Return the relative rounding of F: machine epsilon of x, or more where F works in float32 inside.

    Second differences of F along the ray fall by 64 for a smooth F when the step is cut by 8, while a part
    of F in float32 jumps by its own rounding at either step.
    """
    eps = torch.finfo(x.dtype).eps
    if x.numel() == 0 or x.dtype != torch.float64:
        return eps
    found = [_second_difference(F, x, step) for step in _NUDGES]
    jumps = [b for a, b in zip(found, found[1:], strict=False) if b > _FLOAT64_NOISE and a > b / 16]
    return max([eps, *jumps])


def _second_difference(F: Callable, x: torch.Tensor, step: float) -> float:
    """Return the largest relative second difference over the batch, the median of three places on the ray."""
    places = torch.tensor([1.0, 0.75, 0.5], dtype=x.dtype, device=x.device)
    steps = torch.tensor([1 - step, 1.0, 1 + step], dtype=x.dtype, device=x.device)
    before, here, after = value(F, torch.einsum("s,t,...->st...", steps, places, x))
    size = torch.linalg.matrix_norm(here)
    jump = torch.linalg.matrix_norm(before - 2 * here + after) / torch.where(size == 0, 1.0, size)
    return float(jump.median(0).values.max())
