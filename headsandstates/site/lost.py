"""A page for lost addresses, which leads to the page with the nearest name."""

from pathlib import Path
from urllib.parse import urlsplit

from headsandstates.site.built import TEMPLATES
from headsandstates.site.mosaics import SIDE, mosaic


def write_lost(app):
    """Write ``404.html``, which GitHub Pages shows for an address that has no page."""
    pages = [(f"{name}.html", title.astext()) for name, title in sorted(app.env.titles.items())]
    root = urlsplit(app.config.ogp_site_url).path
    lost = TEMPLATES.get_template("lost.html").render(root=root, pages=pages, mosaic=mosaic("preface", SIDE))
    (Path(app.outdir) / "404.html").write_text(lost, encoding="utf-8")
