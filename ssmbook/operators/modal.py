"""Linear recurrences whose states decay each by itself, with ranks in reach at the width of real layers."""

from __future__ import annotations

import torch

from ssmbook.operators.recurrent import RecurrentOperator

# Tokens whose rows are made together: one matrix product reaches back to all the tokens before them.
_BAND = 32
# Entries of the rows that are yielded together: few enough for memory to be used again.
_ENTRIES_AT_ONCE = 2**22
# What has decayed to this fraction of the largest input is gone: smaller numbers only slow arithmetic down.
_GONE = 1e-140


class ModalOperator(RecurrentOperator):
    """The operator of a recurrence in modes, h_i = exp(a_i) ∘ h_{i−1} + B_i x_i, y_i = C_i h_i + D_i x_i.

    W_ij = C_i diag(exp(a_{j+1} + … + a_i)) B_j for j ≤ i (plus D_i at i = j), zero above: a
    ``RecurrentOperator`` with diagonal state matrices, which keeps N numbers a token instead of N².
    ``log_decay`` a (..., n, N), finite; ``B``, ``C``, ``D``, batch shapes and errors as there. Introduced in
    *zoo*.

    >>> one = torch.ones(4, 1, 1)
    >>> W = ModalOperator(torch.full((4, 1), 0.5).log(), one, one)  # h_i = h_(i-1) / 2 + x_i, y_i = h_i
    >>> [round(size, 4) for size in W.block_norms()[3].tolist()]
    [0.125, 0.25, 0.5, 1.0]
    """

    _states = ("log_decay", "... n N")

    @property
    def log_decay(self) -> torch.Tensor:
        return self.A

    def _push(self, t, state):
        return self.A[..., t, :, None].exp() * state

    def _pull(self, carry, t):
        return carry * self.A[..., t, None, :].exp()

    def _span_blocks(self):
        """Yield rows band by band: what the tokens before a band left in the states, and what it adds."""
        largest = float(self.B.abs().max()) if self.B.numel() else 0.0
        left = torch.empty(
            *self.batch_shape, self.N, self.n * self.d, dtype=torch.float64, device=self.device
        )
        for start in range(0, self.n, _BAND):
            stop = min(start + _BAND, self.n)
            decay = self.A[..., start:stop, :].to(torch.float64).exp()
            reach = torch.nn.functional.hardshrink(decay.cumprod(-2), _GONE)
            C = self.C[..., start:stop, :, :].to(torch.float64)
            near, entered = self._band(start, stop, decay, C)
            past = left[..., : start * self.d]
            carried = (C * reach[..., None, :]).flatten(-3, -2)
            row = max(1, self.batch_shape.numel() * self.p * stop * self.d)
            step = max(1, _ENTRIES_AT_ONCE // row) * self.p
            for some, own in zip(carried.split(step, -2), near.split(step, -2), strict=True):
                yield self._vectors(torch.cat([some @ past, own], dim=-1))
            past *= reach[..., -1, :, None]
            past.masked_fill_(past.abs() < _GONE * largest, 0.0)
            left[..., start * self.d : stop * self.d] = entered

    def _band(self, start, stop, decay, C):
        """What b tokens do to themselves (..., b·p, b·d) and leave in the states (..., N, b·d)."""
        p, d, size = self.p, self.d, stop - start
        states = decay.new_zeros(*self.batch_shape, self.N, size * d)
        near = decay.new_zeros(*self.batch_shape, size * p, size * d)
        for i in range(size):
            states[..., : i * d] *= decay[..., i, :, None]
            states[..., i * d : (i + 1) * d] = self.B[..., start + i, :, :]
            near[..., i * p : (i + 1) * p, : (i + 1) * d] = C[..., i, :, :] @ states[..., : (i + 1) * d]
            if self.D is not None:
                near[..., i * p : (i + 1) * p, i * d : (i + 1) * d] += self.D[..., start + i, :, :]
        return near, states

    def _vectors(self, rows):
        """Rows (..., i·p, j·d) of the block matrix as the vectors (..., i·j, p·d) of its blocks."""
        blocks = rows.unflatten(-2, (-1, self.p)).unflatten(-1, (-1, self.d)).transpose(-3, -2)
        return blocks.flatten(-2).flatten(-3, -2)
