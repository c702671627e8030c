"""Figures of *Past one machine* in *scans, deeper*; each returns it, or it with its alternative text."""

from ssmbook.display import COLORS, figure, label_line
from ssmbook.display.style import LINES

NARROW = ("brown", "purple", "sand", "black")


def wire(lengths: list[int], numbers: list[int]):
    """Draw slices of time on devices, and as wires the numbers, if any, that each sends to all later ones."""
    fig, ax = figure(size="panel")
    begin, last, whole = 0, len(lengths) - 1, sum(lengths)
    for device, (steps, sent) in enumerate(zip(lengths, numbers, strict=True)):
        end, color = begin + steps, COLORS[NARROW[device % len(NARROW)]]
        ax.plot([0, whole], [device, device], "-", lw=1, color="#BBBBBB", zorder=1)
        ax.plot([begin, end], [device, device], "-", lw=13, color=color, solid_capstyle="butt")
        if device < last:
            half = whole * sent / 18_000  # of the line's thickness, in steps
            x = end + half + whole * (0.012 + 0.025 * lengths[1 : device + 1].count(0))  # beside the last
            if sent:
                look = {"lw": 1.6 + sent / 60, "solid_joinstyle": "miter", "color": color}
                ax.plot([end, x, x], [device, device, last - 0.25], "-", **look)
                below = range(device + 1, last + 1)
                ax.plot([x] * len(below), [r - 0.16 for r in below], "v", ms=5 + sent / 40, color=color)
                ax.text(x + half + 0.012 * whole, device - 0.08, f"{sent} numbers", va="bottom")
        begin = end
    words = [f"device {r}: {steps} steps" for r, steps in enumerate(lengths)]
    ax.set(xlabel="time t", xlim=(0, 1.01 * whole), ylim=(last + 0.4, -0.6), yticks=range(last + 1))
    ax.set_yticklabels(words)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(False)
    return fig


def received(tokens: list[int], curves: dict[str, list[int]], equal: float):
    """Draw numbers received over the tokens on a device, {way: curve}; the first two meet at ``equal``."""
    fig, ax = figure(size="panel")
    looks = ("brown", "solid"), ("purple", "solid"), ("purple", "dashed")
    for (name, numbers), (color, line) in zip(curves.items(), looks, strict=True):
        ax.loglog(tokens, numbers, color=COLORS[color], linestyle=LINES[line])
        rises = numbers[-1] > numbers[0]
        label_line(
            ax, tokens[-1], numbers[-1], name, dx=-14 if rises else 0, dy=0 if rises else -9, ha="right"
        )
    level = curves[list(curves)[1]][0]
    ax.plot(equal, level, "o", color=COLORS["black"], ms=7)
    label_line(ax, equal, level, f"{equal:,.10g} tokens", dx=-6, dy=11, ha="right", color="black")
    ax.set(xlabel="tokens on a device", ylabel="numbers received", ylim=(1e4, 1e11))
    return fig
