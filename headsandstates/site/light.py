"""What a page asks for, in few pieces: one style sheet, one script, pictures that wait.

The pages ask for forty files of the theme, its extensions and the book. Here those of a page become one
style sheet and one script, which runs when the page has been read. Pictures are files that are fetched when
they are near, in the form of the present mode (dark.py), and the theme's font of icons keeps the signs that
its style sheets write.
"""

import re
from base64 import b64decode
from hashlib import sha1
from os.path import normpath, relpath
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

from headsandstates.site.built import pages, rewrite
from headsandstates.site.dark import in_both_modes
from headsandstates.site.lectures import FOLDER
from ssmbook.display.images import page_size

LOCAL = r'"((?![a-z]+:)[^"?]+'
STYLE = re.compile(rf'[ \t]*<link (?=[^>]*rel="stylesheet")[^>]*?href={LOCAL}\.css)[^"]*"[^>]*>\n?')
SCRIPT = re.compile(
    rf'[ \t]*<script(?: defer| data-sd-[^ ]*)? src={LOCAL}(?<!search-index)\.js)[^"]*"></script>\n?'
)
PRELOADED = re.compile(r'[ \t]*<link rel="preload" as="script"[^>]*>\n?')
FRAME = re.compile(r'<img src="data:image/png;base64,([^"]+)"')
ADDRESS = re.compile(r"""url\((["']?)(?!data:|#)([^)"']+)\1\)""")
IMPORT = re.compile(r'@import "([^"]+)";')
ICON = re.compile(r'"(?:\\(f[0-9a-f]{3})|([\ue000-\uf8ff]))"')
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
RULE = re.compile(r'([^{};]+)\{(?:"[^"]*"|[^{}"])*\}')
STRING = re.compile(r'"[^"\n]*"')
PIECES = re.compile(r"""([A-Za-z][\w-]*-)(?:\$\{|["']\s*\+)""")  # `lab-${name}`, "swap-" + name
CHOICE = re.compile(r"\((?:[^()]|\([^()]*\))*\)")
CLASS = re.compile(r"(?<!\\)\.(-?[A-Za-z_][\w-]*)")
INLINE = ("documentation_options.js", "mode.js")  # short, and needed before the page is drawn
UNUSED = ("sphinx-thebe.css", "sphinx_highlight.js")  # the book marks what is found itself


def class_names(html):
    """The classes of pages with all words of scripts, and the beginnings of classes that scripts end."""
    names, begun = set(), set()
    for page in pages(html):
        for found in re.findall(r'class="([^"]*)"', page.read_text(encoding="utf-8")):
            names.update(found.split())
    for path in (html / "_static").rglob("*.js"):
        text = path.read_text(encoding="utf-8")
        names.update(re.findall(r"[\w-]+", text))
        begun.update(PIECES.findall(text))
    return names, tuple(begun)


def used_rules(text, names, begun=()):
    """A style sheet without the rules whose selectors all ask for a class that nothing can have."""

    def met(selector):
        return all(name in names or name.startswith(begun) for name in CLASS.findall(selector))

    def kept(rule):
        selectors = STRING.sub("", CHOICE.sub("", rule[1])).split(",")
        return rule[0] if any(map(met, selectors)) else ""

    return RULE.sub(kept, COMMENT.sub("", text))


def style(path, static):
    """A style sheet whose addresses are seen from the folder ``static``."""
    text = IMPORT.sub(lambda name: style(path.parent / name[1], static), path.read_text(encoding="utf-8"))
    here = relpath(path.parent, static)
    return ADDRESS.sub(lambda found: f"url({normpath(f'{here}/{found[2]}')})", text)


def script(path, static):
    """A script that stands after others: it ends, and its first words are no order to all of them."""
    return f";{path.read_text(encoding='utf-8')}\n;"


class Bundles:
    """The bundles of the pages, each written once."""

    def __init__(self, html):
        self.static, self.written, self.names = html / "_static", {}, class_names(html)

    def name(self, files, ending):
        if (files, ending) not in self.written:
            read = style if ending == "css" else script
            text = "\n".join(read(path, self.static) for path in files)
            if ending == "css":
                text = used_rules(text, *self.names)
            name = f"{sha1(text.encode()).hexdigest()[:12]}.{ending}"
            (self.static / name).write_text(text, encoding="utf-8")
            self.written[files, ending] = name
        return self.written[files, ending]

    def one(self, page, text, pattern, ending, tag):
        """The page's text with ``tag`` instead of its style sheets, or of its scripts."""
        paths = [Path(normpath(page.parent / found[1])) for found in pattern.finditer(text)]
        short = {path for path in paths if path.name in INLINE}
        files = tuple(path for path in paths if path not in short and path.name not in UNUSED)
        if ending == "css":
            files += (self.static / "formulas.css",)
        if not paths:
            return text
        tag = tag.format(relpath(self.static / self.name(files, ending), page.parent)) if files else ""
        at = pattern.search(text).start()
        if ending == "css":
            return text[:at] + tag + pattern.sub("", text[at:])
        # What is short does not wait for the style sheet; the long one does not compete with it for the line.
        first = "".join(f"<script>{path.read_text(encoding='utf-8')}</script>\n" for path in sorted(short))
        text = pattern.sub("", text).replace('<link rel="stylesheet"', f'{first}<link rel="stylesheet"', 1)
        return text.replace("</body>", f"{tag}</body>", 1)


def frame_files(page, html, text):
    """The text of a page whose frames are files of their own."""

    def filed(match):
        png = b64decode(match[1])
        path = html / "_images" / f"{sha1(png).hexdigest()}.png"
        path.write_bytes(png)
        size = " ".join(f'{side}="{length}"' for side, length in page_size(png).items())
        return f'<img loading="lazy" src="{relpath(path, page.parent)}" {size}'

    return FRAME.sub(filed, text)


def cut_icons(static, names):
    """Leave in the theme's font of icons the signs that a style sheet writes."""
    written = used_rules("".join(style(path, static) for path in static.rglob("*.css")), *names)
    signs = {int(number, 16) if number else ord(sign) for number, sign in ICON.findall(written)}
    for path in static.glob("vendor/fontawesome/**/*.woff2"):
        font = TTFont(path)
        subsetter = subset.Subsetter()
        subsetter.populate(unicodes=signs)
        subsetter.subset(font)
        font.flavor = "woff2"
        font.save(path)


def lighten(app):
    html = Path(app.outdir)
    bundles = Bundles(html)
    cut_icons(html / "_static", bundles.names)
    for page in (page for page in pages(html) if page.parent.name != FOLDER):  # a deck has its own

        def finished(text, page=page):
            text = PRELOADED.sub("", text).replace(
                '<img alt="Colab', '<img loading="lazy" alt="Colab'
            )  # in a menu
            text = in_both_modes(page, frame_files(page, html, text))
            text = bundles.one(page, text, STYLE, "css", '<link rel="stylesheet" href="{}">\n')
            return bundles.one(page, text, SCRIPT, "js", '<script defer src="{}"></script>\n')

        rewrite([page], finished)
