"""Every statement of the book, the cells that check it and the tests that guard it, read from the sources."""

import ast
import re
from collections import Counter
from dataclasses import dataclass, field

import yaml

from headsandstates.site.page import page_file, read_pages

PROVED_KINDS = ("theorem", "lemma", "proposition", "corollary")
KINDS = ("definition", *PROVED_KINDS)
ORIGINS = ("paper", "ours", "known")
CHECKS = "checks-"
PROOF_OF = "proof-of-"
GUARDS = "guards"
SENTENCES = "chapters/statements.yml"

_REFERENCE = re.compile(r"\{(prf:ref|eq)\}`(?:[^<`]*<)?([^`>]+)>?`")
_EQUATION = re.compile(r"\$\$ \((eq-[a-z0-9-]+)\)")


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
    prior: str = ""  # the nearest earlier result
    new: str = ""  # what the book adds to it
    equations: list = field(default_factory=list)  # their labels
    named: set = field(default_factory=set)  # the labels of statements and equations that its proof names

    @property
    def depth(self):
        """ "core" on a main page, "deeper" on a companion page, "refresher" in the appendix."""
        if self.docname.startswith("chapters/appendix/"):
            return "refresher"
        return "deeper" if self.docname.endswith("-deeper") else "core"

    @property
    def guarding(self):
        """{file: number of its tests that guard the statement}."""
        return Counter(test.partition("::")[0].removeprefix("tests/") for test in self.guards)

    @property
    def origin(self):
        """ "paper", "ours" or "known", or None if the statement names none of them or two."""
        named = [name for name in ORIGINS if name in self.classes]
        return named[0] if len(named) == 1 else None


def collect(root, docnames=None):
    """(claims, problems): every claim with its checks and guards; one sentence for each thing that is wrong.

    ``docnames`` are the pages to read, in the order of the book; None means all under ``chapters/``.
    """
    claims, checks, problems = [], {}, []
    for page in read_pages(root, docnames):
        for directive in page.directives:
            _read(directive, page.docname, claims)
        for number, cell in enumerate(page.code, start=1):
            for tag in cell.tags:
                if tag.startswith(CHECKS):
                    check = Check(page.docname, number, telling_line(cell.text))
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
    for label, said in _said(root).items():
        if label in by_label:
            by_label[label].plain, by_label[label].prior, by_label[label].new = said
        elif docnames is None:  # the pages of one part do not know the others
            problems.append(f"{SENTENCES}: {label} names no statement.")
    return claims, problems + [problem for claim in claims for problem in _problems(claim)]


def sentences(root):
    """The plain sentence of each label; none where the book has no file of them."""
    return {label: plain for label, (plain, *_) in _said(root).items()}


def _said(root):
    """{label: (plain sentence, nearest earlier result, what is new)}; the last two may be empty."""
    path = root / SENTENCES
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    full = {label: said if isinstance(said, dict) else {"says": said} for label, said in entries.items()}
    return {label: (said["says"], said.get("prior", ""), said.get("new", "")) for label, said in full.items()}


def _read(directive, docname, claims):
    kind, classes = directive.name.removeprefix("prf:"), directive.options.get("class", "").split()
    if kind in KINDS:
        label, equations = directive.options.get("label", ""), _EQUATION.findall(directive.text)
        claims.append(Claim(kind, directive.title, label, classes, docname, equations=equations))
    elif kind == "proof":
        # A proof is of the statement it names (:class: proof-of-<label>), else of the last before it.
        names = {name.removeprefix(PROOF_OF) for name in classes}
        owners = [claim for claim in claims if claim.label in names]
        for claim in owners or [claim for claim in claims if claim.docname == docname][-1:]:
            claim.proved = True
            claim.named |= {label for _, label in _REFERENCE.findall(directive.text)}


def arrows(claims):
    """{(source, target)}: the proof of the target names the source or its equation; no definition is one."""
    sources = {claim.label: claim.label for claim in claims if claim.kind in PROVED_KINDS}
    sources |= {label: claim.label for claim in claims for label in claim.equations if claim.label in sources}
    return {
        (sources[name], claim.label)
        for claim in claims
        for name in claim.named
        if sources.get(name, claim.label) != claim.label
    }


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
