"""What the library says it needs: what it imports, no more, from versions that are tested."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOWEST = "tests/packaging/lowest.txt"
UNWANTED = set("IPython anywidget ipywidgets matplotlib PIL pytest scipy.optimize sympy transformers".split())


def project():
    tomllib = pytest.importorskip("tomllib")
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def declared(extras=False):
    """Name -> the version after its ``>=``: of what is always installed, or of the extras."""
    entries = project()["dependencies"]
    if extras:
        entries = sum(project().get("optional-dependencies", {}).values(), [])
    bounds = {}
    for entry in map(Requirement, entries):
        (bound,) = entry.specifier
        assert bound.operator == ">=", f"{entry}: one lower bound and nothing else"
        bounds[canonicalize_name(entry.name)] = bound.version
    return bounds


def imported(source):
    """Top-level names that a module imports, in whatever function, by a statement or by `import_module`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (name.value.split(".")[0] for name in node.args if isinstance(name, ast.Constant))


def library():
    return [
        path
        for path in [*(ROOT / "ssmbook").rglob("*.py"), *(ROOT / "headsandstates").rglob("*.py")]
        if "site" not in path.parts
    ]


def test_every_import_is_declared_and_every_declared_package_imported():
    """But control, which whoever asks for its systems has, what torch brings for types, and what transformers
    imports for .gguf files."""
    names = {name for path in library() for name in imported(path.read_text(encoding="utf-8"))}
    foreign = (
        names - set(sys.stdlib_module_names) - {"ssmbook", "headsandstates", "control", "typing_extensions"}
    )
    packages = packages_distributions()
    found = {canonicalize_name(packages.get(name, [name])[0]) for name in foreign}
    assert found | {"gguf", "accelerate"} == set(declared()) | set(declared(extras=True))


def test_the_lowest_versions_tested_are_the_lowest_admitted():
    lines = (ROOT / LOWEST).read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pins == declared() | declared(extras=True)


def test_the_weekly_workflow_runs_every_version_and_once_without_compiled_loops():
    workflow = yaml.safe_load((ROOT / ".github/workflows/weekly.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["library"]
    matrix = job["strategy"]["matrix"]
    classified = {entry.split(" :: ")[-1] for entry in project()["classifiers"] if ":: 3." in entry}
    oldest = project()["requires-python"].removeprefix(">=")
    assert set(matrix["python"]) == classified and oldest in classified
    runs = {(run["os"], run["python"], run["versions"]) for run in matrix["include"]}
    assert ("ubuntu-latest", oldest, "lowest") in runs
    assert {"[book]", "[book,fast,lens]"} <= {run["extra"] for run in matrix["include"]}
    assert f"--constraint {LOWEST}" in str(job["steps"]) and "pytest tests" in str(job["steps"])


def test_every_push_runs_the_core_at_the_lowest_versions():
    (workflow,) = (ROOT / ".github/workflows").glob("book.y*ml")
    job = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]["lowest"]
    oldest = project()["requires-python"].removeprefix(">=")
    assert oldest in str(job["steps"]) and {"run": "make test-lowest"} in job["steps"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"--constraint {LOWEST}" in makefile
    (line,) = (line for line in makefile.splitlines() if line.startswith("LOWEST_TESTS :="))
    assert all((ROOT / path).exists() for path in line.split()[2:])


def test_a_tag_is_tried_with_and_without_extras_before_a_release_that_the_owner_turns_on():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    tried = jobs["try"]["strategy"]["matrix"]["include"]
    extras = {extra for run in tried for extra in run["extras"].strip("[]").split(",")}
    assert extras == {"", *project()["optional-dependencies"]} - {"cuda"}
    assert {run["file"] for run in tried} == {"whl", "tar.gz"}
    assert jobs["release"]["needs"] == "try" and "vars.RELEASE == 'yes'" in jobs["release"]["if"]


def test_the_library_loads_no_more_than_it_needs():
    """Every part, on a server that draws nothing."""
    code = "import sys, torch; before = set(sys.modules); import ssmbook\n"
    code += "for name in ssmbook.__all__: getattr(ssmbook, name)\nprint(*set(sys.modules) - before)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert not result.returncode, result.stderr
    assert not UNWANTED & set(result.stdout.split())
