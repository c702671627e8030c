"""Run notebooks of the edition as Colab would, and compare every output with the book's.

    python -m ssmbook._book.as_colab _build/edition/chapters/*/*.ipynb    # after `make edition`

Each notebook gets what a fresh Colab session has: an empty folder, the packages of
tests/colab/requirements.txt, no ssmbook. Its first cell installs the library from the address that readers
have, which git is told to find in this checkout's last commit. What else is installed must stay as it was.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from ssmbook._book.install_cell import repository
from ssmbook._book.notebooks import ONE_THREAD, execute, read
from ssmbook._book.release import in_the_making, tag
from ssmbook._book.root import NotebookError, book_root
from ssmbook._book.stable_form import IMAGES, normalize

REQUIREMENTS = "tests/colab/requirements.txt"
VENV = "_build/colab"
KERNEL_NAME = "colab"


def colab_python(root):
    """The Python of a virtual environment with Colab's packages; made on the first call."""
    python = root / VENV / "bin/python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", root / VENV], check=True)
        pip(python, "install", "--requirement", root / REQUIREMENTS)
    return python


def pip(python, *arguments):
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def redirect(root, folder):
    """Settings for git under which the book's published address means this checkout's last commit."""
    url, branch = repository(root)
    name = f"heads/{branch}" if in_the_making(root) else f"tags/{tag()}"
    bare = folder / "remote" / urlsplit(url).path.strip("/")
    subprocess.run(["git", "init", "--quiet", "--bare", bare], check=True)
    subprocess.run(["git", "push", "--quiet", bare, f"HEAD:refs/{name}"], check=True, cwd=root)
    host = "{0.scheme}://{0.netloc}/".format(urlsplit(url))
    settings = folder / "gitconfig"
    settings.write_text(f'[url "{(folder / "remote").as_uri()}/"]\n\tinsteadOf = {host}\n', encoding="utf-8")
    return settings


def write_kernel(python, folder, git_settings):
    """A kernel of Colab's packages in which ``google.colab`` is loaded, as it is there."""
    stub = folder / "stub"
    (stub / "google/colab").mkdir(parents=True)
    (stub / "google/colab/__init__.py").touch()
    (stub / "sitecustomize.py").write_text("import google.colab\n", encoding="utf-8")
    bin_first = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"  # for `!pip`
    environ = {
        **ONE_THREAD,
        "PYTHONPATH": str(stub),
        "NUMBA_CACHE_DIR": str(folder / "numba"),  # beside the library it would outlive its removal
        "GIT_CONFIG_GLOBAL": str(git_settings),
        "PATH": bin_first,
    }
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Colab", "language": "python", "env": environ}
    place = folder / "kernels" / KERNEL_NAME
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")


def shown(cell):
    """What is compared of a code cell's outputs: every text form; pictures are not, their words are."""
    found = []
    for output in cell.outputs:
        data = dict(output.get("data", {}))
        slider = data.get("text/plain", "").startswith("Slider ")
        for kind in (*IMAGES, *(["text/html"] if slider else [])):  # Colab gets the widget alone
            data.pop(kind, None)
        text = output.get("text", output.get("evalue", ""))
        found.append((output.output_type, output.get("name", ""), text, data))
    return found


def differences(expected, got):
    """One line for each code cell whose outputs differ."""
    pairs = zip(normalize(expected).cells, normalize(got).cells, strict=True)
    return [
        f"cell {number}: {shown(old)} became {shown(new)}"
        for number, (old, new) in enumerate(pairs)
        if old.cell_type == "code" and shown(old) != shown(new)
    ]


def run(path, python, folder):
    """Run one notebook in an empty folder without ssmbook; return what is wrong with it."""
    before = pip(python, "freeze").splitlines()
    expected, plain = read(path), read(path)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            got = execute(plain, empty, path.name, kernel_name=KERNEL_NAME)
        changed = set(before) ^ set(pip(python, "freeze").splitlines())
    except NotebookError as error:
        return [str(error)]
    finally:
        pip(python, "uninstall", "--yes", "ssmbook")
    ours = {line for line in changed if line.startswith("ssmbook")}
    wrong = [f"installed or removed: {line}" for line in sorted(changed - ours)]
    if not ours:
        wrong.append("the first cell did not install the library")
    return wrong + differences(expected, got)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m ssmbook._book.as_colab", description=__doc__)
    parser.add_argument("notebooks", nargs="+", type=Path, help="notebooks of the edition")
    options = parser.parse_args(arguments)
    root, failed = book_root(), 0
    python = colab_python(root)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_kernel(python, folder, redirect(root, folder))
        os.environ["JUPYTER_PATH"] = str(folder)
        for path in options.notebooks:
            wrong = run(path, python, folder)
            failed += bool(wrong)
            print(path, *(wrong or ["runs, and every output is the same"]), sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
