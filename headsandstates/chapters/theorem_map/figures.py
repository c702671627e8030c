"""The map of the theorems: which proof uses which statement."""

from matplotlib.patches import Rectangle

from ssmbook.display import COLORS, figure
from ssmbook.display.style import LINES

GROUPS = (  # for each panel: the title of a group, its boxes as label -> (name, column, row)
    {
        "Any operator": {
            "prop-weyl": ("Weyl", 0, 0),
            "thm-eckart-young": ("Eckart and\nYoung", 1, 0),
            "thm-kronecker": ("Rank counts\nheads", 1, 1),
            "prop-lag-optimum": ("Causal is\nbest", 0, 2),
            "thm-nearest-heads": ("Best common\nheads", 1, 2),
            "thm-path-operator": ("Path\noperator", 2, 0),
            "prop-homogeneous": ("Homogeneous\nmaps", 2, 1),
        },
        "Fixed coefficients": {
            "prop-non-uniqueness": ("Non-\nuniqueness", 0, 0),
            "prop-kronecker-rules": ("Kronecker\nrules", 1, 0),
            "thm-head-count": ("Head Count", 0, 1),
            "thm-kronecker": ("Rank counts\nheads", 2, 1),
            "prop-floor-any-inputs": ("Floor for\nany inputs", 1, 2),
            "thm-head-floor": ("The floor", 1, 3),
            "thm-rank-gap": ("Interaction\nRank Gap", 0, 4),
        },
        "States, fixed dynamics": {
            "prop-spectral-projectors": ("Spectral\nprojectors", 0, 0),
            "prop-jordan-decay": ("Jordan decay", 1, 0),
            "prop-semiseparable": ("States are\ncut ranks", 2, 0),
            "prop-what-k-is": ("What k is", 0, 1),
            "thm-realization": ("Realization", 1, 1),
            "prop-ssd-block": ("SSD blocks", 2, 1),
            "prop-states-and-heads": ("States and\nheads", 1, 2),
            "prop-scan-associative": ("Steps\ncompose", 2, 2),
            "prop-chunked": ("Summary and\nrestart", 2, 3),
        },
        "Gates and depth, fixed weights": {
            "prop-output-gate": ("Output gate", 0, 0),
            "prop-kronecker-rules": ("Kronecker\nrules", 1, 0),
            "thm-gates": ("Two gates", 0, 1),
            "prop-depth-heads": ("Depth as\nheads", 1, 1),
            "prop-doubling-heads": ("Doubling", 2, 1),
        },
    },
    {
        "Softmax weights": {
            "thm-sink-count": ("Sink count", 0, 0),
            "thm-exact-reach": ("Reach without\na sink", 2, 0),
            "prop-eigenvalue-test": ("Eigenvalue\ntest", 0, 1),
            "prop-relative-sink": ("Relative\nlogits", 1, 1),
            "prop-plateau": ("Plateau", 2, 1),
            "prop-three-schemes": ("T5, ALiBi,\nRoPE", 1, 2),
        },
        "Coefficients that read the input": {
            "thm-strong-form": ("Strong form", 1, 0),
            "thm-single-head": ("A single\nhead", 0, 1),
            "prop-almost-every": ("Almost every\ninput", 0, 2),
            "prop-locally-bounded": ("Locally\nbounded", 1, 2),
            "prop-bounded-heads": ("Bounded\nheads", 2, 3),
            "thm-sink-count": ("Sink count", 0, 3),
            "prop-any-logits": ("Any logits", 1, 4),
        },
        "Gradients": {
            "prop-weyl": ("Weyl", 0, 0),
            "prop-softmax-jacobian": ("Softmax\nJacobian", 1, 0),
            "prop-hybrid-stack": ("Stack\nhybrids", 2, 0),
            "prop-sigma2-highway": ("σ₂ highway", 0, 1),
            "thm-gradient-highway": ("Gradient\nHighway", 2, 1),
            "prop-dilution": ("Dilution", 0, 2),
            "prop-hybrid-sum": ("Sum hybrids", 1, 2),
            "thm-trade-off": ("Trade-off", 2, 3),
            "prop-margin": ("Margin", 0, 3),
            "prop-selective-hold": ("Selective\nhold", 1, 3),
            "prop-logarithmic-price": ("Logarithmic\nprice", 0, 4),
        },
        "Heads on the key side": {
            "prop-zoo-factorized": ("Single heads", 0, 0),
            "prop-value-maps": ("Value maps", 1, 0),
            "prop-rotating-pair": ("Rotating pair", 2, 0),
        },
    },
)
USES = {  # statement -> what its proof uses, by number, by equation or, for Eckart and Young, by citation
    "thm-eckart-young": ("prop-weyl",),
    "thm-kronecker": ("thm-eckart-young",),
    "prop-lag-optimum": ("thm-kronecker",),
    "thm-nearest-heads": ("thm-kronecker",),
    "prop-value-maps": ("prop-zoo-factorized",),
    "prop-rotating-pair": ("prop-value-maps",),
    "thm-head-count": ("prop-non-uniqueness",),
    "prop-floor-any-inputs": ("prop-kronecker-rules", "thm-kronecker", "thm-head-count"),
    "thm-head-floor": ("thm-kronecker", "thm-head-count", "prop-floor-any-inputs"),
    "thm-rank-gap": ("thm-head-count", "thm-head-floor"),
    "prop-what-k-is": ("prop-spectral-projectors",),
    "prop-states-and-heads": ("prop-what-k-is", "thm-realization", "prop-semiseparable"),
    "prop-ssd-block": ("prop-scan-associative",),
    "prop-chunked": ("prop-scan-associative",),
    "thm-gates": ("prop-output-gate",),
    "prop-depth-heads": ("prop-kronecker-rules",),
    "prop-doubling-heads": ("prop-depth-heads",),
    "prop-plateau": ("thm-exact-reach",),
    "prop-eigenvalue-test": ("thm-sink-count",),
    "prop-relative-sink": ("thm-sink-count",),
    "prop-three-schemes": ("prop-relative-sink",),
    "prop-locally-bounded": ("thm-strong-form", "thm-single-head"),
    "prop-almost-every": ("thm-single-head",),
    "prop-bounded-heads": ("thm-strong-form", "prop-locally-bounded"),
    "prop-any-logits": ("prop-bounded-heads",),
    "prop-sigma2-highway": ("prop-softmax-jacobian",),
    "thm-gradient-highway": ("prop-softmax-jacobian",),
    "prop-hybrid-stack": ("prop-softmax-jacobian",),
    "prop-hybrid-sum": ("prop-softmax-jacobian", "prop-weyl"),
    "prop-dilution": ("prop-sigma2-highway",),
    "thm-trade-off": ("thm-gradient-highway", "prop-hybrid-sum"),
    "prop-logarithmic-price": ("prop-margin", "prop-selective-hold"),
}
RECALLS = {  # statement -> those whose argument its proof repeats, or which it names for comparison
    "prop-homogeneous": ("thm-path-operator",),
    "prop-ssd-block": ("prop-semiseparable",),
    "prop-jordan-decay": ("prop-spectral-projectors",),
    "thm-single-head": ("thm-strong-form",),
    "prop-any-logits": ("prop-locally-bounded", "thm-sink-count"),
    "prop-sigma2-highway": ("prop-weyl",),
    "prop-hybrid-sum": ("prop-sigma2-highway",),
}
FROM_PAPER = ("thm-head-count", "thm-rank-gap", "thm-gradient-highway")
WIDE, HIGH = 1.04, 0.4  # of a box, in inches
ACROSS, DOWN, TITLE = 1.16, 0.62, 0.42  # from box to box, and above a group


def theorem_map():
    """Draw every statement that another one uses or that uses another one."""
    heights = [
        sum(TITLE + DOWN * (1 + max(at[2] for at in group.values())) for group in panel.values())
        for panel in GROUPS
    ]
    high = max(heights)
    fig, panels = figure(ncols=2, size=(7.0, high))
    seen = set()
    for ax, panel in zip(panels, GROUPS, strict=True):
        ax.set(xlim=(0, 3 * ACROSS), ylim=(high, 0))
        ax.set_axis_off()
        top = 0.0
        for title, group in panel.items():
            ax.text(0.06, top + 0.2, title, fontsize=10, fontweight="bold", va="center")
            centers = {
                label: (ACROSS * (column + 0.5), top + TITLE + DOWN * row + HIGH / 2)
                for label, (_, column, row) in group.items()
            }
            for label, (name, _, _) in group.items():
                _box(ax, centers[label], name, label, again=label in seen)
            seen |= group.keys()
            for arrows, line in ((USES, LINES["solid"]), (RECALLS, LINES["dotted"])):
                for target in group:
                    for source in arrows.get(target, ()):
                        if source in group:
                            _arrow(ax, centers[source], centers[target], line)
            top += TITLE + DOWN * (1 + max(at[2] for at in group.values()))
    count = sum(map(len, USES.values()))
    again = sum(map(len, RECALLS.values()))
    return fig, (
        f"{len(seen)} statements in {sum(map(len, GROUPS))} groups. {count} arrows lead from a statement to "
        f"one whose proof uses it, {again} dotted ones to one whose proof recalls it."
    )


def _box(ax, center, name, label, again):
    color = COLORS["gray"] if again else COLORS["orange"] if label in FROM_PAPER else COLORS["blue"]
    corner = center[0] - WIDE / 2, center[1] - HIGH / 2
    width = 1.8 if label in FROM_PAPER else 1.1
    ax.add_patch(Rectangle(corner, WIDE, HIGH, fc="white", ec=color, lw=width, zorder=3))
    style = "italic" if again else "normal"
    ax.text(
        *center,
        name,
        ha="center",
        va="center",
        fontsize=9,
        color=color,
        style=style,
        linespacing=1.0,
        zorder=4,
    )


def _arrow(ax, start, end, line):
    """From the edge of one box to the edge of the other, on the line between their centers."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    cut = min(WIDE / 2 / abs(dx) if dx else 1.0, HIGH / 2 / abs(dy) if dy else 1.0)
    tail = start[0] + cut * dx, start[1] + cut * dy
    head = end[0] - cut * dx, end[1] - cut * dy
    how = {"arrowstyle": "-|>", "color": COLORS["black"], "lw": 1.1, "ls": line, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", head, tail, arrowprops=how, zorder=2)
