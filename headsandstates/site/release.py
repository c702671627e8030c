"""The version: its place is ``ssmbook.__version__``; every other mention is written from there.

    make version                  # releases the present version: dates its entry in CHANGELOG.md
    make version VERSION=0.2.0    # opens the next one, here and in every file that names one

Commit and set the tag after the first. Both write every notebook's install cell anew: that of a released
version names its tag alone; while one is in the making, it falls back to the branch.
"""

import datetime
import re
import sys

from headsandstates.site.root import book_root
from ssmbook import __version__

PLACE = "ssmbook/__init__.py"
HISTORY = "CHANGELOG.md"
NAMES_THE_VERSION = ("README.md", "CITATION.cff", HISTORY)
# In Python, in an address of this repository, in CITATION.cff, in BibTeX, and as a heading of CHANGELOG.md.
VERSION = re.compile(
    r"(?:__version__ = \"|[@/]v|^version: |\{Version |^## )(\d+\.\d+\.\d+)(?![\w.])", re.MULTILINE
)
OPEN = "in the making"
NEW_ENTRY = f"## {{new}} ({OPEN})\n\n- \n\n## {{old}}"


def tag():
    """The name of the present version's tag."""
    return f"v{__version__}"


def in_the_making(root):
    """Whether the present version, the first entry of the history at ``root``, is not released yet."""
    history = (root / HISTORY).read_text(encoding="utf-8")
    return OPEN in re.search(r"^## (.*)", history, re.MULTILINE)[1]


def release(root, day):
    """Date the first entry of the history. Raises ValueError if it has its date."""
    if not in_the_making(root):
        raise ValueError(f"{__version__} is released: call this with the version that follows")
    path = root / HISTORY
    history = path.read_text(encoding="utf-8")
    path.write_text(history.replace(f"({OPEN})", f"({day})", 1), encoding="utf-8")


def bump(root, new):
    """Write the version ``new`` into every file at ``root`` that names one, and open its entry.

    Raises ValueError unless ``new`` has the form 1.2.3 and differs from the present version.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", new) or new == __version__:
        raise ValueError(f"a new version has the form 1.2.3 and is not {__version__}; got {new}")
    for name in (PLACE, *NAMES_THE_VERSION):
        path = root / name
        text = path.read_text(encoding="utf-8")
        if name == HISTORY:
            old = f"## {__version__}"
            text = text.replace(old, NEW_ENTRY.format(new=new, old=__version__), 1)
        else:
            text = VERSION.sub(lambda found: found[0].replace(__version__, new), text)
        path.write_text(text, encoding="utf-8")


def main(arguments):
    if arguments:
        bump(book_root(), arguments[0])
        print(f"This is now version {arguments[0]}, in the making. Say in {HISTORY} what it brings.")
    else:
        release(book_root(), datetime.date.today())
        print(f"Version {__version__} has its date. Look through the changes, commit, and set {tag()}.")


if __name__ == "__main__":
    main(sys.argv[1:])
