"""A number in the prose comes from a cell of its page, or ``numbers.yml`` beside this file says from where.

What is looked at: numbers of three or more digits that count, percentages, and "k of n". A cell knows a
number if it prints it, says it in an alternative text, or has it in its code as a setting.
"""

import math
import re
from bisect import bisect_left
from pathlib import Path

import pytest
import yaml

from headsandstates.site.lectures import HEADS
from headsandstates.site.page import Cell, Page, read_page, read_pages

ROOT = Path(__file__).resolve().parents[2]
TABLE = "tests/book/numbers.yml"
EXCEPTIONS, PROMISES = yaml.safe_load((ROOT / TABLE).read_text(encoding="utf-8")).values()
LATER = "to be bound when the page is rewritten"
QUOTING = {"chapters/appendix/errata"}  # what an earlier version said
UP = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
TENS = r"(?:\s*(?:×|\\times|\\cdot)\s*10(?:\^\{?(-?\d+)\}?|([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)))?"
SCALES = {" million": 6, " billion": 9}
DIGITS = r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
# Not inside a name, an index or a version: Mamba-130m, x_100, 0.2.0.
ALONE = rf"(?<![\w.,^_])(?<![A-Za-z]-){DIGITS}(?![\w^]|[.,]\d)"
IN_PROSE = re.compile(rf"{ALONE}{TENS}(\s*\\?%| percent)?( [mb]illion)?")
IN_CELLS = re.compile(rf"{DIGITS}(?:e([+-]?\d+))?|(\.\d+)")
PLAIN = r"\s*[−-]?[\d.,]+\s*"
SHARE = re.compile(r"(?<![\w.,])(\d+) (?:out )?of (?:the |all )?(\d+)(?![\w]|[.,]\d)")


def numbers(text):
    """(as written, value, half of its last digit) of every number in the prose that needs a source."""
    text = text.replace("{,}", ",").replace(r"\,", " ")
    for found in IN_PROSE.finditer(text):
        written, power, superscript, percent, scale = found.groups()
        digits = written.replace(",", "")
        exponent = int(power or (superscript or "0").translate(UP)) + SCALES.get(scale, 0)
        decimals = len(digits.partition(".")[2])
        counting = digits.replace(".", "").lstrip("0") if decimals else digits.strip("0")
        year = not decimals and 1900 < int(digits) < 2100 and "," not in written
        size = not decimals and int(digits) & (int(digits) - 1) == 0  # a power of two is chosen, not measured
        arxiv = re.fullmatch(r"\d{4}\.\d{5}", written)
        if percent or (len(counting) > 2 and not (year or size or arxiv)):
            yield found[0].strip(), float(digits) * 10.0**exponent, 0.51 * 10.0 ** (exponent - decimals)


def values(text):
    """The numbers in what a cell prints or runs."""
    text = re.sub(r"\s*×\s*10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda power: "e" + power[1].translate(UP), text)
    return {float((n or dot).replace(",", "") + f"e{e or 0}") for n, e, dot in IN_CELLS.findall(text)}


def worked(text):
    """What the arithmetic in a text comes to, and the numbers in its equations that hold."""
    results, shown = set(), set()
    for formula in re.findall(r"\$([^$]+)\$", text.replace("{,}", ",").replace(r"\,", " ")):
        sides = [(side, _value(side)) for side in re.split(r"=|\\approx|,\s(?!\d)|\s[a-z]+\s", formula)]
        results |= {value for side, value in sides if value is not None and not re.fullmatch(PLAIN, side)}
        for (one, first), (other, second) in zip(sides, sides[1:], strict=False):
            least = min((half for side in (one, other) for _, _, half in numbers(side)), default=0)
            if None not in (first, second) and abs(first - second) <= max(least, 1e-9 * abs(first)):
                shown |= {value for side in (one, other) for _, value, _ in numbers(side)}
    return results | shown


def _value(tex):
    """What a side of an equation comes to, if it is made of numbers alone."""
    code = re.sub(r"(?<=\d),(?=\d{3})", "", tex)
    for _ in range(2):  # a fraction may stand in a fraction
        code = re.sub(r"\\[td]?frac\s*(\d|\{[^{}]*\})\s*(\d|\{[^{}]*\})", r"((\1)/(\2))", code)
    code = re.sub(r"\\sqrt\s*(\d|\{[^{}]*\})", r"sqrt(\1)", code)
    code = re.sub(r"\\log\s*([\d.]+|\(\([^()]*\)/\([^()]*\)\))", r"log(\1)", code)
    code = re.sub(r"\be\^", "exp(1)^", code)
    for old, new in ((r"\cdot", "*"), (r"\times", "*"), ("^", "**"), ("{", "("), ("}", ")"), ("−", "-")):
        code = code.replace(old, new)
    if not re.fullmatch(r"(?:[\d.+\-*/() ]|sqrt|log|exp)+", code.strip()) or re.search(r"[\d)] *\(", code):
        return None
    try:
        return float(eval(code.strip(), {"sqrt": math.sqrt, "log": math.log, "exp": math.exp}))
    except (SyntaxError, TypeError, ArithmeticError, ValueError):
        return None


def near(value, half, known):
    place = bisect_left(known, value - half)
    return place < len(known) and known[place] <= value + half


def bound(written, value, half, known):
    """A percentage may be known as a part of one."""
    return near(value, half, known) or ("%" in written and near(value / 100, half / 100, known))


def sources(page):
    text = f"{page.printed}\n" + "\n".join(cell.text for cell in page.code)
    return sorted(values(text).union(*map(worked, page.said)))


def unbound(page, *others):
    """The numbers and shares of a page that no cell of it, or of the other pages, knows."""
    known, printed = sorted({value for one in (page, *others) for value in sources(one)}), page.printed
    for text in page.said:
        yield from (one[0] for one in numbers(text) if not bound(*one, known))
        for share in SHARE.finditer(text):
            if not re.search(rf"(?<!\d){share[1]}\s*(?:of|/)\s*(?:the )?{share[2]}(?!\d)", printed):
                yield share[0]


def labels(page):
    names = {cell.figure.get("name") for cell in page.code}
    return {one.options.get("label") for one in page.directives} | names


@pytest.fixture(scope="module")
def pages():
    """{name: (page, the pages that it shows)}: the book, its lectures, and the README."""
    book = {page.docname: page for page in read_pages(ROOT)}
    found = {name: (page, []) for name, page in book.items() if name not in QUOTING}
    for path in [ROOT / "README.md", *(ROOT / "chapters/lectures").glob("*.md")]:
        name, text = path.relative_to(ROOT).with_suffix("").as_posix(), path.read_text(encoding="utf-8")
        page = Page(name, [Cell("markdown", text)])
        shown = {one.title.partition(" ")[0] for one in page.directives if one.name == "show"}
        shown |= {HEADS for one in page.directives if one.name == "swap"}
        found[page.docname] = page, [other for other in book.values() if shown & labels(other)]
    return found


def test_every_number_in_the_prose_has_a_source(pages):
    for name, (page, shown) in pages.items():
        found, entries = set(unbound(page, *shown)), EXCEPTIONS.get(name, {})
        new, old = sorted(found - set(entries)), sorted(set(entries) - found)
        assert not new, f"{name}: let a cell print {new}, or say in {TABLE} where it comes from."
        assert not old, f"{TABLE}: {name} has a source for {old} now; take the entry out."
        summary = "\n".join(one.text for one in page.directives if "takeaway" in one.options.get("class", ""))
        for written, reason in entries.items():
            kind, _, source = reason.partition(" ")
            known = sorted(values(read_page(ROOT, source.split()[-1]).printed) if kind == "printed" else ())
            known = [_value(source)] if kind == "=" else known
            if known:
                fits = all(bound(*one, known) for one in numbers(written))
                assert fits, f"{TABLE}: {written} of {name} is not {reason}"
            late = reason == LATER and (name == "README" or written in summary)
            assert not late, f"{name}: {written} is in the summary and needs its source now."
    assert set(EXCEPTIONS) <= set(pages)


@pytest.mark.parametrize(("name", "words", "source", "number"), PROMISES)
def test_what_one_page_promises_is_printed_on_another(pages, name, words, source, number):
    assert words in re.sub(r"\s+", " ", pages[name][0].prose).replace("**", "")
    assert re.search(number, pages[source][0].printed)
