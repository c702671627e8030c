"""Operators of a linear recurrence whose matrices may change from token to token."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ssmbook._checks import check_finite, check_tensors, shared_batch
from ssmbook.operators.base import InteractionOperator
from ssmbook.operators.ranks import triangle


class RecurrentOperator(InteractionOperator):
    """The operator of h_i = A_i h_{i−1} + B_i x_i, y_i = C_i h_i + D_i x_i.

    W_ij = C_i A_i A_{i−1} … A_{j+1} B_j for j ≤ i (plus D_i at i = j), zero above. ``A`` (..., n, N, N),
    ``B`` (..., n, N, d), ``C`` (..., n, p, N), ``D`` (..., n, p, d) or ``None``, of one dtype and device;
    each batch shape is the same or absent. Rows are produced by the recurrence one at a time: n² blocks exist
    only in ``to_dense``. Raises ``TypeError`` for other or mixed dtypes, ``ValueError`` for other shapes or
    mixed devices. Introduced in *interaction-operator*.

    >>> A, B, C = (torch.randn(8, *shape) for shape in ((3, 3), (3, 2), (4, 3)))
    >>> W = RecurrentOperator(0.5 * A, B, C)  # three states, drawn anew for each token
    >>> W.past_future_rank(), W.interaction_rank()
    (3, 8)
    """

    # How the state matrices are called, and their shape.
    _states = ("A", "... n N N")

    def __init__(
        self, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, D: torch.Tensor | None = None
    ) -> None:
        name, pattern = self._states
        given = {name: (A, pattern), "B": (B, "... n N d"), "C": (C, "... n p N")}
        given |= {} if D is None else {"D": (D, "... n p d")}
        sizes = check_tensors(**given)
        own = {each: value.shape[: 1 - len(letters.split())] for each, (value, letters) in given.items()}
        batch = shared_batch(**own)
        super().__init__(A, batch, sizes["n"], sizes["p"], sizes["d"])
        self.A, self.B, self.C, self.D, self.N = A, B, C, D, sizes["N"]

    def _push(self, t: int, state: torch.Tensor) -> torch.Tensor:
        """Return A_t times states (..., N, m)."""
        return self.A[..., t, :, :] @ state

    def _pull(self, carry: torch.Tensor, t: int) -> torch.Tensor:
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
        W = self._in_single()
        carry, blocks = W.C[..., i, :, :].expand(*W.batch_shape, W.p, W.N), []
        for j in range(i, -1, -1):
            blocks.append(carry @ W.B[..., j, :, :])
            carry = W._pull(carry, j)
        return W._finish_row(torch.stack(blocks[::-1], dim=-3), i).to(self.dtype)

    def rows(self) -> Iterator[torch.Tensor]:
        W = self._in_single()
        memory = W._zeros(W.N, 0, W.d)
        for i in range(W.n):
            moved = W._push(i, memory.flatten(-2)).unflatten(-1, (i, W.d))
            entered = W.B[..., i, :, None, :].expand(*W.batch_shape, W.N, 1, W.d)
            memory = torch.cat([moved, entered], dim=-2)
            blocks = W.C[..., i, :, :] @ memory.flatten(-2)
            yield W._finish_row(blocks.unflatten(-1, (i + 1, W.d)).movedim(-2, -3), i).to(self.dtype)

    def _span_blocks(self):
        # The parameters are the operator: products taken in float64 add no rounding of their own to its span.
        for row in self.to(torch.float64).rows():
            yield row.flatten(-2)

    def _cuts(self):
        # The past leaves K in the states and the future reads O from them: the block of a cut is O Kᵀ, and
        # QR of both leaves N × N matrices with its singular values.
        W = self.to(torch.float64)
        for part in (W.B, W.C) if W.D is None else (W.B, W.C, W.D):
            check_finite("W", part)
        left = [W._zeros(W.N, 0)]
        for t in range(W.n - 1):
            entered = W.B[..., t, :, :].expand(*W.batch_shape, W.N, W.d)
            left.append(triangle(torch.cat([W._push(t, left[-1]), entered], dim=-1).mT).mT)
        read = W._zeros(0, W.N)
        for t in range(W.n - 1, 0, -1):
            seen = W.C[..., t, :, :].expand(*W.batch_shape, W.p, W.N)
            read = triangle(W._pull(torch.cat([seen, read], dim=-2), t))
            block = read @ left.pop()
            check_finite("W", block)
            yield block[..., None, :, :]

    def _finish_row(self, blocks, i):
        """Add the skip to W_ii, the last of blocks W_i0 … W_ii, and append the zeros W_ij, j > i."""
        if self.D is not None:
            own = blocks[..., i:, :, :] + self.D[..., i : i + 1, :, :]
            blocks = torch.cat([blocks[..., :i, :, :], own], dim=-3)
        return torch.nn.functional.pad(blocks, (0, 0, 0, 0, 0, self.n - 1 - i))

    def _scaled(self, factor):
        return type(self)(self.A, self.B, factor * self.C, None if self.D is None else factor * self.D)

    def _mapped(self, change):
        given = (self.A, self.B, self.C, self.D)
        return type(self)(*(None if part is None else change(part) for part in given))
