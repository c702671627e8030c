"""The questions of the decks that have choices, as quizzes for a learning platform.

``text2qti`` (https://pypi.org/project/text2qti) makes a QTI package for Canvas of the one form; the other,
GIFT, is what Moodle imports.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass

from headsandstates.site.lectures import LectureError, Reader, lectures

ASKED = re.compile(r"^(:{3,})\{ask\}\n(.*?)\n^\1$.*?^(:{3,})\{answer\}\n(.*?)\n^\3$", re.S | re.M)
HIDDEN = re.compile(r"^(:{3,})\{(?:notes|show|statement|run|step)\}.*?^\1$|^[%|#][^\n]*$", re.S | re.M)


@dataclass
class Question:
    text: str  # Markdown
    choices: list
    right: int  # the place of the right choice
    why: str


def questions(lecture):
    """Every question of a lecture whose last line has choices; bold words of the answer name the right one.

    Raises LectureError where they name none.
    """
    found = []
    for slide in lecture.slides:
        asked = ASKED.search(slide.text)
        *text, last = asked[2].strip().split("\n\n") if asked else ("",)
        choices = last.split(" · ")
        if len(choices) == 1:
            continue
        said = re.search(r"\*\*(.+?)\*\*", asked[4])
        names = [_plain(choice) for choice in choices]
        if not said or _plain(said[1]) not in names:
            raise LectureError(
                f"{lecture.name}: the answer on {slide.title!r} begins with none of its choices in bold"
            )
        before = HIDDEN.sub("", slide.text[: asked.start()]).split("\n\n")
        text = "\n\n".join(part.strip() for part in [*before, *text] if part.strip())
        found.append(Question(text, choices, names.index(_plain(said[1])), asked[4].strip()))
    return found


def _plain(words):
    return words.strip().strip(".").lower()


def text2qti(lecture):
    """The quiz of a lecture as ``text2qti`` reads it: a star at the right choice, the reason as feedback."""
    lines = [f"Quiz title: {lecture.title}", f"Quiz description: {lecture.audience}", ""]
    for number, question in enumerate(questions(lecture), 1):
        lines += [_indented(f"{number}.", question.text), _indented("...", question.why)]
        for i, choice in enumerate(question.choices):
            lines.append(f"{'*' if i == question.right else ''}{'abcdefgh'[i]}) {choice}")
        lines.append("")
    return "\n".join(lines)


def _indented(mark, text):
    """A paragraph after its mark; text2qti knows the lines that belong to it by their indent."""
    return re.sub(r"\n(?=[^\n])", "\n    ", f"{mark:<4}{_one_line(text)}")


def _one_line(text):
    """Put display formulas in line: text2qti has no others."""
    return re.sub(r"\$\$(.*?)\$\$", lambda found: f"${' '.join(found[1].split())}$", text, flags=re.S)


def gift(lecture):
    """The quiz of a lecture in Moodle's GIFT."""
    reader, written = Reader(), [f"// {lecture.title}"]

    def said(words):
        return re.sub(r"([~=#{}:\\])", r"\\\1", reader.parser.render(words).strip().replace("\n", " "))

    for number, question in enumerate(questions(lecture), 1):
        choices = [
            f"{'=' if i == question.right else '~'}{said(choice)}"
            for i, choice in enumerate(question.choices)
        ]
        written.append(
            f"::{lecture.name} {number}::[html]{said(question.text)} {{\n"
            + "\n".join(choices)
            + f"\n####{said(question.why)}\n}}"
        )
    return "\n\n".join(written) + "\n"


def write(root, folder):
    """Write each lecture's quiz in both forms, and where text2qti is installed its QTI package."""
    folder.mkdir(parents=True, exist_ok=True)
    for lecture in lectures(root):
        source = folder / f"{lecture.name}.txt"
        source.write_text(text2qti(lecture), encoding="utf-8")
        (folder / f"{lecture.name}.gift").write_text(gift(lecture), encoding="utf-8")
        if command := shutil.which("text2qti"):
            subprocess.run([command, source.name], cwd=folder, check=True, capture_output=True)
