"""Settings that make no sense are refused by name."""

import inspect
from functools import partial

import pytest
import torch

from ssmbook.maps import (
    GLA,
    KAN,
    LTISSM,
    RNN,
    SSD,
    Attention,
    Convolution,
    DeltaNet,
    DiagonalSSM,
    FeedForward,
    Gated,
    Hybrid,
    LinearAttention,
    Residual,
    RetNet,
    SelectiveSSM,
    SequenceMap,
    draw_steps,
    inverse_softplus,
    zoo,
)
from ssmbook.operators import LagOperator
from ssmbook.scans import lti_kernel
from ssmbook.systems import System

HEAD = {"H": 2, "head_width": 3}


def attention(d=4, p=3, **options):
    return Attention(d, p, **HEAD, **options)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: KAN(4, 3, grid=4), ValueError, "grid must be odd .*; got 4"),
        (lambda: KAN(4, 3, reach=0.0), ValueError, "reach must be finite and positive; got 0.0"),
        (lambda: Attention(4, 3, H=0, head_width=3), ValueError, "H must be at least 1; got 0"),
        (lambda: attention(bias=torch.zeros(3, 5)), ValueError, r"bias must have shape \(H, L\)"),
        (
            lambda: attention(bias=torch.zeros(2, 5, dtype=torch.float64)),
            TypeError,
            "bias must",
        ),
        (lambda: attention(bias=torch.zeros(2, 5))(torch.zeros(6, 4)), ValueError, "x must have at most 5"),
        (lambda: attention(bias=torch.full((2, 5), torch.inf)), ValueError, "bias must be finite"),
        (lambda: RetNet(4, 3, decay=[0.9], **HEAD), ValueError, "decay must hold .* 2; got 1"),
        (
            lambda: RetNet(4, 3, decay=0.9, **HEAD),
            TypeError,
            "decay must be a sequence of numbers.*; got float",
        ),
        (
            lambda: RetNet(4, 3, decay=torch.tensor(0.9), **HEAD),
            TypeError,
            "decay must be a seq.*; got float",
        ),
        (lambda: RetNet(4, 3, decay=[0.9, 0.0], **HEAD), ValueError, r"decay must be numbers in \(0, 1\]"),
        (lambda: RetNet(4, 3, decay=[0.9, 1.1], **HEAD), ValueError, r"decay must be numbers in \(0, 1\]"),
        (
            lambda: RetNet(4, 3, decay=[0.9, float("nan")], **HEAD),
            ValueError,
            r"decay must be numbers in \(0, 1\]",
        ),
        (
            lambda: GLA(4, 3, temperature=0.0, **HEAD),
            ValueError,
            "temperature must be finite and positive; got 0.0",
        ),
        (lambda: SSD(4, 3, N=2, groups=3, **HEAD), ValueError, "groups must divide H = 2; got 3"),
        (lambda: DiagonalSSM(4, N=3), ValueError, "N must be even with pairs=True .*; got 3"),
        (lambda: LTISSM.random(4, 3, N=2, rho=-1), ValueError, "rho must be finite and at least 0; got -1"),
        (lambda: Gated(torch.nn.Linear(4, 3)), TypeError, "map must be made of SequenceMaps; got Linear"),
        (lambda: Residual(attention()), ValueError, "map must have p = d .* got d = 4, p = 3"),
        (lambda: Hybrid([]), ValueError, "maps must hold at least one map; got none"),
        (lambda: Hybrid([attention(), attention(4, 4)]), ValueError, "maps must fit .* 'sum'"),
        (lambda: Hybrid([attention(), attention()], mode="stack"), ValueError, "maps must fit .* 'stack'"),
        (lambda: Hybrid([attention(), torch.relu]), TypeError, "maps must be made of SequenceMaps"),
    ],
)
def test_refused_by_name(build, error, message):
    with pytest.raises(error, match=message):
        build()


class Doubled(SequenceMap):
    """A map without parameters, whose arguments nothing but the base class looks at."""

    def _forward(self, x):
        return 2 * x

    def _interaction(self, x):
        raise NotImplementedError


WIDTHS = {"d": 4, "p": 4}
BUILDS = [
    partial(Doubled, **WIDTHS),
    partial(FeedForward, **WIDTHS, width=5),
    partial(KAN, **WIDTHS, grid=5),
    partial(Convolution, **WIDTHS, width=3),
    partial(RNN, **WIDTHS, N=2),
    *(partial(kind, **WIDTHS, **HEAD) for kind in (Attention, LinearAttention, RetNet, GLA, DeltaNet)),
    partial(SSD, **WIDTHS, **HEAD, N=2, groups=1),
    partial(LTISSM.random, **WIDTHS, N=2),
    partial(DiagonalSSM, d=4, N=2),
    partial(SelectiveSSM, d=4, N=2),
    partial(Gated, Doubled(4, 4)),
    partial(zoo, **WIDTHS, n=9, **HEAD, N=2),
]
WRONG_OPTIONS = {
    "generator": [0, "torch.Generator()"],
    "dtype": ["float64", torch.int64],
    "device": ["gpu", 1.5],
}


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.func.__qualname__)
def test_every_constructor_refuses_wrong_options_and_sizes_by_name(build):
    wrong = []
    for name, parameter in inspect.signature(build).parameters.items():
        default = parameter.default
        flag = ["no", 1] if isinstance(default, bool) else []
        size = [0, -1, 2.5, True] if type(default) is int else []
        wrong += [(name, value) for value in (*WRONG_OPTIONS.get(name, []), *flag, *size)]
    wrong = [(name, value) for name, value in wrong if (name, value) != ("n", 0)]
    assert wrong
    build()
    for name, value in wrong:
        with pytest.raises((TypeError, ValueError), match=rf"^{name} must .*; got "):
            build(**{name: value})


@pytest.mark.parametrize("build", BUILDS[1:-2], ids=lambda build: build.func.__qualname__)
def test_a_constructor_shows_its_options_and_knows_no_other(build):
    assert set(WRONG_OPTIONS) <= set(inspect.signature(build).parameters)
    kind = build.func.__qualname__.split(".")[0]
    with pytest.raises(
        TypeError, match=rf"^{kind}(\.random\(\) got an unexpected keyword| has no) argument 'seed'"
    ):
        build(seed=0)


def test_every_map_has_its_constructor_tried():
    kinds = {type(layer) for layer in zoo(4, 4, 9).values()} - {Residual, Hybrid}  # these take maps alone
    assert kinds == {getattr(build.func, "__self__", build.func) for build in BUILDS} - {zoo, Doubled}


def test_the_zoo_serves_no_tokens_at_all():
    assert all(layer(torch.zeros(0, 4).double()).shape == (0, 4) for layer in zoo(4, 4, 0).values())


def test_a_map_is_made_on_meta_and_tells_its_widths():
    for layer in (
        SSD(4, 3, N=2, **HEAD, device="meta"),
        attention(device="meta", bias=torch.ones(2, 5).to("meta")),
    ):
        assert all(parameter.is_meta for parameter in layer.parameters())
        assert repr(layer).startswith(f"{type(layer).__name__}(d=4, p=3, causal=True")


def test_a_map_is_causal_unless_it_says_otherwise():
    assert Doubled(2, 3).causal is True and Doubled(2, 3, causal=False).causal is False


def test_sizes_that_no_machine_holds_are_refused_before_memory_is():
    for build in (
        lambda: Attention(4, 3, H=10**9, head_width=10**6),
        lambda: lti_kernel(torch.eye(2), torch.ones(2, 3), torch.ones(2, 2), 10**12),
        lambda: LagOperator(torch.ones(4, 3, 2), 10**6).to_dense(),
        lambda: LagOperator(torch.ones(4, 3, 2), 10**6).block_norms(),
    ):
        with pytest.raises(
            ValueError, match=r"(sizes of a map|length|n) must leave tensors of at most 2\^38 n"
        ):
            build()


def test_states_and_steps_of_impossible_sizes():
    with pytest.raises(ValueError, match="batch_shape must be at least 0; got -1"):
        SelectiveSSM(4, N=2).initial_state((-1,))
    with pytest.raises(TypeError, match="batch_shape must be a sequence of ints; got int"):
        SelectiveSSM(4, N=2).initial_state(3)
    with pytest.raises(ValueError, match="high must be at least low = 1.0; got 0.1"):
        draw_steps(3, low=1.0, high=0.1)
    torch.testing.assert_close(draw_steps(3, low=0.1, high=0.1), torch.full((3,), 0.1))
    with pytest.raises(ValueError, match=r"a must lie in \(0.0, inf\); got 0.0"):
        inverse_softplus(torch.zeros(1))


def test_lti_ssm_wants_one_real_system():
    system = System(torch.zeros(3, 3), torch.zeros(3, 4), torch.zeros(2, 3))
    stacked = System(*(torch.stack([part, part]) for part in list(system)[:3]))
    for arguments, error, message in (
        ((system.A, system.B, system.C), TypeError, "system must be a System; got Tensor"),
        (("A",), TypeError, "system must be a System; got str"),
        ((system.to(torch.complex64),), TypeError, "system must be real"),
        ((stacked,), ValueError, r"system must be one system, .*; got batch shape \(2,\)"),
    ):
        with pytest.raises(error, match=message):
            LTISSM(*arguments)


def test_lti_ssm_copies_what_it_is_given():
    A, B, C = torch.zeros(3, 3), torch.ones(3, 4), torch.ones(2, 3)
    m = LTISSM(System(A, B, C))
    B.zero_()
    assert float(m.B.detach().sum()) == 12


def test_attention_copies_its_start_of_a_bias():
    bias = torch.ones(2, 5)
    m = attention(bias=bias)
    bias.zero_()
    assert float(m.bias.detach().sum()) == 10
