"""One browser for each process, over the disk and over http; a page is opened once for all its views."""

import functools
import http.server
import re
import threading
import time
from pathlib import Path

import pytest
from browser.visit import COUNT_SHIFTS, VIEWS, visited
from playwright.sync_api import sync_playwright
from xdist.scheduler import LoadScopeScheduling

from headsandstates.site.browser import QUIET, find
from headsandstates.site.built import HTML, chapters

BUILT = Path(__file__).resolve().parents[2] / HTML


class ByPage(LoadScopeScheduling):
    """All tests of one page, the first word in their brackets, run in one process, which opens it once.

    (``--dist loadgroup`` would do the same; under pytest 9 it sends tests of one group anywhere.)
    """

    def _split_scope(self, nodeid):
        page = re.search(r"\[([\w-]+)[,\]]", nodeid)
        return page[1] if page else nodeid


def pytest_xdist_make_scheduler(config, log):
    return ByPage(config, log)


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
        pytest.fail("No Chromium here: `python -m headsandstates.site.browser` gets one, or says how.")
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
        return visited(context.new_page(), address)

    yield opened
    for context in contexts:
        context.close()


def _half_a_second_later(route):
    time.sleep(0.5)
    route.continue_()


@pytest.fixture(scope="session")
def look(browser):
    """Function of options, an address and what to do with its page: the result, kept for the process.

    Pages of the same options share one context; each is closed before the next is opened.
    """
    contexts, kept = {}, {}

    def looked(options, address, act):
        shared = str(options)
        if shared not in contexts:
            contexts[shared] = browser.new_context(**options)
        if (shared, address, act) not in kept:
            page = contexts[shared].new_page()
            kept[shared, address, act] = act(page, address)
            page.close()
        return kept[shared, address, act]

    yield looked
    for context in contexts.values():
        context.close()
