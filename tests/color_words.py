"""Color words of a text, and what a color is called: notes are compared with the pictures they describe."""

import colorsys
import re

WORDS = re.compile(r"\b(?:dark |light )?(?:blue|teal|orange|green|purple|pink|red|gray)\b", re.I)
HUES = {
    "red": (-29, 14),
    "orange": (15, 45),
    "green": (90, 150),
    "teal": (160, 194),
    "light blue": (195, 213),
    "dark blue": (214, 245),
}
HUES |= {"blue": (195, 245), "purple": (255, 325)}


def color_words(text):
    return {word.lower() for word in WORDS.findall(text)}


def names(red, green, blue):
    """What people would call a color of three numbers up to 255."""
    hue, light, _ = colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)
    if max(red, green, blue) - min(red, green, blue) < 24:
        return {"gray"} if 0.25 < light < 0.95 else set()
    turned = 360 * hue - 360 * (hue > 0.92)  # a red with a little blue in it is red, too
    return {name for name, (low, high) in HUES.items() if low <= turned <= high}
