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
    PLACE,
    VERSION,
    bump,
    in_the_making,
    release,
    tag,
)

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


def test_the_version_is_the_same_everywhere():
    for name in NAMES_THE_VERSION:
        versions = VERSION.findall((ROOT / name).read_text(encoding="utf-8"))
        assert versions[0] == __version__, name
        assert set(versions) == {__version__} or name == "CHANGELOG.md", name
    assert f"@{tag()}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_new_version_is_written_wherever_one_stands(tmp_path):
    (tmp_path / "ssmbook").mkdir()
    for name in (*NAMES_THE_VERSION, PLACE):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    bump(tmp_path, "17.4.2")
    for name in (*NAMES_THE_VERSION, PLACE):
        versions = VERSION.findall((tmp_path / name).read_text(encoding="utf-8"))
        assert versions and versions[0] == "17.4.2", name
        assert __version__ not in versions or name == "CHANGELOG.md", name
    history = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert history.index("## 17.4.2") < history.index(f"## {__version__}")


@pytest.fixture
def unreleased(tmp_path):
    """A folder with what the install cell is made from, its version in the making."""
    history = (ROOT / HISTORY).read_text(encoding="utf-8")
    (tmp_path / HISTORY).write_text(
        re.sub(r"\(\d.*?\)", "(in the making)", history, count=1), encoding="utf-8"
    )
    (tmp_path / "_config.yml").write_bytes((ROOT / "_config.yml").read_bytes())
    assert in_the_making(tmp_path)
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


@pytest.mark.parametrize("wrong", ["1.2", "v1.2.3", "1.2.3rc1", __version__])
def test_what_is_no_new_version_is_refused(wrong):
    with pytest.raises(ValueError, match="a new version has the form 1.2.3"):
        bump(ROOT, wrong)


def test_the_address_is_the_same_everywhere():
    url, _ = repository(ROOT)
    for name in ("README.md", "CITATION.cff", "pyproject.toml"):
        assert url in (ROOT / name).read_text(encoding="utf-8"), name
