"""JavaScript off: the page can be read, and each slider says why it stands still."""

from pathlib import Path

import pytest

from ssmbook._book.claims import page_names

ROOT = Path(__file__).resolve().parents[2]
LOOK = """() => {
  const seen = (node) => node.checkVisibility() && node.getBoundingClientRect().height > 0;
  const article = document.querySelector("article");
  return {
    title: article.querySelector("h1").innerText,
    words: article.innerText.split(/\\s+/).length,
    colors: getComputedStyle(document.documentElement).getPropertyValue("--pst-color-border") !== "",
    broken: [...article.querySelectorAll("img")].filter((img) => seen(img) && !img.naturalWidth).length,
    sliders: [...article.querySelectorAll("figure.ssm-slider")].map((figure) => ({
      frames: [...figure.querySelectorAll(".ssm-slider-frames > div")].filter(seen).length,
      control: seen(figure.querySelector("input")),
      said: figure.innerText,
    })),
  };
}"""

each_page = pytest.mark.parametrize(
    "name",
    [pytest.param(name, id=name.split("/")[-1]) for name in page_names(ROOT)],
)


OFF = {"java_script_enabled": False, "viewport": {"width": 1280, "height": 800}}


def read(page, address):
    page.goto(address)
    return page.evaluate(LOOK)


@pytest.fixture
def seen(look, disk, name):
    return look(OFF, f"{disk}{name}.html", read)


@each_page
def test_the_page_can_be_read(seen, name):
    assert seen["title"] and seen["words"] > 100
    assert not seen["broken"]
    assert seen["colors"], "without a mode the theme defines no color and no border"


@each_page
def test_each_slider_shows_one_frame_and_says_why(seen, name):
    for slider in seen["sliders"]:
        assert slider["frames"] == 1
        assert not slider["control"], "a control that does not move"
        assert "JavaScript" in slider["said"]
