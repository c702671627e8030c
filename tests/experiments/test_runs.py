"""Experiments as a command: kept job by job, resumed, never replaced unasked, spread over processes."""

import json
import math
import signal

import pytest
import torch

from ssmbook import _commands
from ssmbook._commands import plain, progress
from ssmbook.experiments import __main__ as command
from ssmbook.experiments._runs import SIZES, Experiment, Results, run


def counted(calls, fail_at=None, value=1.0):
    """An experiment of four jobs that notes what it did and can be interrupted in one of them."""

    def job(name):
        if name == fail_at:
            raise KeyboardInterrupt
        calls.append(name)
        return {"value": torch.tensor([value, math.nan])}

    def jobs(settings):
        return {name: lambda name=name: job(name) for name in settings["names"]}

    return Experiment("four", {"names": list("abcd"), "value": value}, {}, jobs)


def test_interrupted_and_resumed(tmp_path):
    path, calls = tmp_path / "four.json", []
    with pytest.raises(KeyboardInterrupt):
        run(counted(calls, fail_at="c"), "small", path)
    assert calls == ["a", "b"] and list(Results.load(path).results) == ["a", "b"]
    run(counted(calls), "small", path)
    assert calls == list("abcd") and list(Results.load(path).results) == list("abcd")
    assert Results.load(path).results["a"] == {"value": [1.0, None]}  # JSON knows no NaN


def test_a_file_says_what_made_it(tmp_path):
    path = tmp_path / "four.json"
    run(counted([]), "small", path)
    kept = Results.load(path)
    assert (kept.experiment, kept.size, kept.settings["value"]) == ("four", "small", 1.0)
    assert kept.command == "python -m ssmbook.experiments four --size small"
    assert set(kept.versions) == {"ssmbook", "torch", "python"}


def test_a_finished_file_is_replaced_only_when_told(tmp_path):
    path, calls = tmp_path / "four.json", []
    run(counted(calls), "small", path)
    before = path.read_text()
    with pytest.raises(ValueError, match="is finished: nothing was overwritten"):
        run(counted(calls), "small", path)
    with pytest.raises(ValueError, match="other settings or versions: nothing was overwritten"):
        run(counted(calls, value=2.0), "small", path)
    assert path.read_text() == before
    run(counted(calls, value=2.0), "small", path, overwrite=True)
    assert Results.load(path).results["d"]["value"][0] == 2.0


def test_results_of_another_version(tmp_path, monkeypatch):
    path, calls = tmp_path / "four.json", []
    monkeypatch.setattr(_commands, "__version__", "0.0.0")
    with pytest.raises(KeyboardInterrupt):
        run(counted(calls, fail_at="d"), "small", path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="other settings or versions"):
        run(counted(calls), "small", path)


def test_processes_share_the_jobs(tmp_path, monkeypatch):
    path, shares = tmp_path / "four.json", []
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in (0, 1):
        calls = []
        monkeypatch.setenv("RANK", str(rank))
        run(counted(calls), "small", path)
        shares.append(calls)
    assert not path.exists() and set(shares[0]) & set(shares[1]) == set()
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.delenv("RANK")
    calls = []
    run(counted(calls), "small", path)
    assert sorted(shares[0] + shares[1] + calls) == list("abcd")
    assert list(Results.load(path).results) == list("abcd")


def test_what_other_processes_finished_is_put_together(tmp_path, monkeypatch):
    path, calls = tmp_path / "four.json", []
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in (0, 1, 0):  # the last call does what the first two left
        monkeypatch.setenv("RANK", str(rank))
        run(counted(calls), "small", path)
    monkeypatch.delenv("WORLD_SIZE")
    run(counted(calls), "small", path)
    assert sorted(calls) == list(Results.load(path).results) == list("abcd")


def test_a_file_of_something_else(tmp_path):
    path = tmp_path / "four.json"
    for text, words in (("no", "no JSON"), ("{}", "format")):
        path.write_text(text)
        with pytest.raises(ValueError, match=words):
            run(counted([]), "small", path)
        assert path.read_text() == text


def test_plain_numbers():
    assert plain({"a": (torch.tensor(1 / 3, dtype=torch.float64), math.inf)}) == {"a": [0.333333, None]}


def test_progress():
    assert progress(30, 0, 4, "a") == f"[{'':20}] 0 of 4 in 0:30: a"
    assert progress(10, 1, 3, "b").endswith(" 1 of 3 in 0:10, about 0:20 left: b")
    assert progress(90, 3, 4, "d") == f"[{'█' * 15:<20}] 3 of 4 in 1:30, about 0:30 left: d"


def test_the_command(tmp_path, monkeypatch, capsys):
    calls, path = [], tmp_path / "x.json"
    monkeypatch.setattr(command, "experiment", lambda name: counted(calls))
    assert command.main(["four", "--out", str(path)]) == 0
    assert json.loads(path.read_text())["command"] == "python -m ssmbook.experiments four --size small"
    said = capsys.readouterr()
    assert "0 of 4 in 0:00: a" in said.err and said.out == f"{path}\n"  # since this run began
    assert command.main(["four", "--out", str(path)]) == command.REFUSED == 2  # as argparse does
    assert "--overwrite" in capsys.readouterr().err
    assert command.main(["four", "--out", str(path), "--overwrite"]) == 0
    monkeypatch.setattr(command, "experiment", lambda name: counted(calls, fail_at="b"))
    assert command.main(["four", "--out", str(path), "--overwrite"]) == 128 + signal.SIGINT
    assert list(Results.load(path).results) == ["a"]
    assert "stopped: what is done is kept in" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "experiment", lambda name: counted(calls))
    assert command.main(["four", "--size", "full"]) == 0
    assert Results.load(tmp_path / "four-full.json").size == "full"


def test_an_unknown_experiment(capsys):
    assert command.main(["chess"]) == command.REFUSED
    assert "NAME must be one of gradient-flow, language" in capsys.readouterr().err


@pytest.mark.parametrize("name", command.NAMES)
def test_every_experiment_has_settings_that_json_holds(name):
    found = command.experiment(name)
    for size in SIZES:
        settings = found.settings(size)
        assert json.loads(json.dumps(settings)) == settings and found.jobs(settings)


def test_a_line_of_progress_stays_in_its_place_on_a_terminal_alone(monkeypatch, capsys):
    monkeypatch.setattr(_commands.time, "monotonic", lambda: 13.0)
    one, two = progress(3, 1, 2, "b"), progress(3, 2, 2, "")
    for live, wanted in ((False, f"{one}\n{two}\n"), (True, f"\r\033[K{one}\r\033[K{two}\n")):
        monkeypatch.setattr(_commands.sys.stderr, "isatty", lambda live=live: live, raising=False)
        _commands.say(10.0, 1, 2, "b")
        _commands.say(10.0, 2, 2, "")
        assert capsys.readouterr().err == wanted
