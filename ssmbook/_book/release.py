"""The version: it stands in ``ssmbook.__version__``; what else names it is written from there.

    python -m ssmbook._book.release 0.2.0    # the next version, here and in every file that names one

Release a version: date its entry in CHANGELOG.md, commit, set the tag, then call this for the one that
follows. Until its tag exists, notebooks fall back to the branch (see ``edition.install_source``).
"""

import re
import sys

from ssmbook import __version__
from ssmbook._book.notebooks import book_root

PLACE = "ssmbook/__init__.py"
NAMES_THE_VERSION = ("README.md", "CITATION.cff", "CHANGELOG.md")
# In Python, in an address of this repository, in CITATION.cff, in BibTeX, and as a heading of CHANGELOG.md.
VERSION = re.compile(
    r"(?:__version__ = \"|[@/]v|^version: |\{Version |^## )(\d+\.\d+\.\d+)(?![\w.])", re.MULTILINE
)
NEW_ENTRY = "## {new} (in the making)\n\n- \n\n## {old}"


def tag(version=__version__):
    """The name of a version's tag."""
    return f"v{version}"


def bump(root, new):
    """Write the version ``new`` into every file at ``root`` that names one, and open its entry.

    Raises ValueError unless ``new`` has the form 1.2.3 and differs from the present version.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", new) or new == __version__:
        raise ValueError(f"a new version has the form 1.2.3 and is not {__version__}; got {new}")
    for name in (PLACE, *NAMES_THE_VERSION):
        path = root / name
        text = path.read_text(encoding="utf-8")
        if name == "CHANGELOG.md":
            old = f"## {__version__}"
            text = text.replace(old, NEW_ENTRY.format(new=new, old=__version__), 1)
        else:
            text = VERSION.sub(lambda found: found[0].replace(__version__, new), text)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    bump(book_root(), sys.argv[1])
    print(f"This is now version {sys.argv[1]}, in the making. Say in CHANGELOG.md what it brings.")
