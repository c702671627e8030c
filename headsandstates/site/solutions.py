"""The directive ``{solutions-index}``, and an anchor on every solution.

Exercises, solutions and the names of graders are read from the sources, as the claims are; nothing is run.
"""

import re
from dataclasses import dataclass

from docutils import nodes

from headsandstates.site import lists
from headsandstates.site.page import page_file, read_pages

SOLUTION = "solution-"

_STARS = re.compile(r"(?P<stars>★{1,3}) (?P<title>.+)")
_CHECK = re.compile(r"""\bcheck\(\s*["'](?P<name>[a-z0-9/-]+)["']""")
_GRADER = re.compile(r"""^@grader\(\s*["'](?P<name>[^"']+)["']""", re.M)


@dataclass
class Exercise:
    """One exercise, as its text and its solution describe it."""

    title: str
    label: str
    docname: str
    stars: int = 0
    solutions: int = 0
    grader: str = ""  # the name in the exercise's text
    graded: str = ""  # the name in the solution's code


def collect(root, docnames=None):
    """(exercises, problems): every exercise in the order of the book; one sentence for each thing wrong."""
    exercises, problems = [], []
    for page in read_pages(root, docnames):
        solving = None  # the exercise that is being solved
        for cell in page.cells:
            if cell.kind == "code" and solving and _CHECK.search(cell.text):
                solving.graded = _CHECK.search(cell.text)["name"]
            for directive in cell.directives:
                title = directive.title
                if directive.name == "exercise":
                    exercises.append(_exercise(directive, page.docname))
                elif directive.name == "solution-start":
                    solving = next((each for each in exercises if each.label == title), None)
                    if solving:
                        solving.solutions += 1
                    else:
                        problems.append(f"{page.docname}: a solution of {title!r}, which is no exercise.")
                elif directive.name == "solution-end":
                    solving = None
    return exercises, problems + list(_problems(exercises, graders(root)))


def _exercise(directive, docname):
    stars, check = _STARS.fullmatch(directive.title), _CHECK.search(directive.text)
    words, count = (stars["title"], len(stars["stars"])) if stars else (directive.title, 0)
    label, grader = directive.options.get("label", ""), check["name"] if check else ""
    return Exercise(words, label, docname, count, grader=grader)


def graders(root):
    """The names under which the chapters register graders; the files are read, not imported."""
    return {
        match["name"] for path in grader_files(root) for match in _GRADER.finditer(path.read_text("utf-8"))
    }


def grader_files(root):
    return sorted((root / "headsandstates/chapters").glob("*/graders.py"))


def _problems(exercises, registered):
    labels, used = [exercise.label for exercise in exercises], set()
    for exercise in exercises:
        name = f"{exercise.docname}: exercise {exercise.label or repr(exercise.title)}"
        used.add(exercise.grader)
        if not exercise.label or labels.count(exercise.label) > 1:
            yield f"{name} needs a :label: of its own."
        if not exercise.stars:
            yield f"{name} needs one to three stars in front of its title."
        if exercise.solutions != 1:
            yield f"{name} has {exercise.solutions} solutions, not one."
        if exercise.stars == 2 and not exercise.grader:
            yield f'{name} has two stars and names no grader, check("…").'
        if exercise.grader != exercise.graded:
            yield f"{name} names the grader {exercise.grader!r}, its solution runs {exercise.graded!r}."
        if exercise.grader and exercise.grader not in registered:
            yield f"{name} names {exercise.grader!r}, which is no grader."
    for name in sorted(registered - used):
        yield f"the grader {name!r} belongs to no exercise."


class SolutionsIndex(lists.Index):
    """Every exercise of the book: its stars, its place, its solution and its grader."""

    def run(self):
        self.made_of([page_file(self.root, page) for page in self.chapters] + grader_files(self.root))
        exercises, problems = collect(self.root, self.chapters)
        self.warn(problems, "solutions")
        return self.shown("solutions", exercises=exercises)


def anchor_solutions(app, doctree):
    """Give each solution an id that its exercise's label makes: the built-in one is a running number."""
    for node in doctree.findall(lambda node: isinstance(node, nodes.Element) and "target_label" in node):
        node["ids"].append(SOLUTION + node["target_label"])
