"""The book's typefaces, cut from packages at build time to the letters that pages have.

Source Serif 4 and Source Sans 3 are free under the SIL Open Font License, which reserves the name "Source"
for the whole fonts. What is cut here is named *Heads Serif* and *Heads Sans*, and the license lies beside it.
"""

import shutil
from importlib.resources import as_file, files
from io import BytesIO
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.varLib import instancer

FAMILIES = {
    "Heads Serif": ("fontpkg_source_serif_4", "SourceSerif4{}[opsz,wght].ttf"),
    "Heads Sans": ("fontpkg_source_sans_3", "SourceSans3{}[wght].ttf"),
}
WEIGHTS = (400, 700)
STYLES = {"normal": "", "italic": "-Italic"}
LETTERS = {*range(0x20, 0x7F), *range(0xA0, 0x180), *range(0x391, 0x3CA)}
SIGNS = {*map(ord, "‐‑–—‘’“”„…•′″⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉←↑→↓∂∏∑−√∞≈≠≤≥◊★")}
FEATURES = ["kern", "liga", "ccmp", "mark", "lnum", "tnum"]
NAMED = (1, 3, 4, 6, 16)
KEPT = (0, 2, 5, 13, 14)  # whose it is, style, version, license and its address


def cut(source, family):
    """The variable font of the file ``source``, with weights 400 to 700, few letters and another name."""
    font, few = TTFont(source), BytesIO()
    subsetter = subset.Subsetter(subset.Options(layout_features=FEATURES, hinting=False, name_IDs=["*"]))
    subsetter.populate(unicodes=LETTERS | SIGNS)
    subsetter.subset(font)
    font.save(few)  # and read again, since glyphs that were dropped are still known elsewhere
    font = TTFont(few)
    limits = {
        axis.axisTag: WEIGHTS if axis.axisTag == "wght" else axis.defaultValue for axis in font["fvar"].axes
    }
    font = instancer.instantiateVariableFont(font, limits)
    for record in list(font["name"].names):
        if record.nameID in NAMED:
            record.string = family.replace(" ", "") if record.nameID == 6 else family
        elif record.nameID not in KEPT and record.nameID < 256:
            font["name"].names.remove(record)
    font.flavor = "woff2"
    return font


def cut_fonts(app):
    """Write the fonts of the pages and their license into ``_static/fonts``."""
    folder = Path(app.outdir) / "_static/fonts"
    folder.mkdir(exist_ok=True)
    for family, (package, name) in FAMILIES.items():
        short = family.split()[1].lower()
        for style, mark in STYLES.items():
            with as_file(files(package) / "files" / name.format(mark)) as source:
                cut(source, family).save(folder / f"{short}-{style}.woff2")
        with as_file(files(package) / "LICENSE") as source:
            shutil.copy(source, folder / f"OFL-{short}.txt")
