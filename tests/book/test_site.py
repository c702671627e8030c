"""The built pages: complete, readable without a network, and without a link that leads nowhere."""

import os
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import yaml
from addresses import fetched, leaves_the_site

from headsandstates.site import claims, icons, site, solutions
from headsandstates.site.built import MOVED, chapters, pages, soup
from headsandstates.site.page import page_names, read_pages

ROOT = Path(__file__).resolve().parents[2]
URL_IN_CSS = re.compile(r"(?:@import\s+(?!url)|url\(\s*)[\"']?([^\"')\s;]+)")
FILE_NAME = re.compile(r"[0-9a-f]{16,}|\.(png|svg|jpe?g|gif)$|^<?Figure size|^_?images?/", re.I)


def test_every_page_holds_what_its_source_holds(built):
    """Figures and sliders with a name, statements, exercises and solutions, by their labels."""
    labels = {(claim.docname, claim.label) for claim in claims.collect(ROOT)[0]}
    for exercise in solutions.collect(ROOT)[0]:
        labels |= {(exercise.docname, exercise.label), (exercise.docname, f"solution-{exercise.label}")}
    for page in read_pages(ROOT):
        labels |= {(page.docname, cell.figure["name"]) for cell in page.code if "name" in cell.figure}
    assert len(labels) > 300
    missing = {(name, label) for name, label in labels if label not in anchors(built / f"{name}.html")}
    assert not missing


def test_no_page_fetches_anything_from_another_host(built):
    outside = []
    for path in pages(built):
        page = soup(path)
        outside += [(path.name, tag, address) for tag, address in fetched(page) if leaves_the_site(address)]
        for style in [node.get_text() for node in page.find_all("style")]:
            outside += [(path.name, found) for found in URL_IN_CSS.findall(style) if leaves_the_site(found)]
    for path in (built / "_static").rglob("*.css"):
        found = URL_IN_CSS.findall(path.read_text(encoding="utf-8"))
        outside += [(path.name, address) for address in found if leaves_the_site(address)]
    assert not outside


def test_everything_fetched_exists(built):
    for path in pages(built):
        for _, address in fetched(soup(path)):
            local = urlsplit(address)
            if not local.scheme and local.path:
                assert (path.parent / unquote(local.path)).exists(), address


def test_every_image_has_an_alternative_text_that_says_something(built):
    for path in pages(built):
        for image in soup(path).find_all("img"):
            alt = (image.get("alt") or "").strip()
            assert len(alt) >= 5 and not FILE_NAME.search(alt), (path.name, image.get("src", "")[:60], alt)


def test_internal_links_lead_somewhere(built):
    dead = []
    for path in pages(built):
        for link in soup(path).find_all("a", href=True):
            parts = urlsplit(link["href"])
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            inside = target.suffix == ".html" and unquote(parts.fragment)
            if not target.is_file() or (inside and inside not in anchors(target)):
                dead.append((path.name, link["href"]))
    assert not dead


@cache
def anchors(target):
    return {node["id"] for node in soup(target).find_all(id=True)}


def test_an_id_stands_once_on_a_page(built):
    for path in chapters(built):
        ids = [node["id"] for node in soup(path).select("article [id]")]
        assert len(ids) == len(set(ids)), path


def test_every_page_has_what_a_reader_looks_for(built):
    for path in chapters(built):
        page, written = soup(path), path.read_text(encoding="utf-8")
        assert page.find("meta", property="og:title"), path
        assert page.find("link", rel="icon"), path
        assert page.find("body")["data-default-mode"] == "auto" and "theme-switch-button" in written, path
        assert page.find("html")["data-theme"] == "light", "without JavaScript: colors and borders"
        assert "search-button__button" in written, path
        assert page.select(".prev-next-footer a"), path
        hrefs = [link["href"] for link in page.find_all("a", href=True)]
        form = f"/issues/new?template=error.yml&page={path.relative_to(built).with_suffix('').as_posix()}"
        for wanted, times in (("/edit/", 1), (form, 2)):
            assert sum(wanted in href for href in hrefs) >= times, (path, wanted)
        if (ROOT / path.relative_to(built)).with_suffix(".ipynb").is_file():
            plain = f"/blob/notebooks/{path.relative_to(built).with_suffix('.ipynb').as_posix()}"
            assert any(href.startswith("https://colab.") and href.endswith(plain) for href in hrefs), path


def test_the_old_address_of_a_page_opens_the_new_one_at_the_same_place(tmp_path):
    def relative(old, new):
        return os.path.relpath(f"{new}.html", Path(old).parent)

    builder = SimpleNamespace(format="html", get_relative_uri=relative)
    for old in MOVED:
        (tmp_path / old).parent.mkdir(parents=True, exist_ok=True)
    site.open_moved_pages(SimpleNamespace(builder=builder, outdir=tmp_path))
    for old, new in MOVED.items():
        page, _, place = new.partition("#")
        assert old not in page_names(ROOT) and page in page_names(ROOT)
        written = soup(tmp_path / f"{old}.html")
        target, _, anchor = written.a["href"].partition("#")
        assert ((tmp_path / old).parent / target).resolve() == tmp_path / f"{page}.html" and anchor == place
        assert f'location.replace("{target}" + (location.hash || "#{place}"))' in str(written.script)
    assert not pages(tmp_path) and not chapters(tmp_path)


def test_an_old_address_names_a_place_of_the_new_page(built):
    for old, new in MOVED.items():
        page, _, place = new.partition("#")
        assert (built / f"{old}.html").is_file() and place in anchors(built / f"{page}.html")


def test_previous_and_next_follow_the_main_path(built):
    """A companion page leads back to its chapter and on to the next one, and its chapter links it."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    entries = [{"file": toc["root"]}, *(entry for part in toc["parts"] for entry in part["chapters"])]
    path = [None, *(entry["file"] for entry in entries), None]
    companions = 0
    for before, entry, after in zip(path, entries, path[2:], strict=False):
        assert neighbors(built, entry["file"]) == (before, after)
        for companion in (one["file"] for one in entry.get("sections", ())):
            companions += 1
            assert neighbors(built, companion) == (entry["file"], after)
            links = soup(built / f"{entry['file']}.html").select("article p a[href], article li a[href]")
            name = companion.rpartition("/")[2] + ".html"
            assert any(urlsplit(link["href"]).path.rpartition("/")[2] == name for link in links), companion
    assert companions > 10


def neighbors(built, page):
    """The pages to which the foot of a page leads, and its head, for browsers."""
    read, found = soup(built / f"{page}.html"), []
    for foot, head in (("a.left-prev", "prev"), ("a.right-next", "next")):
        link, line = read.select_one(f".prev-next-footer {foot}"), read.find("link", rel=head)
        assert (link and link["href"]) == (line and line["href"])
        target = link and (built / page).parent / link["href"].removesuffix(".html")
        found.append(link and target.resolve().relative_to(built.resolve()).as_posix())
    return tuple(found)


def test_a_build_that_writes_no_page_needs_no_icon(tmp_path):
    """Sphinx then copies no script of the theme; so it is whenever a command builds what is built."""
    page = tmp_path / "page.html"
    page.write_text('<svg class="icon fa-moon"></svg>', encoding="utf-8")
    app = SimpleNamespace(builder=SimpleNamespace(format="html"), outdir=tmp_path)
    icons.replace_icons(app)
    assert page.read_text(encoding="utf-8") == '<svg class="icon fa-moon"></svg>'


def test_icons_are_drawings_in_the_page(built):
    """No script of a megabyte draws them, and a button that shows one alone has a name."""
    assert not [*(built / "_static").rglob("fontawesome*.js")]
    for path in pages(built):
        page = soup(path)
        assert not page.select("i[class*='fa-'], script[src*='fontawesome']")
        assert len(page.select("svg.icon > path")) == len(page.select("svg.icon"))
        for icon in page.select("svg.icon"):
            assert icon["aria-hidden"] == "true"
    assert len({str(icon.path) for icon in soup(built / "chapters/preface.html").select("svg.icon")}) > 12


def test_the_form_for_errors_asks_for_the_page_the_sentence_and_what_is_wrong():
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/error.yml").read_text(encoding="utf-8"))
    required = [field["id"] for field in form["body"] if field.get("validations", {}).get("required")]
    assert required == ["page", "sentence", "wrong"]


def test_every_picture_says_how_large_it_is(built):
    """Else the text below it jumps when it arrives."""
    for path in chapters(built):
        for image in soup(path).select("article img:not([src$='.svg'])"):
            assert image.get("width") and image.get("height"), f"{path.name}: {image}"


def test_a_formula_stands_in_one_box_with_the_sign_after_it(built):
    parted = []
    for path in chapters(built):
        for formula in soup(path).select("article span.math"):
            after = formula.next_sibling
            signed = isinstance(after, str) and after[:1] in set(".,;:!?)")
            if signed and formula.parent.get("class") != ["unbroken"]:
                parted.append((path.name, formula.get_text()[:60]))
    assert not parted
