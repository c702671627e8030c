"""The moving line of `make book`: silence on success, the whole log and the exit status on failure."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "ssmbook/_book/progress.py"


def run(tmp_path, code):
    command = [sys.executable, SCRIPT, tmp_path / "log", sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)


def test_a_command_that_succeeds_leaves_its_words_in_the_log(tmp_path):
    result = run(tmp_path, "import sys; print('one'); print('two', file=sys.stderr)")
    assert (result.returncode, result.stdout) == (0, "")
    assert sorted((tmp_path / "log").read_text().split()) == ["one", "two"]


def test_a_command_that_fails_has_all_its_words_printed(tmp_path):
    result = run(tmp_path, "print('first'); print('last'); raise SystemExit(3)")
    assert (result.returncode, result.stdout.split()) == (3, ["first", "last"])


def test_a_slow_command_shows_where_it_is_without_colors(tmp_path):
    script = SCRIPT.read_text(encoding="utf-8")
    assert "SECONDS = 5" in script
    quick = tmp_path / "progress.py"
    quick.write_text(script.replace("SECONDS = 5", "SECONDS = 0"), encoding="utf-8")
    said = "print('\\x1b[01mreading\\x1b[39m [ 50%]')"
    result = subprocess.run(
        [sys.executable, quick, tmp_path / "log", sys.executable, "-c", said], capture_output=True, text=True
    )
    assert result.stdout == "reading [ 50%]\n"
