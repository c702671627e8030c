"""Laws that your own operator or sequence map can be tested against, in a test file or by ``check()``.

Each law is a method whose name begins with ``test_``. Inherit from a contract and write ``make``; then pytest
runs the laws of every subclass that is called ``Test…``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from ssmbook.maps import SequenceMap
from ssmbook.operators import DenseOperator, InteractionOperator

__all__ = ["MapContract", "OperatorContract", "RecurrentMapContract"]

LENGTH = 7
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


class _Contract:
    def check(self) -> None:
        """Run all laws; raise ``AssertionError`` with a line for each one that is broken."""
        broken = []
        for name in (name for name in dir(self) if name.startswith("test_")):
            try:
                getattr(self, name)()
            except Exception as error:  # whatever a reader's class raises breaks the law
                broken.append(f"{name}: {error or type(error).__name__}")
        if broken:
            raise AssertionError("\n".join(broken))


def normal_entries(seed: int) -> Callable[..., Tensor]:
    """Return ``random(*shape)``, which draws normal entries; the same seed gives the same numbers."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def same(name: str, got: Tensor, wanted: Tensor, rtol: float = 1e-11) -> None:
    """Require shape, dtype, device, and entries up to ``rtol`` times the largest one."""
    largest = float(wanted.detach().abs().max()) if wanted.numel() else 0.0
    torch.testing.assert_close(got, wanted, rtol=0, atol=rtol * largest, msg=lambda text: f"{name}: {text}")


def refuses(call: Callable, *tensors: Tensor) -> None:
    """Require that a call raises an error for the last of its tensors."""
    try:
        call(*tensors)
    except (TypeError, ValueError):
        return
    raise AssertionError(f"{tensors[-1].dtype} of shape {tuple(tensors[-1].shape)} must be refused")


class MapContract(_Contract):
    """The laws of every sequence map.

    ``make(**new)`` returns your map, of any d and p; ``new`` holds the ``generator``, ``dtype`` and
    ``device`` of its parameters. Every token must reach the output.
    Use ``RecurrentMapContract`` for a map that also runs token by token.

    >>> import torch
    >>> from ssmbook.maps import SequenceMap
    >>> from ssmbook.operators import RecurrentOperator
    >>> class Total(SequenceMap):  # y_i = V (x_0 + … + x_i)
    ...     def __init__(self, d, p, **new):
    ...         super().__init__(d, p)
    ...         self.V = torch.nn.Parameter(torch.randn(p, d, **new))
    ...     def _forward(self, x):
    ...         return x.cumsum(-2) @ self.V.mT
    ...     def _interaction(self, x):
    ...         one = torch.eye(self.d).to(self.V).expand(*x.shape[:-1], self.d, self.d)
    ...         return RecurrentOperator(one, one, self.V.expand(*x.shape[:-1], self.p, self.d))
    >>> class TestTotal(MapContract):
    ...     def make(self, **new):
    ...         return Total(4, 3, **new)
    >>> TestTotal().check()
    """

    def make(self, **new: Any) -> SequenceMap:
        """Return the map to be tested."""
        raise NotImplementedError("write how the map is made: def make(self, **new)")

    def map(self, dtype: torch.dtype = torch.float64, device: str = "cpu") -> SequenceMap:
        """Return the map, the same on each call."""
        generator = torch.Generator(device).manual_seed(0)
        return self.make(generator=generator, dtype=dtype, device=device)

    def tokens(self, m: SequenceMap, *shape: int, seed: int = 1) -> Tensor:
        """Return random tokens (*shape, d); without a shape, seven of them."""
        return normal_entries(seed)(*(shape or (LENGTH,)), m.d)

    def test_forward_is_the_interaction_applied(self) -> None:
        m = self.map()
        x = self.tokens(m, 2, LENGTH)
        y, W = m(x), m.interaction(x)
        assert (y != 0).all(-1).any(), "the output is zero, so nothing is tested"
        same("interaction(x) @ x", W @ x, y)
        same("the sum over blocks", torch.einsum("...ijpd,...jd->...ip", W.to_dense(), x), y)
        same("interaction(x) @ x without tokens", m.interaction(x[:, :0]) @ x[:, :0], m(x[:, :0]))

    def test_zero_input_gives_zero_output_and_a_finite_interaction(self) -> None:
        m = self.map()
        zero = torch.zeros_like(self.tokens(m))
        same("the output for x = 0", m(zero), zero.new_zeros(LENGTH, m.p))
        assert m.interaction(zero).to_dense().isfinite().all(), "interaction(0) must be finite"

    def test_batch_elements_do_not_mix(self) -> None:
        m = self.map()
        x = self.tokens(m, 3, LENGTH)
        same("the output of a batch", m(x), torch.stack([m(element) for element in x]))

    def test_later_tokens_change_nothing_where_the_map_is_causal(self) -> None:
        m = self.map()
        x = self.tokens(m)
        changed = torch.cat([x[:5], 3 * self.tokens(m, seed=2)[5:]])
        moved = float((m(changed)[:5] - m(x)[:5]).detach().abs().max())
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        above = float(m.interaction(x).to_dense()[later].detach().abs().max())
        if m.causal:
            assert moved <= 1e-14 and above == 0, f"a later token moves an output by {moved:.2g}"
        else:
            assert moved > 1e-3 and above > 1e-3, "the map looks causal: write causal=True"

    def test_nothing_is_changed_and_one_seed_is_one_map(self) -> None:
        m = self.map()
        x = self.tokens(m)
        before, weights = x.clone(), {name: value.clone() for name, value in m.state_dict().items()}
        y = m(x)
        m.interaction(x).to_dense()
        assert torch.equal(x, before), "the input was changed"
        for name, value in m.state_dict().items():
            assert torch.equal(value, weights[name]), f"the parameter {name} was changed"
        assert torch.equal(self.map()(x), y), "two maps of one seed differ"

    def test_gradients_by_input_and_parameters(self) -> None:
        m = self.map()
        x = self.tokens(m, 3).requires_grad_()
        names = [name for name, _ in m.named_parameters()]
        values = [value.detach().clone().requires_grad_() for value in m.parameters()]

        def call(x: Tensor, *values: Tensor) -> Tensor:
            return functional_call(m, dict(zip(names, values, strict=True)), (x,))

        torch.autograd.gradcheck(call, (x, *values))

    def test_the_interaction_carries_gradients(self) -> None:
        m = self.map()
        x, first = self.tokens(m), next(m.parameters())
        (wanted,) = torch.autograd.grad(m(x).square().sum(), [first])
        (got,) = torch.autograd.grad((m.interaction(x) @ x).square().sum(), [first], allow_unused=True)
        assert got is not None, "interaction(x) is detached from the parameters"
        same("the gradient through interaction(x)", got, wanted, 1e-10)

    def test_dtype_and_device_are_kept(self) -> None:
        for device in DEVICES:
            m = self.map(torch.float32, device)
            x = self.tokens(m).to(device, torch.float32)
            y, W = m(x), m.interaction(x)
            found = {part.dtype for part in (y, W, W.to_dense(), *m.state_dict().values())}
            assert found == {torch.float32}, f"a map in float32 has parts in {found}"
            assert y.device == W.device == x.device, f"a part is not on {device}"
            same("interaction(x) @ x in float32", W @ x, y, 1e-4)

    def test_wrong_tokens_are_refused(self) -> None:
        m = self.map()
        x = self.tokens(m)
        for wrong in (x[0], torch.cat([x, x], -1), x.float()):
            refuses(m, wrong)
            refuses(m.interaction, wrong)


class RecurrentMapContract(MapContract):
    """The laws of a map that also runs token by token; ``make`` returns a ``RecurrentMap``."""

    def test_steps_make_the_whole(self) -> None:
        m = self.map()
        x = self.tokens(m, 2, LENGTH)
        state, whole = None, m(x)
        for i in range(LENGTH):
            y_i, state = m.step(x[:, i], state)
            same(f"the output of step {i}", y_i, whole[:, i])

    def test_pieces_make_the_whole_and_leave_the_state(self) -> None:
        m = self.map()
        x = self.tokens(m, 2, LENGTH)
        for cut in (0, 4, LENGTH):
            first, state = m.run(x[:, :cut])
            before = state.clone()
            second, after = m.run(x[:, cut:], state)
            same("the outputs of two runs", torch.cat([first, second], -2), m(x))
            same("the state after two runs", after, m.run(x)[1])
            assert torch.equal(state, before), "run changed the state it was given"

    def test_gradients_reach_the_initial_state(self) -> None:
        m = self.map()
        x = self.tokens(m, 3)
        state = m.run(self.tokens(m, 4, seed=3))[1].detach().requires_grad_()
        torch.autograd.gradcheck(lambda state: m.run(x, state), (state,))

    def test_a_wrong_state_is_refused(self) -> None:
        m = self.map()
        x_t, state = self.tokens(m, 2), m.initial_state((2,))
        for wrong in (m.initial_state(), state[..., :-1], state.to(torch.complex64)):
            refuses(m.step, x_t, wrong)


class OperatorContract(_Contract):
    """The laws of every interaction operator, each against the dense blocks.

    ``make(random, batch, n)`` returns your operator, of any p and d, for a batch shape and a number of
    tokens; ``random(*shape)`` draws the numbers to make it from. Set ``causal`` if W_ij = 0 for j > i.

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
        random = normal_entries(seed)
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
