"""The laws of every interaction operator, each checked against the dense blocks by another route."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch

from ssmbook.operators import DenseOperator, InteractionOperator, operator_span
from ssmbook.testing._contract import Contract, draws, law, refuses, same


def _rearranged(W: InteractionOperator) -> torch.Tensor:
    """The rows vec W_ij in float64, (..., n², p·d)."""
    return W.to_dense().detach().to(torch.float64).flatten(-4, -3).flatten(-2)


class OperatorContract(Contract):
    """The laws of every interaction operator: inherit, and say how yours is made.

    ``make(random, batch, n)`` returns the operator, of any p and d, for a batch shape and a number of tokens
    (both may be empty); ``random(*shape)`` gives the normal numbers to make it from, in the dtype that is
    asked for. ``causal``: whether W_ij = 0 for j > i. All else is derived once, from ``_apply``.

    >>> import torch
    >>> from ssmbook.operators import InteractionOperator
    >>> class Total(InteractionOperator):  # y_i = V (x_0 + … + x_i)
    ...     def __init__(self, V, n):
    ...         super().__init__(V, V.shape[:-2], n, *V.shape[-2:])
    ...         self.V = V
    ...     def _apply(self, x):
    ...         return x.cumsum(-2) @ self.V.mT
    ...     def _scaled(self, factor):
    ...         return Total(factor * self.V, self.n)
    ...     def _mapped(self, change):
    ...         return Total(change(self.V), self.n)
    >>> class TestTotal(OperatorContract):
    ...     causal = True
    ...     def make(self, random, batch, n):
    ...         return Total(random(*batch, 3, 4), n)
    >>> TestTotal().check()

    Introduced in *zoo*.
    """

    causal = False
    cases: ClassVar[dict[str, list]] = {
        "batch": [(), (2,), (3, 2), (0,)],
        "n": [0, 1, 5],
        "dtype": [torch.float32, torch.float64],
    }

    def make(self, random: Callable, batch: tuple[int, ...], n: int) -> InteractionOperator:
        """Return the operator that is held to the laws. Introduced in *zoo*."""
        raise NotImplementedError("say how the operator is made: def make(self, random, batch, n)")

    def operator(
        self, batch: tuple[int, ...] = (), n: int = 5, dtype: torch.dtype = torch.float64, seed: int = 0
    ) -> tuple[InteractionOperator, Callable]:
        """Return an operator and more random numbers of its dtype. Introduced in *zoo*."""
        random = draws(dtype, seed)
        W = self.make(random, batch, n)
        law(isinstance(W, InteractionOperator), f"make must return an operator; got {type(W).__name__}")
        got = (tuple(W.batch_shape), W.n, W.dtype)
        law(got == (tuple(batch), n, dtype), f"make was asked for {(batch, n, dtype)}; it made {got}")
        return W, random

    # How it acts
    def test_it_acts_as_the_sum_over_its_blocks(self, batch, n):
        W, random = self.operator(batch, n)
        dense = W.to_dense()
        law(
            W.shape == dense.shape == (*batch, n, n, W.p, W.d),
            f"shape {tuple(W.shape)} is not that of blocks",
        )
        more = [random(2, 3, n, W.d)] if batch == () else []
        for x in (random(*batch, n, W.d), random(n, W.d), *more):
            before = x.clone()
            y = W @ x
            law(torch.equal(x, before), "W @ x changed x")
            same("W @ x", y, torch.einsum("...ijpd,...jd->...ip", dense, x))
            law(torch.equal(W(x), y) and torch.equal(W.apply(x), y), "W(x), W.apply(x) and W @ x differ")
        matrix = W.to_block_matrix() @ before.reshape(*before.shape[:-2], n * W.d, 1)
        same("to_block_matrix()", matrix.unflatten(-2, (n, W.p)).squeeze(-1), W @ before)

    def test_rows_columns_and_blocks_are_those_of_the_whole(self, batch):
        W, _ = self.operator(batch)
        dense = W.to_dense()
        same("rows()", torch.stack(list(W.rows()), dim=-4), dense)
        same("block_norms()", W.block_norms(), torch.linalg.matrix_norm(dense))
        for k in range(5):
            same(f"row({k})", W.row(k), dense[..., k, :, :, :])
            same(f"column({k})", W.column(k), dense[..., :, k, :, :])
            for name, rank, blocks in (
                ("row_rank", W.row_rank(k), dense[..., k, :, :, :]),
                ("column_rank", W.column_rank(k), dense[..., :, k, :, :]),
            ):
                wanted = torch.linalg.matrix_rank(blocks.flatten(-2))
                law(torch.equal(torch.as_tensor(rank), wanted), f"{name}({k}) is {rank}, not {wanted}")
        for i, j in ((1, 2), (-1, 0), (2, slice(None)), (slice(None), 3), (slice(1, 4), slice(3, 0, -2))):
            rows = torch.arange(5)[i].reshape(-1)
            columns = torch.tensor(range(5)[j]).reshape(-1)
            wanted = dense.index_select(-4, rows).index_select(-3, columns)
            kept = [isinstance(place, slice) for place in (i, j)]
            wanted = wanted if kept[1] else wanted.squeeze(-3)
            same(f"W[{i}, {j}]", W[i, j], wanted if kept[0] else wanted.squeeze(-4 + (not kept[1])))

    def test_the_transpose_is_the_adjoint(self, batch, n):
        W, random = self.operator(batch, n)
        y, dense = random(*batch, n, W.p), W.to_dense()
        same("W.T", W.T.to_dense(), dense.transpose(-4, -3).mT)
        same("W.T @ y", W.T @ y, torch.einsum("...ijpd,...ip->...jd", dense, y))
        same("W.T.T", W.T.T.to_dense(), dense)
        same("W.T.block_norms()", W.T.block_norms(), W.block_norms().mT)
        ranks = [torch.as_tensor(part.interaction_rank()) for part in (W, W.T)]
        law(torch.equal(*ranks), f"W.T has rank {ranks[1]}, W has {ranks[0]}")

    def test_sums_multiples_and_compositions(self, batch):
        W, random = self.operator(batch)
        again, _ = self.operator(batch, seed=1)
        other, after = DenseOperator(random(*batch, 5, 5, W.p, W.d)), DenseOperator(random(5, 5, 2, W.p))
        before = DenseOperator(random(5, 5, W.d, 2))
        square = again if W.p == W.d else again.T
        x, y = random(*batch, 5, W.d), random(5, 2)
        for name, got, wanted in (
            ("W + V", (W + other) @ x, W @ x + other @ x),
            ("V + W", (other + W) @ x, W @ x + other @ x),
            ("W + W'", (W + again) @ x, W @ x + again @ x),
            ("W - W'", (W - again) @ x, W @ x - again @ x),
            ("sum", sum([W, again, W]) @ x, 2 * (W @ x) + again @ x),
            ("-W", -W @ x, -(W @ x)),
            ("3 * W", (3 * W) @ x, 3 * (W @ x)),
            ("W * tensor", (W * torch.tensor(3.0)) @ x, 3 * (W @ x)),
            ("W / 4", (W / 4) @ x, (W @ x) / 4),
            ("V @ W", (after @ W) @ x, after @ (W @ x)),
            ("W @ V", (W @ before) @ y, W @ (before @ y)),
            ("W @ W'", (W @ square) @ (z := random(*batch, 5, square.d)), W @ (square @ z)),
            ("V @ W", (after @ W).to_dense(), (after @ DenseOperator(W.to_dense())).to_dense()),
        ):
            same(name, got, wanted)
        same("spectrum of W + V", (W + other).spectrum(), torch.linalg.svdvals(_rearranged(W + other)))

    # What it spans
    def test_spectrum_and_rank_are_those_of_its_blocks(self, batch, n):
        W, _ = self.operator(batch, n)
        sigma, wanted = W.spectrum(), torch.linalg.svdvals(_rearranged(W))
        size = max(sigma.shape[-1], wanted.shape[-1])
        full, wanted = (torch.nn.functional.pad(s, (0, size - s.shape[-1])) for s in (sigma, wanted))
        same("spectrum()", full, wanted)
        law(not sigma.requires_grad, "spectrum() must be detached")
        law(W.span_matrix().shape[-2] <= W.p * W.d, "span_matrix() has more rows than columns")
        largest = wanted[..., :1].sum(-1, keepdim=True)
        rank, counted = W.interaction_rank(), (wanted > 1e-10 * largest).sum(-1)
        law(isinstance(rank, int) if batch == () else rank.dtype == torch.int64, "a rank is an int, or int64")
        law(torch.equal(torch.as_tensor(rank), counted), f"interaction_rank() is {rank}, not {counted}")
        basis = operator_span(W).flatten(-2)
        rows = _rearranged(W).reshape(-1, W.p * W.d)
        same("operator_span(W)", basis @ basis.mT, torch.eye(len(basis), dtype=basis.dtype))
        same("W in its span", rows @ basis.mT @ basis, rows, 1e-10)

    def test_best_heads_leave_the_floor_and_no_less(self, batch):
        W, _ = self.operator(batch)
        sigma, rows, curve = torch.linalg.svdvals(_rearranged(W)), _rearranged(W), W.floor()
        energy = sigma.square().sum(-1)
        for H in range(min(25, W.p * W.d) + 1):
            heads = W.best_heads(H)
            law(heads.H == H, f"best_heads({H}) has {heads.H} heads")
            missed = (rows - _rearranged(heads)).square().sum((-2, -1))
            tail = sigma[..., H:].square().sum(-1)
            same(f"‖W − best_heads({H})‖² + ‖W‖²", missed + energy, tail + energy)
            floor = curve[..., min(H, curve.shape[-1] - 1)]
            same(f"floor({H}) + 1", floor + 1, tail / torch.where(energy > 0, energy, 1) + 1)
        for eps in (0.5, 0.1, 1e-3):
            heads = torch.as_tensor(W.epsilon_heads(eps))
            law(
                torch.equal(heads, (curve > eps).sum(-1)),
                f"epsilon_heads({eps}) is not where floor() falls below",
            )

    def test_a_causal_operator_has_a_memory_and_no_other(self, batch):
        W, _ = self.operator(batch)
        dense = W.to_dense()
        if not self.causal:
            if 0 not in batch:
                refuses(W.past_future_rank, ValueError, "past_future_rank() of an operator that looks ahead")
            return
        future = torch.ones(5, 5, dtype=torch.bool).triu(1)
        law(bool((dense[..., future, :, :] == 0).all()), "a causal operator has W_ij = 0 for j > i")
        cuts = [dense[..., t:, :t, :, :].transpose(-3, -2) for t in range(1, 5)]
        ranks = [torch.linalg.matrix_rank(cut.flatten(-2).flatten(-3, -2), rtol=1e-9) for cut in cuts]
        found, wanted = torch.as_tensor(W.past_future_rank()), torch.stack(ranks).amax(0)
        law(torch.equal(found, wanted), f"past_future_rank() is {found}, not {wanted}")

    # How it behaves
    def test_dtype_and_device_are_kept(self, dtype):
        W, random = self.operator((2,), dtype=dtype)
        heads, short = W.best_heads(2), W.to(torch.float32)
        parts = [W @ random(2, 5, W.d), W.to_dense(), W.row(1), W.column(1), W.block_norms(), heads.alpha]
        parts += [heads.V, operator_span(W), (0.5 * W).to_dense(), W.T.to_dense(), W.to("cpu").to_dense()]
        law(
            {(part.dtype, part.device) for part in parts} == {(dtype, W.device)}, f"not all parts are {dtype}"
        )
        law(W.spectrum().dtype == torch.float64, "spectrum() is in float64")
        law(
            type(short) is type(W) and short.dtype == torch.float32, "W.to(torch.float32) is of the same kind"
        )
        same("W.to(torch.float32)", short.to_dense().to(dtype), W.to_dense(), 1e-5)

    def test_gradients_flow_and_stop_where_they_are_told(self):
        W, random = self.operator((2,), 3)
        x, y = random(2, 3, W.d).requires_grad_(), random(2, 3, W.p).requires_grad_()
        law(torch.autograd.gradcheck(W.apply, (x,)), "the gradient of W @ x by x is wrong")
        law(torch.autograd.gradcheck(W.T.apply, (y,)), "the gradient of W.T @ y by y is wrong")
        scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        held = scale * W
        (slope,) = torch.autograd.grad((held @ x).sum(), scale)
        same("the gradient by a factor", slope, (W @ x).sum())
        law(not (held.detach() @ x.detach()).requires_grad, "W.detach() still carries a gradient")
        same("W.detach()", held.detach().to_dense(), W.to_dense())

    def test_what_does_not_fit_is_refused(self):
        W, random = self.operator()
        refuses(lambda: W @ random(4, W.d), ValueError, "another number of tokens")
        refuses(lambda: W @ random(5, W.d + 1), ValueError, "another width")
        refuses(lambda: W @ random(5, W.d).float(), TypeError, "another dtype")
        refuses(lambda: W.row(5), ValueError, "row(5) of 5 tokens")
        refuses(lambda: W[5], IndexError, "W[5] of 5 tokens")
        for bad in (float("nan"), float("inf")):
            broken = bad * W
            calls = [broken.spectrum, broken.interaction_rank, broken.floor, broken.span_matrix]
            calls += [
                lambda W=broken: W.best_heads(1),
                lambda W=broken: W.row_rank(4),
            ]
            calls += [lambda W=broken: W.column_rank(0), lambda W=broken: operator_span(W)]
            for call in calls:
                refuses(call, ValueError, f"ranking blocks of {bad}")
