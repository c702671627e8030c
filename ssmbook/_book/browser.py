"""The browser that opens the built pages: a Chromium of this machine, or one that is installed here and now.

python -m ssmbook._book.browser    # finds or installs it; says the one command that would, where it cannot
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (  # it asks nobody for anything by itself
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


def find():
    """Path of a Chromium (the variable CHROMIUM, the PATH, a download of playwright's), or None."""
    on_path = filter(None, map(shutil.which, NAMES))
    return os.environ.get("CHROMIUM") or next(on_path, None) or _downloaded()


def _downloaded():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def commands():
    """What installs a Chromium here, first choice first: Debian's package as root, a download."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        yield "apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium"
    yield f"{sys.executable} -m playwright install chromium"


def install():
    """Path of a Chromium, installed if there is none; ``SystemExit`` with the command that gets it."""
    for command in commands():
        if find():
            break
        print(f"No Chromium here yet: {command}", flush=True)
        subprocess.run(command, shell=True)
    found = find()
    if not found:
        by_hand = (
            "sudo apt-get install chromium"
            if shutil.which("apt-get")
            else f"{sys.executable} -m playwright install --with-deps chromium"
        )
        raise SystemExit(f"The pages are tested in Chromium, which is not here. Get it with:\n  {by_hand}")
    return found


if __name__ == "__main__":
    print(f"Chromium: {install()}")
