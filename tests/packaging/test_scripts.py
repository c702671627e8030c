"""Two scripts that a user could have written: they run, and a type checker accepts them."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import ssmbook

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "a_users_script.py"
(PROGRAM,) = re.findall(
    r"```python\n(.*?)```", (HERE.parents[1] / "README.md").read_text(encoding="utf-8"), re.DOTALL
)


def test_the_readme_prints_what_it_promises(capsys):
    exec(PROGRAM, {})
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"^print\(.*\)  # ([^:\n]+)", PROGRAM, re.MULTILINE)
    assert len(promised) == len(printed) > 0
    for said, wanted in zip(printed, promised, strict=True):
        assert said.startswith(wanted), (said, wanted)


def test_the_script_runs():
    runpy.run_path(str(SCRIPT))


def test_mypy_accepts_both(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    options = ("--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}", program, SCRIPT)
    library = str(Path(ssmbook.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options],
        env={**os.environ, "MYPYPATH": library},
        capture_output=True,
        text=True,
    )
    assert not result.returncode, result.stdout + result.stderr
