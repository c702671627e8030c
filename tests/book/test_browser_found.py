"""The browser of the page tests: the one that is named, else one on the PATH; a missing one is named."""

import os
import shutil

import pytest

from ssmbook._book import browser


@pytest.fixture
def empty_machine(monkeypatch, tmp_path):
    """No browser named, on the PATH or downloaded; nothing that is run installs one."""
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browser, "_downloaded", lambda: None)
    run = []
    monkeypatch.setattr(browser.subprocess, "run", lambda command, shell: run.append(command))
    return tmp_path, run


def program(folder, name):
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_named_browser_comes_first(empty_machine, monkeypatch):
    folder, _ = empty_machine
    assert browser.find() is None
    found = program(folder, "google-chrome")
    assert browser.find() == browser.install() == found
    monkeypatch.setenv("CHROMIUM", "/somewhere/chrome")
    assert browser.find() == "/somewhere/chrome"


def test_without_one_it_tries_the_package_then_a_download_then_says_the_command(empty_machine, monkeypatch):
    folder, run = empty_machine
    program(folder, "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SystemExit, match="sudo apt-get install chromium"):
        browser.install()
    assert ["apt-get" in command for command in run] == [True, False]
    assert "playwright install chromium" in run[1]


def test_a_package_that_installs_is_enough(empty_machine, monkeypatch):
    folder, run = empty_machine
    program(folder, "apt-get")
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def install(command, shell):
        run.append(command)
        program(folder, "chromium")

    monkeypatch.setattr(browser.subprocess, "run", install)
    assert browser.install() == shutil.which("chromium") and len(run) == 1


def test_without_a_package_manager_the_command_is_the_download(empty_machine):
    with pytest.raises(SystemExit, match="-m playwright install"):
        browser.install()
