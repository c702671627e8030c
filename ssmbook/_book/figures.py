"""The figure pack for lecturers: figures and sliders at twice the density of the page, with their captions.

python -m ssmbook._book.figures    # of the built book: runs every notebook again, into _build/figures
"""

import base64
import shutil

from nbformat.v4 import new_code_cell

from ssmbook._book.built import HTML, soup
from ssmbook._book.edition import with_notebook
from ssmbook._book.install_cell import repository
from ssmbook._book.notebooks import execute, read
from ssmbook._book.plain_markdown import markdown
from ssmbook._book.root import book_root
from ssmbook._book.site import pages_address

TARGET = "_build/figures"
DENSITY = 2
# What a notebook would run first if it drew for a wall. Four times the pixels want more bytes and any colors.
DENSER = f"""from ssmbook.display import _show, _slider
_show.FIGURE_DPI, _show.FIGURE_BYTES = {DENSITY} * _show.FIGURE_DPI, 16 * _show.FIGURE_BYTES
_slider.FRAME_DPI, _slider.FRAME_BYTES = {DENSITY} * _slider.FRAME_DPI, 16 * _slider.FRAME_BYTES"""
LICENSE = "CC BY 4.0: use them, change them, and say where they come from."


def named(notebook):
    """{name: PNG as bytes} of every figure with a name, as in the notebook's outputs."""
    found = {}
    for cell in notebook.cells:
        name = cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
        for output in cell.get("outputs", []):
            picture = output.get("data", {}).get("image/png")
            if name and picture:
                found[name] = base64.b64decode(picture)
    return found


def dense(root, docname):
    """{name: PNG as bytes} of a notebook's figures, drawn again at twice the density."""
    path = root / f"{docname}.ipynb"
    notebook = read(path)
    notebook.cells.insert(0, new_code_cell(DENSER))
    return named(execute(notebook, path.parent, path.name))


def captions(root, docname):
    """{name: Markdown of number, caption and where it stands} of a built page's figures."""
    address = f"{pages_address(repository(root)[0])}{docname}.html"
    found = {}
    for caption in soup(root / HTML / f"{docname}.html").select("article figcaption:has(.caption-number)"):
        name = caption.find_parent(id=True)["id"]
        number = caption.find(class_="caption-number").get_text().strip()
        words = markdown([caption.find(class_="caption-text")], address)
        found[name] = f"**[{number}]({address}#{name}).** {words}"
    return found


def main():
    root = book_root()
    target = root / TARGET
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    lines = ["# Figures of Heads and States", "", LICENSE]
    for docname in with_notebook(root):
        words = captions(root, docname)
        for name, picture in dense(root, docname).items():
            (target / f"{name}.png").write_bytes(picture)
            lines += ["", f"![]({name}.png)", "", words[name]]
        print(docname, flush=True)
    (target / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(list(target.glob('*.png')))} figures, with their captions in README.md: {target}")


if __name__ == "__main__":
    main()
