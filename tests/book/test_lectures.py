"""The lectures: no symbol before its introduction, decks that stand alone, handouts with all they promise."""

import re
from pathlib import Path

import pytest
from addresses import fetched, leaves_the_site

from headsandstates.site.built import soup
from headsandstates.site.claims import collect
from headsandstates.site.lectures import SOURCES, LectureError, lectures

ROOT = Path(__file__).resolve().parents[2]
LECTURES = {lecture.name: lecture for lecture in lectures(ROOT)}
GREEK = (
    "alpha beta gamma delta varepsilon epsilon theta lambda mu nu rho sigma tau phi varphi omega "
    "Gamma Delta Theta Lambda Sigma Phi Omega"
).split()
WORDS = re.compile(r"\\(?:text|mathrm|operatorname\*?|begin|end)\{[^}]*\}")
SYMBOL = re.compile(r"\\(?P<command>[A-Za-z]+)|(?P<letter>[A-Za-z])")
SYMBOLS_TO_START_WITH, PICTURES = 12, 6

in_each = pytest.mark.parametrize("name", LECTURES)


def symbols(text):
    """Latin and Greek letters of the formulas in a text; the names of commands are none."""
    found = set()
    for formula in re.findall(r"\$\$?(.+?)\$\$?", re.sub(r"`[^`]*`", "", text), re.S):
        for match in SYMBOL.finditer(WORDS.sub(" ", formula)):
            found.add(match["letter"] or (match["command"] if match["command"] in GREEK else None))
    return found - {None}


def on_slide(slide):
    """What the room sees; the notes are the lecturer's."""
    return re.sub(r"^(:{3,})\{notes\}.*?^\1$", "", slide.text, flags=re.S | re.M)


@in_each
def test_no_symbol_comes_before_its_introduction(name):
    lecture = LECTURES[name]
    assert len(lecture.presupposed) <= SYMBOLS_TO_START_WITH
    known = {symbol.lstrip("\\") for symbol in lecture.presupposed}
    for slide in lecture.slides:
        new = {symbol.lstrip("\\") for symbol in slide.new}
        used = symbols(on_slide(slide))
        assert used <= known | new, f"{slide.title}: {sorted(used - known - new)}"
        assert new <= used, f"{slide.title} introduces {sorted(new - used)} and does not show it"
        known |= new


@in_each
def test_a_lecture_has_parts_questions_and_pictures(name):
    lecture = LECTURES[name]
    assert lecture.slides[0].part and len({slide.part for slide in lecture.slides}) > 3
    assert 25 <= len(lecture.slides) <= 40
    assert sum("{ask}" in slide.text for slide in lecture.slides) >= 3
    assert len({label for slide in lecture.slides for label in slide.shown}) >= PICTURES
    for slide in lecture.slides:
        assert ("{ask}" in slide.text) <= ("{answer}" in slide.text), slide.title


@in_each
def test_a_deck_and_its_papers_stand_alone(built, name):
    for end in ("", "-handout", "-solutions"):
        page = soup(built / f"slides/{name}{end}.html")
        assert not [address for _, address in fetched(page) if leaves_the_site(address)]
        assert all(len((image.get("alt") or "").strip()) > 10 for image in page.find_all("img"))
    text = soup(built / f"slides/{name}.html").get_text()
    assert not re.search(r"(Theorem|Proposition|Fig\.|Figure|Exercise|Definition) \d", text)
    index = soup(built / "chapters/appendix/lectures.html")
    assert index.select_one(f".lectures-index a[href$='/slides/{name}.html']")


@in_each
def test_a_handout_states_in_full_what_the_deck_shows_in_words(built, name):
    said, page = LECTURES[name].handout, soup(built / f"slides/{name}-handout.html")
    labels = {claim.label for claim in collect(ROOT)[0]}
    assert said["statements"] and set(said["statements"]) <= labels
    assert len(page.select(".exercise")) == len(said["problems"]) >= 8
    assert len(soup(built / f"slides/{name}-solutions.html").select(".solution")) == len(said["problems"])


def test_the_slider_of_a_slide_is_alive(built):
    for name in LECTURES:
        assert soup(built / f"slides/{name}.html").select("figure.ssm-slider input[type=range]"), name


def test_what_does_not_fit_fails(tmp_path):
    folder = tmp_path / SOURCES
    folder.mkdir(parents=True)
    front = "---\ntitle: T\naudience: All.\nminutes: {}\n---\n"
    for text, message in (
        (front.format(3) + "# One\n:::{notes} 2\nx\n:::\n", "take 2 minutes, not 3"),
        (front.format(0) + "# One\n", "no notes on 'One'"),
        (front.format(2) + "# One\n:::{film} 2\nx\n:::\n", "no known kind"),
    ):
        (folder / "one.md").write_text(text)
        with pytest.raises(LectureError, match=message):
            lectures(tmp_path)


def test_code_on_slides_runs():
    for name, lecture in LECTURES.items():
        known = {}
        for slide in lecture.slides:
            for code in re.findall(r"^```python\n(.*?)^```", slide.text, re.S | re.M):
                exec(compile(code, f"{name}: {slide.title}", "exec"), known)
