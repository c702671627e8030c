"""The lectures: no symbol before its introduction, notes that describe their pictures, a right exam."""

import io
import math
import re
from base64 import b64decode
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from addresses import fetched, leaves_the_site
from color_words import color_words, names
from PIL import Image

from headsandstates.site.built import soup
from headsandstates.site.claims import collect
from headsandstates.site.lectures import EVERYTHING, LENGTHS, SOURCES, LectureError, lectures
from headsandstates.site.notebooks import all_notebooks, read
from ssmbook.gradients import weight_from_margin
from ssmbook.heads import eigenvalue_test, head_count, sinkless_plateau
from ssmbook.maps import Mamba3
from ssmbook.operators import LagOperator
from ssmbook.systems import System, mcmillan_degree

ROOT = Path(__file__).resolve().parents[2]
LECTURES = {lecture.name: lecture for lecture in lectures(ROOT)}
GREEK = (
    "alpha beta gamma delta varepsilon epsilon theta lambda mu nu rho sigma tau phi varphi omega "
    "Gamma Delta Theta Lambda Sigma Phi Omega"
).split()
WORDS = re.compile(r"\\(?:text|mathrm|operatorname\*?|begin|end)\{[^}]*\}")
SYMBOL = re.compile(r"\\(?P<command>[A-Za-z]+)|(?P<letter>[A-Za-z])")
SYMBOLS_TO_START_WITH, PICTURES = 12, 6
COVERED = re.compile(r"\{show\} ([\w-]+)(?: later)? at ")

in_each = pytest.mark.parametrize("name", LECTURES)


def symbols(text):
    """Latin and Greek letters of the formulas in a text; the names of commands are none."""
    found = set()
    for formula in re.findall(r"\$\$?(.+?)\$\$?", re.sub(r"`[^`]*`", "", text), re.S):
        for match in SYMBOL.finditer(WORDS.sub(" ", formula)):
            found.add(match["letter"] or (match["command"] if match["command"] in GREEK else None))
    return found - {None}


def spoken(slide):
    """The lines of the notes that describe what is seen: not the board, not what they will ask."""
    notes = re.search(r"^(:{3,})\{notes\} \d+\n(.*?)^\1$", slide.text, re.S | re.M)[2]
    return [
        line for line in notes.splitlines() if not re.match(r"Draw:|Board:|Color:|They will ask:|Take ", line)
    ]


@cache
def drawings():
    """label -> all that is written where its picture is drawn: caption, alternative text and source."""
    found = {}
    for path in all_notebooks(ROOT):
        for cell in read(path).cells:
            said = cell.metadata.get("mystnb", {})
            if "figure" in said:
                chapter = (
                    ROOT / "headsandstates/chapters" / path.stem.removesuffix("-deeper").replace("-", "_")
                )
                source = "".join(file.read_text(encoding="utf-8") for file in chapter.glob("figures.py"))
                found[said["figure"]["name"]] = f"{said} {cell.source} {source}"
    return found


def colors_in(folder, node):
    """What the colors of the pictures in ``node`` are called, the few pixels of blurred edges left out."""
    pixels = Counter()
    for image in node.select("img"):
        head, _, data = image["src"].partition("base64,")
        file = io.BytesIO(b64decode(data)) if data else folder / head
        for count, color in Image.open(file).convert("RGB").getcolors(1 << 24):
            pixels.update(dict.fromkeys(names(*color), count))
    return {name for name, count in pixels.items() if count > 40}


def on_slide(slide):
    """What the room sees; the notes are the lecturer's."""
    return re.sub(r"^(:{3,})\{notes\}.*?^\1$", "", slide.text, flags=re.S | re.M)


@in_each
@pytest.mark.parametrize("length", [*LENGTHS, EVERYTHING])
def test_no_symbol_comes_before_its_introduction(name, length):
    lecture = LECTURES[name]
    assert len(lecture.presupposed) <= SYMBOLS_TO_START_WITH
    known = {symbol.lstrip("\\") for symbol in lecture.presupposed}
    for slide in lecture.cut(length):
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
    bare = [slide.title for slide in lecture.slides if not re.search(r"\{(show|swap|run)\}", slide.text)]
    assert len(bare) <= len(lecture.slides) / 5, bare
    for slide in lecture.slides:
        assert ("{ask}" in slide.text) <= ("{answer}" in slide.text), slide.title
        words, ask, _ = slide.text.partition("{ask}")
        assert not (ask and "{step}" in words), f"{slide.title}: steps follow the answer"


def test_pictures_build_up():
    built_up = {
        show for one in LECTURES.values() for slide in one.slides for show in COVERED.findall(slide.text)
    }
    assert len(built_up) >= 8


@in_each
def test_a_lecture_asks_early_and_every_ten_minutes(name):
    asked, minute = [0], 0
    for slide in LECTURES[name].slides:
        if "{ask}" in slide.text or "{run}" in slide.text:  # or a bet
            asked.append(minute)
        minute += slide.minutes
    assert asked[1] <= 6 and max(b - a for a, b in pairwise(asked)) <= 10 and minute - asked[-1] <= 10


@in_each
def test_a_lecture_in_two_halves_leaves_time_in_both(name):
    slides = LECTURES[name].cut(75)
    begins = [slide.second for slide in slides]
    assert begins.count(True) == 1
    for half in (slides[: begins.index(True)], slides[begins.index(True) :]):
        assert 25 <= sum(slide.minutes for slide in half) <= 39


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


@in_each
def test_a_handout_leads_somewhere_and_refers_to_nothing_that_is_not_on_it(built, name):
    page = soup(built / f"slides/{name}-handout.html")
    address = page.select_one(".where a[href^='https://']")["href"]
    assert address.endswith(f"/slides/{name}-handout.html") and page.select(".where svg path")
    assert "CC BY 4.0" in page.select_one(".where").get_text()
    for problem in page.select(".exercise"):
        assert (problem.select_one(".notebook").get_text()).endswith(".ipynb")
    on_it = {node["id"] for node in page.select("[id]")} | set(LECTURES[name].handout["statements"])
    for link in page.select("a[href*='#']"):
        target = link["href"].partition("#")[2]
        assert target in on_it or target.startswith("cite-"), link
    assert not re.search(r"\bFig(ure|\.) \d", page.get_text())


@in_each
def test_notes_name_the_colors_and_the_labels_of_their_picture(built, name):
    deck = soup(built / f"slides/{name}.html")
    for slide in LECTURES[name].slides:
        for label in slide.shown:
            said, node = "\n".join(spoken(slide)), deck.select_one(f'[data-label="{label}"]')
            assert color_words(said) <= colors_in(built / "slides", node), slide.title
            assert not re.search(r'named (?!")', said), f"{slide.title}: quote the name as the picture has it"
            for words in re.findall(r'"([^"]+)"', said):
                assert words in drawings()[label], f"{slide.title}: {words!r} is not in {label}"


def test_notes_claim_no_experience(built):
    plan = (ROOT / "chapters/appendix/lectures.md").read_text(encoding="utf-8")
    for text in [plan, *(path.read_text(encoding="utf-8") for path in (ROOT / SOURCES).glob("*.md"))]:
        assert not re.search(
            r"\bmost (rooms|will|say)\b|\b(students|rooms|people) (often|usually)\b", text, re.I
        )


def test_the_rubric_of_the_exam_says_what_the_library_finds():
    text = (ROOT / "chapters/appendix/lectures.md").read_text(encoding="utf-8")
    questions, rubric = text.partition("## A short exam")[2].split(":::{admonition} Rubric")
    questions, rubric = (dict(re.findall(r"^(\d)\. (.*)$", part, re.M)) for part in (questions, rubric))
    assert [sum(map(int, re.findall(r"\((\d)\)", line))) for line in rubric.values()] == 5 * [6]
    numbers = ("no", "one", "two", "three")

    # 1: three channels, then one input and one output
    A, eye, ones = (
        torch.diag(torch.tensor([0.9, 0.9, -0.5]).double()),
        torch.eye(3).double(),
        torch.ones(3, 1).double(),
    )
    channels, single = System(A, eye, eye), System(A, ones, ones.mT)
    assert r"\operatorname{diag}(0.9,\,0.9,\,-0.5)" in questions["1"]
    assert r"$B=(1,1,1)^{\mathsf T}$ and $C=(1,1,1)$" in questions["1"]
    for system, part in zip((channels, single), rubric["1"].split("With one input"), strict=True):
        heads = numbers[int(head_count(system, 50))]
        assert re.search(rf"\b{heads} heads?\b", part)
        assert f"{numbers[mcmillan_degree(system.lags(20)).rank]} state variables" in part.lower()

    # 2: no number of heads without a sink, two with one at every length
    assert head_count(channels, 50, "sinkless").low == math.inf
    assert sinkless_plateau(channels, 50).relative > 0
    assert all(head_count(channels, n, "softmax") == 2 for n in (2, 10, 100, 1000))
    assert eigenvalue_test(channels).verdict == "k" and "two heads are enough" in rubric["2"]

    # 3: rotated keys, a state of 256 numbers
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = Mamba3(16, 4, H=1, head_width=4, N=64)
    assert head.interaction(torch.randn(32, 16)).interaction_rank() == 1 and rubric["3"].startswith(
        "One head"
    )

    # 4: a system with these singular values, one for each lag
    sigma, tau = torch.tensor([4.0, 2.0, 1.0, 1.0]).double(), torch.arange(4)
    blocks = torch.diag(sigma / (4 - tau).sqrt()).reshape(4, 2, 2)
    shares = [LagOperator(blocks).floor(H) for H in (1, 2, 4)]
    assert shares == pytest.approx([6 / 22, 2 / 22, 0])
    assert "One head misses $6/22$, two miss $2/22$, four miss nothing" in rubric["4"]

    # 5: a fixed share per step; a margin above log 60, and none
    assert r"0.95^{60}\approx 0.05" in rubric["5"] and 0.95**60 == pytest.approx(0.05, abs=0.005)
    matched, alike = (weight_from_margin(margin, 60) for margin in (math.log(60) + 3, 0.0))
    assert matched > 0.95 and alike == pytest.approx(1 / 60)


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
