"""Sphinx extension: the address of a page that moved leads to where it is now.

``moved_pages`` in ``_config.yml`` holds them: old address -> new one, both from the book's root, without
``.html``; the new one may name a place on its page. A place named in the old address is kept otherwise.
"""

import html
import posixpath
from pathlib import Path

MARK = "<!-- This page moved. -->"
PAGE = """<!doctype html>
{mark}
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="canonical" href="{target}">
<meta http-equiv="refresh" content="0; url={target}">
<script>location.replace("{target}" + ({placed} ? "" : location.hash));</script>
</head>
<body><p>This page moved: <a href="{target}">{title}</a>.</p></body>
</html>
"""


class MovedError(ValueError):
    """A redirect that leads nowhere, or away from a page that is still there."""


def redirect(old, new, title):
    """The page that stands at the address ``old`` and leads to ``new``."""
    page, sharp, place = new.partition("#")
    target = posixpath.relpath(f"{page}.html", posixpath.dirname(old)) + sharp + place
    placed = "true" if place else "false"
    return PAGE.format(mark=MARK, target=html.escape(target), title=html.escape(title), placed=placed)


def check(moved, docnames):
    """Raise ``MovedError`` unless each old page is gone and each new one is there."""
    for old, new in moved.items():
        if old in docnames:
            raise MovedError(f"moved_pages: {old} is still a page of the book")
        if new.partition("#")[0] not in docnames:
            raise MovedError(f"moved_pages: {old} leads to {new}, which is no page of the book")


def write_redirects(app, exception):
    if exception is not None or app.builder.format != "html":
        return
    check(app.config.moved_pages, app.env.found_docs)
    for old, new in app.config.moved_pages.items():
        title = app.env.titles[new.partition("#")[0]].astext()
        path = Path(app.outdir) / f"{old}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(redirect(old, new, title), encoding="utf-8")


def setup(app):
    app.add_config_value("moved_pages", {}, "", [dict])
    app.connect("build-finished", write_redirects, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
