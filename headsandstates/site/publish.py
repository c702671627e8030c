"""Publish the book under its owner's address and name, wherever a file contains them.

    make publish-as OWNER/REPO AUTHOR="First Last"

The present ones stand in ``_config.yml``, so a second call with another address or author works as well.
"""

import re
import subprocess
import sys

import yaml

from headsandstates.site.root import book_root
from headsandstates.site.site import pages_address

# In _config.yml, CITATION.cff, BibTeX and the licenses.
BEFORE_THE_AUTHOR = r"(^author: |- name: |\{\{|Copyright \(c\) \d{4} )"
REPOSITORY = r"[a-z0-9][a-z0-9-]{0,38}/(?!\.{1,2}$)[\w.-]{1,100}(?<!\.git)"  # OWNER/REPO
NAME_THE_AUTHOR = ("_config.yml", "CITATION.cff", "README.md", "LICENSE", "LICENSE-TEXT")
NOTE = re.compile(r"<!-- until it is published -->\n.*?<!-- /until -->\n\n", re.DOTALL)  # in README.md


def addresses(slug):
    """Return every form in which files contain the address of the repository OWNER/REPO."""
    github = f"https://github.com/{slug}"
    return [github, f"https://colab.research.google.com/github/{slug}", pages_address(github).rstrip("/")]


def publish(root, slug, author):
    """Write the address OWNER/REPO and the author into all files; return {file: places changed}."""
    author = author.strip()
    if not re.fullmatch(REPOSITORY, slug, re.ASCII | re.I):
        raise ValueError(f"the address is the repository's OWNER/REPO on GitHub; got {slug!r}")
    if not author or re.search(r"[:#{}\"\\\n]", author):
        raise ValueError(f'the author is a name without : # {{ }} " \\ (YAML, BibTeX); got {author!r}')
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    old = settings["repository"]["url"].removeprefix("https://github.com/")
    place = re.compile(BEFORE_THE_AUTHOR + re.escape(settings["author"]) + r"(?=$|\}\})", re.MULTILINE)
    changed, places = {}, {}
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    for name in tracked.stdout.split("\0"):
        try:
            before = text = (root / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, IsADirectoryError, FileNotFoundError):
            continue
        text, places[name] = place.subn(lambda match: match[1] + author, text)
        count = places[name]
        for was, now in zip(addresses(old), addresses(slug), strict=True):
            text, found = re.subn(re.escape(was) + r"(?![\w-])", now, text)
            count += found
        if name == "README.md":
            text = NOTE.sub("", text)
            text = text.replace(f"\ncd {old.split('/')[1]}\n", f"\ncd {slug.split('/')[1]}\n")
        if text != before:
            changed[name] = text, count
    without = [name for name in NAME_THE_AUTHOR if not places.get(name)]
    if without:
        raise ValueError(f"{', '.join(without)} must name the author {settings['author']!r} of _config.yml")
    for name, (text, _) in changed.items():
        (root / name).write_text(text, encoding="utf-8")
    return {name: count for name, (_, count) in changed.items()}


def main(slug, author):
    try:
        changed = publish(book_root(), slug, author)
    except ValueError as error:
        raise SystemExit(f'{error}\nmake publish-as OWNER/REPO AUTHOR="First Last"') from None
    for name, count in changed.items():
        print(f"{name}: {count}")
    print(f"The book is that of {slug} now. Look through the changes, commit, go on as in CONTRIBUTING.md.")


if __name__ == "__main__":
    main(*sys.argv[1:])
