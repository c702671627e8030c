"""The card that a link to a chapter shows elsewhere, its mosaic beside its title.

``python -m headsandstates.site.cards`` draws the book's own, which README shows, into ``chapters/assets``.
"""

import re
from importlib.resources import as_file, files
from pathlib import Path

import torch
from PIL import Image, ImageColor, ImageDraw, ImageFont

from headsandstates.chapters.preface.figures import rotating_blocks
from headsandstates.site.built import chapters, rewrite
from headsandstates.site.fonts import FAMILIES
from headsandstates.site.mosaics import MOSAICS, SIDE, chapter, flat
from ssmbook.display import COLORS

SIZE, MARGIN, TALL = (1200, 630), 64, 502
QUIET = "#414b57"
BOOK, SUBTITLE = "Heads and States", "Attention and state space models\nthrough one operator"
SHARED = re.compile(r'(?<=<meta property="og:image" content=")([^"]*_static/)card\.png')
WORDS = re.compile(r'(?<=<meta property="og:image:alt" content=")[^"]*')


def font(family, height, weight=400):
    package, name = FAMILIES[family]
    with as_file(files(package) / "files" / name.format("")) as path:
        font = ImageFont.truetype(path.open("rb"), height)
    wanted = {b"Weight": weight, b"Optical Size": 60}
    font.set_variation_by_axes([wanted[axis["name"]] for axis in font.get_variation_axes()])
    return font


def cells(draw, W, left, top, width):
    """Draw the numbers of the matrix ``W`` (rows, columns) as squares, in the colors of the two signs."""
    side, scale = width / W.shape[1], W.abs().max()
    for i, row in enumerate((W / scale).tolist()):
        for j, value in enumerate(row):
            color = ImageColor.getrgb(COLORS["plus" if value > 0 else "minus"])
            shade = tuple(round(255 + (part - 255) * abs(value) ** 0.8) for part in color)
            x, y = left + j * side, top + i * side
            if abs(value) > 1e-3:
                draw.rectangle((x, y, x + side - 1.5, y + side - 1.5), fill=shade)


def lines(draw, text, kind, width):
    """``text`` in as many lines as ``width`` asks for."""
    done = [""]
    for word in text.split():
        longer = f"{done[-1]} {word}".strip()
        if done[-1] and draw.textlength(longer, font=kind) > width:
            done.append(word)
        else:
            done[-1] = longer
    return "\n".join(done)


def blank():
    card = Image.new("RGB", SIZE, "white")
    return card, ImageDraw.Draw(card)


def chapter_card(name, title):
    """The card of a chapter: its W, its title, what its W is."""
    card, draw = blank()
    cells(draw, MOSAICS[name][0]()[:SIDE, :SIDE], MARGIN, MARGIN, TALL)
    left, quiet = 2 * MARGIN + TALL, font("Heads Sans", 30)
    room = SIZE[0] - left - MARGIN
    draw.text((left, MARGIN), BOOK, font=font("Heads Sans", 30, 600), fill=COLORS["plus"])
    serif = font("Heads Serif", 64, 600)
    draw.multiline_text(
        (left, 130), lines(draw, title, serif, room), font=serif, fill=COLORS["black"], spacing=10
    )
    words = lines(draw, f"This chapter’s W: {MOSAICS[name][1]}", quiet, room)
    draw.multiline_text((left, SIZE[1] - MARGIN), words, font=quiet, fill=QUIET, anchor="ld", spacing=8)
    return card


def book_card():
    """A rotating state equals two heads: each a pattern of numbers times a value map."""
    card, draw = blank()
    W = rotating_blocks(0.55)
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    heads = {"=": (W[..., 0, 0], torch.eye(2)), "+": (W[..., 1, 0], quarter)}
    sans, sign = font("Heads Sans", 30), font("Heads Sans", 48)
    draw.text((MARGIN, 40), BOOK, font=font("Heads Serif", 72, 600), fill=COLORS["black"])
    draw.multiline_text((700, 50), SUBTITLE, font=sans, fill=QUIET, spacing=8)
    cells(draw, flat(W), MARGIN, 220, 350)
    left = MARGIN + 350
    for mark, (alpha, V) in heads.items():
        draw.text((left + 40, 395), mark, font=sign, fill=COLORS["black"], anchor="mm")
        cells(draw, alpha, left + 80, 315, 160)
        x, y = left + 264, 395
        draw.ellipse((x - 11, y - 11, x + 11, y + 11), outline=COLORS["black"], width=2)
        for sense in (1, -1):
            draw.line((x - 7, y - 7 * sense, x + 7, y + 7 * sense), fill=COLORS["black"], width=2)
        cells(draw, V, left + 288, 355, 80)
        left += 368
    draw.text((MARGIN, 196), "a state that rotates and fades", font=sans, fill=COLORS["state"], anchor="ls")
    draw.text(
        (MARGIN + 430, 290),
        "two heads, exactly; one is not enough",
        font=sans,
        fill=COLORS["head"],
        anchor="ls",
    )
    return card


def save(card, path):
    path.parent.mkdir(exist_ok=True)
    card.quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)


def write_cards(app):
    """Write ``_static/cards`` and let each chapter's page, and its companion, name its own."""
    html = Path(app.outdir)
    titles = {
        chapter(name): title.astext() for name, title in app.env.titles.items() if "-deeper" not in name
    }
    names = [name for name in MOSAICS if name in titles and name != "preface"]
    for name in names:
        save(chapter_card(name, titles[name]), html / f"_static/cards/{name}.png")
    for path in chapters(html):
        name = chapter(path.name)
        if name in names:
            alt, card = f"The matrix W of {MOSAICS[name][1]}, as small squares", rf"\1cards/{name}.png"
            rewrite([path], lambda text, alt=alt, card=card: WORDS.sub(alt, SHARED.sub(card, text)))


if __name__ == "__main__":
    save(book_card(), Path("chapters/assets/card.png"))
