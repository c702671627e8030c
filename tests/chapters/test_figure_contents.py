"""Every figure of every chapter holds what it held: labels, limits, texts, colors, summaries of curves.

Wanted changes are written with

    WRITE_FIGURES=1 python -m pytest tests/chapters/test_figure_contents.py

and then read in the diff.
"""

import difflib
import inspect
import os
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from figure_words import describe
from helpers import EYE, F64, clock, randn, rotation
from matplotlib import rc_context

from headsandstates.experiments.results import measurement
from ssmbook import lens
from ssmbook.display import block_heatmap, figure, span_spectrum, use_style
from ssmbook.lens._figure import layer_figure
from ssmbook.operators import DenseOperator

ROOT = Path(__file__).resolve().parents[2]
WORDS = Path(__file__).parent / "figure_contents"
TAU = torch.arange(6, dtype=F64)
FADE, SLOW = 0.5**TAU, 0.9**TAU
LAG = (TAU[:, None] - TAU).int()
COSTS = {"multiplications": {"loop": [4, 8], "tree": [8, 24]}, "depth": {"loop": [4, 8], "tree": [2, 3]}}
PLACES = {
    **{"feed-forward": (8, 1, 0.0, 0.0), "attention": (2, 2, 0.03, 1.0), "SSD": (2, 2, 0.04, 1.0)},
    **{"RetNet": (2, 2, 0.3, 0.6), "LTI SSM": (6, 6, 1e-3, 1e-3), "hybrid, stack": (12, 12, 0.03, 1.0)},
    **{"S4D": (4, 2, 0.1, 0.2), "RNN": (4, 2, 0.0, 0.1), "selective SSM, zoh": (4, 2, 0.1, 0.9)},
    **{"gated SSD, both sides": (4, 2, 0.1, 0.8), "hybrid, sum": (8, 4, 0.2, 1.0)},
    **{"convolution": (3, 3, 0, 0)},
}
CROSSED = [  # places that maps of one end share, and one at the floor of the picture
    *([1, 0.9, 0.8], [1, 0.8, 0.7], [1, 0.5, 0.2], [1, 0.5, 0], [1, 0.1, 0.01], [0.5, 0.4, 0.02]),
    [1, 1e-3, 1e-5],
]


def given(*arguments, **options):
    return arguments, options


def toeplitz(lags):
    """The causal table (6, 6) of six numbers."""
    return lags[LAG.clamp(min=0)].tril()


def causal(*shape, seed=0):
    """A causal operator (5, 5, *shape), one random block for each pair of times."""
    return randn(5, 5, *shape, seed=seed) * torch.ones(5, 5, dtype=F64).tril()[..., None, None]


def primer_layers():
    lags = clock(0.6, n=6)
    return {"head": torch.einsum("ij,pd->ijpd", toeplitz(FADE), lags[1]), "state": lags[LAG.clamp(min=0)]}


def zoo():
    families = import_module("headsandstates.chapters.zoo.figures").FAMILY.values()
    names = [name for family in families for name in family]
    return {name: (1 + i % 16, 1 + (3 * i) % (1 + i % 16)) for i, name in enumerate(names)}


def tasks_by_model():
    run = measurement("tasks")
    jobs, models, lengths = run.results, run.settings["models"], run.settings["lengths"]
    first = {task: {m: jobs[f"{task} {at[0]}, {m}"] for m in models} for task, at in lengths.items()}
    return first, jobs["controls"]["guessing"]


def part_four():
    """The calls that draw committed measurements."""
    found, guess = tasks_by_model()
    flow, small = measurement("gradient-flow").results, measurement("language")
    minilm, states = lens.measurement("minilm"), measurement("how-many-states")
    layers = measurement("trained-layers")
    sequences = {"copying": ([5, 3, 9, 9], [-1, -1, 5, 3]), "selective copying": ([8, 7, 9], [-1, -1, 7])}
    sequences |= {"recall": ([1, 2, 3, 1, 2, 9], [-1] * 5 + [3]), "rotation": ([1, 2], [1, 0])}
    pole, attention = flow["SGD, LTI 0.9"], flow["SGD, attention"]
    pairs = {"pole": (pole, flow["LTI, 250 steps"]), "attention": (attention, flow["attention, 250 steps"])}
    jobs = measurement("learning-heads").results
    errors = [[0.9, 0.8, 0.7], [0.5, 0.6, 0.4], [0.3, 0.1, 0.2]]
    few = [{"H": [0, 1, 2], "trained": errors, "m": m} for m in (10, 100)]
    few[0] |= {"floor": [1.0, 0.2, 0.0], "k": 2}  # of the teacher, alike in all
    kinds = {
        "softmax": {"H": [1, 2], "trained": [[0.5, 0.7], [1e-15, 0.1]]},
        "rank one": {"H": [1], "trained": [[0.6]]},
    }
    ends = {"softmax": 2, "rank one": None}
    steps, sigma = [10, 20, 40, 80], [3.0 / r for r in range(1, 17)]
    rows = [[s * min(1, t / 20 / r) for r, s in enumerate(sigma, 1)] for t in steps]
    two_laws = {"weight": {0.8: 25.0, 0.9: 50.0}, "weight over noise": {0.8: 24.0, 0.9: 49.0}}
    return {
        "gradient_flow": {
            "learned": [
                given({"ρ = 0.9": pole, "attention": attention}, {"ρ = 0.9": 43.7}),
                given({"to 8": {"T": [4, 8, 16, 32], "error": [[0.1], [0.5], [0.6], [0.9]]}}, {}),
            ],
            "slopes": [given(flow["slopes"])],
            "ends": [given({"pole": pole, "attention": attention}, {"pole": 43.7, "attention": 99.0})],
            "fewer_steps": [given(pairs, 0.01, (1000, 250))],
            "kept_at_first": [given(pole, 0.01, "linear"), given(attention, 0.01, "attention")],
            "two_laws": [given({0.8: (24.0, 22.0, 27.0), 0.9: (50.0, 47.0, 54.0)}, two_laws)],
            "collapse": [given({(0.05, 500): (43.0, 40.0, 46.0), (0.1, 500): (50.0, 47.0, 53.0)}, float)],
        },
        "learning_heads": {
            "students": [given(jobs[f"teacher {i}"], f"teacher {i}") for i in (0, 7)],
            "classes": [
                given({"turn": kinds, "flip": kinds}, {"turn": ends, "flip": ends | {"rank one": 1}})
            ],
            "data": [given(few, [[1.0, 0.6, 0.4], [0.9, 0.5, 0.3]])],
            "arrivals": [
                given(steps, {"all": rows, "some": rows[::-1]}, rows, sigma),
                given(steps, {"all": rows}, rows, sigma),  # one student has no second
            ],
            "predicted": [given([jobs["teacher 7"]], jobs["teacher 2"], jobs["shuffled target"])],
            "found_pairs": [given([1, 2], [[0.3, 0.2], [0.1, 0.1]], [1.0, 0.5, 0.4], 2)],
        },
        "tasks": {
            "strips": [given(sequences)],
            "by_pairs": [given(found["recall"], 1 / 8)],
            "accuracies": [given(found, {"copying": {"SSD": [1.0]}}, guess)],
            "by_test": [given({task: {"SSD": found[task]["SSD"]} for task in ("copying", "recall")}, 1 / 8)],
            "by_span": [
                given({task: {"SSD": [[0.9, 0.5], [0.8, 0.4]]} for task in guess}, ["1–6", "7–12"], guess)
            ],
            "clock": [given([1.0, 0.5, 0.25], 116.0), given([1.0, 0.9, 0.7], 124.0)],
        },
        "how_many_states": {
            "split": [given(torch.rand(6, 6, generator=torch.Generator().manual_seed(0)).tril(), 2)],
            "atlas": [given(states.results)],
            "carried": [given(states.results, states.settings["states"])],
            "layer_by_layer": [given(states.results)],
            "merge_or_cut": [given(states.results, states.settings["kept"])],
            "predicted": [given(states.results, states.settings["kept"])],
            "copying": [given(states.results, states.settings["prompt"]["states"])],
        },
        "diagnose": {
            "right": [given([8, 16], {"as it is": [[1.0, 0.5]], "no penalty": [[1.0, 0.9]]})],
            "horizons": [given({"state\nlayer 1": [3.0, 90.0], "heads\nlayer 2": [20.0]}, (10, 100))],
            "foretold": [given([8, 16], {"as it is": ([1.0, 0.5], [1.0, 0.4])})],
        },
        "trained_layers": {
            "atlas": [given(states.results, layers.results)],
            "needed": [given(minilm)],
            "left_over": [given({"layer 1": [0.4, 0.09, 0.01], "layer 2": [0.05, 0.02, 0.01]})],
            "carried": [given({"one": [toeplitz(SLOW)], "two": [toeplitz(SLOW + FADE)]}, 3)],
            "controls": [given(layers.results)],
            "curves": [given(layers.results, place, layer) for place, layer in ((0, 0), (6, 29))],
            "reach": [given(layers.results["gradient"], (0, 29))],
            "small_models": [given(small.results, small.settings["models"])],
        },
    }


@cache
def calls():
    """chapter -> figure -> its calls, first and last frame of a slider."""
    turn, M, spring = clock(n=6), randn(9, 2, 3), SLOW * torch.sin(0.6 * (TAU + 1))
    facing = SimpleNamespace(kind="separating", U=3 * rotation(0.7), k=2)
    around = SimpleNamespace(kind="zero", weights=torch.tensor([0.5, 0.3, 0.2], dtype=F64), k=2)
    modes, circle = torch.complex(-TAU - 1, 3 * TAU), torch.polar(TAU / 9 + 0.3, TAU / 2)
    named = (
        "ρ = 0.5",
        "ρ = 0.9",
        "ρ = 0.99",
        "ρ = 1.0",
        "query matches",
        "equal logits",
        "ALiBi",
        "random tokens",
    )
    panels = {
        "bare": ({"H = 2": SLOW, "H = 3": FADE**3}, {"floor": 0.2}),
        "sunk": ({"H = 2": SLOW}, {"plateau": 0.3}),
    }
    sunk = 0.5 * torch.eye(8, dtype=F64) + (0.3 * torch.eye(8, dtype=F64)).roll(-1, 1).tril()
    sunk[-1, 0] = 0.1
    floor, heads = torch.tensor([1.0, 0.4, 0.01, 0.0]), torch.arange(4).repeat_interleave(2)
    students = floor[heads] + 1e-12
    triangle = np.array([[1.0, 0.2], [-0.9, 0.6], [-0.2, -1.0]])
    shares = {"a": [([1.0, 0.1], [1.0, 0.5]), ([1.0, 0.3], [1.0, 0.9])], "b": [([1.0, 0.0], [1.0, 0.7])]}
    far = torch.arange(600, dtype=F64)  # names stand far out
    faded = far, 0.97**far, (2 * 0.97**far).requires_grad_()
    few, many = ([curve[:count] for curve in faded] for count in (39, 40))  # dots are for few
    flowing = ("Jordan block", "non-normal", "tanh RNN", "gate held", "gate open")
    return part_four() | {
        "factorized": {
            "narrow_heads": [given(s * randn(2, 3, 2), randn(2, 2, 4, seed=1)) for s in (1, -1)],
            "head_prices": [given([1, 2, 8], [1, 2, 8], [16, 8, 2], [512] * 3, [256, 512, 2048])],
            "turning": [given(0.2), given(3.0)],
            "common_heads": [given(shares)],
            "feature_row": [given(FADE, SLOW / 4, [1, 6, 15], [0.5, 0.2, 0.1], 1, 8)],
        },
        "gates_and_depth": {
            "gate_strip": [given(0.3, 5)],
            "doubling_tree": [given(3, 5), given(4, 11)],
            "three_ways": [given(8, 4), given(3, 2)],
            "log_ratios": [given({"gated": (FADE, SLOW), "two": (FADE + SLOW, SLOW)})],
            "stack_paths": [given(1), given(3)],
            "depth_frame": [given(causal(2, 3), [1], 4), given(causal(2, 3, seed=1), [1, 2, 4], 4)],
        },
        "gradient_highway": {
            "paths": [given(), given(10, keep=0.5, weight=0.75)],
            "spread": [given(10 ** (8 * randn(40) - 20), {"recurrence": 1e-45, "query matches": 10.0})],
            "derivative_parts": [
                given(s * randn(2, 3), randn(2, 3, seed=1), randn(2, seed=2), randn(3, seed=3))
                for s in (1, -1)
            ],
            "prices": [given((4, 3.0, -5.0, -6.0), (64, 6.0, -8.0, -9.0))],
            "two_lanes": [given(0), given(2)],
            "reach_lines": [
                given(dict.fromkeys(named, faded) | {"ALiBi": few, "query matches": many}, 2 * [faded[1]])
            ],
            "flow_panels": [given(dict.fromkeys(flowing, faded))],
        },
        "head_count": {
            "three_ranks": [given(toeplitz(FADE), randn(2, 3).round(), "abcabc", cut=2)],
            "heads_as_kernels": [given(randn(9, 2, 3), randn(9, 4), randn(4, 2, 3, seed=1))],
            "two_ranks": [given(causal(2, 3), 2)],
            "error_curve": [given(floor, heads, students, TAU, students.expand(6, -1), least=1e-10)],
            "approximation": [given(M, M / 2, FADE, SLOW, f"H = {H}", 0.25) for H in (0, 5)],
            "epsilon_counts": [
                given([1, 4], {"full": [[1, 1], [4, 4]], "some": [[1, 1, 2], [2, 3, 4]]}, "title")
            ],
            "state_rectangles": [given({"head": (4, 6, 1, 1), "apart": (4, 3, 4, 4), "full": (6, 1, 1, 6)})],
        },
        "how_many_heads_really": {
            "flip_heads": [given(torch.stack([SLOW / 4, FADE]), sunk)],
            "certificate_frame": [given(turn[:3], facing), given(turn, around)],
            "row_sums": [given((-0.5) ** torch.arange(11, dtype=F64)[:, None, None], clock(n=11))],
            "pole_planes": [given([(0.9, -0.5), (-0.9, -0.5)], n=6)],
            "fit_curves": [given(panels)],
            "divergence": [given((FADE, SLOW), {"one pole": (SLOW, FADE), "pair": (FADE, FADE)})],
            "tails": [
                given({"cauchy": 1 / np.linspace(1, 1e-4, 50), "bounded": np.linspace(0, 40, 50)}, 30.0)
            ],
        },
        "interaction_operator": {
            "block_matrices": [
                given({"one": causal(2, 3).requires_grad_(), "two": causal(2, 3, seed=1)}, **how)
                for how in ({}, {"alike": True})
            ],
            "tall_matrix": [given(causal(2, 3).requires_grad_(), 2)],
            "way_from_zero": [given(TAU / 5, (TAU / 5) ** 3, 3.0)],
            "spectra_of_one_output": [
                given({"one": causal(1, 1), "six": causal(2, 3), "four": causal(2, 2, seed=1)})
            ],
            "best_heads": [given(DenseOperator(causal(2, 3).requires_grad_()), H) for H in (0, 5)],
        },
        "interaction_rank_gap": {
            "two_tokens": [given(0.7)],
            "lonely_clock": [given(0.7, 20, (1, 11))],
            "tail": [given(10 ** randn(40), 0.7)],
            "three_tests": [given(0.9, 0.5)],
            "price": [given(torch.logspace(-2, 0, 5, dtype=F64), randn(5, 3).abs() + 100, 0.7)],
            "clock_frame": [given(0.0), given(2.2)],
        },
        "library": {
            "block_heatmap": [given(causal(2, 3))],
            "span_spectrum": [given(DenseOperator(causal(2, 3)))],
            "layer_figure": [given(lens.measurement("minilm").layers[0])],
        },
        "linear_algebra": {
            "weyl": [given(EYE + 1, randn(2, 2, 2), randn(3, 3, seed=1), randn(4, 3, 3, seed=2))],
            "powers": [given((5 * SLOW * TAU + 1).numpy(), 0.9, 20.0)],
            "separate_or_surround": [given([np.abs(triangle) + 0.1, triangle])],
        },
        "past_one_machine": {
            "wire": [given([5, 3, 0, 2], [10, 20, 30, 40])],
            "received": [given([1, 10], {"all": [20, 200], "state": [60, 60], "rounds": [6, 6]}, 3.0)],
        },
        "positions": {
            "told_apart": [given(0.7, 32)],
            "alibi_frame": [given(FADE, SLOW, 0.25, 2)],
            "students": [
                given(
                    {"rotation": {"distance": [4e-4, 3e-7], "T5": [0.08, 0.09]}, "decay": {"ALiBi": [0.7]}},
                    {"rotation": {"T5": 0.05}, "decay": {"ALiBi": 0.6}},
                    {"rotation": [0.04, 0.03], "decay": [0.002]},
                )
            ],
        },
        "preface": {
            "rotating_state": [given(0.2), given(3.14)],
            "gradients": [
                given([2, 4], [0.8, 1e-12], [1.0, 0.8], [[5e-2, 1e-1, 2e-1], [5e-4, 1e-3, 1e-2]]),
            ],
        },
        "primer": {
            "mixes": [given({"all": "AAAA", "hybrid": "SSAS"})],
            "signs": [given()],
            "weighted_sum": [given(toeplitz(FADE)[:3, :3], [*"aba"])],
            "value_map": [given(randn(2, 2), rotation(1.0), (0.5, 0.3))],
            "many_heads": [given({"one": toeplitz(FADE), "two": toeplitz(SLOW), "three": EYE[:3, :3]})],
            "machine": [given(2)],
            "same_lag": [given(3, ((0, 1), (1, 2)))],
            "kept": [given({"fading": clock(0.0, 0.5, 3), "rotating": clock(0.6, n=3)})],
            "keep_or_summarize": [given(2)],
            "block_matrix": [given(3, 2, 1)],
            "arrow_grids": [given(primer_layers())],
            "arrow_planes": [given(primer_layers())],
            "heads_needed": [given({"one": 1, "three": 3})],
            "mamba_block": [given()],
            "gate_strips": [given({"fixed": (SLOW[:3], SLOW[:3]), "selective": (FADE[:3], FADE[:3])}, 1)],
            "scan_tree": [given(2)],
            "rectangle_state": [given(1, 2)],
            "masked_scores": [given(toeplitz(FADE)[:3, :3], toeplitz(SLOW)[:3, :3], [*"abc"])],
            "hybrid": [given("SA", 2)],
            "memory": [given([1, 10, 100], [20, 200, 2000], [50, 50, 50])],
            "reach": [given([*range(9)], [0.9**t for t in range(9)], [0.9] * 9)],
        },
        "scans": {
            "scan_rungs": [given(13, 0), given(13, 3)],
            "blocks_from_zero": [
                given({"sum": (FADE + TAU, SLOW.view(2, 3)), "fading": (SLOW + 1, FADE.view(2, 3))})
            ],
            "held_and_wiped": [
                given(torch.tensor([0, 1, 0.5]), torch.tensor([4.0, 0, 1]), torch.tensor([4.0, 4, 3]))
            ],
            "kept_numbers": [given({"recurrence": 2, "matrix": 64516})],
            "silent_gradient": [given({"b": (SLOW, SLOW), "a": (0 * FADE, FADE)})],
            "rosetta_heatmap": [
                given({"float64": FADE.view(2, 3), "float32": SLOW.view(2, 3)}, ["a", "b"], ["c", "d", "e"])
            ],
            "cost_curves": [given([4, 8], COSTS)],
            "block_length_trade": [given([2, 4, 8], [8.0, 4.0, 5.0], [2, 4, 8])],
            "clock_dots": [given(["loop", "tree", "compiled"], [451.0, 4.8, 1.0])],
            "chunk_blocks": [given(toeplitz(spring), 3)],
        },
        "structured_dynamics": {
            "spring_path": [given(TAU, spring, {"top": (1.2, 0.5), "-0.1 m": (2.6, -0.1)})],
            "hankel_spectra": [given({"a": FADE, "b": SLOW, "c": FADE**2})],
            "kicked_mass": [given(spring[:, None, None], delta, modes[:2]) for delta in (0.1, 0.5)],
            "compared_rules": [
                given({"exact": spring, "Euler": 3 * spring, "mixed": FADE}, delta) for delta in (0.1, 0.8)
            ],
            "stability_maps": [given({"exact": torch.exp, "Euler": lambda z: 1 + z}, modes[:2])],
            "mixed_ratio": [given(1.6)],
            "mass_and_spring": [given()],
            "gaps_over_steps": [given([0.01, 0.05, 0.02], [0.2, 0.9, 0.4])],
            "way_through": [given(2, 5, 6)],
            "hankel_split": [given(TAU[:3] + TAU[:3, None], randn(3, 2), randn(2, 3, seed=1))],
            "starting_modes": [given({"a": modes, "b": 2 * modes, "c": modes[:3]}, circle, 0.1)],
            "cut_rank_curves": [given({"a": [1, 2, 3, 2, 1], "b": [0, 1, 1]})],
            "past_and_future": [given(toeplitz(spring), 2)],
        },
        "trade_off": {
            "strip_and_bucket": [given([0.02, 0.9, 0.0005, 0.0795], 1)],
            "quadrants": [given({name: (at[1], at[3], "0.5") for name, at in PLACES.items()})],
            "reach_lines": [given([1, 2, 4], dict(zip(sorted(PLACES), CROSSED, strict=False)))],
            "stack_path": [given(0.987, 2.4e-7, 32)],
            "mix_frame": [given(w, [1, 2, 3], SLOW[:3], FADE[:3], w * 1e-6 * SLOW[:3]) for w in (0, 1)],
            "recall": [given([2, 4, 8], {"up: one": [0.0, 0.2, 1.0], "near": [0.0, 0.5, 0.99]})],
        },
        "two_ways_to_mix": {
            "two_ways": [given(4)],
            "rotating_state": [given(0.7)],
            "state_space_model": [given()],
            "average_twice": [given(torch.tensor([1.0, 0, 0, 2.0, 0]), 0.5)],
            "memory": [given(0.2), given(0.999)],
            "two_matrices": [given({"average": toeplitz(FADE), "softmax": toeplitz(SLOW)}, [*"abacab"])],
            "plane_of_lags": [given(0.3, 7), given(3.0, 7)],
            "operator_as_heads": [given(randn(2, 4, 4), randn(2, 2, 3, seed=1), ("one", "two"))],
            "costs": [given([1, 10, 100], [2, 200, 20_000], [40, 400, 4000], 20)],
        },
        "zoo": {
            "sides": [given(randn(2), randn(3, seed=1), randn(3, 3, seed=2), randn(2, 2, seed=3))],
            "coefficients": [given({name: toeplitz(lags) for name, lags in (("a", FADE), ("b", -SLOW))})],
            "by_position": [given({"identity": FADE, "turn": SLOW})],
            "block_patterns": [given({"one": causal(2, 3), "two": causal(2, 3, seed=1)})],
            "ruler": [given(zoo(), 16)],
            "layer": [
                given(name, DenseOperator(causal(2, 3)), 6) for name in ("feed-forward", "hybrid, sum")
            ],
        },
    }


def on_axes(draw):
    """A function of the library that draws into given axes, as one that returns a figure."""

    def drawn(W):
        fig, ax = figure(size="panel")
        draw(W, ax)
        return fig

    return drawn


def figures_of(chapter):
    """The public functions of a chapter that return a figure; those of the library that chapters share."""
    if chapter == "library":
        return {each.__name__: on_axes(each) for each in (block_heatmap, span_spectrum)} | {
            "layer_figure": layer_figure
        }
    module = import_module(f"headsandstates.chapters.{chapter}.figures")
    own = [each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__]
    public = {each.__name__: each for each in own if inspect.isfunction(each) and each.__name__[0] != "_"}
    return {
        name: each
        for name, each in public.items()
        if re.search(r"return \(?\s*fig\b", inspect.getsource(each))
    }


@pytest.fixture
def one_sign(monkeypatch):
    """Singular vectors come with either sign: here the largest entry of a right one is positive."""
    plain = torch.linalg.svd

    def signed(matrix, full_matrices=True):
        U, S, Vh = plain(matrix, full_matrices=full_matrices)
        k = S.shape[-1]
        sign = Vh[..., :k, :].gather(-1, Vh[..., :k, :].abs().argmax(-1, keepdim=True)).sign()
        Vh[..., :k, :] *= sign
        U[..., :k] *= sign.mT
        return torch.return_types.linalg_svd((U, S, Vh))

    monkeypatch.setattr(torch.linalg, "svd", signed)


CHAPTERS = sorted(path.parent.name for path in (ROOT / "headsandstates" / "chapters").glob("*/figures.py"))
CHAPTERS.append("library")


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_figure_has_an_entry(chapter):
    table, found = calls().get(chapter, {}), figures_of(chapter)
    missing, gone = sorted(set(found) - set(table)), sorted(set(table) - set(found))
    assert not missing, f"add {missing} of {chapter}.figures to calls() in {Path(__file__).name}: {__doc__}"
    assert not gone, f"{gone} in calls() are no figures of {chapter}"


@pytest.mark.parametrize("chapter", CHAPTERS)
@pytest.mark.usefixtures("one_sign")
@pytest.mark.filterwarnings("error:__array")  # a tensor where Matplotlib with NumPy 2 wants an array
@pytest.mark.filterwarnings("error:Casting complex values")  # half of each number would not be drawn
def test_figures_hold_what_they_held(chapter):
    lines = []
    with rc_context():
        use_style()  # as in a notebook
        for name, each in figures_of(chapter).items():
            for arguments, options in calls().get(chapter, {}).get(name, []):
                drawn = each(*arguments, **options)
                fig, *said = drawn if isinstance(drawn, tuple) else [drawn]
                lines += [name, *describe(fig), *(f"  alt {words}" for words in said), ""]
    path, text = WORDS / f"{chapter}.txt", "\n".join(lines)
    if os.environ.get("WRITE_FIGURES"):
        path.write_text(text, encoding="utf-8")
    agreed = path.read_text(encoding="utf-8") if path.exists() else ""
    changes = list(
        difflib.unified_diff(agreed.splitlines(), text.splitlines(), "agreed", "drawn", "", "", 30, "")
    )
    assert not changes, "\n".join([f"The figures of {chapter} changed.", __doc__, *changes])
