"""One browser for each process, over the disk and over http; each page is opened once in each view."""

import functools
import http.server
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from ssmbook._book.browser import QUIET, find
from ssmbook._book.built import HTML, chapters

BUILT = Path(__file__).resolve().parents[2] / HTML
VIEWS = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True},
}
COUNT_SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""
SETTLED = """async () => {
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  await document.fonts.ready;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
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
  return {
    theme: document.documentElement.dataset.theme,
    formulas: all(".math").length,
    untypeset: all(".math").filter((node) => !node.querySelector("mjx-container")).map(text),
    errors: all("mjx-merror, [data-mjx-error]").map(text),
    width: document.documentElement.scrollWidth - innerWidth,
    outside: all("article *:not(mjx-container *)").filter(sticksOut).map((n) => n.outerHTML.slice(0, 120)),
    shift: window.shift,
  };
}"""


@dataclass
class Visit:
    """What a page did when it was opened: its requests, its messages, and what is seen of it."""

    page: object
    requests: list
    messages: list
    facts: dict


@pytest.fixture(scope="session")
def built():
    if not chapters(BUILT):
        pytest.fail("The book is not built: run `make test-browser`, which builds it first.")
    return BUILT


@pytest.fixture(scope="session")
def disk(built):
    return built.as_uri() + "/"


@pytest.fixture(scope="session")
def web(built):
    """Address of the built book over http, served on this machine alone."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    handler = functools.partial(Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser():
    path = find()
    if not path:
        pytest.fail("No Chromium here: `python -m ssmbook._book.browser` gets one, or says how.")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """Function of an address and a view: a ``Visit`` once formulas and fonts stand, until the test ends."""
    contexts = []

    def opened(address, view="light", late=(), **options):
        context = browser.new_context(**(VIEWS[view] | options))
        contexts.append(context)
        context.add_init_script(COUNT_SHIFTS)
        if late:
            context.route(lambda url: url.split("?")[0].endswith(late), _half_a_second_later)
        return _visit(context.new_page(), address)

    yield opened
    for context in contexts:
        context.close()


def _half_a_second_later(route):
    time.sleep(0.5)
    route.continue_()


def _visit(page, address):
    requests, messages = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("requestfailed", lambda request: messages.append(f"failed: {request.url}"))
    page.on("pageerror", lambda error: messages.append(f"error: {error}"))
    page.on("console", lambda said: messages.append(said.text) if said.type in ("error", "warning") else None)
    page.goto(address)
    page.evaluate(SETTLED)
    return Visit(page, requests, messages, page.evaluate(FACTS))


@pytest.fixture(scope="session")
def kept():
    """The last visit of this process by (page, view): the tests of one page follow each other."""
    return {}


@pytest.fixture
def visit(request, kept, browser, disk):
    """The visit of the page and view that the test is parametrized with; the last one stays open."""
    key = request.getfixturevalue("name"), request.getfixturevalue("view")
    if key not in kept:
        while kept:
            kept.popitem()[1].page.context.close()
        context = browser.new_context(**VIEWS[key[1]])
        context.add_init_script(COUNT_SHIFTS)
        kept[key] = _visit(context.new_page(), f"{disk}{key[0]}.html")
    return kept[key]
