"""The still picture of *swap-a-head*, and its numbers."""

import torch
from matplotlib.figure import Figure

from headsandstates.experiments import page_heads, page_model
from headsandstates.experiments.results import FOLDER, FORMAT
from ssmbook import lens
from ssmbook._json import read_json
from ssmbook.display import figure
from ssmbook.display.style import SEQUENTIAL

GAP = 3  # tokens between two mosaics


def mosaics(text: str) -> Figure:
    """Draw the roots of the attention weights of all 32 heads on a text, a row for each layer.

    The heads of a layer are in two panels of four, which a phone shows one below the other.
    """
    model, tokens = page_model.load_trained(), page_heads.read(text)
    n = tokens.shape[1]
    later = torch.ones(n, n).triu(1).bool()
    tiles = torch.full((4, n + GAP, 8, n + GAP), torch.nan)
    for layer, found in enumerate(lens.layers(model)):
        alpha = lens.operator(found, tokens).W.alpha[0].float().sqrt()
        tiles[layer, :n, :, :n] = alpha.masked_fill(later, torch.nan).movedim(0, 1)
    fig, axes = figure(ncols=2, size="wide")
    for first, ax in zip((0, 4), axes, strict=True):
        picture = tiles[:, :, first : first + 4].flatten(2).flatten(0, 1).numpy()
        ax.imshow(picture, cmap=SEQUENTIAL, vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(f"heads {first + 1} to {first + 4}")
        ax.set_axis_off()
        for layer in range(4):
            ax.text(-GAP, (layer + 0.5) * (n + GAP), f"layer {layer + 1}", ha="right", va="center", size=9)
    return fig


def measured(name: str = "page-heads") -> dict:
    """Return what ``page_heads``, ``page_plan``, ``page_features`` or ``page_model`` measured.

    "page-seeds" has what ``page_heads`` measured of seeds 1 and 2.
    """
    return read_json(FOLDER / f"{name}.json", FORMAT)["results"]


# Written before a head of any seed but the first was measured: the least and the most that was expected.
PREDICTED = {
    ("other heads, states 4", "bits"): (0.0, 0.15),
    ("copy heads, states 8", "copying"): (0.25, 0.55),
    ("copy heads, window 8", "copying"): (0.0, 0.02),
    ("other heads, faded", "bits"): (5.0, 20.0),
    ("other heads, faded", "copying"): (0.95, 1.0),
    ("copy heads, faded", "copying"): (0.0, 0.05),
    ("one head, cut", "bits"): (1.0, 10.0),
    ("one head, merged", "bits"): (0.0, 1.0),
}


def rows_of_seed(found: dict) -> dict[tuple[str, str], list[float]]:
    """Return the rows that ``PREDICTED`` names, mean and standard deviation over texts, of one seed.

    The one head: of those that cost a bit when cut, the one whose merge leaves least of the cost.
    """
    layer, head = page_heads.KEYS[found["page"]["remove"]]
    one = found["heads"][f"{layer}.{head}"]
    rows = found["groups"] | {f"one head, {how}": one[how] for how in ("cut", "merged")}
    return {(row, what): rows[row][what] for row, what in PREDICTED}
