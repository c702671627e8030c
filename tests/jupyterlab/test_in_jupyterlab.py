"""The notebook edition in a real JupyterLab: titles stand, unrun sliders are short, live ones move.

`make test-lab` installs JupyterLab and runs this; so does the weekly workflow. Nothing else needs JupyterLab.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect, sync_playwright

from headsandstates.site.browser import QUIET, find
from headsandstates.site.edition import TARGET

ROOT = Path(__file__).resolve().parents[2]
EDITION = ROOT / TARGET / "chapters"
THEOREMS, SLIDER = "3-three-theorems/head-count.ipynb", "1-one-operator/two-ways-to-mix.ipynb"
LABORATORY, READ_BACK = "laboratory.ipynb", "print('read back:', lab.address)"
MINUTE = 60_000
OPTIONS = {
    "ServerApp.open_browser": False,
    "ServerApp.port_retries": 0,
    "IdentityProvider.token": "",
    "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    "LabApp.news_url": None,
}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Address of a JupyterLab with copies of three notebooks of the edition."""
    folder = tmp_path_factory.mktemp("lab")
    for name in (THEOREMS, SLIDER, LABORATORY):
        if not (EDITION / name).is_file():
            pytest.fail("The notebook edition is not built: run `make test-lab`, which builds it first.")
        shutil.copyfile(EDITION / name, folder / Path(name).name)
    notebook = nbformat.read(folder / LABORATORY, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(READ_BACK))
    nbformat.write(notebook, folder / LABORATORY)
    port = free_port()
    options = [f"--{name}={value}" for name, value in OPTIONS.items()]
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", f"--ServerApp.port={port}", *options]
    settings = folder / ".settings"
    place = settings / "@jupyterlab/notebook-extension/tracker.jupyterlab-settings"
    place.parent.mkdir(parents=True)
    place.write_text('{"windowingMode": "none"}')  # every cell is drawn, not those in view alone
    environ = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folder / ".config"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
    }
    log = (folder / "server.log").open("w")
    server = subprocess.Popen(
        [*command, f"--ServerApp.root_dir={folder}"], env=environ, stdout=log, stderr=log
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/api", server, folder / "server.log")
        yield f"http://127.0.0.1:{port}/lab/tree/"
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def wait_for(address, server, log):
    for _ in range(240):
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.5)
    pytest.fail(f"JupyterLab did not start: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find(), args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture
def open_notebook(browser, lab):
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(2 * MINUTE)
    expect.set_options(timeout=2 * MINUTE)

    def opened(name):
        page.goto(f"{lab}{Path(name).name}?reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_selector(".jp-MarkdownCell h1")
        return page

    yield opened
    page.close()


def test_statements_have_their_kind_number_title_and_no_markup(open_notebook):
    cells = nbformat.read(EDITION / THEOREMS, as_version=4).cells
    written = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    titles = re.findall(r"^> \*\*(Theorem|Proposition|Definition|Exercise) ([\d.]+)\*\* \(", written, re.M)
    assert len(titles) >= 5 and ("Theorem", "7.1") in titles
    page = open_notebook(THEOREMS)
    for kind, number in titles:
        expect(page.locator(".jp-Notebook")).to_contain_text(f"{kind} {number} (")
    text = page.locator(".jp-Notebook").inner_text()
    assert "Theorem 7.1 (Head Count)" in text
    assert "∎" in page.locator(".jp-Notebook").text_content()  # proofs are folded
    assert not re.search(r":::|:label:|\{prf:ref\}|\{doc\}|\{numref\}|\{cite", text)


def test_a_slider_that_was_not_run_is_one_frame_high(open_notebook):
    page = open_notebook(SLIDER)
    slider = page.locator("figure.ssm-slider").first
    slider.scroll_into_view_if_needed()
    frames = slider.locator(".ssm-slider-frames > div")
    expect(frames.locator("visible=true")).not_to_have_count(0)
    seen = [frame for frame in frames.all() if frame.is_visible()]
    assert frames.count() > 3 and len(seen) == 1
    assert slider.bounding_box()["height"] < 2 * seen[0].bounding_box()["height"]


def test_a_live_slider_moves_with_the_arrow_keys(open_notebook):
    page = open_notebook(SLIDER)
    page.locator(".jp-Notebook .jp-Cell").first.click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    handle = page.locator(".jupyter-widgets .noUi-handle").first
    picture = page.locator(".jupyter-widgets img").first
    before = picture.get_attribute("alt"), picture.get_attribute("src")
    handle.focus()
    page.keyboard.press("ArrowRight")
    expect(picture).not_to_have_attribute("alt", before[0])
    assert picture.get_attribute("src") != before[1]


def test_what_is_moved_in_the_laboratory_is_read_back(open_notebook):
    page = open_notebook(LABORATORY)
    page.locator(".jp-Notebook .jp-Cell").first.click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    last = page.locator(".jp-CodeCell").last
    expect(last.locator(".jp-OutputArea-output")).to_contain_text("read back: system&n=16")
    before = last.locator(".jp-OutputArea-output").inner_text()
    pole = page.locator(".lab-board .lab-handle").first
    pole.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(1000)  # kept after a rest of the hand
    last.locator(".jp-InputArea-editor").click()
    page.keyboard.press("Control+Enter")
    expect(last.locator(".jp-OutputArea-output")).not_to_have_text(before)
    assert "read back: system&n=16" in last.locator(".jp-OutputArea-output").inner_text()
