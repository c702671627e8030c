"""A built page in a browser: opened once, turned to each view, and what is seen of it there."""

from dataclasses import dataclass

VIEWS = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True},
    "small": {"viewport": {"width": 320, "height": 640}, "color_scheme": "light"},  # the narrowest, or 400 %
    "paper": {"viewport": {"width": 672, "height": 1000}, "color_scheme": "light"},  # A4 within its margins
    "room": {"viewport": {"width": 1280, "height": 720}, "color_scheme": "light"},  # projected
}
SCREENS = ("light", "dark", "phone")
FOLD = """(shut) => {
  for (const one of document.querySelectorAll(".toggle")) one.classList.toggle("toggle-hidden", shut);
}"""
COUNT_SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""
UNCOVER = "document.querySelectorAll('.predict-show[aria-expanded=false]').forEach((one) => one.click())"
SETTLED = """async () => {
  for (const image of document.images) image.loading = "eager";
  await document.fonts.ready;
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  while (document.documentElement.classList.contains("from-top")) await frame();  // sections still unfold
  for (const _ of [1, 2]) await frame();
  const late = [...document.images].filter((one) => !one.complete);  // a phone gets a form of its own
  await Promise.all(late.map((one) => one.decode().catch(() => {})));
}"""
FACTS = """() => {
  const text = (node) => node.textContent.trim().slice(0, 80);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const scrolls = (node) => {
    for (; node; node = node.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(node).overflowX)) return true;
    return false;
  };
  const sticksOut = (node) => {
    const box = node.getBoundingClientRect();
    return box.width > 1 && box.height > 1 && box.right > innerWidth + 1 && !scrolls(node);
  };
  const leavesColumn = (formula) => {
    const column = formula.closest("p, li, dd, dt, td, th, figcaption, h1, h2, h3, h4");
    const right = Math.max(0, ...[...formula.getClientRects()].map((box) => box.right));
    return column && right > column.getBoundingClientRect().right + 1 && !scrolls(formula);
  };
  const words = (node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
  const torn = (cell) => {
    const found = [], range = document.createRange();
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
      for (const { 0: word, index } of node.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) found.push(word);
      }
    }
    return found;
  };
  return {
    theme: document.documentElement.dataset.theme,
    untypeset: all(".math").filter((node) => !node.querySelector("mjx-container")).map(text),
    errors: all("mjx-merror, [data-mjx-error]").map(text),
    width: document.documentElement.scrollWidth - innerWidth,
    outside: all("article *:not(mjx-container *)").filter(sticksOut).map((n) => n.outerHTML.slice(0, 120)),
    parted: all("span.math mjx-math").filter(leavesColumn).map(text),
    pushed: all(".pst-scrollable-table-container, .ssm-table, article pre:not(.cell_input *)")
      .filter((node) => node.scrollWidth > node.clientWidth + 1).map(text),
    silent: all("figure.align-default > figcaption")
      .filter((node) => node.parentElement.checkVisibility() && !node.checkVisibility()).map(text),
    torn: all("article th[scope=col]").filter((cell) => cell.checkVisibility()).flatMap(torn),
    pictures: all(".cell_output img").filter((one) => one.getBoundingClientRect().width).map((one) =>
      [one.closest(".ssm-slider") !== null, one.getBoundingClientRect().width / one.naturalWidth]),
    low: all("article *:not(mjx-container *)").filter((node) => words(node) && node.checkVisibility()
      && parseFloat(getComputedStyle(node).fontSize) < 12).map(text),
    shift: window.shift,
  };
}"""


# The state of a slider: its value as a number, said and written, and the frames that are seen.
SLIDER = """(figure) => {
  const input = figure.querySelector(".ssm-slider-control :is(input, select)"), menu = input.options;
  const frames = [...figure.querySelectorAll(".ssm-slider-frames > div")];
  const seen = frames.map((frame) => frame.querySelector("img")).filter(
    (image) => image.offsetParent !== null && image.naturalWidth > 0);
  return {
    value: Number(input.value),
    last: menu ? menu.length - 1 : Number(input.max),
    named: input.labels.length === 1 && input.labels[0].textContent.trim() !== "",
    said: menu ? input.selectedOptions[0].text : input.getAttribute("aria-valuetext"),
    written: menu ? frames[input.value].dataset.value : figure.querySelector("output").textContent,
    frames: frames.length,
    seen: seen.map((image) => [image.src, image.alt]),
  };
}"""


def finger(page, start, by, moves=12):
    """Put a finger on a point of the window, move it and lift it, by the browser's own touch.

    What comes of it is the browser's choice, as on a phone: it drags, or it scrolls and cancels the pointer.
    """
    touch = page.context.new_cdp_session(page)

    def send(kind, *points):
        places = [{"x": x, "y": y} for x, y in points]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    send("touchStart", start)
    for i in range(1, moves + 1):
        send("touchMove", (start[0] + by[0] * i / moves, start[1] + by[1] * i / moves))
        page.wait_for_timeout(16)
    send("touchEnd")
    touch.detach()


@dataclass
class Visit:
    """What a page did when it was opened: its requests and its messages."""

    page: object
    requests: list
    messages: list

    @property
    def facts(self):
        """What is seen of the page now."""
        return self.page.evaluate(FACTS)


def visited(page, address):
    """The ``Visit`` of a page that is opened here, once formulas and fonts stand."""
    requests, messages = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on(  # what a page had asked for when it was left is no failure
        "requestfailed",
        lambda request: "ABORTED" in request.failure or messages.append(f"failed: {request.url}"),
    )
    page.on("pageerror", lambda error: messages.append(f"error: {error}"))
    page.on("console", lambda said: messages.append(said.text) if said.type in ("error", "warning") else None)
    page.goto(address)
    page.evaluate(UNCOVER)
    page.evaluate(SETTLED)
    return Visit(page, requests, messages)


def turn(page, view):
    """Show an open page as the view has it: its window and its mode."""
    page.set_viewport_size(VIEWS[view]["viewport"])
    page.emulate_media(
        color_scheme=VIEWS[view]["color_scheme"], media="print" if view == "paper" else "screen"
    )
    page.evaluate("(on) => document.documentElement.classList.toggle('presenting', on)", view == "room")
    page.evaluate(SETTLED)
    page.evaluate("document.getAnimations().forEach((one) => one.finish())")  # a color on its way to another


def steps(slider):
    """The states of a slider on its way from Home to End by the arrow keys."""
    control = slider.locator(".ssm-slider-control :is(input, select)")
    control.focus()
    control.press("Home")
    found = [slider.evaluate(SLIDER)]
    for _ in range(found[0]["last"]):
        control.press("ArrowRight")
        found.append(slider.evaluate(SLIDER))
    return found
