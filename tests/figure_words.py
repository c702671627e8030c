"""A figure in words: its labels, limits and texts, and a summary of what is drawn, to three digits.

Nothing is rendered, so no font, no screen and no layout comes in.
"""

from itertools import groupby

import numpy as np
from matplotlib import rcParams
from matplotlib.collections import Collection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedLocator, LogFormatter, NullLocator, ScalarFormatter

from ssmbook.display import COLORS
from ssmbook.display.style import PAGE_WIDTH, SMALLEST_PT, readable

HUES = {shade.lower(): name for name, color in COLORS.items() for shade in (color, readable(color))}


def describe(fig):
    """The lines that describe a figure; none of its text is too small to read."""
    if fig.get_figwidth() <= PAGE_WIDTH:
        words = [text for text in fig.findobj(Text) if text.get_visible() and text.get_text().strip()]
        assert not [text.get_text() for text in words if text.get_fontsize() < SMALLEST_PT]
    size = " by ".join(number(side) for side in fig.get_size_inches())
    stacks = f", stacks {fig.stacks}" if hasattr(fig, "stacks") else ""
    lines = [f"  {size} inches{stacks}{_shares(fig)}"]
    lines += [f"  {_text(text)}" for text in fig.texts] + [_legend(legend) for legend in fig.legends]
    for place, ax in enumerate(fig.axes):
        aspect = "" if ax.get_aspect() == "auto" else f", aspect {number(ax.get_aspect())}"
        titles = " ".join(quoted(words) for words in (ax.get_title(), ax.get_title("left")) if words)
        titles = (titles or '""') + _size(ax.title)
        frame = " ".join(side for side, spine in ax.spines.items() if spine.get_visible())
        lines.append(f"  axes {place}: {titles}{aspect}, frame {frame if ax.axison else 'off'}")
        lines += [f"    x {_axis(ax.xaxis)}", f"    y {_axis(ax.yaxis)}"]
        lines += [f"    {_image(image)}" for image in ax.get_images()]
        scales = ax.get_xscale(), ax.get_yscale()
        shapes = [] if ax.get_label() == "<colorbar>" else ax.collections
        for artists in (ax.lines, ax.patches, shapes):
            for look, alike in groupby(artists, _look):  # neighbors that look the same share one line
                lines.append(f"    {look}: {_drawn(list(alike), scales)}")
        lines += [f"    {_text(text)}" for text in ax.texts]
        lines += [_legend(ax.get_legend())] if ax.get_legend() else []
    return lines


def _shares(fig):
    """How columns and rows share the figure, where they are not alike."""
    grid = fig.axes[0].get_subplotspec().get_gridspec()
    ratios = {"columns": grid.get_width_ratios(), "rows": grid.get_height_ratios()}
    uneven = {name: ratio for name, ratio in ratios.items() if len(set(ratio)) > 1}
    return "".join(f", {name} {' '.join(map(number, ratio))}" for name, ratio in uneven.items())


def _size(title):
    """The size of a title's letters where it is not that of the book's titles."""
    usual = FontProperties(size=rcParams["axes.titlesize"]).get_size_in_points()
    return "" if title.get_size() == usual else f" {number(title.get_size())} pt"


def number(value, least=1e-6):
    """Three digits; the small push makes an exact half, with or without its rounding error, fall one way."""
    value = float(value)
    return "0" if abs(value) <= least else f"{value * (1 + 1e-5):.3g}"


def pair(point, scales=("linear", "linear")):
    return "({})".format(", ".join(number(v, _least(s)) for v, s in zip(point, scales, strict=True)))


def quoted(words):
    return '"{}"'.format(words.replace("\n", " / "))


def _least(scale):
    return 0 if scale == "log" else 1e-6


def _color(color):
    red, green, blue, alpha = to_rgba(color)
    shade = to_hex((red, green, blue))
    return (HUES.get(shade, shade) + (f" at {number(alpha)}" if alpha < 1 else "")) if alpha else "no color"


def _axis(axis):
    scale, (low, high) = axis.get_scale(), axis.get_view_interval()
    base = getattr(axis.get_transform(), "base", 10)
    words = [f"{quoted(axis.get_label_text())} {scale}{'' if base == 10 else f' {base:g}'}"]
    words.append(f"{number(low, _least(scale))} to {number(high, _least(scale))}")
    locator, ticks = axis.get_major_locator(), axis.get_major_ticks()
    if isinstance(locator, FixedLocator):
        words.append(f"ticks {' '.join(number(at, _least(scale)) for at in locator.locs) or 'none'}")
    elif not axis.isDefault_majloc:
        words.append(
            type(locator).__name__ + (" of whole numbers" if getattr(locator, "_integer", False) else "")
        )
    names = [quoted(label.get_text()) for label in axis.get_ticklabels() if label.get_text()]
    if names and not isinstance(axis.get_major_formatter(), ScalarFormatter | LogFormatter):
        words.append(f"named {' '.join(names)}")
    if scale == "log" and isinstance(axis.get_minor_locator(), NullLocator):
        words.append("no minor ticks")
    shown = {"grid": [tick.gridline for tick in ticks], "labels": [tick.label1 for tick in ticks]}
    words += [f"no {name}" for name, each in shown.items() if not any(a.get_visible() for a in each)]
    return ", ".join(words) + (", no marks" if ticks and not ticks[0].tick1line.get_markersize() else "")


def _text(text):
    words = [quoted(text.get_text()), _color(text.get_color()), f"{text.get_fontsize():g} pt", text.get_ha()]
    words += [text.get_va()] + ([f"turned {text.get_rotation():g}"] if text.get_rotation() else [])
    if text.axes and text.get_transform() is text.axes.transAxes:
        words.append("of the axes")
    if text.get_bbox_patch():
        box = text.get_bbox_patch()
        words.append(f"in a box {_color(box.get_edgecolor())} pad {number(box.get_boxstyle().pad)}")
    if not isinstance(text, Annotation):
        return f"text {' '.join(words)} at {pair(text.get_position())}"
    if text.arrow_patch:
        words.append(
            f"arrow {_color(text.arrow_patch.get_edgecolor())} {number(text.arrow_patch.get_linewidth())}"
        )
        rest = {name: how for name, how in text.arrowprops.items() if name not in ("color", "lw")}
        words += [f"{name} {how}" for name, how in sorted(rest.items())]
    place = "" if text.xycoords == "data" else f" in {text.xycoords}"
    return f"note {' '.join(words)} at {pair(text.xy, (*_scales(text),))}{place}, from {pair(text.xyann)}"


def _scales(text):
    return (text.axes.get_xscale(), text.axes.get_yscale()) if text.axes else ("linear", "linear")


def _legend(legend):
    words = " ".join(quoted(text.get_text()) for text in legend.get_texts())
    spaces = [legend.handletextpad, legend.handlelength, legend.columnspacing]
    place = f"place {legend._loc}, spaces {' '.join(map(number, spaces))}"
    return f"    legend {words} {legend.get_texts()[0].get_size():g} pt, {place}"


def _look(artist):
    alpha = "" if artist.get_alpha() is None else f" at {number(artist.get_alpha())}"
    order = f" order {number(artist.get_zorder())}"
    if isinstance(artist, Line2D):
        marker = "" if artist.get_marker() in ("None", "", None) else f" {artist.get_marker()}"
        if marker:
            marker += f" {number(artist.get_markersize())} filled {_color(artist.get_markerfacecolor())}"
            width = artist.get_markeredgewidth()
            marker += f" stroke {number(width)}" if width != rcParams["lines.markeredgewidth"] else ""
        every = f" every {artist.get_markevery()}" if artist.get_markevery() is not None else ""
        clip = "" if artist.get_clip_on() else " over the edge"
        dash = f"{_dashes(artist)} {number(artist.get_linewidth())}"
        return f"line {_color(artist.get_color())} {dash}{marker}{every}{alpha}{clip}{order}"
    edges = np.atleast_2d(artist.get_edgecolor()), np.atleast_1d(artist.get_linewidth())
    edge = f"edge {_color(edges[0][0])} {number(edges[1][0])}" if len(edges[0]) else "no edge"
    faces = np.atleast_2d(artist.get_facecolor())
    face = _color(faces[0]) if len(faces) and faces.size else "no color"
    return f"{'patch' if isinstance(artist, Patch) else 'shapes'} {face} {edge}{order}"


def _dashes(line):
    """A line without gaps is "-"; of others the lengths of strokes and gaps."""
    _, pattern = line._unscaled_dash_pattern
    return line.get_linestyle() if pattern is None else f"({' '.join(map(number, pattern))})"


def _points(artist):
    if isinstance(artist, Line2D):
        return np.asarray(artist.get_xydata(), dtype=float)
    if isinstance(artist, Collection):
        offsets = np.asarray(artist.get_offsets(), dtype=float)
        corners = [path.vertices for path in artist.get_paths()]
        return offsets if offsets.any() else np.unique(np.concatenate(corners or [offsets]), axis=0)
    return np.unique(artist.get_patch_transform().transform(artist.get_path().vertices).round(9), axis=0)


def _drawn(artists, scales):
    """How many points, the first and the last, and how they lie on their axes: the mean and the drift."""
    each = [_points(artist) for artist in artists]
    points = np.concatenate(each)
    if not np.isfinite(points).any():
        return "nothing"
    moments = []
    for values, scale in zip(points.T, scales, strict=True):
        if scale == "log":
            values = np.log10(np.where(values > 0, values, np.nan))
        moments.append(moments_of(values))
    means, drifts = zip(*moments, strict=True)
    ends = f"{pair(points[0], scales)} to {pair(points[-1], scales)}"
    size = f"{len(artists)} of {len(points)} points" if len(artists) > 1 else f"{len(points)} points"
    return f"{size}, {ends}, mean ({', '.join(means)}), drift ({', '.join(drifts)})"


def moments_of(values):
    """The mean of the values, and with weights that run from -1 to 1: another order, another drift."""
    least = 1e-6 * max(1.0, float(np.nanmax(np.abs(values), initial=0)))
    weights = np.linspace(-1, 1, len(values))
    return [number(np.nanmean(values), least), number(np.nanmean(values * weights), least)]


def _image(image):
    values = np.ma.filled(image.get_array().astype(float), np.nan)
    rows, columns = (np.nan_to_num(values).mean(axis) for axis in (1, 0))
    corners = " ".join(number(values[at]) for at in ((0, 0), (0, -1), (-1, 0), (-1, -1)))
    mean, down = moments_of(rows)
    bounds = " to ".join(number(bound) for bound in image.get_clim())
    extent = " ".join(number(edge) for edge in image.get_extent())
    return (
        f"image {values.shape[0]} by {values.shape[1]}, {image.get_cmap().name} {bounds}, over {extent}, "
        f"corners {corners}, mean {mean}, drift down {down} across {moments_of(columns)[1]}"
    )
