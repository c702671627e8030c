"""The one contract every sequence map keeps, inherited by all of them through the zoo."""

import pytest
import torch
from torch.func import functional_call

from ssmbook.maps import RecurrentMap, zoo

D, P, LENGTH = 4, 3, 9
NAMES = tuple(zoo(D, P, LENGTH, generator=torch.Generator().manual_seed(0)))
MAPS = {}


def make(name, dtype=torch.float64, d=D, p=P, device=None):
    """One map of the zoo; the zoo of each setting is drawn once."""
    key = (dtype, d, p, device)
    if key not in MAPS:
        generator = torch.Generator(device or "cpu").manual_seed(0)
        MAPS[key] = zoo(d, p, LENGTH, generator=generator, dtype=dtype, device=device)
    return MAPS[key][name]


def tokens(m, n=LENGTH, batch_shape=(), dtype=torch.float64, device=None, seed=1):
    generator = torch.Generator(device or "cpu").manual_seed(seed)
    return torch.randn(*batch_shape, n, m.d, generator=generator, dtype=dtype, device=device)


def assert_close(got, wanted, rtol=1e-12):
    """Relative to the size of the whole tensor."""
    got, wanted = got.detach(), wanted.detach()
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    if wanted.numel():
        assert torch.isfinite(got).all()
        assert float((got - wanted).abs().max()) <= rtol * float(wanted.abs().max())


class MapContract:
    """Inherit and set ``names``."""

    names: tuple = ()

    def pytest_generate_tests(self, metafunc):
        if "name" in metafunc.fixturenames:
            metafunc.parametrize("name", metafunc.cls.names)


class TestEveryMap(MapContract):
    names = NAMES

    @pytest.mark.parametrize("batch_shape", [(), (2,), (2, 3)])
    @pytest.mark.parametrize("n", [1, 2, 7])
    def test_forward_is_interaction_applied(self, name, n, batch_shape):
        m = make(name)
        x = tokens(m, n, batch_shape)
        y, W = m(x), m.interaction(x)
        assert y.shape == (*batch_shape, n, m.p)
        assert bool((y != 0).all(-1).any())
        assert_close(W.apply(x), y)
        assert (W.n, W.p, W.d) == (n, m.p, m.d)
        dense = torch.einsum("...ijpd,...jd->...ip", W.to_dense(), x)
        assert_close(dense, y)

    @pytest.mark.parametrize("scale", [1e-9, 30.0])
    def test_forward_is_interaction_applied_at_extreme_scales(self, name, scale):
        m = make(name)
        x = scale * tokens(m)
        assert_close(m.interaction(x).apply(x), m(x), rtol=1e-11)

    def test_zero_input_gives_zero_output_and_finite_interaction(self, name):
        m = make(name)
        x = tokens(m)
        x[3:5] = 0
        assert_close(m.interaction(x).apply(x), m(x))
        zero = torch.zeros_like(x)
        assert torch.equal(m(zero), torch.zeros(LENGTH, m.p, dtype=x.dtype))
        assert torch.isfinite(m.interaction(zero).to_dense()).all()

    @pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 5), (0, 0), (2, 0, 3)])
    def test_empty_sequence_and_empty_batch(self, name, shape):
        m = make(name)
        x = tokens(m, shape[-1], shape[:-1])
        W = m.interaction(x)
        assert m(x).shape == (*shape, m.p)
        assert W.apply(x).shape == (*shape, m.p)
        assert W.n == shape[-1]

    def test_batch_elements_do_not_meet(self, name):
        m = make(name)
        x = tokens(m, 5, (2, 3))
        alone = torch.stack([torch.stack([m(s) for s in r]) for r in x])
        assert_close(m(x), alone)

    def test_future_tokens_change_nothing(self, name):
        m = make(name)
        x = tokens(m)
        changed = x.clone()
        changed[5:] = 3 * tokens(m, seed=2)[5:]
        with torch.no_grad():
            moved = float((m(changed)[:5] - m(x)[:5]).abs().max())
            blocks = m.interaction(x).to_dense()
        above = blocks[torch.ones(LENGTH, LENGTH).triu(1).bool()]
        if m.causal:
            assert moved <= 1e-14
            assert torch.equal(above, torch.zeros_like(above))
        else:
            assert moved > 1e-3
            assert float(above.abs().max()) > 1e-3

    def test_gradients_for_input_and_parameters(self, name):
        m = make(name, d=3, p=2)
        x = tokens(m, 4).requires_grad_()
        names, values = zip(*((k, v.detach().clone()) for k, v in m.named_parameters()), strict=True)

        def call(x, *parameters):
            return functional_call(m, dict(zip(names, parameters, strict=True)), (x,))

        assert torch.autograd.gradcheck(call, (x, *(v.requires_grad_() for v in values)))

    def test_interaction_carries_gradients(self, name):
        m = make(name)
        x = tokens(m)
        W = m.interaction(x.clone())
        (by_operator,) = torch.autograd.grad(
            (W.apply(x) ** 2).sum(), [next(m.parameters())], allow_unused=True
        )
        (by_forward,) = torch.autograd.grad((m(x) ** 2).sum(), [next(m.parameters())])
        assert_close(by_operator, by_forward, rtol=1e-10)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_dtype_kept(self, name, dtype):
        m = make(name, dtype)
        x = tokens(m, dtype=dtype)
        W = m.interaction(x)
        assert m(x).dtype == W.dtype == W.to_dense().dtype == dtype
        assert {v.dtype for v in m.state_dict().values()} == {dtype}
        if dtype == torch.float32:
            assert_close(W.apply(x), m(x), rtol=1e-4)

    def test_moves_between_dtypes(self, name):
        m = zoo(D, P, LENGTH, generator=torch.Generator().manual_seed(0))[name]
        x = tokens(m)
        assert_close(m.to(torch.float32)(x.float()).double(), make(name)(x), rtol=1e-3)

    def test_default_dtype_is_torchs(self, name):
        assert (
            make(name, dtype=None)(tokens(make(name), dtype=torch.float32)).dtype == torch.get_default_dtype()
        )

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_device_kept(self, name, dtype):
        m = make(name, dtype, device="cuda")
        x = tokens(m, batch_shape=(2,), dtype=dtype, device="cuda")
        W = m.interaction(x)
        assert m(x).device == W.device == x.device
        assert_close(W.apply(x), m(x), rtol=1e-12 if dtype == torch.float64 else 1e-4)
        if isinstance(m, RecurrentMap):
            y, state = m.run(x)
            assert state.device == x.device
            assert_close(y, m(x), rtol=1e-11 if dtype == torch.float64 else 1e-3)

    def test_nothing_is_changed(self, name):
        m = make(name)
        x = tokens(m)
        kept, weights = x.clone(), {k: v.clone() for k, v in m.state_dict().items()}
        m(x), m.interaction(x).to_dense()
        assert torch.equal(x, kept)
        assert all(torch.equal(v, weights[k]) for k, v in m.state_dict().items())

    def test_same_generator_same_map(self, name):
        again = zoo(D, P, LENGTH, generator=torch.Generator().manual_seed(0))[name]
        x = tokens(again)
        assert torch.equal(again(x), make(name)(x))

    @pytest.mark.parametrize("shape", [(D,), (5, D + 1), (5, 1), ()])
    def test_wrong_shape(self, name, shape):
        m = make(name)
        for call in (m, m.interaction):
            with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., n, d\) with d = 4; got"):
                call(torch.zeros(shape, dtype=torch.float64))

    def test_wrong_type(self, name):
        m = make(name)
        for call in (m, m.interaction):
            with pytest.raises(TypeError, match="x must have the dtype of the parameters, torch.float64"):
                call(torch.zeros(5, m.d, dtype=torch.float32))
            with pytest.raises(
                TypeError, match="x must be a floating-point torch.Tensor; got dtype torch.int64"
            ):
                call(torch.zeros(5, m.d, dtype=torch.int64))
            with pytest.raises(TypeError, match="x must be a floating-point torch.Tensor; got list"):
                call([[0.0] * m.d])
            with pytest.raises(ValueError, match="x must be on the device of the parameters"):
                call(torch.zeros(5, m.d, dtype=torch.float64, device="meta"))


class TestEveryRecurrentMap(MapContract):
    names = tuple(name for name in NAMES if isinstance(make(name), RecurrentMap))

    @pytest.mark.parametrize("batch_shape", [(), (2,), (2, 3)])
    @pytest.mark.parametrize("n", [1, 2, 7])
    def test_step_is_forward(self, name, n, batch_shape):
        m = make(name)
        x = tokens(m, n, batch_shape)
        state, outputs = m.initial_state(batch_shape), []
        for t in range(n):
            y_t, state = m.step(x[..., t, :], state)
            outputs.append(y_t)
        assert_close(torch.stack(outputs, -2), m(x))

    @pytest.mark.parametrize("cut", [0, 1, 4, 9])
    def test_pieces_make_the_whole(self, name, cut):
        m = make(name)
        x = tokens(m, batch_shape=(2,))
        first, state = m.run(x[:, :cut])
        second, state = m.run(x[:, cut:], state)
        assert_close(torch.cat([first, second], -2), m(x))
        assert_close(state, m.run(x)[1])

    def test_state_is_not_changed(self, name):
        m = make(name)
        x = tokens(m)
        _, state = m.run(x)
        kept = state.clone()
        m.step(x[0], state)
        assert torch.equal(state, kept)

    def test_gradients_reach_the_initial_state(self, name):
        m = make(name, d=3, p=2)
        x = tokens(m, 3)
        state = m.run(tokens(m, 4, seed=3))[1].detach().requires_grad_()
        assert torch.autograd.gradcheck(lambda state: m.run(x, state), (state,))

    def test_empty_run_keeps_the_state(self, name):
        m = make(name)
        _, state = m.run(tokens(m))
        y, after = m.run(tokens(m, 0), state)
        assert y.shape == (0, m.p)
        assert torch.equal(after, state)

    def test_bad_state_or_token(self, name):
        m = make(name)
        state = m.initial_state((2,))
        x_t = torch.zeros(2, m.d, dtype=torch.float64)
        with pytest.raises(ValueError, match="state must have shape"):
            m.step(x_t, m.initial_state())
        with pytest.raises(ValueError, match="state must have shape"):
            m.run(x_t[:, None].expand(2, 5, m.d), state[..., :1, :-1] if state.dim() > 2 else state[..., :-1])
        with pytest.raises(TypeError, match="state must be a tensor; got NoneType"):
            m.step(x_t, None)
        with pytest.raises(TypeError, match="state must have the dtype of the initial state"):
            m.step(x_t, state.to(torch.complex64 if state.is_complex() else torch.float32))
        with pytest.raises(ValueError, match=r"x_t must have shape \(\.\.\., d\) with d = 4; got \(2, 3\)"):
            m.step(x_t[:, :3], state)
