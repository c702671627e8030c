"""Operators of a linear recurrence whose matrices may change from token to token."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ssmbook._checks import check_finite, check_tensors, shared_batch
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.spectra import r_factor

# For ModalOperator: _BAND tokens share one matrix product, and at most _ENTRIES_AT_ONCE
# numbers are yielded at a time, so that memory is reused.
_BAND = 32
_ENTRIES_AT_ONCE = 2**22
# What has decayed to this fraction of the largest input is set to zero: subnormal numbers
# are slow.
_GONE = 1e-140


class RecurrentOperator(InteractionOperator):
    """The operator of h_i = A_i h_{i−1} + B_i x_i, y_i = C_i h_i + D_i x_i.

    W_ij = C_i A_i A_{i−1} … A_{j+1} B_j for j ≤ i (plus D_i at i = j), zero above. Rows are
    produced by the recurrence one at a time: n² blocks exist only in ``to_dense``.

    Parameters
    ----------
    A : Tensor (..., n, N, N)
        What takes the states from one token to the next.
    B : Tensor (..., n, N, d)
        How inputs enter.
    C : Tensor (..., n, p, N)
        How states are read.
    D : Tensor (..., n, p, d), optional
        The skip.

    Raises
    ------
    TypeError, ValueError
        Unless all are of one dtype and device, and each batch shape is the same or absent.

    Examples
    --------
    >>> A, B, C = (torch.randn(8, *shape) for shape in ((3, 3), (3, 2), (4, 3)))
    >>> W = RecurrentOperator(0.5 * A, B, C)  # three states, drawn anew for each token
    >>> W.past_future_rank(), W.interaction_rank()
    (3, 8)
    """

    _stored = True
    # How the state matrices are called, and their shape.
    _states = ("A", "... n N N")

    def __init__(self, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None) -> None:
        name, pattern = self._states
        given = {name: (A, pattern), "B": (B, "... n N d"), "C": (C, "... n p N")}
        given |= {} if D is None else {"D": (D, "... n p d")}
        sizes = check_tensors(**given)
        own = {each: value.shape[: 1 - len(letters.split())] for each, (value, letters) in given.items()}
        super().__init__(A, shared_batch(**own), sizes["n"], sizes["p"], sizes["d"])
        self.A, self.B, self.C, self.D, self.N = A, B, C, D, sizes["N"]

    def _push(self, t: int, state: Tensor) -> Tensor:
        """Return A_t times states (..., N, m)."""
        return self.A[..., t, :, :] @ state

    def _pull(self, carry: Tensor, t: int) -> Tensor:
        """Return carried rows (..., m, N) times A_t."""
        return carry @ self.A[..., t, :, :]

    def _apply(self, x):
        drive = torch.einsum("...tsd,...td->...ts", self.B, x)
        state = torch.zeros_like(drive[..., :1, :]).mT if self.n else None
        states = []
        for t in range(self.n):
            state = self._push(t, state) + drive[..., t, :, None]
            states.append(state[..., 0])
        states = torch.stack(states, dim=-2) if states else drive
        y = torch.einsum("...tps,...ts->...tp", self.C, states)
        return y if self.D is None else y + torch.einsum("...tpd,...td->...tp", self.D, x)

    def _row(self, i):
        carry, blocks = self.C[..., i, :, :].expand(*self.batch_shape, self.p, self.N), []
        for j in range(i, -1, -1):
            blocks.append(carry @ self.B[..., j, :, :])
            carry = self._pull(carry, j)
        return self._finish_row(torch.stack(blocks[::-1], dim=-3), i)

    def _rows(self) -> Iterator[Tensor]:
        memory = self._zeros(self.N, 0, self.d)
        for i in range(self.n):
            moved = self._push(i, memory.flatten(-2)).unflatten(-1, (i, self.d))
            entered = self.B[..., i, :, None, :].expand(*self.batch_shape, self.N, 1, self.d)
            memory = torch.cat([moved, entered], dim=-2)
            blocks = self.C[..., i, :, :] @ memory.flatten(-2)
            yield self._finish_row(blocks.unflatten(-1, (i + 1, self.d)).movedim(-2, -3), i)

    def _finish_row(self, blocks, i):
        """Add the skip to W_ii, the last of blocks W_i0 … W_ii, and append the zeros W_ij, j > i."""
        if self.D is not None:
            own = blocks[..., i:, :, :] + self.D[..., i : i + 1, :, :]
            blocks = torch.cat([blocks[..., :i, :, :], own], dim=-3)
        return torch.nn.functional.pad(blocks, (0, 0, 0, 0, 0, self.n - 1 - i))

    def _span_blocks(self):
        # The parameters are the operator: products taken in float64 add no rounding of
        # their own to its span.
        for row in self.to(torch.float64)._rows():
            yield row.flatten(-2)

    def _past_future_blocks(self):
        # The past leaves K in the states and the future reads O from them: the block of a
        # cut is O Kᵀ, and QR of both leaves N × N matrices with its singular values.
        W = self.to(torch.float64)
        for part in (W.B, W.C) if W.D is None else (W.B, W.C, W.D):
            check_finite("W", part)
        left = [W._zeros(W.N, 0)]
        for t in range(W.n - 1):
            entered = W.B[..., t, :, :].expand(*W.batch_shape, W.N, W.d)
            left.append(r_factor(torch.cat([W._push(t, left[-1]), entered], dim=-1).mT).mT)
        read = W._zeros(0, W.N)
        for t in range(W.n - 1, 0, -1):
            seen = W.C[..., t, :, :].expand(*W.batch_shape, W.p, W.N)
            read = r_factor(W._pull(torch.cat([seen, read], dim=-2), t))
            block = read @ left.pop()
            check_finite("W", block)
            yield block[..., None, :, :]

    def _scaled(self, factor):
        return type(self)(self.A, self.B, factor * self.C, None if self.D is None else factor * self.D)

    def _mapped(self, change):
        given = (self.A, self.B, self.C, self.D)
        return type(self)(*(None if part is None else change(part) for part in given))


class ModalOperator(RecurrentOperator):
    """The operator of a recurrence in modes, h_i = exp(a_i) ∘ h_{i−1} + B_i x_i, y_i = C_i h_i + D_i x_i.

    W_ij = C_i diag(exp(a_{j+1} + … + a_i)) B_j for j ≤ i (plus D_i at i = j), zero above: a
    ``RecurrentOperator`` with diagonal state matrices, which keeps N numbers per token
    instead of N². The first argument a (..., n, N), finite, holds the logarithms of the
    decays; ``B``, ``C``, ``D`` and batch shapes as there.
    """

    _states = ("log_decay", "... n N")

    @property
    def log_decay(self) -> Tensor:
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
                rows = torch.cat([some @ past, own], dim=-1)
                # Rows (..., i·p, j·d) of the block matrix become the vectors (..., i·j,
                # p·d) of its blocks.
                blocks = rows.unflatten(-2, (-1, self.p)).unflatten(-1, (-1, self.d)).transpose(-3, -2)
                yield blocks.flatten(-2).flatten(-3, -2)
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
