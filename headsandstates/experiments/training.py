"""What the experiments share: two ways to train, and targets that students are compared with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import torch
from torch import Tensor, nn

from ssmbook._checks import check_finite, check_shape

F64 = torch.float64


def adam(
    loss: Callable[[], Tensor], parameters: Iterable[Tensor], *, steps: int, lr: float,
    marks: Collection[int] = (),
) -> Tensor | None:  # fmt: skip
    """Adam with cosine decay on a sum of losses (S,), entry by entry: no student sees another.

    Parameters
    ----------
    loss : callable
        Returns the losses (S,).
    parameters : iterable of Tensor
        Changed in place.
    steps : int
        How many.
    lr : float
        The first learning rate.
    marks : collection of int, optional
        Steps whose losses are kept.

    Returns
    -------
    Tensor (R, S) or None
        The losses at the marked steps.
    """
    optimizer = torch.optim.Adam([each.requires_grad_() for each in parameters], lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    history = []
    for step in range(steps + (steps in marks)):
        missed = loss()
        if step in marks:
            history.append(missed.detach())
        if step < steps:
            optimizer.zero_grad()
            missed.sum().backward()
            optimizer.step()
            schedule.step()
    return torch.stack(history) if history else None


def descend(model: nn.Module, loss: Callable[[], Tensor], *, steps: int, rate: float) -> list[Tensor]:
    """AdamW with warm-up and cosine decay, gradients cut to norm 1, in place; returns every loss.

    Parameters
    ----------
    model : Module
        Trained in place.
    loss : callable
        Draws a batch and returns its loss.
    steps : int
        How many batches.
    rate : float
        The largest learning rate.

    Returns
    -------
    list of Tensor
        Every loss.
    """
    descent = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(descent, rate, total_steps=steps + 1, pct_start=0.1)
    losses = []
    for _ in range(steps):
        missed = loss()
        descent.zero_grad()
        missed.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        descent.step()
        schedule.step()
        losses.append(missed.detach())
    return losses


def target_sizes(M: Tensor) -> dict[str, int]:
    """Return the sizes n, p, d of a system's lags; ``ValueError`` without energy to compare with."""
    sizes = check_shape("M", M, "n p d")
    check_finite("M", M)
    if not M.any():
        raise ValueError("M must not be the zero system: the error is relative to its energy")
    return sizes


def visible_rows(M: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the causal mask (n, n), the blocks it lets through as rows of total norm one, and that norm."""
    position = torch.arange(target_sizes(M)["n"], device=M.device)
    visible = position[:, None] >= position
    rows = M.detach().double()[position[:, None] - position][visible].flatten(1)
    return visible, rows / rows.norm(), rows.norm()
