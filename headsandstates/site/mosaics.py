"""Each chapter has the mosaic of its own W, computed by the library, beside its title.

In the sidebar it is the sign of the chapter. A mosaic is one small drawing of two signs in a few shades, in
the page itself, so that it follows light and dark.
"""

import re
from functools import cache
from html import escape
from pathlib import Path

import torch

from headsandstates.chapters.preface.figures import rotating_blocks
from headsandstates.chapters.structured_dynamics.examples import mass_on_spring
from headsandstates.site.built import rewrite
from ssmbook.maps import scalar_decay_coefficients, softmax_coefficients
from ssmbook.operators import FactorizedOperator
from ssmbook.systems import System, random_stable, rotation

SIDE, SMALL = 16, 6  # numbers along each side, beside a title and in the sidebar
SHADES = 8
NAV = re.compile(r'<nav class="bd-links.*?</nav>', re.S)
LINK = re.compile(r'(<a class="(?:current )?reference internal" href="([^"]*)">)(?!<svg)')
TITLE = re.compile(r"<h1>.*?</h1>", re.S)


def decay(a, scale=1.0):
    """One state that keeps the share ``a``."""
    return torch.tensor([[a]]), torch.tensor([[scale]]), torch.ones(1, 1)


def lagged(*parts, n=SIDE):
    """The matrix of a system for n tokens, its blocks laid out."""
    return flat(System(*(part.double() for part in parts)).operator(n).to_dense())


def flat(W):
    """Blocks (n, n, p, d) as one matrix (n p, n d)."""
    n, _, p, d = W.shape
    return W.transpose(1, 2).reshape(n * p, n * d)


def turning(angle, keep=1.0):
    """The matrix of a state that rotates by ``angle`` and keeps the share ``keep``."""
    return lagged(keep * rotation(torch.tensor(angle)), torch.eye(2), torch.eye(2), n=SIDE // 2)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attending(sharpness, seed=0, bias=0.0):
    """Attention weights (n, n) of random tokens."""
    x = random(1, SIDE, 2, seed=seed)
    return softmax_coefficients(sharpness * x, x, bias=bias + torch.zeros(1, SIDE, SIDE, dtype=x.dtype))[0]


def sink(strength, copies=0):
    """The bias of the first token, and of the token ``copies`` places ago."""
    bias = torch.zeros(SIDE, SIDE, dtype=torch.float64)
    bias[:, 0] = strength
    if copies:
        bias += 2 * strength * torch.diag(torch.ones(SIDE - copies, dtype=torch.float64), -copies)
    return bias


def fading():
    """A penalty that grows with the distance."""
    place = torch.arange(SIDE, dtype=torch.float64)
    return -0.4 * (place[:, None] - place)


def window(width):
    """What hides all but the first token and the last ones."""
    hidden = torch.ones(SIDE, SIDE, dtype=torch.float64).tril(-width)
    hidden[:, 0] = 0
    return -50.0 * hidden


def selective():
    """A state whose gates read the text."""
    gate = torch.nn.functional.logsigmoid(3 * random(1, SIDE, seed=5) + 1.5)
    ones = torch.ones(1, SIDE, 1, dtype=torch.float64)
    return scalar_decay_coefficients(ones, ones, gate)[0]


def spring():
    """The mass on a spring, pushed at one step and heard at the later ones."""
    return flat(mass_on_spring(1.0, 0.4, 4.0, dtype=torch.float64).discretize(0.3).operator(SIDE).to_dense())


def two_heads():
    """Two heads on eight tokens: a pattern times a value map, twice."""
    alpha = torch.stack([attending(3.0, 2)[:8, :8], torch.eye(8, dtype=torch.float64).roll(1, 0).tril()])
    V = torch.stack([torch.eye(2), rotation(torch.tensor(1.57))]).double()
    return flat(FactorizedOperator(alpha, V).to_dense())


def four_states():
    """A random system of two channels."""
    generator = torch.Generator().manual_seed(7)
    return flat(random_stable(4, 2, 2, rho=0.95, generator=generator).operator(SIDE // 2).to_dense())


MOSAICS = {
    "preface": (lambda: flat(rotating_blocks(0.55)), "a state that rotates by 0.55"),
    "primer": (lambda: lagged(*decay(0.86)), "one state that fades"),
    "laboratory": (lambda: turning(0.7), "a rotation by 0.7"),
    "one-hour": (lambda: turning(0.3, 0.97), "a slow rotation"),
    "swap-a-head": (lambda: attending(0.0, bias=fading()), "a head whose weights know the distance alone"),
    "two-ways-to-mix": (lambda: lagged(*decay(0.8, 0.2)), "a running average that keeps 0.8"),
    "interaction-operator": (lambda: turning(0.55, 0.93), "a state that rotates by 0.55"),
    "zoo": (selective, "a selective state, whose gates read the text"),
    "factorized": (two_heads, "two heads, each a pattern times a value map"),
    "structured-dynamics": (spring, "a mass on a spring, pushed once"),
    "scans": (lambda: lagged(*decay(0.93)), "a state that keeps 0.93"),
    "head-count": (four_states, "four states, two channels"),
    "interaction-rank-gap": (lambda: turning(1.2), "a rotation by 1.2, and no fading"),
    "how-many-heads-really": (lambda: turning(2 * torch.pi / 5), "a fifth of a turn per token"),
    "positions": (lambda: lagged(*decay(-0.93)), "plus, minus, plus, minus"),
    "gates-and-depth": (lambda: lagged(*decay(0.6)) + lagged(*decay(0.95)), "two decays at once"),
    "gradient-highway": (lambda: attending(6.0, 3), "a head with sharp weights"),
    "trade-off": (lambda: attending(1.4, 7, sink(2.0)), "a head with a sink"),
    "gradient-flow": (lambda: lagged(*decay(0.9)), "a state that keeps 0.9"),
    "learning-heads": (lambda: attending(2.0, 11), "a head before it is trained"),
    "tasks": (lambda: attending(0.5, 4, sink(1.0, 5)), "a head that copies"),
    "diagnose": (lambda: attending(3.0, 9), "attention weights of random tokens"),
    "trained-layers": (lambda: attending(1.0, 12, sink(2.4)), "most weight on the first token"),
    "how-many-states": (lambda: attending(0.8, 6, sink(2.0, 7)), "a sink, and a head that copies"),
    "which-heads": (lambda: attending(0.3, 8, window(5)), "a window, and the first token"),
}


@cache
def mosaic(name, side):
    """The first ``side`` rows and columns of the chapter's W as an SVG, a path for each shade."""
    W = MOSAICS[name][0]()[:side, :side]
    W = W / W.abs().max()
    level = W.sign() * (SHADES * W.abs() ** 0.8).ceil()
    paths = ""
    for sign, kind in ((1, "p"), (-1, "m")):
        for shade in range(1, SHADES + 1):
            cells = (level == sign * shade).nonzero().tolist()
            boxes = "".join(f"M{j} {i}h.94v.94h-.94z" for i, j in cells if abs(W[i, j]) > 1e-3)
            paths += f'<path class="{kind}" opacity="{shade / SHADES:.2g}" d="{boxes}"/>' if boxes else ""
    return f'<svg class="mosaic" aria-hidden="true" viewBox="0 0 {side} {side}">{paths}</svg>'


def chapter(address):
    """The name of a chapter in an address, if it has a mosaic; companion pages have that of their chapter."""
    name = address.split("#")[0].rpartition("/")[2].removesuffix(".html").removesuffix("-deeper")
    return name if name in MOSAICS else None


def set_head(app, pagename, templatename, context, doctree):
    """Put the mosaic beside the title; the first screen and the laboratory have larger pictures."""
    name = chapter(pagename)
    if name and name not in ("preface", "laboratory") and "body" in context:
        words = f"<p>This chapter’s W: {escape(MOSAICS[name][1])}</p>"
        head = rf'<div class="chapter-head">\g<0><div>{mosaic(name, SIDE)}{words}</div></div>'
        context["body"] = TITLE.sub(head, context["body"], count=1)


def sign_sidebars(app):
    """Put the signs of the chapters into the sidebar of every page."""
    for path in Path(app.outdir).rglob("*.html"):

        def signed(link, here=path.name):
            address = here if link[2] == "#" else link[2]
            name = chapter(address)
            return link[0] + (mosaic(name, SMALL) if name and "-deeper" not in address else "")

        rewrite([path], lambda text: NAV.sub(lambda nav: LINK.sub(signed, nav[0]), text, count=1))
