"""Figures of *primer*, drawn with a few signs; each returns the figure and its alternative text."""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from headsandstates.chapters._drawn import HEAD, LAG, STATE, weights
from headsandstates.chapters.primer import signs as draw
from headsandstates.chapters.primer.signs import LOW, TOKEN
from ssmbook.display import COLORS, figure, label_line

WEIGHTS = LinearSegmentedColormap.from_list("primer-weights", ["#FFFFFF", "#5FB3C9"])


def mixes(models):
    """Draw the layers {model: string of A, attention, and S, a state} of models from first to last."""
    fig, ax = draw.sheets(1.6 * len(models) + 0.9)
    said = {}
    for row, (model, layers) in enumerate(models.items()):
        y, few = 1.6 * (len(models) - row) - 0.4, layers.count("A")
        said[model] = f"{few} of {len(layers)} layers" if few < len(layers) else f"all {few} layers"
        draw.write(ax, 0.1, y + 0.6, f"{model}: attention in {said[model]}", ha="left")
        for letter, mark, hue in (("A", "s", HEAD), ("S", "o", STATE)):
            x = [0.25 + 0.307 * at for at, layer in enumerate(layers) if layer == letter]
            ax.plot(x, [y] * len(x), mark, color=COLORS[hue], ms=5.6, linestyle="none")
    for x, mark, hue, words in ((0.25, "s", HEAD, "attention"), (3.7, "o", STATE, "keeps a state")):
        ax.plot([x], [0.3], mark, color=COLORS[hue], ms=5.6, linestyle="none")
        draw.write(ax, x + 0.35, 0.3, words, hue, ha="left")
    return fig, f"Attention: {'; '.join(f'{model}, {words}' for model, words in said.items())}."


def signs():
    """Draw the four signs of the pictures."""
    fig, ax = draw.sheets(2.4)
    draw.token(ax, 1.2, 1.6, "x")
    draw.state(ax, 3.7, 1.6, "h")
    draw.box(ax, 6.2, 1.6, "V", width=1.1)
    ax.annotate("", (9.5, 1.4), (7.9, 1.4), arrowprops={"arrowstyle": "|-|", "color": COLORS[LAG], "lw": 1.6})
    draw.write(ax, 8.7, 1.75, "2", LAG)
    names = {"token": TOKEN, "state": STATE, "head": HEAD, "lag": LAG}
    for x, (name, hue) in zip((1.2, 3.7, 6.2, 8.7), names.items(), strict=True):
        draw.write(ax, x, 0.45, name, hue)
    alt = "A token is a gray square, a state a red circle, a head a teal box, a lag a black distance."
    return fig, alt


def weighted_sum(alpha, letters):
    """Draw the last row of attention weights alpha (n, n) as arrows, and all rows as a matrix."""
    fig, (ways, matrix) = figure(ncols=2, size=(7.0, 2.8))
    n, last = len(letters), alpha[-1].tolist()
    ways.set(xlim=(-0.6, n - 0.4), ylim=(-0.8, 3.1), aspect="equal", title="one output")
    ways.set_axis_off()
    for j, letter in enumerate(letters):
        draw.token(ways, j, 0, letter, side=0.7)
        draw.arrow(ways, (j, 0.42), (n - 1 - 0.12 * (n - 1 - j), 2.15), HEAD, width=0.6 + 9 * last[j])
        draw.write(ways, j, -0.6, f"{last[j]:.2f}", HEAD)
    draw.token(ways, n - 1, 2.6, f"y{LOW[n - 1]}")
    weights(matrix, alpha, letters, cmap=WEIGHTS)
    for i, j in zip(*np.tril_indices(n), strict=True):
        draw.write(matrix, j, i, f"{alpha[i, j]:.2f}")
    matrix.add_patch(Rectangle((-0.5, n - 1.5), n, 1, fill=False, edgecolor="black", lw=2, clip_on=False))
    matrix.set(xlabel="token", ylabel="output", title="all outputs")
    said = ", ".join(f"{letter} {w:.2f}" for letter, w in zip(letters, last, strict=True))
    return fig, f"Attention among the letters {' '.join(letters)}. Weights of the last output: {said}."


def value_map(x, V, alpha):
    """Draw tokens x (m, 2) through one value map V (2, 2), scaled by weights alpha (m,) and added."""
    x, alpha = np.asarray(x), np.asarray(alpha)
    passed = x @ np.asarray(V).T
    fig, ax = draw.sheets(1.9 * len(x) + 0.8)
    y = 1.9 * np.arange(len(x))[::-1] + 0.95
    for at, name in ((0.9, "token"), (4.6, "value"), (7.1, "weighted"), (9.2, "sum")):
        draw.write(ax, at, 1.9 * len(x) + 0.4, name, TOKEN if name == "token" else HEAD)
    for row, height in enumerate(y):
        draw.token(ax, 0.9, height, side=1.6)
        draw.box(ax, 2.85, height, "V", width=0.9)
        draw.arrow(ax, (1.75, height), (2.35, height))
        draw.arrow(ax, (3.35, height), (3.85, height))
        draw.write(ax, 5.85, height, f"× {alpha[row]:g}", HEAD)
        draw.arrow(ax, (7.7, height), (8.35, y.mean() + 0.3 * (height - y.mean())))
    for at, hue, each in ((0.9, TOKEN, x), (4.6, HEAD, passed), (7.1, HEAD, alpha[:, None] * passed)):
        draw.vectors(ax, np.stack([np.full(len(x), at), y], 1), each, COLORS[hue])
    total = alpha @ passed
    draw.token(ax, 9.2, y.mean(), side=1.6)
    draw.vectors(ax, [(9.2, y.mean())], [total], COLORS[HEAD])
    said = ", ".join(f"{w:g}" for w in alpha)
    return fig, (
        f"{len(x)} tokens go through the same matrix V and are weighted by {said}; "
        f"the sum is ({total[0]:.2f}, {total[1]:.2f})."
    )


def many_heads(patterns):
    """Draw three heads {what it looks at: weights (n, n)} side by side, and their sum."""
    fig, ax = draw.sheets(6.8)
    draw.write(ax, 5, 0.35, "tokens")
    for h, (name, alpha) in enumerate(patterns.items()):
        x = 1.7 + 3.3 * h
        draw.arrow(ax, (5 + 0.5 * (h - 1), 0.65), (x, 1.3))
        draw.box(ax, x, 3.05, "", width=3.0, height=3.4)
        place = {"extent": (x - 0.85, x + 0.85, 2.15, 3.85), "zorder": 3}
        ax.imshow(alpha.numpy(), cmap=WEIGHTS, vmin=0, vmax=1, **place)
        ax.add_patch(Rectangle((x - 0.85, 2.15), 1.7, 1.7, fill=False, edgecolor=COLORS[HEAD], zorder=4))
        draw.write(ax, x, 4.3, f"weights · V{LOW[h + 1]}", HEAD)
        draw.write(ax, x, 1.72, name, size=9.5)
        draw.arrow(ax, (x, 4.8), (5 + 0.4 * (h - 1), 5.75), HEAD)
    ax.set(xlim=(-0.3, 10.3), ylim=(0, 6.8))
    draw.sign(ax, 5, 6.1, "+")
    draw.write(ax, 5.7, 6.1, "outputs", ha="left")
    return fig, f"Heads side by side: {', '.join(patterns)}. Each has its own matrix; their outputs add."


def _unrolled(ax, n, way=(-1, -1)):
    """A state space model over n steps, the way (j, i) from token j to output i strong."""
    j, i = way
    step = 8.2 / (n - 1)
    for t in range(n):
        x = 0.7 + step * t
        for name, start, end, taken, at in (
            ("A", (x - step, 3), (x, 3), j < t <= i, (x - step / 2, 3.4)),
            ("B", (x, 0.6), (x, 3), t == j, (x + 0.42, 1.75)),
            ("C", (x, 3), (x, 5.4), t == i, (x + 0.42, 4.2)),
        ):
            if name + str(t) != "A0":
                hue = LAG if taken else TOKEN
                draw.arrow(ax, start, end, hue, width=2.6 if taken else 1.2, gap=0.5)
                draw.write(ax, *at, name, hue, weight="bold" if taken else "normal")
        draw.token(ax, x, 0.6, f"x{LOW[t]}", LAG if t == j else TOKEN)
        draw.state(ax, x, 3, f"h{LOW[t]}")
        draw.token(ax, x, 5.4, f"y{LOW[t]}", LAG if t == i else TOKEN)


def machine(n):
    """Draw a state space model as a loop, and unrolled over n steps."""
    fig, (loop, steps) = draw.sheets(6, ("one step", f"{n} steps, side by side"))
    draw.token(loop, 1, 2.5, "x")
    draw.state(loop, 5, 2.5, "h", radius=0.8)
    draw.token(loop, 9, 2.5, "y")
    for x, y, name, words in ((3, 2.5, "B", "writes"), (7, 2.5, "C", "reads"), (5, 4.6, "A", "keeps")):
        draw.box(loop, x, y, name, STATE, width=1)
        draw.write(loop, x, y + 0.75, words, STATE)
    for start, end in ((1.4, 2.5), (3.5, 4.2), (5.8, 6.5), (7.5, 8.6)):
        draw.arrow(loop, (start, 2.5), (end, 2.5))
    draw.arrow(loop, (5.5, 3.1), (5.6, 4.6), STATE, bend=0.4)
    draw.arrow(loop, (4.4, 4.6), (4.5, 3.1), STATE, bend=0.4)
    _unrolled(steps, n)
    words = "B writes the token into the state h, A keeps the state from step to step, C reads the output y"
    return fig, f"Left, a loop: {words}. Right, the loop drawn once for each of {n} tokens."


def same_lag(n, ways):
    """Draw n steps of a state space model once for each way (j, i) of ``ways``, that way strong."""
    titles = [f"token {j} to output {i}: lag {i - j}" for j, i in ways]
    fig, axes = draw.sheets(6, titles)
    for ax, way in zip(axes, ways, strict=True):
        _unrolled(ax, n, way)
    letters = ["B", *["A"] * (ways[0][1] - ways[0][0]), "C"]
    return fig, f"Two ways through one model, {' and '.join(titles)}. Each passes {', '.join(letters)}."


def kept(systems):
    """Draw what states keep of a token, {name: lags (n, 2, 2)}: the first column of each lag as an arrow."""
    fig, axes = draw.sheets(2.9, list(systems))
    said = []
    for ax, (name, M) in zip(axes, systems.items(), strict=True):
        arrows, x = M[:, :, 0].numpy(), np.linspace(0.8, 9.2, len(M))
        for lag, at in enumerate(x):
            draw.state(ax, at, 2.05, radius=0.75)
            draw.write(ax, at, 0.95, f"{lag}", LAG)
        draw.vectors(ax, np.stack([x, 0 * x + 2.05], 1), 1.2 * arrows, COLORS[LAG])
        draw.write(ax, 5, 0.35, "steps after the token arrived", LAG, size=9.5)
        end, angle = np.hypot(*arrows[-1]), np.arctan2(arrows[-1, 1], arrows[-1, 0])
        said.append(f"{name}: length {end:.2f}, direction {angle:.2f}")
    return fig, f"One token in two states, {len(M) - 1} steps after it arrived. {'; '.join(said)}."


def keep_or_summarize(n):
    """Draw how an output is reached from n tokens: from each of them, or through one state."""
    fig, (direct, summary) = draw.sheets(5.2, ("attention keeps everything", "a state is a summary"))
    for j, x in enumerate(np.linspace(0.7, 9.3, n)):
        draw.token(direct, x, 0.6)
        draw.token(summary, x, 0.6)
        draw.arrow(direct, (x, 1.05), (5, 4.25), HEAD, width=3.5 if j == 1 else 0.7)
        draw.arrow(summary, (x, 1.05), (5 + 0.12 * (x - 5), 2.3), width=0.9)
    draw.state(summary, 5, 2.85, "h", radius=0.6)
    draw.arrow(summary, (5, 3.45), (5, 4.25), STATE, width=2)
    for ax in (direct, summary):
        draw.token(ax, 5, 4.7, "y")
    draw.write(direct, 5.7, 4.7, "chooses now", HEAD, ha="left")
    draw.write(summary, 5.85, 2.95, "had to choose before", STATE, ha="left")
    return fig, f"Left, attention reaches each of {n} tokens directly. Right, all {n} pass through one state."


def block_matrix(n, i, j):
    """Draw the n by n blocks of an interaction matrix, block (i, j) strong, with its token and its output."""
    fig, ax = draw.sheets(8.2)
    side, left, top = 1.3, 2.6, 6.8
    for at in range(n):
        draw.token(ax, 1.2, top - side * (at + 0.5), f"y{LOW[at]}", LAG if at == i else TOKEN)
        draw.token(ax, left + side * (at + 0.5), 7.6, f"x{LOW[at]}", LAG if at == j else TOKEN)
        for column in range(at + 1):
            corner, chosen = (left + side * column, top - side * (at + 1)), (at, column) == (i, j)
            look = draw.look(LAG if chosen else TOKEN)
            ax.add_patch(Rectangle(corner, side, side, **look, zorder=1 + chosen))
    x, y = left + side * (j + 0.5), top - side * (i + 0.5)
    draw.write(ax, x, y, f"$W_{{{i}{j}}}$", size=12)
    draw.arrow(ax, (x, 7.2), (x, y + side / 2), LAG, width=2.2)
    draw.arrow(ax, (x - side / 2, y), (1.6, y), LAG, width=2.2)
    draw.write(ax, left + 0.75 * n * side, top - 0.85 * side, "future:\nempty", TOKEN)
    return fig, f"{n} by {n} blocks, none above the diagonal. Block W{i}{j} takes token {j} to output {i}."


def _arrows_of(layers):
    """For layers {name: W (n, n, 2, 2)}: colors, places (i, j), and what each block makes of a token."""
    for hue, W in zip((HEAD, LAG), layers.values(), strict=True):
        i, j = np.tril_indices(len(W))
        yield COLORS[hue], i, j, W[i, j, :, 0].numpy()


def arrow_grids(layers):
    """Draw two layers {name: W (n, n, 2, 2)} with an arrow in each block: what it makes of the same token."""
    fig, axes = figure(ncols=2, size=(7.0, 3.9))
    said = []
    for ax, (name, W), (colors, i, j, arrows) in zip(axes, layers.items(), _arrows_of(layers), strict=True):
        for row, column in zip(i, j, strict=True):
            ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="none", edgecolor="#CCCCCC"))
        draw.vectors(ax, np.stack([j, i], 1), 0.85 * arrows * (1, -1), colors)  # the axis points down
        ax.set(xlim=(-0.5, len(W) - 0.5), ylim=(len(W) - 0.5, -0.5), aspect="equal", title=name)
        ax.set(xticks=range(len(W)), yticks=range(len(W)), xlabel="token", ylabel="output")
        ax.grid(False)
        angles = np.degrees(np.arctan2(arrows[:, 1], arrows[:, 0]))
        row = zip(np.hypot(*arrows.T)[-len(W) :], angles[-len(W) :], strict=True)
        said.append(f"{name} {', '.join(f'{length:.2f} at {angle:.0f}°' for length, angle in row)}")
    return fig, f"Two grids of blocks with an arrow in each. The last rows: {'; '.join(said)}."


def arrow_planes(layers):
    """Draw the arrows of ``arrow_grids`` from one origin."""
    fig, axes = figure(ncols=2, size=(7.0, 2.7))
    ranks = []
    for ax, (name, W), (colors, i, _, arrows) in zip(axes, layers.items(), _arrows_of(layers), strict=True):
        ranks.append(int(np.linalg.matrix_rank(W.reshape(-1, 4).numpy(), tol=1e-9)))
        if ranks[-1] == 1:
            line = np.outer((-1.2, 1.2), arrows[0] / np.hypot(*arrows[0]))
            ax.plot(*line.T, "--", color=COLORS[HEAD], lw=1)
        draw.vectors(ax, np.zeros((len(i), 2)), arrows, colors, pivot="tail")
        ax.plot(0, 0, "o", color="black", ms=4)
        ax.set(xlim=(-1.2, 1.2), ylim=(-0.4, 1.1), aspect="equal", title=name)
        ax.set_axis_off()
    return fig, f"The arrows of two layers from one origin. Independent matrices: {ranks[0]} and {ranks[1]}."


def heads_needed(counts):
    """Draw how many attention heads layers {name: count} take, one box for each."""
    fig, ax = figure(size=(3.6, 0.36 * len(counts) + 0.7))
    for row, count in enumerate(counts.values()):
        ax.plot(range(1, count + 1), [row] * count, "s", color=COLORS[HEAD], ms=11, linestyle="none")
    ax.set(yticks=range(len(counts)), yticklabels=list(counts), xticks=range(1, max(counts.values()) + 1))
    ax.set(xlim=(0.5, max(counts.values()) + 0.5), ylim=(len(counts) - 0.5, -0.5), xlabel="attention heads")
    ax.grid(False)
    return fig, f"Heads needed: {'; '.join(f'{name} {count}' for name, count in counts.items())}."


def mamba_block():
    """Draw the block of Mamba from below to above."""
    fig, ax = draw.sheets(12.9)
    draw.token(ax, 5.1, 0.5, "x")
    for x, y, words in ((2.7, 2.1, "linear"), (7.5, 2.1, "linear"), (2.7, 6, "SiLU"), (7.5, 6, "SiLU")):
        draw.box(ax, x, y, words, TOKEN, width=4.1)
    draw.box(ax, 2.7, 4.1, "convolution:\nlast 4 tokens", LAG, width=4.1, height=1.25)
    draw.box(ax, 2.7, 8.0, "selective SSM:\nall the past", STATE, width=4.1, height=1.25)
    draw.sign(ax, 5.1, 9.65, "×")
    draw.box(ax, 5.1, 11.2, "linear", TOKEN, width=4.1)
    draw.token(ax, 5.1, 12.45, "y")
    draw.write(ax, 6.75, 8.75, "output gate", ha="left")
    steps = np.reshape([2.5, 3.45, 4.75, 5.6, 6.4, 7.35], (-1, 2))
    for start, end in (
        *(((2.7, low), (2.7, high)) for low, high in steps),
        *(((5.1, low), (5.1, high)) for low, high in ((10.05, 10.8), (11.6, 12.05))),
        *(((5.1, 0.9), (x, 1.7)) for x in (2.7, 7.5)),
        *(((7.5, 2.5), (7.5, 5.6)), ((2.7, 8.65), (4.75, 9.5)), ((7.5, 6.4), (5.45, 9.5))),
    ):
        draw.arrow(ax, start, end)
    return fig, (
        "A Mamba block from below: a linear map, a convolution over the last 4 tokens, SiLU, a selective "
        "state space model; a second branch, linear and SiLU, multiplies it as a gate; a linear map."
    )


def gate_strips(strips, at):
    """Draw {name: (share kept at each step (n,), share left (n,))} of the token at place ``at``, as bars."""
    fig, axes = draw.sheets(6.8, list(strips))
    for ax, (gates, left) in zip(axes, strips.values(), strict=True):
        for t, x in enumerate(np.linspace(0.5, 9.5, len(gates))):
            draw.token(ax, x, 6.4, side=0.62)
            if t == at:
                ax.add_patch(Rectangle((x - 0.31, 6.09), 0.62, 0.62, color=COLORS[TOKEN]))
            for y, height, hue in ((3.7, float(gates[t]), LAG), (0.75, float(left[t]), STATE)):
                ax.add_patch(Rectangle((x - 0.3, y), 0.6, 1.5 * height, **draw.look(hue)))
        draw.write(ax, 0.2, 5.65, "share of the state kept at each step", LAG, size=9.5, ha="left")
        draw.write(ax, 0.2, 2.7, "left of the solid token", STATE, size=9.5, ha="left")
        draw.write(ax, 9.8, 0.3, f"{float(left[-1]):.2f} at the end", STATE, size=9.5, ha="right")
    said = "; ".join(f"{name} {float(left[-1]):.2f}" for name, (_, left) in strips.items())
    return fig, f"Left of the token at place {at} after {len(left) - 1 - at} steps: {said}."


def scan_tree(levels):
    """Draw how 2**levels tokens are combined in pairs, round by round."""
    n, x = 2**levels, np.linspace(2.3, 9.7, 2**levels)
    fig, ax = draw.sheets(1.7 * levels + 1.2)
    for j, at in enumerate(x):
        draw.token(ax, at, 0.5, f"{j}", side=0.75)
    for level in range(1, levels + 1):
        y, width, parts = 0.5 + 1.7 * level, 2**level, x.reshape(-1, 2)
        for part, pair in enumerate(parts):
            for start in pair:
                draw.arrow(ax, (start, y - 1.7), (pair.mean(), y), gap=0.43)
            words = f"{width * part}–{width * (part + 1) - 1}"
            draw.box(ax, pair.mean(), y, words, STATE, width=1.3, height=0.75)
        draw.write(ax, -0.2, y, f"round {level}", ha="left")
        x = parts.mean(1)
    return fig, f"{n} tokens combined in pairs: {levels} rounds instead of {n - 1} steps."


def rectangle_state(p, m):
    """Draw a state (p, m) as it is updated by a value (p) and a key (m), and as a query (m) reads it."""
    fig, ax = draw.sheets(6.6)
    for x, y, rows, columns, hue, words in (
        (0.7, 4.8, p, m, STATE, "old state"),
        (3.3, 4.8, p, 1, HEAD, "value"),
        (4.6, 4.8, 1, m, LAG, "key"),
        (7.4, 4.8, p, m, STATE, "new state"),
        (0.7, 1.4, p, m, STATE, "new state"),
        (3.3, 1.4, m, 1, LAG, "query"),
        (5.0, 1.4, p, 1, HEAD, "output"),
    ):
        for r, c in np.ndindex(rows, columns):
            draw.token(ax, x + 0.46 * (c + 0.5), y - 0.46 * (r + 0.5 - rows / 2), "", hue, side=0.46)
        draw.write(ax, x + 0.23 * columns, y + 0.23 * rows + 0.35, words, hue, size=9.5)
    for sign, x, y in zip("a+·=·=", (0.35, 2.9, 4.2, 6.95, 2.9, 4.4), (4.8,) * 4 + (1.4,) * 2, strict=True):
        draw.write(ax, x, y, sign, size=13)
    alt = f"A state of {p} by {m}: a times the old one, plus value ({p}) times key ({m}); a query reads {p}."
    return fig, alt


def masked_scores(gates, scores, letters):
    """Draw the weights (n, n) of n letters as the products of gates and of queries and keys."""
    fig, axes = figure(ncols=3, size=(7.0, 2.6))
    matrices = {"gates": gates, "× queries and keys": scores, "= weights": gates * scores}
    for ax, (title, matrix) in zip(axes, matrices.items(), strict=True):
        weights(ax, matrix, letters, cmap=WEIGHTS)
        ax.set(title=title, xlabel="token", ylabel="output")
        for i, j in matrix.nonzero().tolist():
            draw.write(ax, j, i, f"{matrix[i, j]:.2g}", size=9.5)
    last = ", ".join(f"{w:.2g}" for w in (gates * scores)[-1])
    return fig, f"Gates times scores of queries and keys give weights; those of the last output are {last}."


def hybrid(layers, n):
    """Draw n tokens on their way up through layers, a string of S, a state, and A, attention."""
    fig, ax = draw.sheets(1.9 * len(layers) + 0.8)
    x = np.linspace(0.4, 6.9, n)
    for level, layer in enumerate(layers):
        y = 1.9 * level + 0.4
        hue, words = (HEAD, "attention") if layer == "A" else (STATE, "state")
        for j, at in enumerate(x):
            draw.token(ax, at, y, side=0.5)
            if layer == "A":
                draw.arrow(ax, (at, y + 0.3), (x[-1], y + 1.6), HEAD, width=0.9)
                continue
            middle = y + 0.95
            draw.arrow(ax, (at, y), (at, middle), width=0.9, gap=0.28)
            draw.arrow(ax, (at, middle), (at, y + 1.9), width=0.9, gap=0.28)
            draw.state(ax, at, middle, radius=0.27)
            if j:
                draw.arrow(ax, (x[j - 1], middle), (at, middle), STATE, width=1.6, gap=0.28)
        draw.write(ax, 7.6, y + 0.95, words, hue, ha="left")
    for at in x:
        draw.token(ax, at, 1.9 * len(layers) + 0.4, side=0.5)
    said = ", ".join("attention" if layer == "A" else "state" for layer in layers)
    return fig, f"{n} tokens pass {len(layers)} layers from below to above: {said}."


def memory(tokens, attention, kept):
    """Draw how many numbers one layer holds after so many tokens: with attention, and with a state."""
    fig, ax = figure(size=(3.6, 2.6))
    for name, hue, values in (("attention", HEAD, attention), ("a state", STATE, kept)):
        ax.loglog(tokens, values, color=COLORS[hue], linestyle="-" if hue == HEAD else "--")
        label_line(ax, tokens[-2], values[-2], name, dx=0, dy=-12, ha="left" if hue == HEAD else "center")
    ax.set(xlabel="tokens so far", ylabel="numbers in memory")
    alt = f"Numbers held after {tokens[-1]:,} tokens: attention {attention[-1]:,}, a state {kept[-1]:,}."
    return fig, alt


def reach(distances, kept, head):
    """Draw what is left of a token's influence at each distance: in a state, and in a matching head."""
    fig, ax = figure(size=(3.6, 2.6))
    ax.plot(distances, head, color=COLORS[HEAD], linestyle="-")
    label_line(ax, distances[-1], head[-1], "a head whose query matches", dx=0, dy=-11, ha="right")
    ax.plot(distances, kept, color=COLORS[STATE], linestyle="--")
    label_line(ax, distances[len(distances) // 4], 0.28, "a state that keeps 0.9", dx=0)
    ax.set(xlabel="steps back", ylabel="influence left", ylim=(0, 1.08))
    alt = f"Influence {distances[-1]} steps back: {kept[-1]:.4f} in the state, {head[-1]:.2f} in the head."
    return fig, alt
