"""The theme's icons as drawings in the page, not by a script of 1.5 MB that draws them."""

import re
from functools import cache
from pathlib import Path

from headsandstates.site.built import rewrite

ICON = re.compile(r'<i class="([^"]*\bfa-[^"]*)"([^>]*)></i>')
LOADED = re.compile(r"[ \t]*<script[^>]*fontawesome[^>]*></script>\n?")
LOOKS = {"solid", "regular", "brands", "lg"}
SCRIPTS = ("scripts/fontawesome.js", "vendor/fontawesome/*/js/all.min.js")  # as the theme's versions name it


def replace_icons(app):
    """Draw every icon in its place, in the shape that the script would give it, and leave the script out."""
    static = Path(app.outdir) / "_static"
    scripts = [path for name in SCRIPTS for path in static.glob(name)]
    if not scripts:  # no page was out of date, so Sphinx wrote none and copied nothing
        return
    (script,) = scripts
    written = script.read_text(encoding="utf-8")

    @cache
    def shape(name):
        """Width, height and path; of the styles that have an icon the solid one comes last."""
        named = rf'[{{,](?:"?{name}"?:\[(\d+),(\d+),\[[^]]*\]|[\w"-]+:\[(\d+),(\d+),\[[^]]*"{name}"[^]]*\])'
        return [*filter(None, re.findall(named + r',"\w+","([^"]+)"', written)[-1])]

    def drawing(icon):
        classes, rest = icon.groups()
        (name,) = set(re.findall(r"\bfa-([\w-]+)", classes)) - LOOKS
        width, height, path = shape(name)
        hidden = "" if "aria-hidden" in rest else ' aria-hidden="true"'
        box = f'viewBox="0 0 {width} {height}"'
        return f'<svg class="icon {classes}"{rest}{hidden} {box}><path d="{path}"/></svg>'

    rewrite(Path(app.outdir).rglob("*.html"), lambda text: ICON.sub(drawing, LOADED.sub("", text)))
    for leftover in (script, script.with_name(f"{script.name}.map")):
        leftover.unlink(missing_ok=True)
