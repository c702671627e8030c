"""JavaScript off: the page can be read, and each slider says why it stands still."""

import pytest

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
      control: seen(figure.querySelector("input, select")),
      said: figure.innerText,
    })),
  };
}"""

OFF = {"java_script_enabled": False, "viewport": {"width": 1280, "height": 800}}
PAGES = ["preface", "1-one-operator/two-ways-to-mix", "1-one-operator/zoo", "appendix/cheat-sheet"]


@pytest.mark.parametrize("name", PAGES, ids=[name.split("/")[-1] for name in PAGES])
def test_the_page_can_be_read_and_each_slider_says_why_it_stands(browser, disk, name):
    page = browser.new_page(**OFF)
    page.goto(f"{disk}chapters/{name}.html")
    seen = page.evaluate(LOOK)
    page.close()
    assert seen["title"] and seen["words"] > 100 and not seen["broken"]
    assert seen["colors"], "without a mode the theme defines no color and no border"
    for slider in seen["sliders"]:
        assert slider["frames"] == 1
        assert not slider["control"], "a control that does not move"
        assert "JavaScript" in slider["said"]
