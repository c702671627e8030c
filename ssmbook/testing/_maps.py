"""The laws of every sequence map, and of those that run token by token."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.func import functional_call

from ssmbook.maps import SequenceMap
from ssmbook.testing._contract import Contract, draws, law, refuses, same

LENGTH = 9
_DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


class MapContract(Contract):
    """The laws of every sequence map: inherit, and say how yours is made.

    ``make(**new)`` returns the map, of any d and p; ``new`` holds ``generator``, ``dtype`` and ``device`` for
    its parameters. Every token must reach the output, and nothing may depend on other batch elements.

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

    Introduced in *zoo*.
    """

    cases: ClassVar[dict[str, list]] = {
        "batch": [(), (2,), (2, 3)],
        "n": [1, 2, 7],
        "empty": [(0,), (2, 0), (0, 5), (0, 0), (2, 0, 3)],
        "scale": [1e-9, 30.0],
        "dtype": [torch.float32, torch.float64],
        "device": _DEVICES,
    }

    def make(self, **new: Any) -> SequenceMap:
        """Return the map that is held to the laws. Introduced in *zoo*."""
        raise NotImplementedError("say how the map is made: def make(self, **new)")

    def map(self, dtype: torch.dtype = torch.float64, device: str = "cpu") -> SequenceMap:
        """Return the map, the same on each call. Introduced in *zoo*."""
        generator = torch.Generator(device).manual_seed(0)
        m = self.make(generator=generator, dtype=dtype, device=device)
        law(isinstance(m, torch.nn.Module), f"make must return a map; got {type(m).__name__}")
        return m

    def tokens(
        self,
        m: SequenceMap,
        *shape: int,
        dtype: torch.dtype = torch.float64,
        device: str = "cpu",
        seed: int = 1,
    ) -> torch.Tensor:
        """Return random tokens (*shape, d), by default nine of them. Introduced in *zoo*."""
        return draws(dtype, seed, device)(*(shape or (LENGTH,)), m.d)

    # The operator is the map
    def test_forward_is_the_interaction_applied(self, batch, n):
        m = self.map()
        x = self.tokens(m, *batch, n)
        y, W = m(x), m.interaction(x)
        law((W.n, W.p, W.d) == (n, m.p, m.d), f"interaction(x) has n, p, d = {W.n, W.p, W.d}")
        law(y.shape == (*batch, n, m.p), f"the output has shape {tuple(y.shape)}")
        law(bool((y != 0).all(-1).any()), "the output is zero: nothing is tested")
        same("interaction(x) @ x", W @ x, y)
        same("the sum over blocks", torch.einsum("...ijpd,...jd->...ip", W.to_dense(), x), y)

    def test_forward_is_the_interaction_applied_at_other_scales(self, scale):
        m = self.map()
        x = scale * self.tokens(m)
        same("interaction(x) @ x", m.interaction(x) @ x, m(x))

    def test_zero_input_gives_zero_output_and_a_finite_interaction(self):
        m = self.map()
        x = self.tokens(m)
        x[3:5] = 0
        same("interaction(x) @ x", m.interaction(x) @ x, m(x))
        zero = torch.zeros_like(x)
        same("the output for x = 0", m(zero), zero.new_zeros(LENGTH, m.p))
        law(bool(torch.isfinite(m.interaction(zero).to_dense()).all()), "interaction(0) must be finite")

    def test_nothing_in_nothing_out(self, empty):
        m = self.map()
        x = self.tokens(m, *empty)
        W = m.interaction(x)
        law(W.n == empty[-1], f"interaction(x) has {W.n} tokens, x has {empty[-1]}")
        same("interaction(x) @ x", W @ x, m(x))

    # What may meet
    def test_batch_elements_do_not_meet(self):
        m = self.map()
        x = self.tokens(m, 2, 3, 5)
        alone = torch.stack([torch.stack([m(element) for element in row]) for row in x])
        same("the output of a batch", m(x), alone)

    def test_future_tokens_change_nothing_where_the_map_is_causal(self):
        m = self.map()
        x = self.tokens(m)
        changed = x.clone()
        changed[5:] = 3 * self.tokens(m, seed=2)[5:]
        with torch.no_grad():
            moved = float((m(changed)[:5] - m(x)[:5]).abs().max())
            blocks = m.interaction(x).to_dense()
        above = float(blocks[torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)].abs().max())
        if m.causal:
            law(
                moved <= 1e-14 and above == 0,
                f"a later token moves an output by {moved:.2g}, blocks {above:.2g}",
            )
        else:
            law(moved > 1e-3 and above > 1e-3, "the map looks causal; say so with causal=True")

    def test_nothing_is_changed_and_one_seed_is_one_map(self):
        m = self.map()
        x = self.tokens(m)
        kept, weights = x.clone(), {name: value.clone() for name, value in m.state_dict().items()}
        y = m(x)
        m.interaction(x).to_dense()
        law(torch.equal(x, kept), "the input was changed")
        same_weights = all(torch.equal(value, weights[name]) for name, value in m.state_dict().items())
        law(same_weights, "a parameter was changed")
        law(torch.equal(self.map()(x), y), "two maps of one seed differ")

    # Gradients, dtypes, devices
    def test_gradients_by_input_and_parameters(self):
        m = self.map()
        x = self.tokens(m, 3).requires_grad_()
        names, values = zip(*((k, v.detach().clone()) for k, v in m.named_parameters()), strict=True)

        def call(x, *parameters):
            return functional_call(m, dict(zip(names, parameters, strict=True)), (x,))

        leaves = (x, *(value.requires_grad_() for value in values))
        law(torch.autograd.gradcheck(call, leaves), "a gradient is wrong")

    def test_the_interaction_carries_gradients(self):
        m = self.map()
        x, first = self.tokens(m), next(m.parameters())
        (by_forward,) = torch.autograd.grad(m(x).square().sum(), [first])
        (by_operator,) = torch.autograd.grad(
            (m.interaction(x) @ x).square().sum(), [first], allow_unused=True
        )
        law(by_operator is not None, "interaction(x) is detached from the parameters")
        same("the gradient through interaction(x)", by_operator, by_forward, 1e-10)

    def test_dtype_and_device_are_kept(self, dtype, device):
        m = self.map(dtype, device)
        x = self.tokens(m, 2, 5, dtype=dtype, device=device)
        W = m.interaction(x)
        found = {m(x).dtype, W.dtype, W.to_dense().dtype, *(value.dtype for value in m.state_dict().values())}
        law(found == {dtype}, f"asked for {dtype}; found {found}")
        law(m(x).device == W.device == x.device, "the device of x is not kept")
        same("interaction(x) @ x", W @ x, m(x), 1e-4 if dtype == torch.float32 else 1e-11)
        single = m.to(torch.float32)(x.float())
        same("the map moved to float32", single, self.map(dtype, device)(x).float(), 1e-3)
        law(
            self.map(None)(x.cpu().float()).dtype == torch.get_default_dtype(),
            "dtype=None is torch's default",
        )

    def test_what_does_not_fit_is_refused(self):
        m = self.map()
        for call in (m, m.interaction):
            for shape in ((m.d,), (5, m.d + 1), (5, m.d + 2), ()):
                refuses(
                    lambda call=call, shape=shape: call(self.tokens(m).new_zeros(shape)),
                    ValueError,
                    f"x {shape}",
                )
            x = self.tokens(m)
            for bad in (x.float(), x.long(), x.tolist()):
                refuses(lambda call=call, bad=bad: call(bad), TypeError, "x of another dtype or type")
            refuses(lambda call=call, x=x: call(x.to("meta")), ValueError, "x on another device")


class RecurrentMapContract(MapContract):
    """The laws of a map that can be run token by token, beside those of every map.

    ``make`` as in ``MapContract``, for a ``RecurrentMap``. Introduced in *zoo*.
    """

    cases: ClassVar[dict[str, list]] = MapContract.cases | {"cut": [0, 1, 4, 9]}

    def test_steps_make_the_whole(self, batch, n):
        m = self.map()
        x = self.tokens(m, *batch, n)
        state, outputs = None, []
        for x_t in x.unbind(-2):
            y_t, state = m.step(x_t, state)
            outputs.append(y_t)
        same("the outputs of step", torch.stack(outputs, -2), m(x))

    def test_pieces_make_the_whole(self, cut):
        m = self.map()
        x = self.tokens(m, 2, LENGTH)
        first, state = m.run(x[:, :cut])
        second, state = m.run(x[:, cut:], state)
        same("two runs", torch.cat([first, second], -2), m(x))
        same("the state after two runs", state, m.run(x)[1])

    def test_a_state_is_kept(self):
        m = self.map()
        x = self.tokens(m)
        _, state = m.run(x)
        before = state.clone()
        m.step(x[0], state)
        law(torch.equal(state, before), "step changed the state it was given")
        y, after = m.run(self.tokens(m, 0), state)
        same("the output of no tokens", y, x.new_zeros(0, m.p))
        law(torch.equal(after, state), "no tokens changed the state")

    def test_gradients_reach_the_initial_state(self):
        m = self.map()
        x = self.tokens(m, 3)
        state = m.run(self.tokens(m, 4, seed=3))[1].detach().requires_grad_()
        law(
            torch.autograd.gradcheck(lambda state: m.run(x, state), (state,)),
            "the gradient by the state is wrong",
        )

    def test_the_state_is_on_the_device(self, device):
        m = self.map(device=device)
        x = self.tokens(m, 2, 5, device=device)
        y, state = m.run(x)
        law(state.device == x.device, "the state is not on the device of x")
        same("run", y, m(x))

    def test_a_bad_state_or_token_is_refused(self):
        m = self.map()
        x_t, state = self.tokens(m, 2), m.initial_state((2,))
        other = torch.complex64 if state.is_complex() else torch.float32
        refuses(lambda: m.step(x_t, m.initial_state()), ValueError, "a state without the batch of the token")
        refuses(lambda: m.run(x_t[:, None], state[..., :-1]), ValueError, "a state that is too small")
        refuses(lambda: m.step(x_t, []), TypeError, "a state that is no tensor")
        refuses(lambda: m.step(x_t, state.to(other)), TypeError, "a state of another dtype")
        refuses(lambda: m.step(x_t[:, :-1], state), ValueError, "a token that is too narrow")
