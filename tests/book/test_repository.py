"""The repository: small, its own, and naming one address."""

import re
import subprocess
from pathlib import Path

import pytest

from ssmbook import __version__
from ssmbook._book.install_cell import install_source, repository
from ssmbook._book.release import (
    HISTORY,
    NAMES_THE_VERSION,
    VERSION,
    release,
    tag,
)

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 1_500_000
OURS = set("book.css paper.css present.css print.css slider.css slides.css".split()) | set(
    "fold.js mode.js predict.js present.js print.js search.js slider.js slides.js".split()
)


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
    found = {name for name in files if name.endswith((".js", ".css", ".woff", ".woff2", ".ttf"))}
    assert found <= {f"chapters/assets/{name}" for name in OURS}


def test_the_version_is_the_same_everywhere():
    for name in NAMES_THE_VERSION:
        versions = VERSION.findall((ROOT / name).read_text(encoding="utf-8"))
        assert versions[0] == __version__, name
        assert set(versions) == {__version__} or name == "CHANGELOG.md", name
    assert f"@{tag()}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def unreleased(tmp_path):
    """A folder with what the install cell is made from, its version in the making."""
    history = (ROOT / HISTORY).read_text(encoding="utf-8")
    opened = re.sub(r"\(\d.*?\)", "(in the making)", history, count=1)
    (tmp_path / HISTORY).write_text(opened, encoding="utf-8")
    (tmp_path / "_config.yml").write_bytes((ROOT / "_config.yml").read_bytes())
    return tmp_path


def asked_of_pip(root, folder, there):
    """What the install cell of the book at ``root`` asks for, and whether it gets it, if ``there`` exists."""
    pip = folder / "pip"
    pip.write_text(f'#!/bin/sh\necho "$3"\ncase "$3" in *@{there}) ;; *) exit 1;; esac\n')
    pip.chmod(0o755)
    command = install_source(root).splitlines()[-1].strip().removeprefix("!").replace("{book}", "LIBRARY")
    assert "{" not in command
    environ = {"PATH": f"{folder}:/usr/bin:/bin"}
    ran = subprocess.run(command, shell=True, env=environ, capture_output=True, text=True)
    return ran.stdout.split(), not ran.returncode


def test_a_version_in_the_making_installs_its_tag_or_else_the_branch(unreleased):
    by_tag, by_branch = f"LIBRARY@{tag()}", f"LIBRARY@{repository(ROOT)[1]}"
    assert asked_of_pip(unreleased, unreleased, tag()) == ([by_tag], True)
    assert asked_of_pip(unreleased, unreleased, repository(ROOT)[1]) == ([by_tag, by_branch], True)


def test_a_released_version_installs_its_tag_and_nothing_that_moves(unreleased):
    release(unreleased, "2026-12-01")
    assert f"## {__version__} (2026-12-01)\n" in (unreleased / HISTORY).read_text(encoding="utf-8")
    assert asked_of_pip(unreleased, unreleased, tag()) == ([f"LIBRARY@{tag()}"], True)
    assert asked_of_pip(unreleased, unreleased, repository(ROOT)[1]) == ([f"LIBRARY@{tag()}"], False)
    with pytest.raises(ValueError, match=f"{__version__} is released"):
        release(unreleased, "2026-12-02")


def test_the_address_is_the_same_everywhere():
    url, _ = repository(ROOT)
    for name in ("README.md", "CITATION.cff", "pyproject.toml"):
        assert url in (ROOT / name).read_text(encoding="utf-8"), name
