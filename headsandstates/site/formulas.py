"""Formulas are typeset when the book is built, so that no page waits for a script.

The Node.js that does it comes with Playwright, which the tests need. The TeX of each formula stays beside
what was made of it, so that a page can be read as it was (``built.source``).
"""

import json
import re
import subprocess
from html import unescape
from importlib.resources import files
from pathlib import Path

from headsandstates.site.built import chapters, rewrite
from headsandstates.site.site import mathjax_folder

OPENING = r'<(?:span|div) class="[^"]*\bmath\b[^"]*"[^>]*>(?:\s*<span class="eqno">.*?</span>)?\s*'
FORMULA = re.compile(rf"({OPENING})\\([(\[])(.*?)\\[)\]]", re.DOTALL)
LOADED = re.compile(
    r"\s*<script>window\.MathJax = [^<]*</script>|\s*<script[^>]*tex-chtml\.js[^>]*></script>"
)
PROGRAM = Path(__file__).with_name("typeset.js")
# What MathJax gives to readers of the screen, unseen.
SPOKEN = """mjx-container { position: relative; }
mjx-assistive-mml { border: 0; clip: rect(1px, 1px, 1px, 1px); display: block; left: 0; overflow: hidden;
  padding: 1px 0 0; position: absolute; top: 0; user-select: none; }
"""


def computed(*arguments, asked=None):
    """The JSON that Node.js writes, called with these arguments and reading ``asked`` as JSON."""
    (node,) = (each for each in (files("playwright") / "driver").iterdir() if each.name.startswith("node"))
    words = json.dumps(asked)
    done = subprocess.run([node, *arguments], input=words, capture_output=True, encoding="utf-8", check=True)
    return json.loads(done.stdout)


def typeset(formulas):
    """The HTML of formulas, each (TeX, is a display), and the style sheet of all of them."""
    made = computed(PROGRAM, mathjax_folder(), asked=formulas)
    wrong = [tex for (tex, _), html in zip(formulas, made["html"], strict=True) if "mjx-merror" in html]
    if wrong:
        raise ValueError(f"MathJax cannot read {wrong[0]!r}")
    return made["html"], made["css"]


def typeset_pages(app):
    found, html = {}, Path(app.outdir)

    def formula(match):
        opening, kind, tex = match.groups()
        return opening, (unescape(tex), kind == "[")

    for path in chapters(html):
        for match in FORMULA.finditer(path.read_text(encoding="utf-8")):
            found.setdefault(formula(match)[1])
    made, css = typeset([*found])
    found = dict(zip(found, made, strict=True))

    def finished(match):
        opening, key = formula(match)
        source = match[0].removeprefix(opening).lstrip().replace('"', "&quot;")
        return opening + found[key].replace("<mjx-container", f'<mjx-container data-tex="{source}"', 1)

    rewrite(chapters(html), lambda text: LOADED.sub("", FORMULA.sub(finished, text)))
    (html / "_static/formulas.css").write_text(css + SPOKEN, encoding="utf-8")
