"""Swap a head: a walk through its four steps, by mouse and by touch; what it does with bad input."""

import json
import re
import subprocess
import sys

import pytest
from browser.visit import finger

from headsandstates.experiments.results import FOLDER

PAGE = "chapters/swap-a-head.html"
SEEN = """() => {
  const board = document.querySelector("[data-swap]"), text = (one) => board.querySelector(one).textContent;
  const numbers = text(".swap-meter strong").match(/\\d+/g).map(Number), { engine, step } = board.dataset;
  return {
    right: numbers.at(-2), of: numbers.at(-1), lost: board.querySelectorAll(".lost").length, engine, step,
    copying: text(".swap-meter:nth-child(2) strong"), say: text(".swap-say"), heard: text("[role=status]"),
    problem: text(".swap-problem"), bars: text(".swap-bars"), hash: location.hash,
    tall: board.scrollHeight - innerHeight,
    changed: board.querySelectorAll(".swap-heads button span:not(:empty)").length,
  };
}"""
FRAMED = """() => {
  const frames = [...document.querySelectorAll(".swap-heads button")].map((one) => one.style.borderColor);
  return new Set(frames).size > 8;
}"""
SETTLED = """(text) => {
  const board = document.querySelector("[data-swap]");
  return board.dataset.settled && board.dataset.settled !== text;
}"""


class Board:
    """The page and what is done on it; every change is waited for until the meters have followed."""

    def __init__(self, visit):
        self.visit, self.page, self.last = visit, visit.page, ""
        self.settle()

    def settle(self):
        self.page.wait_for_function(SETTLED, arg=self.last, timeout=60_000)
        self.page.wait_for_timeout(300)
        self.last = self.page.locator("[data-swap]").get_attribute("data-settled")
        return self.page.evaluate(SEEN)

    def press(self, locator):
        (locator.tap if self.page.evaluate("'ontouchstart' in window") else locator.click)()
        return self.settle()

    def step(self, number):
        return self.press(self.page.locator(".swap-steps button").nth(number - 1))

    def write(self, text):
        self.page.locator("[data-swap] textarea").fill(text)
        return self.settle()


@pytest.fixture
def board(open_page, disk):
    return lambda hash="#full", view="light", **given: Board(open_page(f"{disk}{PAGE}{hash}", view, **given))


def test_the_three_steps_on_one_screen(board):
    opened = board("#on-the-whole-screen")
    trained = opened.page.evaluate(SEEN)
    assert trained["engine"] == "worker" and trained["tall"] <= 0 and trained["right"] > 0.6 * trained["of"]
    opened.page.wait_for_function(FRAMED, timeout=60_000)
    squeezed = opened.step(2)
    opened.page.wait_for_function(FRAMED, timeout=20_000)  # the text is the same, and so are the frames
    assert squeezed["changed"] == 27 and squeezed["right"] >= trained["right"] - 3
    slider, rights = opened.page.locator(".swap-squeeze input"), []
    for states in (16, 4):
        slider.fill(str(states))
        rights.append(opened.settle())
    assert trained["right"] > rights[0]["right"] > rights[1]["right"] and rights[1]["lost"] > 30
    cut, merged = opened.step(3), opened.press(opened.page.get_by_role("button", name="merge", exact=True))
    assert cut["right"] < 0.7 * trained["right"] < 0.9 * trained["right"] < merged["right"]
    # the address has all of it, undo goes back, and what is copied is Python
    again = board(merged["hash"]).page.evaluate(SEEN)
    assert {**again, "heard": ""} == {**merged, "heard": ""}
    assert opened.press(opened.page.get_by_role("button", name="Undo"))["right"] == cut["right"]
    assert not opened.visit.messages


HISTORY = "[...document.querySelectorAll('[aria-label=History] option')].length - 1"


def test_a_gesture_is_one_entry_and_back_undoes_all_of_it(board):
    opened = board()
    page, entries = opened.page, opened.page.evaluate("history.length")
    squeezed, slider = opened.step(2), opened.page.locator(".swap-squeeze input")
    slider.focus()
    for _ in range(9):
        page.keyboard.press("ArrowLeft")
    by_keys = opened.settle()
    assert by_keys["right"] < squeezed["right"] and slider.input_value() == "24"
    page.wait_for_timeout(1100)  # the next key is another gesture
    page.keyboard.press("ArrowLeft")
    opened.settle()
    box = slider.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.7 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.1 * box["width"], y, steps=9)
    page.mouse.up()
    pulled = opened.settle()
    assert pulled["lost"] > 30
    assert page.evaluate(HISTORY) == 4 and page.evaluate("history.length") == entries + 4
    page.go_back()
    assert opened.settle()["right"] > pulled["right"] and slider.input_value() == "23"
    undo = page.get_by_role("button", name="Undo")
    opened.press(undo)
    assert opened.press(undo)["hash"] == squeezed["hash"] and slider.input_value() == "33"
    page.go_forward()
    assert opened.settle()["hash"] == by_keys["hash"]
    page.go_back()
    opened.settle()
    page.go_back()
    opened.settle()
    assert undo.is_disabled() and page.locator(".swap-full").count() == 1


FULL = "document.querySelectorAll('.swap-full').length"
ENTRIES = "history.length"


def test_the_address_follows_the_open_head_at_once(board):
    opened = board()
    page, heads = opened.page, opened.page.locator(".swap-heads button")
    entries, shown = page.evaluate(ENTRIES), "new URLSearchParams(location.hash.slice(1)).get('open')"
    heads.nth(5).click()
    assert page.evaluate(shown) == "5"
    heads.nth(5).press("ArrowDown")
    assert page.evaluate(shown) == "13"
    assert page.evaluate(ENTRIES) == entries and page.get_by_role("button", name="Undo").is_disabled()
    opened.step(2)
    heads.nth(6).click()
    page.go_back()
    opened.settle()
    assert page.evaluate(shown) == "13" and page.locator(".swap-open h3").inner_text() == "Layer 2, head 6"
    page.go_forward()
    opened.settle()
    assert page.evaluate(shown) == "6" and page.locator(".swap-open h3").inner_text() == "Layer 1, head 7"
    assert page.evaluate(ENTRIES) == entries + 1


def test_the_link_to_the_whole_screen_leads_to_what_is_set(board):
    opened = board("")
    page = opened.page
    opened.step(2)
    page.locator(".swap-squeeze input").fill("7")
    set_here = opened.settle()
    history = page.evaluate(HISTORY)
    link = page.get_by_role("link", name="The whole screen", exact=True)
    assert not set_here["hash"] and "n7" in link.get_attribute("href")
    link.click()
    page.wait_for_function(FULL)
    whole = page.evaluate(SEEN)
    assert whole["hash"] == link.get_attribute("href") and page.evaluate(HISTORY) == history
    assert (whole["right"], whole["changed"], whole["step"]) == (set_here["right"], 32, "2")
    page.go_back()
    page.wait_for_function(f"!{FULL}")
    # the page's contents lead there, too
    page.evaluate("location.hash = '#on-the-whole-screen'")
    page.wait_for_function(FULL)
    assert page.evaluate("location.hash") == whole["hash"] and page.evaluate(HISTORY) == history


def test_back_takes_one_press_for_each_gesture_opening_and_closing_too(board, disk):
    opened = board("")
    page, seen = opened.page, []
    page.goto(f"{disk}chapters/preface.html")
    page.goto(f"{disk}{PAGE}")
    opened.last = ""
    opened.settle()
    entries = page.evaluate(ENTRIES)
    page.get_by_role("button", name="Full screen").click()
    seen += [page.evaluate(SEEN)["hash"], opened.step(2)["hash"], opened.step(3)["hash"]]
    page.keyboard.press("Escape")
    assert page.evaluate("location.hash") == "" and page.evaluate(ENTRIES) == entries + 4
    for i, hash in enumerate(reversed(seen)):
        page.go_back()
        page.wait_for_function("(hash) => location.hash === hash", arg=hash)
        assert page.evaluate(FULL) == 1 and page.evaluate(HISTORY) == 2 - i
    page.go_forward()
    opened.settle()
    opened.press(page.get_by_role("button", name="Undo"))
    page.wait_for_function("(hash) => location.hash === hash", arg=seen[0])
    page.go_back()
    page.wait_for_function(f"!{FULL}")
    page.go_back()
    page.wait_for_url("**/preface.html")


def test_the_history_finds_a_state_that_came_twice(board):
    opened = board()
    page, entries = opened.page, opened.page.evaluate(ENTRIES)
    for step in (2, 1, 2, 1):
        opened.step(step)
    page.wait_for_timeout(100)
    for at in (2, 0):  # as it is shown, but earlier
        page.get_by_label("History").select_option(str(at))
        page.wait_for_function(f"{HISTORY} === {at}")
    assert page.evaluate(FULL) == 1 and page.evaluate(ENTRIES) == entries + 4
    assert page.get_by_role("button", name="Undo").is_disabled()


def test_a_head_set_by_hand_leaves_the_slider_of_the_step(board):
    opened = board()
    page, kind, own = opened.page, opened.page.get_by_label("What takes its place"), ".swap-controls input"
    heads, slider = page.locator(".swap-heads button"), page.locator(".swap-squeeze input")
    opened.step(2)
    slider.fill("12")
    opened.settle()
    heads.nth(23).click()  # one of the five
    page.locator(own).nth(1).fill("2")
    found = opened.settle()
    assert (found["step"], slider.input_value()) == ("2", "12") and "1 head is as you set it" in found["say"]
    slider.fill("16")
    found = opened.settle()
    badges = heads.locator("span").all_inner_texts()
    assert badges.count("n16") == 4 and badges[23] == "n2" and "16 states" in found["say"]
    again = board(found["hash"])
    assert again.page.locator(".swap-squeeze input").input_value() == "16"
    assert again.page.evaluate(SEEN)["say"] == found["say"]
    # what does not apply to a head is not shown, and why is said
    kind.select_option("cut")
    opened.settle()
    assert not page.locator(own).first.is_visible() and not page.locator(own).nth(1).is_visible()
    assert "has no content and no states" in page.locator(".swap-controls").inner_text()
    kind.select_option("window")
    opened.settle()
    assert (
        page.locator(own).nth(1).is_visible() and "last tokens" in page.locator(".swap-controls").inner_text()
    )
    # the first choice of the menu acts; where nothing would change the button waits
    apply = page.get_by_role("button", name="Apply")
    assert opened.press(apply)["step"] == "0"
    assert heads.locator("span").all_inner_texts()[16:24] == ["w4"] * 8 and apply.is_disabled()
    assert not opened.visit.messages


def test_the_steps_by_touch_on_a_phone(board):
    opened = board(view="phone")
    trained, page = opened.page.evaluate(SEEN), opened.page
    squeezed = opened.step(2)
    assert squeezed["changed"] == 27 and page.evaluate("document.documentElement.scrollWidth") <= 390
    box = page.locator(".swap-squeeze input").bounding_box()
    middle = box["y"] + box["height"] / 2
    finger(page, (box["x"] + box["width"] - 12, middle), (-0.8 * box["width"], 0))
    assert opened.settle()["right"] < trained["right"] - 10
    # tokens, slider, the open head and Undo stay while one scrolls to the mosaics
    page.locator(".swap-heads").evaluate("(one) => one.scrollIntoView({ block: 'end', behavior: 'instant' })")
    undo = page.get_by_role("button", name="Undo")
    for part in (*map(page.locator, (".swap-tokens", ".swap-squeeze input", ".swap-small canvas")), undo):
        place = part.bounding_box()
        assert 0 <= place["y"] + 8 and place["y"] + place["height"] < 500, part
    undo.tap()
    assert opened.settle()["right"] == squeezed["right"]
    undo.tap()
    assert opened.settle()["right"] == trained["right"] and undo.is_disabled()
    page.keyboard.press("Escape")  # on the page they stay below its bar
    for size in ({"width": 390, "height": 844}, {"width": 820, "height": 600}):
        page.set_viewport_size(size)
        page.locator(".swap-open").evaluate("(one) => one.scrollIntoView({ behavior: 'instant' })")
        bar, stage = (page.locator(one).bounding_box() for one in (".bd-header-article", ".swap-stage"))
        assert stage["y"] == bar["y"] + bar["height"] == pytest.approx(52, abs=4)
    assert opened.step(3)["right"] < trained["right"]


def test_a_budget_follows_the_plan(board):
    opened = board("#full&step=4")
    page, trained = opened.page, 68
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.evaluate("window.prompt = (_, text) => { window.copied = text; }")
    first, slider, rests = (
        page.evaluate(SEEN),
        page.locator(".swap-spend input"),
        page.locator(".swap-spend select"),
    )
    plan = json.loads((FOLDER / "page-plan.json").read_text("utf-8"))["results"]["page"]["plan"]
    assert first["changed"] == 24 and first["right"] >= trained - 2
    rows = {}
    for K in (2, 0):
        slider.fill(str(K))
        rows[K] = opened.settle()
        whole = [
            i for i, cell in enumerate(page.locator(".swap-heads button span").all_inner_texts()) if not cell
        ]
        assert sorted(whole) == sorted(plan["whole"][:K])
    assert "18 % of the cache" in rows[2]["say"] and "13 %" in rows[0]["say"]
    assert (
        rows[2]["right"] > trained - 4
        and rows[0]["right"] < 0.5 * trained
        and rows[0]["copying"].endswith("0 %")
    )
    rests.select_option("states")
    states = opened.settle()
    assert rows[0]["right"] + 10 < states["right"] < trained - 10
    # no budget that the planner refuses; one step back; the address has it; Python has the same edits
    assert (slider.get_attribute("min"), slider.get_attribute("max")) == ("0", "31")
    assert opened.press(page.get_by_role("button", name="Undo"))["right"] == rows[0]["right"]
    again = board(rows[0]["hash"])
    assert again.page.evaluate(SEEN)["right"] == rows[0]["right"]
    assert again.page.locator(".swap-spend input").input_value() == "0"
    page.get_by_role("button", name="Copy as Python").click()
    assert page.evaluate("window.copied").count('{"window": 15}') == 32
    # causal states where these were nearer, also after the slider was moved
    slider.fill("2")
    opened.settle()
    rests.select_option("causal")
    causal = opened.settle()
    assert "causal states of that size in the 11 heads" in causal["say"] and causal["right"] > trained - 6
    slider.fill("0")
    assert opened.settle()["hash"].count("%3Af") == 11 and rests.input_value() == "causal"
    assert not opened.visit.messages


def test_a_chapter_and_a_slide_show_the_same_heads(open_page, disk):
    page = open_page(f"{disk}slides/block-4.html", viewport={"width": 1280, "height": 720}).page
    page.wait_for_selector("html[data-ready=true]", state="attached")
    page.evaluate("Reveal.slide(Reveal.getSlides().findIndex((one) => one.querySelector('[data-swap]')))")
    page.wait_for_function(SETTLED, arg="", timeout=60_000)
    lost, slide = "document.querySelectorAll('.lost').length", page.evaluate("Reveal.getIndices().h")
    before = page.evaluate(lost)
    for _ in range(8):
        page.keyboard.press("Shift+ArrowLeft")
    page.wait_for_function(f"{lost} > 30", timeout=60_000)
    assert before < 5 and page.locator("[data-swap] input").input_value() == "0"
    assert page.evaluate("Reveal.getIndices().h") == slide
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.getIndices().h") == slide + 1
    paper = open_page(f"{disk}slides/block-4.html?print-pdf").page
    paper.wait_for_selector("html[data-ready=true]", state="attached")
    assert paper.locator("[data-heads] img").count() == 1 and not paper.locator("[data-swap]").count()


def test_what_is_copied_prints_the_numbers_of_the_page(board):
    opened = board(
        "#full&text=" + "It was a truth, it was a".replace(" ", "%20") + "&edits=0.1:n3,2.7:c40n2,1.3:m,3.6:f"
    )
    page, keep = opened.page, "{ writeText: async (text) => { window.copied = text; } }"
    page.evaluate(f"Object.defineProperty(navigator, 'clipboard', {{ value: {keep} }})")
    page.get_by_role("button", name="Copy as Python").click()
    assert page.evaluate(SEEN)["say"].endswith("The Python lines are copied.")
    ran = subprocess.run(
        [sys.executable, "-c", page.evaluate("window.copied")], capture_output=True, text=True
    )
    printed = [float(line.split()[0]) for line in ran.stdout.splitlines()]
    shown = [float(number) for number in re.findall(r"([\d.]+) %", page.evaluate(SEEN)["bars"])]
    assert printed[:3] == pytest.approx([one / 100 for one in sorted(shown)[::-1][:3]], abs=0.006), ran.stderr


def test_bad_input_costs_a_line_and_nothing_else(board):
    opened = board("#full&edits=9.9:n4")
    assert "does not fit" in opened.page.evaluate(SEEN)["problem"]
    before = opened.page.evaluate(SEEN)["right"]
    assert "no text" in opened.write("")["say"]
    assert "does not know é 猫" in opened.write("a café, a 猫, a café")["say"]
    long = opened.write("It was a dark and stormy night. " * 100)
    assert "are left out" in long["say"] and long["of"] == 127
    assert opened.step(2)["of"] == 127 == opened.step(1)["of"]  # what a reader typed stays
    words = opened.press(opened.page.get_by_role("button", name="words, three times"))
    assert words["right"] == before and not opened.visit.messages


def test_without_a_worker_the_page_computes_in_slices(open_page, disk, browser):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script("window.Worker = function () { throw new Error('no worker'); }")
    page = context.new_page()
    page.goto(f"{disk}{PAGE}#full")
    page.wait_for_function(SETTLED, arg="", timeout=60_000)
    found = page.evaluate(SEEN)
    assert found["engine"] == "slices" and found["right"] > 0.6 * found["of"]
    context.close()


def test_keys_walk_over_tokens_and_heads(board):
    page = board().page
    page.locator(".swap-tokens").focus()
    before = page.locator(".swap-next h3").inner_text()
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(1000)  # longer than the words on the change before take
    assert page.locator(".swap-next h3").inner_text() != before and "Next:" in page.evaluate(SEEN)["heard"]
    page.locator(".swap-heads button").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".swap-open h3").inner_text() == "Layer 2, head 1"
    page.keyboard.press("Escape")
    assert not page.locator(".swap-full").count()
    assert page.evaluate("location.hash") == ""
