"""Every map of the zoo keeps the contract of the library, and refuses what would be silently wrong."""

import inspect
from functools import partial

import pytest
import torch
from helpers import F64, close, gen, tokens

from ssmbook import maps
from ssmbook.maps import RecurrentMap, SequenceMap, zoo
from ssmbook.systems import System
from ssmbook.testing import MapContract

D, P, LENGTH = 4, 3, 9
ZOO = zoo(D, P, LENGTH, generator=gen())
RECURRENT = [name for name, m in ZOO.items() if isinstance(m, RecurrentMap)]


class TestEveryMap(MapContract):
    @pytest.fixture(autouse=True, params=ZOO)
    def made(self, request):
        self.make = lambda **new: zoo(D, P, LENGTH, **new)[request.param]


@pytest.mark.parametrize("name", RECURRENT)
def test_pieces_make_the_whole_and_leave_the_state(name):
    m, x = ZOO[name], tokens(2, LENGTH, D)
    zero = m.initial_state((2,))
    whole, end = m(x, zero)
    close(whole, m(x), 1e-11)
    for cut in (0, 4, LENGTH):
        first, state = m(x[:, :cut], zero)
        before = state.clone()
        second, after = m(x[:, cut:], state)
        pieces = torch.cat([first, second], -2)
        close(pieces, whole, 1e-11)
        close(after, end, 1e-11)
        assert torch.equal(state, before)
        slopes = (
            torch.autograd.grad(y.square().sum(), [*m.parameters()], retain_graph=True)
            for y in (pieces, whole)
        )
        for got, wanted in zip(*slopes, strict=True):
            close(got, wanted, 1e-10)


@pytest.mark.parametrize("name", RECURRENT)
def test_resets_part_packed_sequences(name):
    m, x = ZOO[name], tokens(2, LENGTH, D)
    state = m.run(tokens(2, 4, D, seed=3))[1]
    for cuts in ((3, 5), (4, 4), (0, LENGTH - 1)):
        resets = torch.arange(LENGTH) == torch.tensor(cuts)[:, None]
        y, end = m(x, state, resets[0] if cuts[0] == cuts[1] else resets)
        for i, cut in enumerate(cuts):
            first, _ = m(x[i, :cut], state[i])
            second, after = m(x[i, cut:], m.initial_state())
            close(y[i], torch.cat([first, second]), 1e-11)
            close(end[i], after, 1e-11)


@pytest.mark.parametrize("name", RECURRENT)
def test_gradients_reach_the_initial_state_and_a_wrong_one_is_refused(name):
    m, x = ZOO[name], tokens(2, LENGTH, D)
    state = m.run(tokens(4, D, seed=3))[1].detach().requires_grad_()
    torch.autograd.gradcheck(lambda state: m(x[0, :3], state), (state,))
    state, resets = m.initial_state((2,)), torch.zeros(2, LENGTH, dtype=torch.bool)
    for wrong in (m.initial_state(), state[..., :-1], state.to(torch.complex64)):
        for call, given in ((m.step, x[:, 0]), (m, x)):
            with pytest.raises((TypeError, ValueError)):
                call(given, wrong)
    for wrong in (resets[:, 1:], resets[:1], resets.long()):
        with pytest.raises((TypeError, ValueError)):
            m(x, state, wrong)


SINGLE = zoo(D, P, LENGTH, generator=gen(), dtype=torch.float32)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SINGLE)
def test_autocast_rounds_products_and_no_states_or_operators(name, half):
    m, layer = SINGLE[name], torch.nn.Linear(D, D)
    with torch.autocast("cpu", half):
        x = layer(torch.randn(2, LENGTH, D, generator=gen(1)))
        y, W = m(x), m.interaction(x)
        state = m.run(x)[1] if name in RECURRENT else None
        alpha = m.coefficients(x) if hasattr(m, "coefficients") else None
    assert x.dtype == half
    x = x.float()
    close(y.float(), m(x), tol=8 * torch.finfo(half).eps)
    torch.autograd.grad(y.sum(), layer.weight)
    close(W.to_dense(), m.interaction(x).to_dense(), tol=0)
    if state is not None:
        assert state.dtype == m.initial_state().dtype
        close(state, m.run(x)[1], tol=8 * torch.finfo(half).eps)
    if alpha is not None:
        close(alpha, m.coefficients(x), tol=0)


@pytest.mark.parametrize("name", ["SSD", "linear attention, normalized", "DeltaNet", "Mamba-3"])
def test_gradients_of_a_batch_under_aot_autograd(name):
    m, x = ZOO[name], torch.randn(2, LENGTH, D, generator=gen(1), dtype=F64).requires_grad_()
    torch.compiler.reset()
    got, wanted = (
        torch.autograd.grad(f(x).square().sum(), [x, *m.parameters()])
        for f in (torch.compile(m, backend="aot_eager"), m)
    )
    for one, other in zip(got, wanted, strict=True):
        close(one, other)


def test_every_public_map_is_in_the_zoo():
    public = [getattr(maps, name) for name in maps.__all__]
    kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, SequenceMap)}
    kinds = {kind for kind in kinds if not inspect.isabstract(kind)}
    assert kinds <= {type(layer) for layer in ZOO.values()}


def test_every_map_has_its_own_numbers():
    first = [m.W_V.flatten()[0].item() for m in ZOO.values() if hasattr(m, "W_V")]
    assert len(first) >= 8 and len(set(first)) == len(first)


@pytest.mark.parametrize("given, rho", [({}, 0.9), ({"rho": 0.5}, 0.5), ({"rho": 0}, 0.0)])
def test_a_random_system_has_the_given_radius(given, rho):
    m = maps.LTISSM.random(3, 2, N=4, generator=gen(), dtype=F64, **given)
    assert float(m.system.detach().spectral_radius()) == pytest.approx(rho)


def test_a_map_copies_the_tensors_that_it_is_given():
    system = System(torch.zeros(3, 3), torch.ones(3, 4), torch.ones(2, 3))
    bias = torch.ones(2, 5)
    layers = maps.LTISSM(system), maps.Attention(4, 3, H=2, head_width=3, bias=bias)
    system.B.zero_(), bias.zero_()
    assert float(layers[0].B.detach().sum()) == 12 and float(layers[1].bias.detach().sum()) == 10


HEAD = {"H": 2, "head_width": 3}
OTHER = torch.zeros(2, 3, 3)
WRONG = {
    "an even grid": lambda: maps.KAN(4, 3, grid=4),
    "a bias for other heads": lambda: maps.Attention(4, 3, **HEAD, bias=torch.zeros(3, 5)),
    "more tokens than a bias": lambda: maps.Attention(4, 3, **HEAD, bias=torch.zeros(2, 5))(
        torch.zeros(6, 4)
    ),
    "half a pair": lambda: maps.DiagonalSSM(4, N=3),
    "a batch of systems": lambda: maps.LTISSM(System(OTHER, OTHER, OTHER)),
    "states that do not pair": lambda: maps.Mamba3(4, 3, N=3, **HEAD),
    "rank 0": lambda: maps.Mamba3(4, 3, N=4, R=0, **HEAD),
    "half a rotation": lambda: maps.LatentAttention(4, 3, latent=3, rope=3, **HEAD),
    "a residual of another width": lambda: maps.Residual(maps.KAN(4, 3)),
    "a sum of other widths": lambda: maps.Hybrid([maps.KAN(4, 3), maps.KAN(4, 4)]),
    "keys of another width": lambda: maps.softmax_coefficients(OTHER, OTHER[..., :2]),
    "a bias of another length": lambda: maps.softmax_coefficients(OTHER, OTHER, bias=OTHER[..., :2]),
    "queries of another batch": lambda: maps.linear_coefficients(OTHER[None], OTHER),
    "decays of another length": lambda: maps.scalar_decay_coefficients(OTHER, OTHER, OTHER[:, 1:, 0]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_would_be_silently_wrong_is_refused(what):
    with pytest.raises(ValueError):
        WRONG[what]()


def test_an_option_that_no_map_has_is_named():
    ssd, lti = partial(maps.SSD, 4, 3, N=2, **HEAD), partial(maps.LTISSM.random, 4, 3, N=2)
    for make in (ssd, lti, partial(maps.RNN, 4, 3, N=2), partial(maps.RGLRU, 4)):
        with pytest.raises(TypeError, match="bais"):
            make(bais=True)
