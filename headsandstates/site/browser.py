"""The browser that opens the built pages: a Chromium of this machine, or one that is installed now.

python -m headsandstates.site.browser    # finds or installs it, else prints the command that would
"""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (  # no requests of its own
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


def find():
    """Path of a Chromium (the variable CHROMIUM, the PATH, a download of playwright's), or None."""
    from playwright.sync_api import sync_playwright

    found = [os.environ.get("CHROMIUM"), *map(shutil.which, NAMES)]
    if not any(found):
        with sync_playwright() as playwright:
            path = playwright.chromium.executable_path
        found.append(path if Path(path).exists() else None)
    return next(filter(None, found), None)


def install():
    """Path of a Chromium, installed if there is none; ``SystemExit`` with the command that gets it."""
    commands = [f"{sys.executable} -m playwright install chromium"]
    if shutil.which("apt-get") and os.geteuid() == 0:
        commands.insert(0, "apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium")
    for command in commands:
        if not find():
            print(f"No Chromium here yet: {command}", flush=True)
            subprocess.run(command, shell=True)
    if not find():
        by_hand = f"{sys.executable} -m playwright install --with-deps chromium"
        raise SystemExit(f"The pages are tested in Chromium, which is not here. Get it with:\n  {by_hand}")
    return find()


@contextmanager
def chromium():
    """A running Chromium, installed if there is none."""
    from playwright.sync_api import sync_playwright

    path = install()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


if __name__ == "__main__":
    print(f"Chromium: {install()}")
