"""Run a command, keep what it says in a log, and show how far it is: its last line, in place or now and then.

python ssmbook/_book/progress.py LOG COMMAND ...    # a command that fails has its whole log printed
"""

import os
import re
import shutil
import subprocess
import sys
import time

COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
SECONDS = 5  # between two lines where they are kept, as in a log


def show(line, width):
    """In place of the last line on a terminal; below it elsewhere."""
    if sys.stdout.isatty():
        sys.stdout.write("\r\x1b[K" + line[: width - 1])
    else:
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(log, command):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    width, shown = shutil.get_terminal_size().columns, time.monotonic()
    with (
        open(log, "w", encoding="utf-8") as kept,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as process,
    ):
        for line in process.stdout:
            kept.write(line)
            words = COLOR.sub("", line).split("\r")[-1].strip()
            if words and (sys.stdout.isatty() or time.monotonic() - shown > SECONDS):
                show(words, width)
                shown = time.monotonic()
    if sys.stdout.isatty():
        show("", width)
    if process.returncode:
        with open(log, encoding="utf-8") as kept:
            shutil.copyfileobj(kept, sys.stdout)
    return process.returncode


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
