"""The book as one document: every page, number and link of it; sliders as pictures, solutions at the end.

That it prints, and that its contents name the right pages, is tested in the browser.
"""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from addresses import fetched, leaves_the_site
from bs4 import BeautifulSoup

from headsandstates.site.built import HTML, soup
from headsandstates.site.install_cell import repository
from headsandstates.site.paper import ARTICLE, FRAMES, TARGET, anchor, assemble, assemble_article, book_pages
from headsandstates.site.site import pages_address

ROOT = Path(__file__).resolve().parents[2]
PAGES = book_pages(ROOT)


@pytest.fixture(scope="module")
def paper(built):
    return BeautifulSoup(assemble(ROOT, PAGES), "html.parser")


def articles():
    return {name: soup(ROOT / HTML / f"{name}.html").select_one("article") for name in PAGES}


def number(node):
    return node.get_text().rstrip("#")  # the sign that links to a place; paper has none


def test_every_page_is_in_it_once_and_in_order(paper):
    assert [article["id"] for article in paper.select("article")] == [*map(anchor, PAGES), "solutions"]


def test_an_id_stands_once_and_every_link_leads_somewhere(paper):
    ids = [node["id"] for node in paper.find_all(id=True)]
    assert len(ids) == len(set(ids))
    site = pages_address(repository(ROOT)[0])
    inside = 0
    for link in paper.find_all("a", href=True):
        parts = urlsplit(link["href"])
        if not parts.scheme:
            assert not parts.path and parts.fragment in ids, link["href"]
            inside += 1
        elif link["href"].startswith(site):
            assert (ROOT / HTML / parts.path.removeprefix(urlsplit(site).path)).exists(), link["href"]
    assert inside > 1000


def test_boxes_numbers_and_figures_are_those_of_the_pages(paper):
    for chosen in ("div.proof .caption-number", "figcaption .caption-number", ".eqno"):
        on_pages = [number(node) for page in articles().values() for node in page.select(chosen)]
        assert on_pages and sorted(map(number, paper.select(chosen))) == sorted(on_pages)


def test_solutions_stand_at_the_end_with_their_chapters_and_nowhere_else(paper):
    end = paper.find(id="solutions")
    solved = {name: len(page.select("div.solution")) for name, page in articles().items()}
    assert len(end.select("div.solution")) == len(paper.select("div.solution")) == sum(solved.values()) > 20
    titles = [" ".join(heading.get_text().split()) for heading in end.select("h2")]
    chapters = [" ".join(number(page.h1).split()) for name, page in articles().items() if solved[name]]
    assert titles == chapters


def test_a_slider_is_a_few_pictures_with_their_values(paper):
    sliders = sum(len(page.select("figure.ssm-slider")) for page in articles().values())
    assert len(paper.select("figure.frames")) == sliders > 10
    for figure in paper.select("figure.frames"):
        values = [words.get_text() for words in figure.select("div > p")]
        assert 2 <= len(set(values)) == len(figure.select("div.panels")) <= FRAMES
        assert all(re.fullmatch(r".+ = .+", value) for value in values)


def test_everything_fetched_exists_and_lies_here(paper):
    folder = (ROOT / TARGET).parent
    addresses = [address for _, address in fetched(paper) if not address.startswith("data:")]
    assert len(addresses) > 5
    for address in addresses:
        assert not leaves_the_site(address) and (folder / address).resolve().is_file(), address


def test_the_contents_name_parts_chapters_and_sections(paper):
    for kind in ("h1", "h2"):
        headings = [h for part in paper.select("article")[:-1] for h in part.select(kind)]
        listed = [" ".join(line.a.get_text().split()) for line in paper.select(f"nav p.{kind}")]
        words = [" ".join(heading.get_text().split()) for heading in headings]
        assert listed == words + (["Solutions"] if kind == "h1" else [])
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    assert len(paper.select("nav p.part")) == len(toc["parts"])


def test_the_paper_alone_has_its_own_numbers_and_every_work_that_it_cites(built):
    alone, page = BeautifulSoup(assemble_article(ROOT), "html.parser"), soup(built / f"{ARTICLE}.html")
    numbered = [figure.select_one(".caption-number").get_text() for figure in alone.select("figure[id]")]
    assert numbered == [f"Fig. {place} " for place in range(1, len(numbered) + 1)] and len(numbered) > 3
    cited = {link["href"].rpartition("#")[2] for link in page.select("article a[href*='#cite-']")}
    assert len(cited) > 10 and {work["id"] for work in alone.select(".works .citation")} == cited
    ids = {node["id"] for node in alone.find_all(id=True)}
    inside = [link for link in alone.find_all("a", href=True) if link["href"].startswith("#")]
    assert len(inside) > 20 and {link["href"][1:] for link in inside} <= ids
    for link in inside:
        if "--fig-" in link["href"]:
            assert (
                link.get_text()
                == alone.find(id=link["href"][1:]).select_one(".caption-number").get_text().strip()
            )
