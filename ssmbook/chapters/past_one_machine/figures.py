"""Figures of *past-one-machine*; each returns the figure, or the figure and its alternative text."""

from ssmbook.display import COLORS, figure

NARROW = ("blue", "orange", "green", "purple")


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


def received(counts: dict[str, int], limits: tuple[float, float]):
    """Draw how many numbers the last device receives, one bar per way of sending, on a log scale."""
    fig, ax = figure(size="panel")
    for place, ((name, count), color) in enumerate(zip(counts.items(), NARROW, strict=False)):
        ax.barh(place, count, height=0.36, color=COLORS[color])
        ax.text(limits[0] * 1.15, place - 0.24, f"{name}: {count:,}", fontsize=9.5, va="bottom")
    ax.set(xscale="log", xlim=limits, ylim=(len(counts) - 0.6, -0.75), yticks=[])
    ax.set(xlabel="numbers that the last device receives")
    return fig
