"""The wheel: the library and the book's package whole, their licenses, and nothing that binds the book."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ssmbook

Metadata = pytest.importorskip("packaging.metadata").Metadata
ROOT = Path(__file__).resolve().parents[2]
LICENSES = ("LICENSE", "LICENSE-TEXT")


def tracked(*paths):
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    result = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        pytest.skip("not a git checkout")
    return [name for name in result.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy: setuptools leaves its build folder beside the source."""
    pytest.importorskip("setuptools", minversion="77")
    copy, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked("ssmbook", "headsandstates", "pyproject.toml", "README.md", *LICENSES):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    code = f"from setuptools import build_meta; build_meta.build_wheel({str(dist)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        yield wheel


def library_files():
    return {
        name
        for name in tracked("ssmbook", "headsandstates")
        if not name.startswith("headsandstates/site/")
        and name.endswith((".py", ".js", ".css", ".json", ".safetensors", "py.typed"))
    }


def test_the_wheel_is_the_library_without_the_books_tooling(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == library_files()
    assert "ssmbook/py.typed" in names and any(name.endswith(".json") for name in names)


def test_the_metadata_is_what_an_index_accepts(wheel):
    """Parsed strictly, as an index does on upload: license, addresses, and a description that it can show."""
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Metadata.from_email(wheel.read(path), validate=True)
    kept = {Path(name).name for name in wheel.namelist() if ".dist-info/licenses/" in name}
    assert kept == set(LICENSES) and str(metadata.license_expression) == "MIT"
    assert str(metadata.version) == ssmbook.__version__
    assert metadata.project_urls.keys() >= {"Repository", "Issues"}
    assert metadata.keywords and "Typing :: Typed" in metadata.classifiers
    assert metadata.description_content_type.startswith("text/markdown")
    assert metadata.description.startswith("# Heads and States")
    assert metadata.summary and "\n" not in metadata.summary and len(metadata.summary) <= 512


def test_every_module_of_the_wheel_imports_without_the_checkout(wheel, tmp_path):
    wheel.extractall(tmp_path)
    code = (
        "import importlib, importlib.util, pathlib, sys\n"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in getattr(f, '__module__', '')]\n"
        "import ssmbook\n"
        "assert pathlib.Path(ssmbook.__file__).parent == pathlib.Path('ssmbook').resolve()\n"
        "assert importlib.util.find_spec('headsandstates.site') is None\n"
        "for file in pathlib.Path().rglob('*.py'):\n"
        "    module = '.'.join(file.with_suffix('').parts).removesuffix('.__init__')\n"
        "    try:\n"
        "        importlib.import_module(module)\n"
        "    except ModuleNotFoundError as error:\n"
        "        if (module, error.name) != ('ssmbook.scans.fast.kernels', 'triton'): raise\n"
        "    print(module)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert not result.returncode, result.stderr
    modules = {name for name in library_files() if name.endswith(".py")}
    assert len(result.stdout.split()) == len(modules)
