"""Settings that make no sense are refused by name."""

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
    DiagonalSSM,
    FeedForward,
    Gated,
    Hybrid,
    LinearAttention,
    Residual,
    RetNet,
    SelectiveSSM,
    zoo,
)
from ssmbook.systems import System

HEAD = {"H": 2, "head_width": 3}


def attention(d=4, p=3, **options):
    return Attention(d, p, **HEAD, **options)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: FeedForward(0, 3, width=5), ValueError, "d must be at least 1; got 0"),
        (lambda: FeedForward(4, 3.0, width=5), TypeError, "p must be an int; got float"),
        (lambda: FeedForward(4, 3, width=0), ValueError, "width must be at least 1; got 0"),
        (lambda: FeedForward(4, 3, width=5, activation="sigmoid"), ValueError, "activation must be one"),
        (lambda: KAN(4, 3, grid=4), ValueError, "grid must be odd .*; got 4"),
        (lambda: KAN(4, 3, reach=0.0), ValueError, "reach must be positive and finite; got 0.0"),
        (lambda: Convolution(4, 3, width=True), TypeError, "width must be an int; got bool"),
        (lambda: RNN(4, 3, N=0), ValueError, "N must be at least 1"),
        (lambda: RNN(4, 3, N=2, activation="sin"), ValueError, "activation .*; got 'sin'"),
        (lambda: Attention(4, 3, H=0, head_width=3), ValueError, "H must be at least 1; got 0"),
        (lambda: Attention(4, 3, H=2, head_width=-1), ValueError, "head_width .*; got -1"),
        (lambda: attention(bias=torch.zeros(3, 5)), ValueError, r"bias must have shape \(H, L\)"),
        (
            lambda: attention(bias=torch.zeros(2, 5, dtype=torch.float64)),
            TypeError,
            "bias must have the dtype",
        ),
        (lambda: attention(bias=torch.full((2, 5), torch.nan)), ValueError, "bias must be finite; got 10"),
        (lambda: attention(bias=torch.zeros(2, 5))(torch.zeros(6, 4)), ValueError, "x must have at most 5"),
        (lambda: LinearAttention(4, 3, feature_map="exp", **HEAD), ValueError, "feature_map must be"),
        (lambda: RetNet(4, 3, decay=[0.9], **HEAD), ValueError, "decay must hold .* 2; got 1"),
        (lambda: RetNet(4, 3, decay=[0.9, 1.1], **HEAD), ValueError, r"decay must lie in \(0, 1\]"),
        (lambda: RetNet(4, 3, decay=[0.9, float("nan")], **HEAD), ValueError, r"decay must lie in \(0, 1\]"),
        (lambda: GLA(4, 3, temperature=0.0, **HEAD), ValueError, "temperature must be positive; got 0.0"),
        (lambda: SSD(4, 3, N=0, **HEAD), ValueError, "N must be at least 1"),
        (lambda: SSD(4, 3, N=2, groups=3, **HEAD), ValueError, "groups must divide H = 2; got 3"),
        (lambda: DiagonalSSM(4, N=3), ValueError, "N must be even with pairs=True .*; got 3"),
        (lambda: SelectiveSSM(4, N=2, discretization="tustin"), ValueError, "discretization must be"),
        (lambda: LTISSM.random(4, 3, N=2, rho=-1), ValueError, "rho must be finite and at least 0; got -1"),
        (lambda: Gated(attention(), gate="none"), ValueError, "gate must be one .* got 'none'"),
        (lambda: Gated(torch.nn.Linear(4, 3)), TypeError, "map must be made of SequenceMaps; got Linear"),
        (lambda: Residual(attention()), ValueError, "map must have p = d .* got d = 4, p = 3"),
        (lambda: Hybrid([]), ValueError, "maps must hold at least one map; got none"),
        (lambda: Hybrid([attention()], mode="product"), ValueError, "mode must be one of sum, stack"),
        (lambda: Hybrid([attention(), attention(4, 4)]), ValueError, "maps must fit .* 'sum'"),
        (lambda: Hybrid([attention(), attention()], mode="stack"), ValueError, "maps must fit .* 'stack'"),
        (lambda: Hybrid([attention(), torch.relu]), TypeError, "maps must be made of SequenceMaps"),
        (lambda: zoo(4, 3, -1), ValueError, "n must be at least 0; got -1"),
    ],
)
def test_refused_by_name(build, error, message):
    with pytest.raises(error, match=message):
        build()


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
