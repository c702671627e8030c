"""Pictures of *zoo*: the two sides of a state, the coefficients, the ruler, the tour."""

import numpy as np
import pytest
import torch
from helpers import F64, gen, like, shown
from matplotlib.colors import to_hex

from ssmbook import maps
from ssmbook.chapters.zoo import figures
from ssmbook.display import COLORS, FAMILIES


def test_only_the_value_side_turns_the_value():
    new = like(0)
    v, b = torch.randn(3, **new), torch.randn(5, **new)
    G, A = torch.randn(5, 5, **new), torch.randn(3, 3, **new)
    fig, alt = figures.sides(v, b, G, A)
    written, key, value = (shown(ax) for ax in fig.axes)
    assert np.allclose(written, np.outer(v, b)) and np.allclose(key, np.outer(v, G.T @ b))
    assert np.allclose(value, np.outer(A @ v, b))
    assert "key side: v bᵀ G, 0 degrees" in alt and "value side: A v bᵀ, 0 degrees" not in alt
    top = max(abs(part).max() for part in (written, key, value))
    assert {ax.get_images()[0].get_clim() for ax in fig.axes} == {(-top, top)}  # one scale for all three


def test_every_layer_of_the_zoo_stands_in_one_family_of_the_ruler():
    names = [name for names in figures.FAMILY.values() for name in names]
    zoo = maps.zoo(4, 4, 8, **{"generator": gen(0)})
    wanted = [*zoo, figures.ONE_CHANNEL]
    apart = sorted({*names} ^ {*wanted})
    assert sorted(names) == sorted(wanted), f"{apart}: in FAMILY of {figures.__name__} or in the zoo alone"
    assert list(figures.FAMILY) == list(figures.REASONS) == list(FAMILIES)


def test_the_ruler_puts_every_mark_at_its_count_in_the_color_of_its_family():
    names = [name for names in figures.FAMILY.values() for name in names]
    counts = {name: (1 + i % 16, 1 + (3 * i) % (1 + i % 16)) for i, name in enumerate(names)}
    fig, alt = figures.ruler(counts, 16)
    found = {}
    for ax in fig.axes:
        label = dict(zip(ax.get_yticks(), (t.get_text() for t in ax.get_yticklabels()), strict=True))
        lines = [line for line in ax.get_lines() if len(line.get_xdata()) == 1]
        for row, whole in zip(lines[::2], lines[1::2], strict=True):
            name = label[whole.get_ydata()[0]]
            found[name] = (whole.get_xdata()[0], row.get_xdata()[0])
            wanted = COLORS[FAMILIES[figures.family_of(name)]]
            assert to_hex(whole.get_color()).lower() == wanted.lower()
    assert found == counts
    assert f"{len(counts)} layers" in alt


def test_the_words_of_the_ruler_name_a_count_or_a_range_for_each_family():
    names = [name for names in figures.FAMILY.values() for name in names]
    words = figures.ruler({name: (3, 1) for name in names}, 16)[1]
    assert "key side 3; " in words and " to " not in words
    words = figures.ruler({name: (7 if name == "attention" else 3, 1) for name in names}, 16)[1]
    assert "key side 3 to 7; " in words and words.count(" to ") == 1


@pytest.mark.parametrize("name", ["attention", "RNN", "gated SSD"])
def test_the_tour_shows_the_spectrum(name):
    x = torch.randn(9, 3, **like(1))
    W = maps.zoo(3, 3, 9, **{"generator": gen(0)})[name].interaction(x)
    left, right = figures.layer(name, W, 9).axes
    heights = [bar.get_height() for bar in right.patches]
    sigma = np.linalg.svd(W.to_dense().detach().reshape(81, 9).numpy(), compute_uv=False)
    assert np.allclose(heights, (sigma / sigma[0])[: len(heights)], atol=1e-9)
    assert right.get_title() == f"k = {W.interaction_rank()}"
    norms = W.to_dense().detach().norm(dim=(2, 3)).numpy()
    assert np.allclose(shown(left), norms)


def test_coefficients_count_the_negative_ones():
    tables = {"a": -torch.ones(4, 4, dtype=F64).tril(), "b": torch.ones(4, 4, dtype=F64).tril()}
    fig, alt = figures.coefficients(tables)
    assert "a: 100 %" in alt and "b: 0 %" in alt
    assert all(np.allclose(shown(ax), t) for ax, t in zip(fig.axes, tables.values(), strict=True))


def test_weights_by_position_are_constant_along_diagonals():
    tau = np.arange(7)
    kernels = {"identity": np.cos(0.7 * tau), "turn": np.sin(0.7 * tau)}
    fig, alt = figures.by_position({name: torch.from_numpy(kernel) for name, kernel in kernels.items()})
    for ax, (name, kernel) in zip(fig.axes, kernels.items(), strict=True):
        table = sum(np.diag(kernel[lag] * np.ones(7 - lag), -lag) for lag in tau)
        assert np.allclose(shown(ax), table) and ax.get_title() == name
    assert "identity, 1.00, 0.76, 0.17; turn, 0.00, 0.64, 0.99." in alt


def test_blocks_of_a_row_look_alike_behind_an_output_gate():
    new = like(3)
    V, scalars = torch.randn(3, 4, **new), torch.randn(5, 5, **new).tril()
    head = torch.einsum("ij,pd->ijpd", scalars, V)
    gated = torch.randn(5, 1, 3, 1, **new) * head
    fig, alt = figures.block_patterns({"head": head, "gated": gated})
    plain, gate = (shown(ax).reshape(5, 3, 5, 4).swapaxes(1, 2) for ax in fig.axes)
    for i in range(5):
        for picture, first in ((plain, plain[0, 0]), (gate, gate[i, 0])):
            assert np.allclose(picture[i, : i + 1], first) and not picture[i, i + 1 :].any()
            assert np.abs(first).max() == 1
    assert np.allclose(np.outer(plain[0, 0], V), np.outer(V, plain[0, 0]))  # a multiple of V
    assert not np.allclose(gate[0, 0], gate[1, 0])
    assert [ax.get_title() for ax in fig.axes] == ["head: k = 1, in a row 1", "gated: k = 3, in a row 1"]
    assert alt.endswith("head, 1 and 1; gated, 3 and 1.")
