"""Every statement of the book, the cells that check it and the tests that guard it, read from the sources."""

import ast
import json
import re
from dataclasses import dataclass, field

import yaml

PROVED_KINDS = ("theorem", "lemma", "proposition", "corollary")
KINDS = ("definition", *PROVED_KINDS)
ORIGINS = ("paper", "ours", "known")
CHECKS = "checks-"
PROOF_OF = "proof-of-"
GUARDS = "guards"
SENTENCES = "chapters/statements.yml"

_FENCE = re.compile(r"^[ >]*(?P<fence>`{3,}|:{3,})\{(?P<name>[a-z:-]+)\}[ \t]*(?P<title>.*)$")
_OPTION = re.compile(r"^[ >]*:?(?P<key>[a-z]+):[ \t]*(?P<value>.*)$")


@dataclass
class Check:
    """A code cell with the tag ``checks-<label>``."""

    docname: str
    number: int  # among the chapter's code cells, from 1
    line: str


@dataclass
class Claim:
    """One definition, theorem, lemma, proposition or corollary."""

    kind: str
    title: str
    label: str
    classes: list
    docname: str
    proved: bool = False
    checks: list = field(default_factory=list)
    guards: list = field(default_factory=list)
    plain: str = ""  # its content in one sentence

    @property
    def depth(self):
        """ "core" on a main page, "deeper" on a companion page, "refresher" in the appendix."""
        if self.docname.startswith("chapters/appendix/"):
            return "refresher"
        return "deeper" if self.docname.endswith("-deeper") else "core"

    @property
    def origin(self):
        """ "paper", "ours" or "known", or None if the statement names none of them or two."""
        named = [name for name in ORIGINS if name in self.classes]
        return named[0] if len(named) == 1 else None


def directives(text):
    """(name, title, options, text) of every directive in a MyST text, in order."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        match = _FENCE.match(line)
        if match:
            rest = [line.strip(" >") for line in lines[index + 1 :]] + [match["fence"]]
            inside = lines[index + 1 :][: rest.index(match["fence"])]
            yield match["name"], match["title"].strip(), _options(inside), "\n".join(inside)


def _options(lines):
    options, block = {}, bool(lines) and lines[0].strip() == "---"
    for line in lines[1:] if block else lines:
        match = _OPTION.match(line)
        if (block and line.strip() == "---") or not match:
            break
        options[match["key"]] = match["value"].strip()
    return options


def page_names(root):
    """Every page under ``chapters/`` but lectures, by the name Sphinx gives it, in order of their paths."""
    files = [
        path.relative_to(root) for path in (root / "chapters").rglob("*") if path.parent.name != "lectures"
    ]
    pages = [path for path in files if path.suffix in (".md", ".ipynb") and path.parent.name[0] != "."]
    return sorted(page.with_suffix("").as_posix() for page in pages)


def page_file(root, docname):
    notebook = root / f"{docname}.ipynb"
    return notebook if notebook.is_file() else root / f"{docname}.md"


def sources(root, docnames):
    """(docname, [(cell type, text, tags), …]) of each page."""
    for docname in docnames:
        path = page_file(root, docname)
        text = path.read_text(encoding="utf-8")
        cells = [("markdown", text, [])]
        if path.suffix == ".ipynb":
            found = json.loads(text)["cells"]
            cells = [(c["cell_type"], "".join(c["source"]), c["metadata"].get("tags", [])) for c in found]
        yield docname, cells


def collect(root, docnames=None):
    """(claims, problems): every claim with its checks and guards; one sentence for each thing that is wrong.

    ``docnames`` are the pages to read, in the order of the book; None means all under ``chapters/``.
    """
    claims, checks, problems = [], {}, []
    for docname, cells in sources(root, page_names(root) if docnames is None else docnames):
        number = 0
        for kind, text, tags in cells:
            if kind == "markdown":
                _read_markdown(text, docname, claims)
            elif kind == "code":
                number += 1
                for tag in tags:
                    if tag.startswith(CHECKS):
                        check = Check(docname, number, telling_line(text))
                        checks.setdefault(tag.removeprefix(CHECKS), []).append(check)
    by_label = {}
    for claim in claims:
        if claim.label and claim.label in by_label:
            problems.append(f"{claim.docname}: the label {claim.label} is used twice.")
        by_label[claim.label] = claim
    for label, found in checks.items():
        if label in by_label:
            by_label[label].checks = found
        else:
            problems.append(f"{found[0].docname}: the cell tag {CHECKS}{label} names no statement.")
    for label, test in guards(root):
        if label in by_label:
            by_label[label].guards.append(test)
        else:
            problems.append(f"{test} guards {label}, which names no statement.")
    for label, sentence in sentences(root).items():
        if label in by_label:
            by_label[label].plain = sentence
        elif docnames is None:  # the pages of one part do not know the others
            problems.append(f"{SENTENCES}: {label} names no statement.")
    return claims, problems + [problem for claim in claims for problem in _problems(claim)]


def sentences(root):
    """The plain sentence of each label; none where the book has no file of them."""
    path = root / SENTENCES
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _read_markdown(text, docname, claims):
    for name, title, options, _ in directives(text):
        kind = name.removeprefix("prf:")
        if kind in KINDS:
            label, classes = options.get("label", ""), options.get("class", "").split()
            claims.append(Claim(kind, title, label, classes, docname))
        elif kind == "proof":
            # A proof is of the statement it names (:class: proof-of-<label>), else of the last before it.
            names = {name.removeprefix(PROOF_OF) for name in options.get("class", "").split()}
            owners = [claim for claim in claims if claim.label in names]
            owners = owners or [claim for claim in claims if claim.docname == docname][-1:]
            for claim in owners:
                claim.proved = True


def _problems(claim):
    name = f"{claim.docname}: {claim.kind} {claim.label or repr(claim.title)}"
    if not claim.label:
        yield f"{name} has no :label:."
    if claim.kind in PROVED_KINDS:
        if claim.origin is None:
            yield f"{name} needs exactly one :class: of {ORIGINS}; it has {claim.classes or 'none'}."
        if claim.label and not claim.checks:
            yield f"{name} has no code cell tagged {CHECKS}{claim.label}."


def telling_line(code):
    """The line that stands for a cell: its first assertion, else its first that is no import or comment.

    ``same`` and ``close`` are the names under which some pages know ``torch.testing.assert_close``.
    """
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    asserting = [line for line in lines if re.match(r"assert |.*\bassert_(all)?close\(|(same|close)\(", line)]
    saying = [line for line in lines if not line.startswith(("#", "import ", "from ", "%"))]
    return (asserting or saying or lines or [""])[0]


def guards(root):
    """(label, test) for every ``pytest.mark.guards("label", …)``; the test files are read, not imported."""
    for path in test_files(root):
        where = path.relative_to(root).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                guarded = [(f"{where}::{node.name}", mark) for mark in node.decorator_list]
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                guarded = [(where, mark) for mark in ast.walk(node.value)]
            else:
                guarded = []
            for test, mark in guarded:
                if isinstance(mark, ast.Call) and getattr(mark.func, "attr", "") == GUARDS:
                    yield from ((label.value, test) for label in mark.args)


def test_files(root):
    return sorted((root / "tests").rglob("test_*.py"))


def files_read(root, docnames):
    """Files on which the index depends."""
    return [root / SENTENCES, *(page_file(root, name) for name in docnames), *test_files(root)]
