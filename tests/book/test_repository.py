"""The repository: small, its own, and naming one address."""

import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
import yaml

from headsandstates.site.install_cell import install_source, repository
from headsandstates.site.publish import publish
from headsandstates.site.release import HISTORY, NAMES_THE_VERSION, VERSION, release, tag
from ssmbook import __version__

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 1_500_000
STYLES = "book face handout lab lectures palette paper present previews print slider swap"
SCRIPTS = (
    "eigen face film fold formulas heads lab lectures mode predict present previews print search slider "
    "stage swap"
)
OURS = {f"{name}.css" for name in STYLES.split()} | {f"{name}.js" for name in SCRIPTS.split()}

ELSEWHERE = {"ssmbook/lens/report.js", "ssmbook/lens/report.css", "headsandstates/site/typeset.js"}


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
    homes = {"lab": "headsandstates/lab", "palette": "ssmbook/display"}
    places = {f"{homes.get(name.partition('.')[0], 'chapters/assets')}/{name}" for name in OURS}
    assert found <= places | ELSEWHERE


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


ANY_ADDRESS = re.compile(
    r"https://(?:colab\.research\.google\.com/github|github\.com)/([\w-]+/[\w-]+(?:\.[\w-]+)*)"
    r"|https://([\w-]+)\.github\.io/([\w-]+(?:\.[\w-]+)*)"
)


def own_addresses(root):
    """{OWNER/REPO in lower case: the files and install cells that name it as the book's own}."""
    found = {}
    texts = {
        name: (root / name).read_text(encoding="utf-8")
        for name in ("README.md", "CITATION.cff", "pyproject.toml")
    }
    for path in sorted((root / "chapters").rglob("*.ipynb")):
        texts[path.name] = "".join(re.findall(r"git\+https://[\w./-]+", path.read_text(encoding="utf-8")))
    for name, text in texts.items():
        for match in ANY_ADDRESS.finditer(text):
            found.setdefault((match[1] or f"{match[2]}/{match[3]}").lower(), []).append(name)
    return found


def tracked_copy(folder):
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    for command in ("init --quiet", "add --all"):
        subprocess.run(["git", *command.split()], cwd=folder, check=True)
    return folder


def test_every_file_names_the_one_address_of_the_book():
    url, _ = repository(ROOT)
    own = url.removeprefix("https://github.com/").lower()
    assert set(own_addresses(ROOT)) == {own}, own_addresses(ROOT)


def test_one_command_publishes_under_another_address_and_author(tmp_path):
    root = tracked_copy(tmp_path)
    old, _ = repository(ROOT)
    author = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["author"]
    for slug, name in (("Some-One/a.book", "Ada Lovelace"), ("two/attention", " Ada King ")):
        changed = publish(root, slug, name)
        assert {"README.md", "CITATION.cff", "_config.yml", "LICENSE", "pyproject.toml"} <= set(changed)
        assert set(own_addresses(root)) == {slug.lower()}
        everything = subprocess.run(
            ["git", "grep", "-hI", "", ":!tests"], cwd=root, capture_output=True, text=True
        ).stdout
        assert old not in everything and old.split("/")[3] not in everything and author not in everything
        old, author = f"https://github.com/{slug}", name.strip()
    assert "placeholder" not in (root / "README.md").read_text(encoding="utf-8")
    assert "cd attention\n" in (root / "README.md").read_text(encoding="utf-8")
    notebook = root / "chapters" / "preface.ipynb"
    assert install_source(root, nbformat.read(notebook, 4)) in [
        c.source for c in nbformat.read(notebook, 4).cells
    ]
    for slug in ("", "no-repo", "a/b/c", "a/.", "a/..", "a/b.git", "a/bé", "ä/b"):
        with pytest.raises(ValueError, match="OWNER/REPO on GitHub; got " + re.escape(repr(slug))):
            publish(root, slug, "Ada King")
    for name in ("", " ", "B: C", "{B}"):
        with pytest.raises(ValueError, match="the author is a name"):
            publish(root, "a/b", name)
    (root / "LICENSE").write_text("Copyright (c) 2026 Ada Byron\n", encoding="utf-8")
    before = (root / "README.md").read_bytes()
    with pytest.raises(ValueError, match="^LICENSE must name the author 'Ada King'"):
        publish(root, "a/b", "Ada Byron")
    assert (root / "README.md").read_bytes() == before


def test_make_passes_the_address_and_the_author_and_runs_nothing_of_them():
    """Under -n only a recipe with + runs: it says what the environment of the command holds."""
    shows = ["--eval", "publish-as: shown", "--eval", "shown: ; +@printenv PUBLISHED_AUTHOR || echo nobody"]

    def lines(*arguments):
        ran = subprocess.run(["make", "-n", *shows, *arguments], cwd=ROOT, capture_output=True, text=True)
        said = ran.stdout.splitlines()
        return [line for line in said if "site.publish" in line] + said

    name = "Ada `echo ran` O'Neil"
    said = lines("publish-as", "some-one/a.book", f"AUTHOR={name}")
    assert said[0].endswith('publish "some-one/a.book" "$PUBLISHED_AUTHOR"') and name in said
    said = lines("publish-as")
    assert said[0].endswith('publish "" "$PUBLISHED_AUTHOR"') and "" in said
