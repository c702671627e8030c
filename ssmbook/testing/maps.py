"""The laws of sequence maps, and of those that run token by token."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from ssmbook.maps import SequenceMap
from ssmbook.testing._contract import Contract, refuses, same
from ssmbook.testing._draws import draws

LENGTH = 7
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


class MapContract(Contract):
    """The laws of every sequence map.

    ``make(**new)`` returns your map, of any d and p; ``new`` holds the ``generator``,
    ``dtype`` and ``device`` of its parameters. Every token must reach the output. Use
    ``RecurrentMapContract`` for a map that also runs token by token.

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

    def make(self, *, generator: torch.Generator, dtype: torch.dtype, device: str) -> SequenceMap:
        """Return the map to be tested."""
        raise NotImplementedError("write how the map is made: def make(self, **new)")

    def map(self, dtype: torch.dtype = torch.float64, device: str = "cpu") -> SequenceMap:
        """Return the map, the same on each call."""
        generator = torch.Generator(device).manual_seed(0)
        return self.make(generator=generator, dtype=dtype, device=device)

    def tokens(self, m: SequenceMap, *shape: int, seed: int = 1) -> Tensor:
        """Return random tokens (*shape, d); without a shape, seven of them."""
        return torch.randn(*(shape or (LENGTH,)), m.d, **draws(seed))

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
        x, zero = self.tokens(m, 2, LENGTH), m.initial_state((2,))
        whole, end = m(x, zero)
        same("the output from the zero state", whole, m(x))
        for cut in (0, 4, LENGTH):
            first, state = m(x[:, :cut], zero)
            before = state.clone()
            second, after = m(x[:, cut:], state)
            pieces = torch.cat([first, second], -2)
            same("the outputs of two pieces", pieces, whole)
            same("the state after two pieces", after, end)
            assert torch.equal(state, before), "a call changed the state it was given"
            for name, parameter in m.named_parameters():
                (got,), (wanted,) = (
                    torch.autograd.grad(y.square().sum(), [parameter], retain_graph=True)
                    for y in (pieces, whole)
                )
                same(f"the gradient of {name} through two pieces", got, wanted, 1e-10)

    def test_resets_part_packed_sequences(self) -> None:
        m = self.map()
        x = self.tokens(m, 2, LENGTH)
        state = m.run(self.tokens(m, 2, 4, seed=3))[1]
        for cuts in ((3, 5), (4, 4), (0, LENGTH - 1)):
            resets = torch.arange(LENGTH) == torch.tensor(cuts)[:, None]
            shared = resets[0] if cuts[0] == cuts[1] else resets
            y, end = m(x, state, shared)
            for i, cut in enumerate(cuts):
                first, _ = m(x[i, :cut], state[i])
                second, after = m(x[i, cut:], m.initial_state())
                same("the outputs of packed sequences", y[i], torch.cat([first, second]))
                same("the state after packed sequences", end[i], after)

    def test_gradients_reach_the_initial_state(self) -> None:
        m = self.map()
        x = self.tokens(m, 3)
        state = m.run(self.tokens(m, 4, seed=3))[1].detach().requires_grad_()
        torch.autograd.gradcheck(lambda state: m(x, state), (state,))

    def test_a_wrong_state_is_refused(self) -> None:
        m = self.map()
        x, state = self.tokens(m, 2, LENGTH), m.initial_state((2,))
        for wrong in (m.initial_state(), state[..., :-1], state.to(torch.complex64)):
            refuses(m.step, x[:, 0], wrong)
            refuses(m, x, wrong)
        resets = torch.zeros(2, LENGTH, dtype=torch.bool)
        for wrong in (resets[:, 1:], resets[:1], resets.long()):
            refuses(m, x, state, wrong)
