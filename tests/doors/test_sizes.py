"""Sizes, flags and choices that no layer and no formula has: one sentence that names the argument."""

import pytest
import torch

from ssmbook import gradients, heads, maps, operators, scans
from ssmbook.systems import System

ONE = torch.ones(1, 1)
HEADS = {"H": 2, "head_width": 3}
# Layers with heads, and what else each of them needs.
LAYERS = {name: {} for name in ("Attention", "LinearAttention", "GLA", "RetNet", "DeltaNet", "MLSTM")}
LAYERS |= {"SSD": {"N": 4}, "Mamba3": {"N": 4}, "LatentAttention": {"latent": 3}}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_with_heads_has_heads_of_some_width(name):
    make = getattr(maps, name)
    assert make(4, 4, **HEADS, **LAYERS[name]).d == 4
    for key, bad in (("H", 0), ("H", -1), ("head_width", 0), ("head_width", -2)):
        with pytest.raises(ValueError, match=f"{key} must be at least 1; got {bad}"):
            make(4, 4, **HEADS | {key: bad}, **LAYERS[name])
    for key in LAYERS[name]:
        with pytest.raises(ValueError, match=f"{key} must be at least [12]; got 0"):
            make(4, 4, **HEADS, **{key: 0})
    for sizes in ((4.0, 4), (4, 4.0)):
        with pytest.raises(TypeError, match="must be an int; got float"):
            make(*sizes, **HEADS, **LAYERS[name])
    with pytest.raises(ValueError, match="p must be at least 1; got 0"):
        make(4, 0, **HEADS, **LAYERS[name])


REFUSED = {  # the words of the error, and the call
    "N must be at least 1; got 0": lambda: maps.SelectiveSSM(4, N=0),
    "N must be at least 1; got -1": lambda: maps.DiagonalSSM(4, N=-1, conjugate=False),
    "N must be at least 1; got -2": lambda: maps.RNN(4, 4, N=-2),
    "N must be at least 1; got -3": lambda: maps.LTISSM.random(4, 4, N=-3),
    "width must be at least 1; got 0": lambda: maps.Convolution(4, 4, width=0),
    "width must be at least 1; got -1": lambda: maps.FeedForward(4, 4, width=-1),
    "temperature must lie in .*; got 0": lambda: maps.GLA(4, 4, **HEADS, temperature=0),
    "groups must be at least 1; got 0": lambda: maps.SSD(4, 4, **HEADS, N=2, groups=0),
    "groups must be an int; got float": lambda: maps.SSD(4, 4, **HEADS, N=2, groups=1.0),
    "groups must divide H = 2; got 3": lambda: maps.SSD(4, 4, **HEADS, N=2, groups=3),
    "rope must be at least 0; got -2": lambda: maps.LatentAttention(4, 4, **HEADS, latent=2, rope=-2),
    "pairs must be at least 1; got 0": lambda: maps.DeltaNet(4, 4, **HEADS, pairs=0),
    "rule must be one of DeltaNet, .*; got 'delta'": lambda: maps.DeltaNet(4, 4, **HEADS, rule="delta"),
    "gate must be one of output, input, both; got 'out'": lambda: maps.Gated(maps.RGLRU(4), gate="out"),
    "mode must be one of sum, stack; got 'add'": lambda: maps.Hybrid([maps.RGLRU(4)], mode="add"),
    "feature_map must be one of .*; got 'relu'": lambda: maps.LinearAttention(
        4, 4, **HEADS, feature_map="relu"
    ),
    "coefficients must be one of fixed, .*; got 'hard'": lambda: heads.head_count(
        System(ONE, ONE, ONE), 3, "hard"
    ),
    "n must be at least 1; got 0": lambda: heads.softmax_heads(System(ONE, ONE, ONE), 0),
    "log must be True or False; got int": lambda: scans.diagonal_scan(ONE, ONE, log=1),
    "H must be at least 0; got -1": lambda: operators.DenseOperator(torch.ones(1, 1, 1, 1)).floor(-1),
    "heads must be at least 1; got 0": lambda: operators.sketch(
        operators.DenseOperator(torch.ones(1, 1, 1, 1)), 0
    ),
    "alpha must lie between 0 and 1, .*; got 0.0": lambda: gradients.required_margin(0, 5),
    "alpha must lie between 0 and 1, .*; got 1.0": lambda: gradients.required_margin(torch.ones(2), 5),
    "alpha must lie in .*; got 1.5": lambda: gradients.required_margin(1.5, 5),
    "n must be at least 2, .*; got 1": lambda: gradients.required_margin(0.5, 1),
    "n must be at least 2, .*; got 0": lambda: gradients.weight_from_margin(0.5, torch.tensor([3, 0])),
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_size_flag_or_choice_that_does_not_exist_is_named(words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}") as refusal:
        REFUSED[words]()
    assert len(str(refusal.value)) < 120
