"""The laws of interaction operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ssmbook.operators import DenseOperator, InteractionOperator
from ssmbook.testing._contract import Contract, same
from ssmbook.testing._draws import draws


class OperatorContract(Contract):
    """The laws of every interaction operator, each against the dense blocks.

    ``make(random, batch, n)`` returns your operator, of any p and d, for a batch shape and
    a number of tokens; ``random(*shape)`` draws the numbers to make it from. Set ``causal``
    if W_ij = 0 for j > i.

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
    """

    causal = False

    def make(self, random: Callable[..., Tensor], batch: tuple[int, ...], n: int) -> InteractionOperator:
        """Return the operator to be tested."""
        raise NotImplementedError("write how the operator is made: def make(self, random, batch, n)")

    def operator(self, *batch: int, n: int = 5, seed: int = 0) -> tuple[InteractionOperator, Callable]:
        """Return an operator, and a function that draws more numbers."""
        random = partial(torch.randn, **draws(seed))
        W = self.make(random, batch, n)
        assert (tuple(W.batch_shape), W.n) == (batch, n), f"make gave {tuple(W.batch_shape)} and {W.n} tokens"
        return W, random

    def test_it_acts_as_the_sum_over_its_blocks(self) -> None:
        for batch, n in (((), 5), ((2,), 5), ((), 0)):
            W, random = self.operator(*batch, n=n)
            x = random(*batch, n, W.d)
            before = x.clone()
            same("W @ x", W @ x, torch.einsum("...ijpd,...jd->...ip", W.to_dense(), x))
            assert torch.equal(x, before), "W @ x changed x"

    def test_rows_columns_and_blocks_are_those_of_the_whole(self) -> None:
        W, _ = self.operator(2)
        dense = W.to_dense()
        same("block_norms()", W.block_norms(), torch.linalg.matrix_norm(dense))
        same("W[1, 3]", W[1, 3], dense[:, 1, 3])
        for k in range(5):
            same(f"row({k})", W.row(k), dense[:, k])
            same(f"column({k})", W.column(k), dense[:, :, k])

    def test_the_transpose_is_the_adjoint(self) -> None:
        W, random = self.operator(2)
        y, dense = random(2, 5, W.p), W.to_dense()
        same("W.T", W.T.to_dense(), dense.transpose(-4, -3).mT)
        same("W.T @ y", W.T @ y, torch.einsum("...ijpd,...ip->...jd", dense, y))
        assert torch.equal(W.T.interaction_rank(), W.interaction_rank()), "W.T and W differ in rank"

    def test_sums_multiples_and_compositions(self) -> None:
        W, random = self.operator(2)
        again, _ = self.operator(2, seed=1)
        other, after = DenseOperator(random(2, 5, 5, W.p, W.d)), DenseOperator(random(5, 5, 2, W.p))
        before = DenseOperator(random(5, 5, W.d, 2))
        x, y = random(2, 5, W.d), random(5, 2)
        for name, got, wanted in (
            ("W + V", (W + other) @ x, W @ x + other @ x),
            ("W - W'", (W - again) @ x, W @ x - again @ x),
            ("3 * W", (3 * W) @ x, 3 * (W @ x)),
            ("V @ W", (after @ W) @ x, after @ (W @ x)),
            ("W @ V", (W @ before) @ y, W @ (before @ y)),
            ("W.T @ W", (W.T @ W) @ x, W.T @ (W @ x)),
        ):
            same(name, got, wanted)

    def test_spectrum_and_rank_are_those_of_its_blocks(self) -> None:
        W, _ = self.operator(2)
        sigma = torch.linalg.svdvals(W.to_dense().flatten(-4, -3).flatten(-2))  # of the rows vec W_ij
        size = min(sigma.shape[-1], W.spectrum().shape[-1])
        same("spectrum()", W.spectrum()[:, :size], sigma[:, :size])
        rank = (sigma > 1e-10 * sigma[:, :1]).sum(-1)
        assert torch.equal(W.interaction_rank(), rank), f"interaction_rank() is not {rank.tolist()}"
        missed = (W.to_dense() - W.best_heads(1).to_dense()).square().sum((-4, -3, -2, -1)).sqrt()
        size = sigma.norm(dim=-1)
        same("‖W − best_heads(1)‖ + ‖W‖", missed + size, sigma[:, 1:].norm(dim=-1) + size)

    def test_a_causal_operator_has_a_memory(self) -> None:
        W, _ = self.operator(2)
        if not self.causal:
            return
        dense = W.to_dense()
        assert (dense[:, torch.ones(5, 5, dtype=torch.bool).triu(1)] == 0).all(), "W_ij is not 0 for j > i"
        cuts = [dense[:, t:, :t].transpose(-3, -2).flatten(-2).flatten(-3, -2) for t in range(1, 5)]
        wanted = torch.stack([torch.linalg.matrix_rank(cut, rtol=1e-9) for cut in cuts]).amax(0)
        assert torch.equal(W.past_future_rank(), wanted), "past_future_rank() is not that of the widest cut"

    def test_dtype_is_kept(self) -> None:
        W, random = self.operator(2)
        short = W.to(torch.float32)
        assert type(short) is type(W), "W.to(torch.float32) is of another kind"
        parts = [short @ random(2, 5, W.d).float(), short.row(1), short.block_norms(), short.T.to_dense()]
        assert {part.dtype for part in parts} == {torch.float32}, "an operator in float32 has other parts"
        same("W.to(torch.float32)", short.to_dense().double(), W.to_dense(), 1e-5)

    def test_gradients_flow_and_stop_where_they_should(self) -> None:
        W, random = self.operator(2, n=3)
        x, y = random(2, 3, W.d).requires_grad_(), random(2, 3, W.p).requires_grad_()
        torch.autograd.gradcheck(W.apply, (x,))
        torch.autograd.gradcheck(W.T.apply, (y,))
        scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad((scale * W @ x).sum(), scale)
        same("the gradient by a factor", slope, (W @ x).sum())
        assert not (scale * W).detach().to_dense().requires_grad, "W.detach() still carries a gradient"
