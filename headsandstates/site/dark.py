"""A figure in the colors of the dark mode, made of the committed one without drawing it again.

What a figure draws is a color of the palette or a blend of it with the paper. So the dark figure has the same
pixels and another list of colors.
"""

import re
import zlib
from colorsys import hls_to_rgb, rgb_to_hls
from functools import cache
from itertools import product

import numpy as np
from matplotlib.colors import to_rgb
from scipy.interpolate import RBFInterpolator

from ssmbook.display.style import DARK, LIGHT, SEQUENTIAL, readable

BLENDS = (1.0, 0.75, 0.5, 0.25)
DARKER = ("minus", "purple", "sand")  # of these, words are drawn darker, in light
PICTURE = re.compile(r'<picture>.*?</picture>|<img (?=[^>]*src="[^":]*_images/[^"]*\.png")[^>]*>', re.DOTALL)
TAG = re.compile(r"(<(?:picture|img))\b")
FILE = re.compile(r'(?<=")([^" ]*_images/[^" ]*)\.png(?=")')


@cache
def recolor():
    """Function of light colors, rows of numbers from 0 to 1, to dark ones; exact at the palette's blends."""
    pairs = {}

    def add(light, shown):
        pairs[tuple(np.round(light, 4))] = tuple(shown)

    for corner in product((0.0, 1.0), repeat=3):  # colors that no figure should have: light becomes dark
        h, lightness, s = rgb_to_hls(*corner)
        add(corner, hls_to_rgb(h, 0.08 + 0.85 * (1 - lightness), s))
    papers = np.array(to_rgb(LIGHT["paper"])), np.array(to_rgb(DARK["paper"]))
    for name in LIGHT:
        for share in BLENDS:
            inks = zip((LIGHT, DARK), papers, strict=True)
            add(*(paper + share * (to_rgb(colors[name]) - paper) for colors, paper in inks))
    for share, blend in ((0.25, 0.3), (0.5, 0.62)):
        add(SEQUENTIAL(share)[:3], papers[1] + blend * (to_rgb(DARK["plus"]) - papers[1]))
    add(SEQUENTIAL(1.0)[:3], to_rgb("#d3e0ff"))
    for name in DARKER:
        add(to_rgb(readable(LIGHT[name])), to_rgb(DARK[name]))
    light, shown = map(np.array, (list(pairs), list(pairs.values())))
    return RBFInterpolator(light, shown, kernel="linear")


def darkened(png):
    """A palette PNG in dark colors; another one as it is."""
    at, data = png.find(b"PLTE"), png.find(b"IDAT")
    if not 0 < at < data:
        return png
    end = at + 4 + int.from_bytes(png[at - 4 : at], "big")
    colors = np.frombuffer(png[at + 4 : end], np.uint8).reshape(-1, 3) / 255
    chunk = b"PLTE" + np.rint(255 * recolor()(colors).clip(0, 1)).astype(np.uint8).tobytes()
    return png[:at] + chunk + zlib.crc32(chunk).to_bytes(4, "big") + png[end + 4 :]


def in_both_modes(page, text):
    """A page's text with every picture in light and in dark; one is shown, and it alone is fetched."""

    def both(found):
        for address in FILE.findall(found[0]):
            path = page.parent / f"{address}.png"
            if not (other := path.with_suffix(".dark.png")).exists():
                other.write_bytes(darkened(path.read_bytes()))
        light = re.sub(r' class="[^"]*"', "", found[0], count=1)
        if 'loading="' not in light:
            light = light.replace("<img ", '<img loading="lazy" ')
        dark = FILE.sub(r"\1.dark.png", light)
        modes = {"only-light": light, "only-dark": dark}
        return "".join(TAG.sub(rf'\1 class="{name}"', one) for name, one in modes.items())

    return PICTURE.sub(both, text)
