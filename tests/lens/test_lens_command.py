"""The command, run on saved models: progress, memory, an interruption, and everything that it refuses."""

import hashlib
import os
import socket
import sys

import pytest
import torch

from ssmbook import lens
from ssmbook.lens import __main__ as command
from ssmbook.lens import _layers, _load, _memory
from ssmbook.lens._capture import capture

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]


@pytest.fixture(scope="module")
def folder(build, tmp_path_factory):
    """A saved hybrid without a tokenizer."""
    path = tmp_path_factory.mktemp("hybrid")
    build("jamba").save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def spoken(build, tmp_path_factory):
    """A saved BERT whose tokenizer knows one token for each letter."""
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("bert")
    build("bert").save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    transformers.BertTokenizerFast(vocab=str(path / "vocab.txt")).save_pretrained(path)
    return path


@pytest.fixture
def numbers(ids, tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text(" ".join(map(str, ids(70).tolist())), "utf-8")
    return path


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the lens opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def run(*arguments):
    return command.main([str(each) for each in arguments])


def test_a_saved_hybrid(folder, numbers, tmp_path, capsys):
    out = tmp_path / "report"
    assert run(folder, "--ids", numbers, "--tokens", 16, "--out", out) == 0
    said = capsys.readouterr()
    assert "4 x 16 tokens, 2 layers: about 0." in said.err and " GB of memory at the peak" in said.err
    assert "0 of 2 in 0:00: layers.0.mamba" in said.err and "about 0:0" in said.err
    assert "layers.1.self_attn" in said.out and sorted(os.listdir(out)) == ["report.html", "report.json"]
    assert f"{out / 'report.html'} and report.json" in said.err
    found = lens.Report.from_json(out / "report.json")
    assert found.model == str(folder) and len(found.layers) == 2
    assert found.settings["text"] == "ids.txt" and found.settings["texts"] == 4
    assert len(found.settings["tokens_sha256"]) == 16 and None not in found.notes
    # a finished report stays
    before = (out / "report.json").read_bytes()
    assert run(folder, "--ids", numbers, "--tokens", 16, "--out", out) == 2
    assert "is finished: nothing was overwritten" in capsys.readouterr().err
    assert run(folder, "--ids", numbers, "--tokens", 24, "--out", out) == 2
    assert "has other settings, versions or text" in capsys.readouterr().err
    assert (out / "report.json").read_bytes() == before
    again = ("--overwrite", "--no-gradient", "--note", "of the alphabet")
    assert run(folder, "--ids", numbers, "--tokens", 24, "--out", out, *again) == 0
    assert "of the alphabet" in lens.Report.from_json(out / "report.json").notes
    assert run("--compare", out / "report.json", out / "report.json") == 0
    assert "layers.0.mamba" in capsys.readouterr().out


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(
    folder, numbers, tmp_path, capsys, monkeypatch
):
    whole, out = tmp_path / "whole", tmp_path / "parts"
    same = (folder, "--ids", numbers, "--tokens", 16, "--texts", 1, "--no-gradient", "--out")
    assert run(*same, whole) == 0
    real = command.measured

    def stopped(*args):
        yield next(real(*args))
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "measured", stopped)
    assert run(*same, out) == 130
    assert "what is done is kept, the same command goes on" in capsys.readouterr().err
    kept = lens.Report.from_json(out / "report.json")
    assert [layer.name for layer in kept.layers] == ["layers.0.mamba"]
    assert "layers.0.mamba" in (out / "report.html").read_text("utf-8")
    monkeypatch.setattr(command, "measured", real)
    assert run(*same, out, "--seed", 1) == 2  # another measurement does not go on with this one
    assert "has other settings, versions or text" in capsys.readouterr().err
    assert run(*same, out) == 0
    assert "1 layers are done" in capsys.readouterr().err
    assert (out / "report.json").read_bytes() == (whole / "report.json").read_bytes()
    late = tmp_path / "late"  # the second layer is measured first
    assert run(*same, late, "--layers", 1) == run(*same, late) == 0
    assert (late / "report.json").read_bytes() == (whole / "report.json").read_bytes()


def test_text_is_cut_by_the_models_own_tokenizer(spoken, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("a b c d e f g h i j k l m n o p", "utf-8")
    before, inner, after = _load.tokenize(spoken, text)
    assert ([WORDS[i] for i in before], [WORDS[i] for i in after]) == (["[CLS]"], ["[SEP]"])
    with pytest.raises(ValueError, match="tokens must be more than the 8 that the tokenizer adds; got 8"):
        _load.windows([1] * 7, inner, [2], tokens=8, texts=None)
    assert _load.windows([1] * 7, inner, [], tokens=8, texts=2).tolist() == [[1] * 7 + [i] for i in inner[:2]]
    many = _load.windows([], [*range(90)], [], tokens=10, texts=None)
    assert many.tolist() == [[*range(10 * t, 10 * t + 10)] for t in range(4)]  # four, where there are more
    cut = _load.windows(before, inner, after, tokens=8, texts=None)
    assert ["".join(WORDS[i] for i in row) for row in cut] == ["[CLS]abcdef[SEP]", "[CLS]ghijkl[SEP]"]
    assert run(spoken, "--text", text, "--tokens", 10, "--layers", 1, "--no-permuted") == 0
    out = capsys.readouterr().out
    assert "encoder.layer.1.attention" in out and "encoder.layer.0" not in out


def test_an_installed_package_that_carries_a_model(folder, numbers, tmp_path, monkeypatch, capsys):
    package = tmp_path / "carries_a_hybrid"
    package.mkdir()
    (package / "__init__.py").write_text(f"def get_model_path():\n    return {str(folder)!r}\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert run("carries-a-hybrid", "--ids", numbers, "--tokens", 16, "--no-permuted", "--no-gradient") == 0
    assert "layers.0.mamba" in capsys.readouterr().out


def test_what_the_lens_cannot_read_is_said_and_noted(folder, numbers, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "unknown_mixers", lambda *given: {"layers.7.mixer": "NewMixer"})
    same = ("--tokens", 16, "--texts", 1, "--no-permuted", "--no-gradient", "--out", tmp_path)
    assert run(folder, "--ids", numbers, *same, "--note", "of letters") == 0
    assert "got NewMixer (layers.7.mixer). Register one:" in capsys.readouterr().err
    notes = lens.Report.from_json(tmp_path / "report.json").notes
    assert notes[:2] == ["of letters", "not read: NewMixer (layers.7.mixer)"]


def test_the_help_says_what_holds_where_nothing_is_said():
    known = {each.dest: each for each in command.parser()._actions}
    said = {name: each for name, each in known.items() if f"({each.default})" in (each.help or "")}
    assert {name: each.default for name, each in said.items()} == {"tokens": 256, "device": "cpu", "seed": 0}


def test_a_folder_without_a_model(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(ValueError, match="the folder must hold a model that transformers reads; got"):
        _load.load_model(tmp_path)
    assert os.environ["HF_HUB_OFFLINE"] == "1"  # transformers is told to ask no other host


def test_python_without_transformers(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="loads models with transformers: pip install transformers"):
        _load.load_model(folder)


REFUSED = [
    (["openai-community/gpt2", "--ids", "{ids}"], "neither: the lens downloads nothing"),
    (["json", "--ids", "{ids}"], "neither: the lens downloads nothing"),
    (["{empty}", "--ids", "{ids}"], "folder must hold config.json; got"),
    (["{model}"], "give a model and either --text or --ids"),
    (["--ids", "{ids}"], "give a model and either --text or --ids"),
    (["{model}", "--text", "{ids}"], "text needs a tokenizer; .* holds none: pass token ids with --ids"),
    (["{model}", "--ids", "{text}"], "ids must be whole numbers; got invalid literal"),
    (["{model}", "--ids", "{ids}", "--tokens", "71"], "must have 71 tokens for 1 x 71; got 70"),
    (
        ["{model}", "--ids", "{ids}", "--tokens", "20", "--texts", "4"],
        "must have 80 tokens for 4 x 20; got 70",
    ),
    (["{model}", "--ids", "{ids}", "--tokens", "7"], "tokens must be at least 8; got 7"),
    (["{model}", "--ids", "{ids}", "--texts", "0"], "texts must be at least 1; got 0"),
    (["{model}", "--ids", "{ids}", "--tokens", "16", "--seed", "-1"], "seed must be at least 0; got -1"),
    (
        ["{model}", "--ids", "{ids}", "--tokens", "16", "--layers", "9"],
        "layers must name some of layers.0.mamba",
    ),
    (["{model}", "--ids", "{ids}", "--device", "cuda:99"], "device must be one that holds float64 here; got"),
    (
        ["{model}", "--ids", "{ids}", "--device", "gpu"],
        "device must be one that holds float64 here; got 'gpu'",
    ),
    (["{model}", "--ids", "{missing}"], "No such file"),
    (["--compare", "{ids}", "{ids}"], "must hold a report of"),
]


@pytest.mark.parametrize("arguments, words", REFUSED)
def test_what_the_command_refuses(arguments, words, folder, numbers, tmp_path, capsys):
    import re

    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("some words", "utf-8")
    places = {
        "ids": numbers, "model": folder, "empty": tmp_path / "empty", "text": tmp_path / "text.txt",
        "missing": tmp_path / "missing.txt",
    }  # fmt: skip
    assert run(*(each.format(**places) for each in arguments)) == 2
    said = capsys.readouterr().err
    assert re.search(words, said) and said.count("\n") == 1 and said.startswith("ssmbook.lens: ")


def test_a_report_that_does_not_fit_is_not_begun(folder, numbers, monkeypatch, capsys):
    monkeypatch.setattr(command, "bytes_free", lambda: 1000)
    assert run(folder, "--ids", numbers, "--tokens", 16) == 2
    assert "memory must hold about 0.5 GB; got 0.0 GB free: fewer --tokens" in capsys.readouterr().err


def test_what_is_not_said_to_be_free_is_not_asked_for(monkeypatch, build, ids, capsys):
    model = build("gpt2")
    left, texts = lens.layers(model), [ids(9)]
    for free in (None, _memory.bytes_needed(model, left, 1, 9)):  # unknown; exactly enough
        monkeypatch.setattr(command, "bytes_free", lambda free=free: free)
        command._announce(model, left, texts)
        assert ("free" in capsys.readouterr().err) is (free is not None)


def test_weights_are_told_apart_by_the_bytes_of_their_files_in_order_of_name(tmp_path, monkeypatch):
    files = {"b.bin": b"two", "a.safetensors": b"one", "c.safetensors": b"three", "config.json": b"{}"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    wanted = hashlib.sha256(b"onetwothree").hexdigest()[:16]
    assert _load.weights_digest(tmp_path) == wanted
    real = _load.Path.glob
    monkeypatch.setattr(_load.Path, "glob", lambda self, what: reversed(sorted(real(self, what))))
    assert _load.weights_digest(tmp_path) == wanted


def test_tokens_longer_than_the_model_allows(build, numbers, tmp_path, capsys):
    model = build("gpt2")
    model.config.n_positions = 32
    model.wpe = torch.nn.Embedding(32, 24)
    model.save_pretrained(tmp_path / "short")
    assert run(tmp_path / "short", "--ids", numbers, "--tokens", 33) == 2
    assert "inputs must have at most 32 tokens, what the model allows; got 33" in capsys.readouterr().err
    assert run(tmp_path / "short", "--ids", numbers, "--tokens", 32, "--layers", 0, "--no-gradient") == 0


@pytest.mark.parametrize(
    "family", ["bert", "gpt2", "llama", "qwen3_next", "mamba", "mamba2", "recurrent_gemma"]
)
def test_the_estimate_knows_the_sizes_of_the_core(family, build, ids):
    for layer in lens.layers(build(family, 1)):
        (call,) = capture(layer.model, {layer.name: layer.module}, ids(9))[0].values()
        found = _layers.read(layer, call)
        assert _memory.sizes(layer.module) == (found.heads, found.core.W.p, found.core.W.d)
    model = build(family)
    need = [_memory.bytes_needed(model, lens.layers(model), t, n) for t, n in ((1, 16), (4, 16), (4, 64))]
    assert need == sorted(need) and need[0] < need[2]
    assert _memory.sizes(torch.nn.Linear(2, 3)) == (0, 0, 0)


@pytest.mark.parametrize("family", ["gpt2", "mamba", "mamba2", "recurrent_gemma"])
def test_the_estimate_grows_by_what_a_text_more_holds(family, build):
    """Twice, in eight bytes a number: as it is and as it is measured."""
    model, n = build(family), 64
    (layer, *_), (H, p, d) = lens.layers(model), _memory.sizes(lens.layers(model)[0].module)
    states = {"mamba": 4 + 1, "recurrent_gemma": 1 + 1}.get(family)
    held = d * n * states if states else H * (n * n + p * d)
    one, two = (_memory.layer_bytes(layer, texts, n) for texts in (1, 2))
    assert two - one == 2 * 8 * held
    weights = 4 * sum(p.numel() for p in model.parameters())
    assert _memory.bytes_needed(model, [layer], 2, n) - two == _memory._LIBRARIES + weights


def test_a_machine_that_does_not_say_what_is_free(monkeypatch):
    assert _memory.bytes_free() > 0
    lines = "MemTotal:  24000 kB\nMemFree:  1 kB\nMemAvailable:  17 kB\nCached:  5 kB\n"
    monkeypatch.setattr(_memory.Path, "read_text", lambda self, *how: lines)
    assert _memory.bytes_free() == 17 * 1024

    def unreadable(self, *how):
        raise OSError

    monkeypatch.setattr(_memory.Path, "read_text", unreadable)
    assert _memory.bytes_free() is None


def test_the_command_as_a_program(folder, numbers):
    import subprocess

    answer = subprocess.run(
        [sys.executable, "-m", "ssmbook.lens", "--help"], capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0 and "downloads nothing" in answer.stdout
