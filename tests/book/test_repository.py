"""The repository: small, its own, and naming one address."""

import subprocess
from pathlib import Path

import pytest

from ssmbook._book.install_cell import repository

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 1_500_000
OUR_SCRIPTS_AND_STYLES = {
    "chapters/assets/book.css",
    "chapters/assets/mode.js",
    "chapters/assets/search.js",
    "chapters/assets/slider.css",
    "chapters/assets/paper.css",
    "chapters/assets/present.css",
    "chapters/assets/present.js",
    "chapters/assets/print.css",
    "chapters/assets/print.js",
    "chapters/assets/fold.js",
    "chapters/assets/slider.js",
    "chapters/assets/slides.css",
    "chapters/assets/slides.js",
}


@pytest.fixture(scope="module")
def files():
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    result = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        pytest.skip("not a git checkout")
    return [name for name in result.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_is_large(files):
    large = {name: (ROOT / name).stat().st_size for name in files if (ROOT / name).stat().st_size > LARGEST}
    assert not large


def test_scripts_and_styles_are_our_own(files):
    assert {
        name for name in files if name.endswith((".js", ".css", ".woff", ".woff2", ".ttf"))
    } <= OUR_SCRIPTS_AND_STYLES


def test_the_address_is_the_same_everywhere():
    url, _ = repository(ROOT)
    for name in ("README.md", "CITATION.cff", "pyproject.toml"):
        assert url in (ROOT / name).read_text(encoding="utf-8"), name
