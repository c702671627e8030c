"""The laboratory's first disc and verdict, which are seen before its script has run.

The sentences are made by the same script when the book is built (tests/browser/test_lab.py compares them).
"""

from html import escape
from math import cos, sin

from headsandstates.lab import FOLDER
from headsandstates.site.formulas import computed

FIRST = (
    "require(process.argv[1]); const { experiment } = Lab.read('system'), found = Lab.compute(experiment);"
    "process.stdout.write(JSON.stringify([experiment.poles[0], Lab.findings(found)]))"
)
PLACE = 'class="lab-place">'
DISC = """<svg viewBox="0 0 340 320" class="lab-svg" aria-hidden="true">
<g style="fill: none; stroke: var(--ssm-faint)">
<circle cx="170" cy="160" r="125"/><path d="M10 160h320M170 10v300"/></g>
<g style="fill: var(--ssm-state)"><circle cx="{x:.2f}" cy="{up:.2f}" r="9"/>
<circle cx="{x:.2f}" cy="{down:.2f}" r="9" fill-opacity="0.55"/></g></svg>"""


def still():
    """The disc with the first pair of poles, and what the laboratory says of it."""
    pole, (first, *more) = computed("-e", FIRST, FOLDER / "lab.js")
    x, y = (125 * pole["radius"] * part(pole["angle"]) for part in (cos, sin))
    disc = DISC.format(x=170 + x, up=160 - y, down=160 + y)
    figure = f'<figure class="lab-panel lab-disc"><p class="lab-title">Drag the poles</p>{disc}</figure>'
    said = f'<p class="lab-first">{escape(first)}</p>' + "".join(f"<p>{escape(one)}</p>" for one in more)
    told = f'<div class="lab-told"><div class="lab-summary">{said}</div></div>'
    return f'<div class="lab-board lab-still"><div class="lab-grid">{figure}{told}</div></div>'


def show_still(app, pagename, templatename, context, doctree):
    """Put the still into the laboratory's place, where its script will put the board."""
    if PLACE in context.get("body", ""):
        context["body"] = context["body"].replace(PLACE, f'{PLACE[:-2]} lab-home">{still()}')
