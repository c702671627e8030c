"""Every slider, by keyboard and by touch: one frame is seen, it changes, its value is said."""

from pathlib import Path

import pytest

from ssmbook._book.claims import page_names

ROOT = Path(__file__).resolve().parents[2]
STATE = """(figure) => {
  const input = figure.querySelector("input[type=range]");
  const frames = [...figure.querySelectorAll(".ssm-slider-frames > div")];
  const seen = frames.map((frame) => frame.querySelector("img")).filter(
    (image) => image.offsetParent !== null && image.naturalWidth > 0);
  return {
    value: Number(input.value),
    last: Number(input.max),
    named: input.labels.length === 1 && input.labels[0].textContent.trim() !== "",
    said: input.getAttribute("aria-valuetext"),
    written: figure.querySelector("output").textContent,
    frames: frames.length,
    seen: seen.map((image) => [image.src, image.alt]),
  };
}"""

WITH_SLIDERS = [
    name
    for name in page_names(ROOT)
    if (page := (ROOT / name).with_suffix(".ipynb")).is_file()
    and "Slider(" in page.read_text(encoding="utf-8")
]
each_page = pytest.mark.parametrize("name", WITH_SLIDERS, ids=[name.split("/")[-1] for name in WITH_SLIDERS])


def sliders(page):
    return page.locator("figure.ssm-slider").all()


def state(slider):
    """The state of a slider that stands as it should: one frame seen, its value named, written and said."""
    found = slider.evaluate(STATE)
    assert found["named"] and found["said"] and found["said"] == found["written"]
    assert len(found["seen"]) == 1 and found["frames"] == found["last"] + 1
    return found


@each_page
def test_keys_move_every_slider(open_page, disk, name):
    page = open_page(f"{disk}{name}.html").page
    for slider in sliders(page):
        control = slider.locator("input[type=range]")
        control.focus()
        seen = []
        control.press("Home")
        for step in range(state(slider)["last"] + 1):
            found = state(slider)
            assert found["value"] == step
            seen.append((found["said"], *found["seen"][0]))
            control.press("ArrowRight")
        assert len({said for said, _, _ in seen}) == len(seen), "values said"
        assert len({alt for _, _, alt in seen}) == len(seen), "alternative texts"
        assert len({picture for _, picture, _ in seen}) > 1, "pictures"
        control.press("Home")
        assert state(slider)["value"] == 0
        control.press("End")
        assert state(slider)["value"] == found["last"]
        control.press("ArrowLeft")
        assert state(slider)["value"] == found["last"] - 1


@each_page
def test_a_finger_moves_every_slider(open_page, disk, name):
    page = open_page(f"{disk}{name}.html", "phone", is_mobile=True).page
    for slider in sliders(page):
        control = slider.locator("input[type=range]")
        control.scroll_into_view_if_needed()
        box, before = control.bounding_box(), state(slider)
        assert box["height"] >= 24
        high = before["value"] < before["last"] / 2
        page.touchscreen.tap(box["x"] + (0.95 if high else 0.05) * box["width"], box["y"] + box["height"] / 2)
        after = state(slider)
        assert after["value"] > before["value"] if high else after["value"] < before["value"]
        assert after["seen"] != before["seen"] and after["said"] != before["said"]


def test_the_pages_with_sliders_are_those_tested_here(built):
    """The tests above would pass on a book without any."""
    pages = [page.relative_to(built).with_suffix("") for page in built.rglob("chapters/**/*.html")]
    found = {str(page): (built / page).with_suffix(".html").read_text(encoding="utf-8") for page in pages}
    found = {name: text.count('<figure class="ssm-slider"') for name, text in found.items()}
    assert {name for name, sliders in found.items() if sliders} == set(WITH_SLIDERS)
    assert sum(found.values()) >= 16
