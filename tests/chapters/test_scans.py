"""The pictures of the chapter *scans*, read back and held to numbers had by another route."""

import itertools

import numpy as np
import torch
from helpers import gen, points

from ssmbook.chapters.scans import figures
from ssmbook.display import COLORS


def test_after_three_passes_an_entry_has_seen_eight_inputs():
    (ax,) = figures.scan_rungs(12, 3).axes
    bars = [line.get_xydata() for line in ax.get_lines() if line.get_linewidth() == 5]
    assert [tuple(bar[:, 1]) for bar in bars] == [(t, t) for t in range(12)]
    seen = [(round(first + 0.3), round(last - 0.3)) for first, last in (bar[:, 0] for bar in bars)]
    assert seen == [(max(0, t - 7), t) for t in range(12)]
    colors = [line.get_color() for line in ax.get_lines()[:12]]
    assert colors == [COLORS["green"]] * 8 + [COLORS["sky"]] * 4  # finished, and not
    joints = [line.get_xydata() for line in ax.get_lines()[12:]]  # where the last pass joined two halves
    assert [joint[0, 0] + 3.5 for joint in joints] == [joint[:, 1].mean() for joint in joints]
    assert [joint[:, 1].mean() for joint in joints] == list(range(4, 12))
    assert ax.get_title() == "after 3 passes: 8 of 12 entries finished"
    assert len(figures.scan_rungs(12, 0).axes[0].get_lines()) == 12


def test_both_curves_of_the_block_length_name_their_ends():
    sizes, words, depth = [2, 4, 8, 16], [8.0, 4.0, 3.0, 5.0], [2, 4, 8, 16]
    fig, alt = figures.block_length_trade(sizes, words, depth)
    for ax, values in zip(fig.axes, (words, depth), strict=True):
        (curve,) = ax.get_lines()
        assert points(curve).tolist() == [[L, v] for L, v in zip(sizes, values, strict=True)]
        ends = [(f"{values[k]:g}", (sizes[k], values[k])) for k in (0, -1)]
        assert [(text.get_text(), text.xy) for text in ax.texts] == ends
        low, high = ax.get_ylim()
        assert low < min(values) and max(values) < high
    assert alt.endswith("2: 8 and 2; 4: 4 and 4; 8: 3 and 8; 16: 5 and 16.")


def test_bars_are_as_long_as_the_ratios_and_the_words_name_them():
    names, ratios = ["loop", "tree", "compiled"], [451.0, 4.8, 1.0]
    fig, alt = figures.clock_bars(names, ratios)
    assert [bar.get_width() for bar in fig.axes[0].patches] == ratios
    assert alt.endswith("loop 451, tree 4.8, compiled 1.")


def test_blocks_below_the_diagonal_have_the_rank_of_the_state():
    generator = gen(0)
    B, C = torch.randn(2, 24, 3, generator=generator, dtype=torch.float64)
    i = torch.arange(24)
    m = (C @ B.mT) * 0.9 ** (i[:, None] - i).clamp(min=0).double() * (i[:, None] >= i)
    fig, alt = figures.chunk_blocks(m, 8)
    shown = np.asarray(fig.axes[0].get_images()[0].get_array()) ** 2 * float(m.abs().max())
    assert np.allclose(shown, m.abs(), atol=1e-12)
    said = [text.get_text() for text in fig.axes[0].texts]
    assert said == ["rank 8", "rank 3", "rank 8", "rank 3", "rank 3", "rank 8"]
    singular = np.linalg.svd(m[8:16, :8].numpy(), compute_uv=False)
    assert singular[2] > 1e-3 > 1e-12 > singular[3]
    assert "diagonal have rank 8, blocks below it rank 3" in alt


def test_cost_curves_are_the_counts_and_the_legend_names_them():
    costs = {"multiplications": {"loop": [4, 8], "tree": [8, 24]}, "depth": {"loop": [4, 8], "tree": [2, 3]}}
    fig = figures.cost_curves([4, 8], costs)
    for ax, curves in zip(fig.axes, costs.values(), strict=True):
        assert [list(line.get_ydata()) for line in ax.get_lines()] == list(curves.values())
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == ["loop", "tree"]
    drawn = fig.axes[0].get_lines()
    assert [h.get_marker() for h in legend.legend_handles] == [line.get_marker() for line in drawn]


def test_tick_labels_of_the_errors_stand_clear_of_each_other():
    """Nine columns and eight rows in three panels: no two labels of an axis share a point of the page."""
    errors = {name: torch.rand(8, 9) + 0.1 for name in ("float64", "float32", "bfloat16")}
    errors["float64"][0] = torch.nan
    forms = [
        "recurrence",
        "convolution",
        "Fourier",
        "associative scan",
        "chunked",
        "matrix",
        "heads",
        "narrow",
    ]
    columns = [f"{rho}, {n}" for rho in (0.9, 0.99, 0.999) for n in (63, 255, 1023)]
    fig = figures.rosetta_heatmap(errors, forms, columns)
    fig.canvas.draw()
    for ax, (name, table) in zip(fig.axes, errors.items(), strict=False):
        for axis, wanted in ((ax.xaxis, columns if name == "bfloat16" else []), (ax.yaxis, forms)):
            labels = [tick.label1 for tick in axis.get_major_ticks() if tick.label1.get_visible()]
            assert [label.get_text() for label in labels] == wanted
            boxes = [label.get_window_extent() for label in labels]
            assert not any(one.overlaps(two) for one, two in itertools.pairwise(boxes))
        unit = torch.finfo(getattr(torch, name)).eps
        shown = torch.tensor(np.ma.filled(ax.get_images()[0].get_array(), np.nan))
        torch.testing.assert_close(10**shown * unit, table.to(shown.dtype), rtol=1e-5, atol=0, equal_nan=True)
        assert [text.get_text() for text in ax.texts] == ["–"] * int(table.isnan().sum())


def test_a_block_from_zero_lacks_the_faded_state_before_it():
    b, decays = np.random.default_rng(0).random(12), {"sum": 1.0, "fading": 0.8}
    kinds = {}
    for name, a in decays.items():
        reach = np.tril(a ** np.abs(np.subtract.outer(range(12), range(12))))  # the sums in closed form
        own = [reach[:4, :4] @ b[k : k + 4] for k in (0, 4, 8)]
        kinds[name] = torch.from_numpy(reach @ b), torch.tensor(np.array(own))
    fig, alt = figures.blocks_from_zero(kinds)
    for ax, (name, a) in zip(fig.axes, decays.items(), strict=True):
        runs = [line for line in ax.get_lines() if line.get_color() == COLORS["orange"]][::2]
        (whole,) = [line for line in ax.get_lines() if line.get_color() == COLORS["blue"]]
        for k, run in enumerate(runs):
            t, zeroed = points(run).T
            assert t.tolist() == list(range(4 * k, 4 * k + 4))
            before = whole.get_ydata()[4 * k - 1] if k else 0.0
            assert np.allclose(zeroed + before * a ** np.arange(1, 5), whole.get_ydata()[4 * k : 4 * k + 4])
        assert f"{name}, {a**4:.3f}" in alt
        assert ax.get_title() == name
    (end,) = [note for note in fig.axes[0].texts if note.get_text() == "from zero"]
    assert end.xy == (11, kinds["sum"][1][-1, -1])


def test_a_held_state_stands_over_its_gates_and_writes():
    gates, writes = torch.tensor([0.0, 1, 0.5, 0]), torch.tensor([4.0, 0, 1, 7])
    states = torch.tensor([4.0, 4, 3, 7])
    fig, alt = figures.held_and_wiped(gates, writes, states)
    top, strip = fig.axes
    assert [bar.get_height() for bar in top.patches] == states.tolist()
    said = [(text.get_position()[0], text.get_text()) for text in strip.texts]
    assert said == [(0, "0"), (0, "+ 4"), (1, "1"), (2, "0.5"), (2, "+ 1"), (3, "0"), (3, "+ 7")]
    assert np.array_equal(np.asarray(strip.get_images()[0].get_array())[0], gates)
    assert alt == "States 4, 4, 3, 7 under the gates 0, 1, 0.5, 0."


def test_a_bar_is_as_long_as_what_a_form_keeps():
    fig, alt = figures.kept_numbers({"recurrence": 2, "matrix": 64516})
    assert [bar.get_width() for bar in fig.axes[0].patches] == [2, 64516]
    assert [text.get_text() for text in fig.axes[0].texts] == ["2", "64,516"]
    assert alt.endswith("recurrence 2, matrix 64,516.")


def test_a_silent_gradient_lies_flat_below_the_true_one():
    true, zero = torch.tensor([1.0, 3.0, 2.0]), torch.zeros(3)
    fig, alt = figures.silent_gradient({"b": (true, true), "a": (zero, true)})
    drawn = [[line.get_ydata().tolist() for line in ax.get_lines()] for ax in fig.axes]
    assert drawn == [[[1, 3, 2], [1, 3, 2]], [[1, 3, 2], [0, 0, 0]]]
    assert all(ax.get_ylim()[0] < 0 and ax.get_ylim()[1] > 3 for ax in fig.axes)
    assert alt.endswith("b: off by at most 0.00 of 3.00; a: off by at most 3.00 of 3.00.")
