"""The page's model as a script, made of the committed weights, and its page."""

import base64
import json
import struct
from pathlib import Path

from headsandstates.experiments import page_heads, page_model
from headsandstates.experiments.results import FOLDER

KINDS = {"I8": "int8", "F16": "float16"}
SCRIPTS = ("eigen.js", "heads.js", "film.js", "swap.js")


def packed(file, names, begin):
    """The tensors of a file for the script, its numbers from ``begin`` on, and these numbers."""
    whole = (FOLDER / file).read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header, tensors = json.loads(whole[8 : 8 + length]), {}
    for name, found in header.items():
        if found.get("dtype") in KINDS:
            given = {"kind": KINDS[found["dtype"]], "shape": found["shape"]}
            given["at"] = begin + found["data_offsets"][0]
            if scale := header.get(f"{name} scale"):
                given["scales"] = begin + scale["data_offsets"][0]
            tensors[names.get(name, name)] = given
    return tensors, whole[8 + length :]


def model_script():
    """The script that sets ``PageModel``: sizes, vocabulary, what the meters read, and the weights."""
    tensors, data = packed("page-model.safetensors", {}, 0)
    features, more = packed("page-features.safetensors", {"b": "ends"}, len(data))
    sizes = ("layers", "heads", "width", "context", "hidden", "scale")
    given = {name: getattr(page_model, name.upper()) for name in sizes} | {"near": page_heads.NEAR}
    given |= {"tensors": tensors | features, "data": base64.b64encode(data + more).decode()}
    pieces = json.loads((FOLDER / "page-model.json").read_text("utf-8"))["results"]["seed 0"]["pieces"]
    given |= {"pieces": pieces}
    for name in ("page-heads", "page-plan", "page-features"):
        given |= json.loads((FOLDER / f"{name}.json").read_text("utf-8"))["results"]["page"]
    return f"globalThis.PageModel = {json.dumps(given, separators=(',', ':'))};\n"


def write_model(app):
    (Path(app.outdir) / "_static" / "page-model.js").write_text(model_script(), encoding="utf-8")


def add_page(app, pagename, templatename, context, doctree):
    """Load the page's scripts where it is; the weights come later, once something is seen."""
    if "data-swap=" in context.get("body", ""):
        app.add_css_file("swap.css")
        for name in SCRIPTS:
            app.add_js_file(name)
