"""Heads of a layer mixed to fewer, as a module that can be trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ssmbook.lens._errors import ReplacementErrors
from ssmbook.lens.changes._change import Change


class SharedHeads(nn.Module):
    """Shared heads of a layer as a module: alpha'_k = sum_h mix_kh alpha_h, with value maps W_O[k] W_V[k].

    The three tensors become parameters; ``replace`` puts the module in. Its score matrices are those of
    the layer, and not trained.

    Parameters
    ----------
    mix : Tensor (H', H)
        How much of each of the layer's attention matrices every shared head takes.
    W_O : Tensor (H', p, width)
        Output weights.
    W_V : Tensor (H', width, d)
        Value weights.
    lost : ReplacementErrors or None
        The errors on the texts that the heads were fitted to.
    """

    def __init__(self, mix: Tensor, W_O: Tensor, W_V: Tensor, lost: ReplacementErrors | None = None) -> None:
        super().__init__()
        self.mix = nn.Parameter(mix)
        self.W_O = nn.Parameter(W_O)
        self.W_V = nn.Parameter(W_V)
        self.lost = lost

    @property
    def change(self) -> Change:
        """What ``replace`` puts in."""
        k, H = self.mix.shape
        cost = {"score matrices": H, "value maps": k, "width": self.W_V.shape[1]}
        name = f"{H} heads merged to {k}"
        return Change(name, lambda alpha: mixed(alpha, self.mix), self.W_O, self.lost, cost, self.W_V)


def mixed(alpha: Tensor, P: Tensor) -> Tensor:
    """Return coefficients alpha'_g = sum_h P_gh alpha_h of every text."""
    return torch.einsum("gh,...hij->...gij", P.to(alpha), alpha)
