"""The laws of sequence maps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call

from ssmbook.maps import SequenceMap
from ssmbook.testing._draws import draws

LENGTH = 7
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def _same(name: str, got: Tensor, wanted: Tensor, rtol: float = 1e-11) -> None:
    """Require shape, dtype, device, and entries up to ``rtol`` times the largest one."""
    largest = float(wanted.detach().abs().max()) if wanted.numel() else 0.0
    torch.testing.assert_close(got, wanted, rtol=0, atol=rtol * largest, msg=lambda text: f"{name}: {text}")


def _refuses(call: Callable, *tensors: Tensor) -> None:
    """Require that a call raises an error for the last of its tensors."""
    try:
        call(*tensors)
    except (TypeError, ValueError):
        return
    raise AssertionError(f"{tensors[-1].dtype} of shape {tuple(tensors[-1].shape)} must be refused")


class MapContract:
    """The laws of every sequence map.

    ``make(**new)`` returns your map, of any d and p; ``new`` holds the ``generator``,
    ``dtype`` and ``device`` of its parameters. Every token must reach the output. What runs
    token by token `check_layer` tries.

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
        _same("interaction(x) @ x", W @ x, y)
        _same("the sum over blocks", torch.einsum("...ijpd,...jd->...ip", W.to_dense(), x), y)
        _same("interaction(x) @ x without tokens", m.interaction(x[:, :0]) @ x[:, :0], m(x[:, :0]))

    def test_zero_input_gives_zero_output_and_a_finite_interaction(self) -> None:
        m = self.map()
        zero = torch.zeros_like(self.tokens(m))
        _same("the output for x = 0", m(zero), zero.new_zeros(LENGTH, m.p))
        assert m.interaction(zero).to_dense().isfinite().all(), "interaction(0) must be finite"

    def test_batch_elements_do_not_mix(self) -> None:
        m = self.map()
        x = self.tokens(m, 3, LENGTH)
        _same("the output of a batch", m(x), torch.stack([m(element) for element in x]))

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
        _same("the gradient through interaction(x)", got, wanted, 1e-10)

    def test_dtype_and_device_are_kept(self) -> None:
        for device in DEVICES:
            m = self.map(torch.float32, device)
            x = self.tokens(m).to(device, torch.float32)
            y, W = m(x), m.interaction(x)
            found = {part.dtype for part in (y, W, W.to_dense(), *m.state_dict().values())}
            assert found == {torch.float32}, f"a map in float32 has parts in {found}"
            assert y.device == W.device == x.device, f"a part is not on {device}"
            _same("interaction(x) @ x in float32", W @ x, y, 1e-4)

    def test_wrong_tokens_are_refused(self) -> None:
        m = self.map()
        x = self.tokens(m)
        for wrong in (x[0], torch.cat([x, x], -1), x.float()):
            _refuses(m, wrong)
            _refuses(m.interaction, wrong)
